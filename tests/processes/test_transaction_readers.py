"""Readers of transactions whose owners live, are stopped, or are killed at every step of a commit.

Nobody waits for a dead owner, with or without permission to write; whoever waits for one that is
stopped goes on when it is killed, without any append.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer
from pylog.partition.partition_log import PartitionLog
from pylog.transaction.state import Status
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import Found
from tests.processes.sharing import forked, result_of
from tests.processes.test_other_users import AS_ANOTHER_USER, NOBODY, become
from tests.transaction.views import TOPIC, Seen, consumer_at, seen

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # producers have a thread, and are forked
]

PARTITIONS = 3
LONG_S = 60.0  # nothing waits that long


@pytest.fixture
def root() -> Iterator[Path]:
    """A log that every user may read, below directories that all may pass."""
    with tempfile.TemporaryDirectory(prefix="pylog-") as directory:
        os.chmod(directory, 0o755)
        path = Path(directory) / "log"
        path.mkdir()
        path.chmod(0o755)
        with Log(path) as log:
            log.create_topic(TOPIC, partitions=PARTITIONS)
        yield path


def send(producer: Producer, *names: str) -> None:
    """Each of them to all partitions. They are in the log on return."""
    for name in names:
        for number in range(PARTITIONS):
            producer.send(TOPIC, name.encode(), partition=number)
    producer.flush()


def plain(root: Path, name: str) -> None:
    with Log(root) as log, Producer(log) as producer:
        send(producer, name)


def everywhere(*names: str) -> Seen:
    return {number: list(names) for number in range(PARTITIONS)}


class Owner:
    """A process with a transaction that has written to all partitions. ``go_on`` makes it do the
    rest."""

    def __init__(self, root: Path, rest: Callable[[Producer], object], timeout_ms: int = 10**8) -> None:
        ready, says_ready = os.pipe()
        go, says_go = os.pipe()
        self.is_over = False
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(ready), os.close(says_go)
                producer = Producer(Log(root), transactional_id="app", transaction_timeout_ms=timeout_ms)
                producer.init_transactions()
                producer.begin_transaction()
                send(producer, "one", "two")
                os.write(says_ready, b"!")
                os.read(go, 1)
                rest(producer)
                os.write(says_ready, b"!")
                os.read(go, 1)  # never: it is killed
            except BaseException:  # noqa: BLE001  (a child tells what failed and ends, whatever it was)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        os.close(says_ready), os.close(go)
        self._ready, self._go = ready, says_go
        assert os.read(ready, 1)

    def go_on(self) -> None:
        """On return it has done the rest, or is dead."""
        os.write(self._go, b"!")
        os.read(self._ready, 1)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:
            os.waitpid(self.pid, os.WUNTRACED)

    def kill(self) -> None:
        if not self.is_over:
            self.is_over = True
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self._ready), os.close(self._go)


@contextmanager
def owner_of(root: Path, rest: Callable[[Producer], object] = bool, **options: Any) -> Iterator[Owner]:
    owner = Owner(root, rest, **options)
    try:
        yield owner
    finally:
        owner.kill()


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_in(where: type, name: str, number: int = 1, *, after: bool = False) -> Callable[[Producer], None]:
    """Commits, and is killed at the call with this number: before what it does, or after."""

    def rest(producer: Producer) -> None:
        original, calls = getattr(where, name), []

        def call(*given: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                if after:
                    original(*given, **options)
                die()
            return original(*given, **options)

        setattr(where, name, call)
        producer.commit_transaction()

    return rest


def dying_at_publication(status: Status) -> Callable[[Producer], None]:
    """Commits, and is killed before it publishes this state."""

    def rest(producer: Producer) -> None:
        original = StateFile.publish

        def publish(self: StateFile, state: Any) -> Any:
            if state.status is status:
                die()
            return original(self, state)

        StateFile.publish = publish
        producer.commit_transaction()

    return rest


def aborting(producer: Producer) -> None:
    PartitionLog.append_marker = die
    producer.abort_transaction()


def as_writer(root: Path) -> Seen:
    with Log(root) as log:
        assert not log.read_only
        return seen(log)


def as_reader(root: Path) -> Seen:
    with Log(root, read_only=True) as log:
        return seen(log)


def as_another_user(root: Path) -> Seen:
    def look() -> Seen:
        become(NOBODY)
        with Log(root) as log:
            assert log.read_only
            return seen(log)

    found: Seen = result_of(forked(look))
    return found


LOOKS = [as_reader, pytest.param(as_another_user, marks=AS_ANOTHER_USER), as_writer]

ENDS: dict[str, tuple[Callable[[Producer], object], bool | None]] = {
    "under way": (bool, False),
    "before the decision is on the disk": (dying_in(Found, "sync"), None),
    "when the decision is on the disk": (dying_in(Found, "sync", after=True), True),
    "before it publishes the decision": (dying_at_publication(Status.PREPARE_COMMIT), True),
    "before the first marker": (dying_in(PartitionLog, "append_marker"), True),
    "before the second marker": (dying_in(PartitionLog, "append_marker", 2), True),
    "after the last marker": (dying_in(PartitionLog, "append_marker", PARTITIONS, after=True), True),
    "before it publishes the end": (dying_at_publication(Status.COMPLETE_COMMIT), True),
    "after the commit": (lambda producer: producer.commit_transaction(), True),
    "before an abort's first marker": (aborting, False),
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.one_in(8)
def test_a_dead_owners_transaction_is_all_or_nothing_for_every_reader_at_once(
    root: Path, end: str, look: Callable[[Path], Seen]
) -> None:
    """Then also for all others, and after the next append; from the decision on it is there."""
    rest, is_committed = ENDS[end]
    with owner_of(root, rest) as owner:
        assert look(root) == everywhere()
        owner.go_on()
        owner.kill()
    found = look(root)
    both = everywhere("one", "two")
    assert found in ([everywhere(), both] if is_committed is None else [both if is_committed else everywhere()])
    assert as_reader(root) == found
    assert as_writer(root) == found
    plain(root, "after")
    after = {number: [*names, "after"] for number, names in found.items()}
    assert look(root) == as_reader(root) == as_writer(root) == after


@pytest.mark.parametrize("look", LOOKS)
def test_a_live_owners_decision_shows_before_its_markers(root: Path, look: Callable[[Path], Seen]) -> None:
    def rest(producer: Producer) -> None:
        def stop(*_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGSTOP)

        PartitionLog.append_marker = stop
        producer.commit_transaction()

    with owner_of(root, rest) as owner:
        os.write(owner._go, b"!")
        os.waitpid(owner.pid, os.WUNTRACED)
        assert look(root) == everywhere("one", "two")


def waiting(root: Path, expected: Seen, *, read_only: bool, user: int | None = None) -> tuple[tuple[int, int], int]:
    """A child that polls until it has these records; and a pipe that says when it has found nothing
    and waits."""
    ready, says_ready = os.pipe()

    def poll() -> Seen:
        os.close(ready)
        if user is not None:
            become(user)
        found: Seen = {number: [] for number in range(PARTITIONS)}
        with Log(root, read_only=read_only) as log, consumer_at(log, dict.fromkeys(range(PARTITIONS), 0)) as consumer:
            assert consumer.poll() == []
            os.write(says_ready, b"!")
            while found != expected:
                records = consumer.poll(LONG_S)
                assert records, "nothing came"
                for record in records:
                    found[record.partition].append(record.value.decode())
            assert consumer.poll() == []
        return found

    child = forked(poll)
    os.close(says_ready)
    assert os.read(ready, 1)
    return child, ready


@pytest.mark.parametrize(
    "how",
    [
        {"read_only": True},
        {"read_only": False},
        pytest.param({"read_only": False, "user": NOBODY}, marks=AS_ANOTHER_USER),
    ],
    ids=["read-only", "writable", "another user"],
)
@pytest.mark.parametrize("is_stopped", [False, True], ids=["lives", "is stopped"])
def test_a_poll_that_waits_for_an_owner_ends_when_it_is_killed(
    root: Path, how: dict[str, Any], is_stopped: bool
) -> None:
    """Nothing is appended after its death: only a second look can show it."""
    with owner_of(root) as owner:
        plain(root, "after")
        if is_stopped:
            owner.signal(signal.SIGSTOP)
        child, ready = waiting(root, everywhere("after"), **how)
        owner.kill()
        assert result_of(child) == everywhere("after")
        os.close(ready)


@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "writable"])
def test_a_poll_sees_a_commit_whose_owner_is_killed_before_any_marker(root: Path, read_only: bool) -> None:
    with owner_of(root, dying_in(PartitionLog, "append_marker")) as owner:
        child, ready = waiting(root, everywhere("one", "two"), read_only=read_only)
        owner.go_on()
        assert result_of(child) == everywhere("one", "two")
        os.close(ready)


def test_an_owner_that_is_stopped_beyond_its_timeout_is_passed_by_who_may_write(root: Path) -> None:
    with owner_of(root, timeout_ms=300) as owner:
        owner.signal(signal.SIGSTOP)
        with Log(root) as log, consumer_at(log, dict.fromkeys(range(PARTITIONS), 0)) as consumer:
            plain(root, "after")
            left = PARTITIONS
            while left:
                records = consumer.poll(LONG_S)
                assert records, "nothing came"
                assert {record.value for record in records} == {b"after"}
                left -= len(records)
        assert as_reader(root) == everywhere("after")
        owner.signal(signal.SIGCONT)
        owner.go_on()
        assert as_reader(root) == as_writer(root) == everywhere("after")
