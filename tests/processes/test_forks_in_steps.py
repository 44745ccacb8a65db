"""A signal handler forks in the middle of a step, and the child returns into its parent's work.

``PYLOG_TEST_FORK_PLACES=100000`` tries every place.
"""

from __future__ import annotations

import os
import re
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pylog
from pylog import Log, ProducerRecord, TopicPartition
from pylog.errors import ForkedHandle, PylogError, StorageError
from pylog.partition.commit_slots import CommitSlots
from pylog.partition.repair.swaps import remove_unfinished
from pylog.partition.verify import verify_partition
from pylog.segment.files import remove_orphans
from pylog.segment.naming import CLEANED, DELETED
from pylog.segment.writer import SegmentWriter
from pylog.storage import FileSystem, OsFileSystem, atomic_file, write_atomically
from tests.consumer.interrupts import interrupt_at
from tests.partition.logs import TP, OwnPartition, everything, log_file, one, open_partition, values_of_topic
from tests.storage.filesystems import OtherBoot

pytestmark = pytest.mark.processes

PLACES = int(os.environ.get("PYLOG_TEST_FORK_PLACES", "25"))
ROOMS = re.compile(re.escape(str(Path(pylog.__file__).parent)))
LONG = "own" * 350


def remove_all_orphans(filesystem: FileSystem, directory: str, check: Callable[[], object]) -> None:
    remove_orphans(filesystem, directory, [], check)


STEPS: dict[str, Callable[[OwnPartition], object]] = {
    "append": lambda partition: partition.append(one("own"), acks="all"),
    "append that rolls": lambda partition: partition.append(one(LONG), acks="all"),
    "roll": lambda partition: partition.log.roll(),
    "sync": lambda partition: partition.log.sync(2),
}


class Fork:
    """Forks at its first call; the child continues when the parent has ended its own work."""

    def __init__(self) -> None:
        self._go_on, self._let_go_on = os.pipe()
        self.child = -1

    def __call__(self) -> None:
        if self.child == -1:
            self.child = os.fork()
            if self.child == 0:
                os.close(self._let_go_on)
                os.read(self._go_on, 1)

    @property
    def is_child(self) -> bool:
        return self.child == 0

    def close(self) -> None:
        os.close(self._let_go_on)
        os.close(self._go_on)

    def end_of_child(self) -> int:
        """The code with which the child ends."""
        self.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def fork_in(step: str, place: int, directory: Path) -> int:
    """Fork at a place of the first change of a handle. The parent ends it and appends, then the
    child continues.

    Returns how many places there are.
    """
    with_two = open_partition(directory, segment_bytes=1024)
    for value in ("a", "b"):
        with_two.append(one(value), acks=1)
    with_two.close()
    partition, fork = open_partition(directory, segment_bytes=1024), Fork()
    code = 1
    try:
        with interrupt_at(place, ROOMS, handler=fork) as passed:
            STEPS[step](partition)
        code = 3
    except PylogError:  # ``ForkedHandle``; ``OutcomeUnknown`` for a sync of the parent's
        if not fork.is_child:
            raise
        code = 3
    finally:
        if fork.is_child:
            try:
                partition.append(one("of the child"), acks="all")
                partition.close()
            except BaseException:
                code = 1
                raise
            finally:
                if code != 3:
                    traceback.print_exc()
                os._exit(code)
    if fork.child == -1:
        fork.close()
        partition.close()
        return passed[0]
    partition.append(one("of the parent"), acks="all")
    assert fork.end_of_child() == 3
    partition.append(one("at last"), acks="all")
    partition.close()
    found = everything(open_partition(directory))
    assert [offset for offset, _ in found] == [*range(len(found))]
    assert list(verify_partition(OsFileSystem(), str(directory), TP)) == []
    counts = Counter(value.decode() for _, value in found)
    # If it was forked before its parent's append had begun, the child makes an append of its own.
    assert counts.pop("own", 0) + counts.pop(LONG, 0) in ((1, 2) if "append" in step else (0,))
    assert counts == dict.fromkeys(("a", "b", "of the parent", "of the child", "at last"), 1)
    return passed[0]


@pytest.mark.parametrize("step", STEPS)
def test_a_child_from_any_place_of_a_step_harms_nothing(step: str, tmp_path: Path, seed: int) -> None:
    places = fork_in(step, -1, tmp_path / "counted")
    for place in Random(seed).sample(range(1, places + 1), min(PLACES, places)):
        print(f"{step}: place {place} of {places}")
        fork_in(step, place, tmp_path / str(place))


def test_a_child_of_a_roll_does_not_cut_what_its_parent_has_appended_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("a"), acks=1)
    fork, cut = Fork(), SegmentWriter.cut

    def forks(self: SegmentWriter, size_bytes: int, next_offset: int) -> None:
        fork()
        cut(self, size_bytes, next_offset)

    monkeypatch.setattr(SegmentWriter, "cut", forks)
    try:
        partition.log.roll()
    except ForkedHandle:
        os._exit(3 if fork.is_child else 1)
    finally:
        if fork.is_child:
            os._exit(1)
    partition.append(one("b"), acks="all")
    assert fork.end_of_child() == 3
    partition.append(one("c"), acks="all")
    assert everything(partition) == everything(open_partition(tmp_path / "t-0")) == [(0, b"a"), (1, b"b"), (2, b"c")]


def forks_after_the_first_rename(monkeypatch: pytest.MonkeyPatch) -> Fork:
    """Of a file that is retired."""
    fork, replace = Fork(), OsFileSystem.replace

    def renames(self: OsFileSystem, old: str, new: str) -> None:
        replace(self, old, new)
        if new.endswith(DELETED):
            fork()

    monkeypatch.setattr(OsFileSystem, "replace", renames)
    return fork


def test_a_late_child_of_a_recovery_takes_away_no_segment_that_its_parent_has_made_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=1024)
    for value in "abcdef":
        partition.append(one(value * 900), acks=1)
    partition.close()
    damaged = bytearray(log_file(directory, 2).read_bytes())
    damaged[500] ^= 1
    log_file(directory, 2).write_bytes(damaged)
    fork = forks_after_the_first_rename(monkeypatch)
    partition = open_partition(directory, OtherBoot(), segment_bytes=1024)
    try:
        partition.append(one("new"), acks="all")
    except ForkedHandle:
        os._exit(3 if fork.is_child else 1)
    finally:
        if fork.is_child:
            os._exit(1)
    for value in "ghijk":
        partition.append(one(value * 900), acks="all")
    expected = everything(partition)
    partition.close()
    assert fork.end_of_child() == 3
    assert everything(open_partition(directory, OtherBoot())) == expected
    assert list(verify_partition(OtherBoot(), str(directory), TP)) == []


def test_a_late_child_of_a_deletion_takes_away_nothing_of_a_topic_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill() -> None:
        log.create_topic("t", segment_bytes=1024)
        for number in range(6):
            log.partition("t", 0).append([ProducerRecord(b"%d" % number * 900)])

    fork = forks_after_the_first_rename(monkeypatch)
    with Log(tmp_path / "log") as log:
        fill()
        try:
            log.delete_records(TopicPartition("t", 0), 5)
        except ForkedHandle:
            os._exit(3 if fork.is_child else 1)
        finally:
            if fork.is_child:
                os._exit(1)
        log.delete_topic("t")
        fill()
        assert fork.end_of_child() == 3
        assert values_of_topic(log, "t") == [b"%d" % number * 900 for number in range(6)]
        assert log.verify().ok


@pytest.mark.parametrize("remove", [remove_unfinished, remove_all_orphans])
def test_a_child_removes_no_more(tmp_path: Path, remove: Callable[..., None]) -> None:
    names = [f"{0:020d}.{kind}{suffix}" for kind in ("index", "timeindex") for suffix in ("", CLEANED)]
    for name in names:
        (tmp_path / name).touch()
    forked = iter([False, True])

    def check() -> None:
        if next(forked):
            raise ForkedHandle("the parent's")

    with pytest.raises(ForkedHandle):
        remove(OsFileSystem(), str(tmp_path), check)
    assert len(list(tmp_path.iterdir())) == len(names) - 1


def test_a_child_of_the_opening_of_a_lock_can_append_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    fork, upgrade = Fork(), CommitSlots.upgrade

    def forks(self: CommitSlots, replace_lock: Callable[[], None]) -> bool:
        is_upgraded = upgrade(self, replace_lock)
        fork()
        return is_upgraded

    monkeypatch.setattr(CommitSlots, "upgrade", forks)
    try:
        partition.append(one("a"), acks=1)
        if fork.is_child:
            os._exit(1)
    except ForkedHandle:
        if fork.is_child:
            os._exit(3 if partition.append(one("b"), acks=1).base_offset == 1 else 1)
    finally:
        if fork.is_child:
            os._exit(2)
    assert fork.end_of_child() == 3
    partition.append(one("c"), acks=1)
    assert everything(partition) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("fails", [False, True])
def test_a_child_of_the_replacement_of_a_file_leaves_it_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    path = str(tmp_path / "file")
    write = atomic_file._write
    parent = os.getpid()

    def forks(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        child = os.fork()
        if child == 0 and fails:
            raise StorageError("it has lost its parent's files")
        if child:
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    ends: list[int] = []
    monkeypatch.setattr(atomic_file, "_write", forks)
    try:
        write_atomically(OsFileSystem(), path, b"new")
    except StorageError:
        os._exit(4 if os.getpid() != parent else 1)
    except ForkedHandle:
        os._exit(3 if os.getpid() != parent else 1)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert ends == [4 if fails else 3]
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
