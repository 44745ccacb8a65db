"""A signal handler forks in the midst of an append, and its child returns from the handler into the
append."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.errors import ForkedHandle, PylogError
from pylog.group.admin import GroupAdmin
from pylog.group.lock import read_group
from pylog.partition.partition_log import PartitionLog
from tests.storage.filesystems import Faulty, nothing

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]
CHANGES = {"open", "pwrite", "truncate", "replace", "remove"}


class Forking:
    """A hook that forks before the n-th change; the child goes on when the parent is done with its
    own."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.child = -1
        self.pipe = os.pipe()

    def __call__(self, operation: str, path: str) -> None:
        if operation not in CHANGES:
            return
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGUSR1)

    def handler(self, *_: object) -> None:
        self.child = os.fork()
        if self.child == 0:
            os.close(self.pipe[1])
            os.read(self.pipe[0], 1)  # until the parent closes its end

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = signal.signal(signal.SIGUSR1, self.handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, before)


def append_some(log: Log, acknowledged: dict[int, bytes], first: int, last: int, forking: Forking) -> None:
    partition = log.partition("t", 0)
    for number in range(first, last):
        value = b"%d " % number * 30
        result = partition.append([ProducerRecord(value)], acks="all" if number % 2 else 1)
        if forking.child == 0:
            os._exit(0)  # what it returned into came to an end without it
        acknowledged[result.base_offset] = value


def run_with_fork_at(n: int, directory: Path) -> bool:
    """Whether it came to the n-th change."""
    forking = Forking(n)
    acknowledged: dict[int, bytes] = {}
    filesystem = Faulty()
    with forking.installed():
        log = Log(directory, filesystem=filesystem)
        log.create_topic("t", segment_bytes=1024)
        filesystem.hook = forking
        try:
            append_some(log, acknowledged, 0, 12, forking)
        except BaseException as error:
            if forking.child == 0:
                if not isinstance(error, PylogError):
                    traceback.print_exc()
                os._exit(0 if isinstance(error, PylogError) else 2)
            raise
    if forking.child < 0:
        return False
    os.close(forking.pipe[1])
    _, status = os.waitpid(forking.child, 0)
    os.close(forking.pipe[0])
    assert os.waitstatus_to_exitcode(status) == 0, f"change {n}"
    append_some(log, acknowledged, 12, 16, forking)
    log.close()
    with Log(directory) as again:
        found = {record.offset: record.value for record in again.partition("t", 0).scan()}
    assert found == acknowledged, f"change {n}"
    return True


@pytest.mark.slow
def test_a_child_that_returns_from_a_handler_into_its_parents_append_changes_nothing(tmpfs_dir: Path) -> None:
    n = 1
    while run_with_fork_at(n, tmpfs_dir / f"{n}"):
        n += 1
    print(f"forked at {n - 1} changes")
    assert n > 40


class Member(Consumer):
    """A consumer of the group, which in a forked child ends the process where it returned into its
    parent's call."""

    def __init__(self, log: Log, forking: Forking) -> None:
        super().__init__(log, group_id="g", auto_offset_reset="earliest", max_poll_records=1)
        self._forking = forking

    def do(self, name: str, *arguments: object) -> None:
        try:
            getattr(self, name)(*arguments)
        except BaseException as error:
            if self._forking.child == 0:
                if not isinstance(error, PylogError):
                    traceback.print_exc()
                os._exit(0 if isinstance(error, PylogError) else 2)
            raise
        if self._forking.child == 0:
            os._exit(0)


class ForkingOfGroups(Forking):
    """Forks at steps in the files of groups, and of what they have committed."""

    def __call__(self, operation: str, path: str) -> None:
        if "/groups/" in path or "__consumer_offsets" in path:
            super().__call__(operation, path)


def run_with_fork_in_a_group_at(n: int, directory: Path) -> bool:
    forking = ForkingOfGroups(n)
    filesystem = Faulty()
    with forking.installed():
        log = Log(directory, filesystem=filesystem)
        log.create_topic("t", partitions=2)
        for number in (0, 1):
            log.partition("t", number).append([ProducerRecord(b"v")] * 50)
        filesystem.hook = forking
        one, other = Member(log, forking), Member(log, forking)
        one.do("subscribe", "t")
        for member in (one, one, other, one, other):
            if not member.subscription():
                member.do("subscribe", "t")
            member.do("poll")
            member.do("commit")
        filesystem.hook = nothing
    if forking.child < 0:
        return False
    for _ in range(3):
        for member in (one, other):
            member.poll()
            member.commit()
    third = Member(log, forking)
    third.subscribe("t")
    before = read_group(log.manager.part(GroupAdmin).directory("g"))
    committed = [third.committed(TopicPartition("t", number)) for number in (0, 1)]
    os.close(forking.pipe[1])
    _, status = os.waitpid(forking.child, 0)
    os.close(forking.pipe[0])
    assert os.waitstatus_to_exitcode(status) == 0, f"change {n}"
    after = read_group(log.manager.part(GroupAdmin).directory("g"))
    assert after.generation >= before.generation, f"change {n}"
    assert after.members.keys() >= before.members.keys(), f"change {n}"
    assert [third.committed(TopicPartition("t", number)) for number in (0, 1)] == committed, f"change {n}"
    for member in (one, other, third):
        member.close()
    log.close()
    return True


@pytest.mark.slow
def test_a_child_that_returns_from_a_handler_into_what_its_parent_does_in_a_group_changes_nothing(
    tmpfs_dir: Path,
) -> None:
    """It published a state, or appended a commit, that was older than what its parent had made of
    them since."""
    n = 1
    while run_with_fork_in_a_group_at(n, tmpfs_dir / f"{n}"):
        n += 1
    print(f"forked at {n - 1} changes")
    assert n > 40


@pytest.mark.parametrize("what", ["commit", "append"])
def test_a_child_forked_before_its_parent_has_the_partitions_lock_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    append_batch, children, (go, done) = PartitionLog.append_batch, list[int](), os.pipe()

    def forking(partition: PartitionLog, *batch: Any, **options: Any) -> Any:  # as a handler that runs when it begins
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                os.read(go, 1)
        return append_batch(partition, *batch, **options)

    with Log(tmp_path) as log, Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        log.create_topic("t")
        partition = log.partition("t", 0)
        partition.append([ProducerRecord(b"%d" % number) for number in range(10)])
        consumer.subscribe("t")
        assert len(consumer.poll(5.0, max_records=7)) == 7
        monkeypatch.setattr(PartitionLog, "append_batch", forking)
        try:
            if what == "commit":
                consumer.commit()
            else:
                partition.append([ProducerRecord(b"10")])
        except ForkedHandle:
            if children[0] == 0:
                os._exit(7)
            raise
        finally:
            if children[0] == 0:
                os._exit(1)
        if what == "commit":
            assert len(consumer.poll(5.0)) == 3
            consumer.commit()
        os.write(done, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
        if what == "commit":
            assert consumer.committed(TopicPartition("t", 0)) == 10
        else:
            assert partition.latest_offset == 11
    os.close(go)
    os.close(done)
