"""A process forks in the middle of a transaction: the transaction is the parent's, and so are the
locks that show it lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pylog import Delivery, Log, Producer
from pylog.errors import ForkedHandle, PylogError
from pylog.group.admin import GroupAdmin
from pylog.model import TopicPartition
from pylog.producer.touched import TouchedPartitions
from tests.processes.sharing import forked, result_of
from tests.processes.test_fork_in_handler import Forking
from tests.storage.filesystems import Faulty, nothing
from tests.transaction.views import TOPIC, Seen, by_read, by_scan

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # producers have a thread
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

SHARE = 3  # of the changes: others with the next seed
PARTITIONS = 3
T0 = TopicPartition(TOPIC, 0)
ALL = {number: ["a", "b"] for number in range(PARTITIONS)}
NONE: Seen = {number: [] for number in range(PARTITIONS)}


@pytest.fixture(autouse=True)
def one_sync_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes have the same numbers each time; and a fork of a handler inside of the pool of
    threads stops Python itself."""
    monkeypatch.setattr(TouchedPartitions.__init__, "__defaults__", (1,))


def opened(directory: Path, filesystem: Faulty | None = None) -> tuple[Log, Producer]:
    """A log that has the topic, and a producer."""
    log = Log(directory, filesystem=filesystem)
    log.create_topic(TOPIC, partitions=PARTITIONS)
    log.manager.part(GroupAdmin).offsets.create_topic()
    producer = Producer(log, transactional_id="app")
    producer.init_transactions()
    return log, producer


def send(producer: Producer, name: str) -> None:
    """To all partitions. The records are in the log on return."""
    for number in range(PARTITIONS):
        producer.send(TOPIC, name.encode(), partition=number)
    producer.flush()


def transact(producer: Producer) -> None:
    producer.begin_transaction()
    send(producer, "a")
    send(producer, "b")
    producer.send_offsets_to_transaction({T0: 0}, "g")
    producer.commit_transaction()


def seen(directory: Path, *, read_only: bool) -> tuple[Seen, bool]:
    """What a new process finds at once: the records, and whether the offset is committed."""
    starts = dict.fromkeys(range(PARTITIONS), 0)
    with Log(directory, read_only=read_only) as log:
        found = by_read(log, starts)
        assert by_scan(log, starts) == found
        return found, bool(log.manager.part(GroupAdmin).committed("g"))


def refusal_of(call: Callable[[], object]) -> str:
    try:
        call()
    except PylogError as error:
        return type(error).__name__
    return ""


def test_a_child_can_do_nothing_in_its_parents_transaction(tmp_log_dir: Path) -> None:
    """Nor does its end, or what it closes, abort it."""
    log, producer = opened(tmp_log_dir)
    producer.begin_transaction()
    send(producer, "a")

    def child() -> list[str]:
        calls = {
            "send": lambda: producer.send(TOPIC, b"child", partition=0),
            "offsets": lambda: producer.send_offsets_to_transaction({T0: 1}, "g"),
            "commit": producer.commit_transaction,
            "abort": producer.abort_transaction,
            "begin": producer.begin_transaction,
            "init": producer.init_transactions,
        }
        refusals = [refusal_of(call) for call in calls.values()]
        producer.close()
        log.close()
        return refusals

    assert result_of(forked(child)) == [ForkedHandle.__name__] * 6
    assert seen(tmp_log_dir, read_only=False) == (NONE, False)  # it is alive
    send(producer, "b")
    producer.commit_transaction()
    producer.close()
    assert seen(tmp_log_dir, read_only=True) == (ALL, False)


@pytest.mark.parametrize("end", [Producer.commit_transaction, Producer.abort_transaction])
@pytest.mark.parametrize("partitions", [1, PARTITIONS], ids=["one batch", "several"])
def test_a_child_that_a_callback_forks_in_the_end_of_a_transaction_has_none(
    tmp_log_dir: Path, partitions: int, end: Callable[[Producer], None]
) -> None:
    _, producer = opened(tmp_log_dir)
    producer.begin_transaction()
    child: list[int] = []

    def fork(_: Delivery) -> None:
        if not child:
            child.append(os.fork())

    for delivery in [producer.send(TOPIC, b"a", partition=number) for number in range(partitions)]:
        delivery.add_done_callback(fork)
    refusals: list[str] = []
    try:
        refusals += [refusal_of(partial(end, producer)), refusal_of(producer.begin_transaction)]
    finally:
        if child == [0]:
            os._exit(refusals != [ForkedHandle.__name__] * 2)
    _, status = os.waitpid(child[0], 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert refusals == ["", ""]
    producer.commit_transaction()


def test_a_child_may_open_a_producer_of_its_own_in_its_parents_transaction(tmp_log_dir: Path) -> None:
    _, producer = opened(tmp_log_dir)
    producer.begin_transaction()
    send(producer, "a")

    def child() -> None:
        with Log(tmp_log_dir) as log, Producer(log, transactional_id="child") as own:
            own.init_transactions()
            with own.transaction():
                send(own, "child")

    result_of(forked(child))
    send(producer, "b")
    producer.commit_transaction()
    producer.close()
    found, _ = seen(tmp_log_dir, read_only=True)
    assert found == {number: ["a", "child", "b"] for number in range(PARTITIONS)}


# The parent dies, and the child lives on


def lives_on() -> None:
    signal.alarm(60)  # whatever becomes of the test
    while True:
        signal.pause()


def dies_in(directory: Path, number: int, pipe: int) -> None:
    """Fork before the change with this number, tell the child's id, and die there. The child lives
    on."""
    filesystem = Faulty()
    _, producer = opened(directory, filesystem)
    left = number

    def hook(operation: str, _: str) -> None:
        nonlocal left
        left -= operation in ("open", "pwrite", "truncate", "sync", "remove", "wrote")
        if left == 0:
            left = -1
            child = os.fork()
            if child == 0:
                os.close(pipe)
                lives_on()
            os.write(pipe, b"%d" % child)
            os.kill(os.getpid(), signal.SIGKILL)

    filesystem.hook = hook
    transact(producer)
    filesystem.hook = nothing


def orphan_of(directory: Path, number: int) -> int:
    """The child of a parent that is dead; 0 if it came to its end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            dies_in(directory, number, writing)
        except BaseException:  # noqa: BLE001  (a child tells what failed and ends, whatever it was)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    told = os.read(reading, 20)
    assert not os.read(reading, 1)  # the child runs: what a fork calls in it has given up its parent's locks
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if told else 0)
    return int(told or 0)


@pytest.mark.slow
def test_nothing_is_hidden_by_a_child_that_outlives_a_parent_which_dies_anywhere_in_a_transaction(
    tmpfs_dir: Path, seed: int
) -> None:
    """Readers with and without permission to write ask at once, and never wait. An append finds
    every lock free."""
    number, found = 1 + seed % SHARE, set()
    while child := orphan_of(tmpfs_dir / f"{number}", number):
        directory = tmpfs_dir / f"{number}"
        try:
            first = seen(directory, read_only=True)
            assert first in ((ALL, True), (NONE, False)), f"change {number}"
            assert seen(directory, read_only=False) == first, f"change {number}"
            with Log(directory) as log, Producer(log, transactional_id="app") as later:
                later.init_transactions()
                with later.transaction():
                    send(later, "later")
            after = {partition: [*values, "later"] for partition, values in first[0].items()}
            assert seen(directory, read_only=True) == (after, first[1]), f"change {number}"
            found.add(first[1])
        finally:
            os.kill(child, signal.SIGKILL)
        number += SHARE
    assert number > 50
    assert found == {True, False}


def test_a_program_that_a_parent_has_started_in_a_transaction_hides_nothing_after_its_death(tmp_log_dir: Path) -> None:
    """It inherits what is not closed at its start: no descriptor of a lock is among that."""

    def parent() -> int:
        _, producer = opened(tmp_log_dir)
        producer.begin_transaction()
        send(producer, "a")
        return subprocess.Popen(["sleep", "60"], close_fds=False).pid

    child = result_of(forked(parent))
    try:
        assert seen(tmp_log_dir, read_only=True) == seen(tmp_log_dir, read_only=False) == (NONE, False)
        with Log(tmp_log_dir) as log:
            with Producer(log) as plain:
                send(plain, "b")
            assert by_read(log, {0: 0, 1: 0, 2: 0}) == {number: ["b"] for number in range(PARTITIONS)}
    finally:
        os.kill(child, signal.SIGKILL)


# The child returns into its parent's call


def run_with_fork_at(number: int, directory: Path) -> bool:
    """Whether the transaction came to the change with this number."""
    forking, filesystem = Forking(number), Faulty()
    with forking.installed():
        _, producer = opened(directory, filesystem)
        filesystem.hook = forking
        try:
            transact(producer)
        except BaseException as error:
            if forking.child == 0:
                if not isinstance(error, PylogError):
                    traceback.print_exc()
                os._exit(0 if isinstance(error, PylogError) else 2)
            raise
        if forking.child == 0:
            os._exit(0)  # it was told what is so: the transaction is committed
        filesystem.hook = nothing
    if forking.child < 0:
        return False
    os.close(forking.pipe[1])
    _, status = os.waitpid(forking.child, 0)
    os.close(forking.pipe[0])
    assert os.waitstatus_to_exitcode(status) == 0, f"change {number}"
    producer.begin_transaction()
    send(producer, "c")
    producer.commit_transaction()
    producer.close()
    both = {partition: ["a", "b", "c"] for partition in range(PARTITIONS)}
    assert seen(directory, read_only=True) == seen(directory, read_only=False) == (both, True), f"change {number}"
    return True


def test_a_child_that_returns_from_a_handler_into_its_parents_transaction_changes_nothing(
    tmpfs_dir: Path, seed: int
) -> None:
    """It wrote into the state of the id what its parent had written before, over what that has
    written since."""
    number = 1 + seed % SHARE
    while run_with_fork_at(number, tmpfs_dir / f"{number}"):
        number += SHARE
    assert number > 30
