"""Waiting for a lock, and giving it back whatever happens."""

from __future__ import annotations

import errno
import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pylog.errors import ForkedHandle, LogLocked
from pylog.log import Log
from pylog.storage import SLEEP_MAX_S, FileLock, OsFileSystem, acquire, while_holding
from tests.partition.logs import ManualClock
from tests.system import fail


def is_free(path: str) -> bool:
    lock = OsFileSystem().lock(path)
    try:
        return lock.try_acquire()
    finally:
        lock.close()


def test_a_lock_is_held_during_the_call_and_free_behind_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert while_holding(OsFileSystem(), ManualClock(), path, lambda: is_free(path)) is False
    assert is_free(path)
    with pytest.raises(ZeroDivisionError):
        while_holding(OsFileSystem(), ManualClock(), path, lambda: 1 // 0)
    assert is_free(path)


def test_a_lock_that_stays_taken_is_an_error_after_the_timeout(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "lock"), ManualClock()
    called: list[str] = []

    def again() -> None:
        while_holding(OsFileSystem(), clock, path, lambda: called.append("twice"), 2)

    with pytest.raises(LogLocked, match="stayed locked for 2 s") as caught:
        while_holding(OsFileSystem(), clock, path, again)
    assert (caught.value.path, caught.value.timeout_s, caught.value.retriable) == (path, 2, True)
    assert clock.seconds == pytest.approx(2.0, abs=0.01)
    assert called == []
    assert is_free(path)


def test_a_lock_that_comes_free_while_waiting_is_taken(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = OsFileSystem().lock(path)
    assert lock.try_acquire()

    class Freeing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.seconds > 1.0:
                lock.release()

    clock = Freeing()
    assert not while_holding(OsFileSystem(), clock, path, lambda: is_free(path))
    assert 1.0 < clock.seconds < 1.1
    lock.close()


class ForkedDuring(OsFileSystem):
    """As if a signal handler had forked after the first look, and this were the child."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def process_id(self) -> int:
        return next(self._numbers)


def test_work_that_fails_in_a_child_forked_meanwhile_is_its_parents(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with pytest.raises(ForkedHandle, match=r"the parent process continues.* full") as caught:
        while_holding(ForkedDuring(), ManualClock(), path, lambda: fail(OSError(errno.ENOSPC, "full")))
    assert caught.value.path == path
    already_said = ForkedHandle("the work noticed itself", path="elsewhere")
    with pytest.raises(ForkedHandle) as caught:
        while_holding(ForkedDuring(), ManualClock(), path, lambda: fail(already_said))
    assert caught.value is already_said
    assert is_free(path)


class Pauses(ManualClock):
    """Notes how long it was slept; ``lock`` is released after ``freed_after_s``."""

    def __init__(self, lock: FileLock, freed_after_s: float) -> None:
        super().__init__()
        self._lock, self._freed_after_s = lock, freed_after_s
        self.all: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.all.append(seconds)
        if self.seconds >= self._freed_after_s:
            self._lock.release()


def test_the_pauses_between_attempts_grow_up_to_the_longest(tmp_path: Path) -> None:
    mine, others = (OsFileSystem().lock(str(tmp_path / "lock")) for _ in range(2))
    assert others.try_acquire()
    clock, beats = Pauses(others, 0.1), []
    assert acquire(mine, clock, 1, lambda: beats.append(clock.seconds))
    assert not others.try_acquire()
    assert clock.all == sorted(clock.all)
    assert (clock.all[0] < SLEEP_MAX_S / 50, clock.all[-1]) == (True, SLEEP_MAX_S)
    assert 0 < len(beats) == clock.all.count(SLEEP_MAX_S) - 1  # the last attempt got the lock
    mine.close()
    others.close()


def test_a_lock_is_tried_once_if_there_is_no_time_to_wait(tmp_path: Path) -> None:
    mine, others = (OsFileSystem().lock(str(tmp_path / "lock")) for _ in range(2))
    clock = Pauses(others, 0.0)
    assert others.try_acquire()
    assert not acquire(mine, clock, 0)
    assert clock.all == []
    others.release()
    assert acquire(mine, clock, 0)
    mine.close()
    others.close()


class Interrupted(BaseException):
    """What a signal handler raises."""


KEPT: list[Interrupted] = []  # their tracebacks keep the frames that were interrupted, as a notebook does


def interrupted_at_call(number: int, operation: Callable[[], object]) -> bool:
    """Raise at the start of the ``number``-th Python function that ``operation`` calls. False where
    it calls fewer."""
    calls = itertools.count()
    raised = False

    def trace(_frame: object, event: str, _argument: object) -> None:
        nonlocal raised
        if event == "call" and next(calls) == number:
            sys.settrace(None)
            raised = True
            raise Interrupted

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        operation()
    except Interrupted as error:
        KEPT[:] = [error]
    finally:
        sys.settrace(before)
    return raised


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a __del__ Python drops it
def test_an_interrupt_that_is_kept_keeps_no_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    for number in itertools.count():
        raised = interrupted_at_call(number, lambda: while_holding(OsFileSystem(), ManualClock(), path, lambda: None))
        assert is_free(path), f"interrupted at call {number}"
        if not raised:
            break
    assert number > 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("operation", ["create", "alter", "grow", "producer id"])
@pytest.mark.one_in(8)
def test_an_interrupted_change_that_is_kept_locks_nobody_out(tmpfs_dir: Path, operation: str) -> None:
    changes: dict[str, Callable[[Log], object]] = {
        "create": lambda log: log.create_topic("new"),
        "alter": lambda log: log.alter_topic("t", segment_ms=1),
        "grow": lambda log: log.add_partitions("t", 2),
        "producer id": lambda log: Log(log.path).manager.next_producer_id(),
    }
    for number in itertools.count():
        root = tmpfs_dir / f"{number}"
        with Log(root) as log:
            log.create_topic("t")
            raised = interrupted_at_call(number, partial(changes[operation], log))
            locks = [*root.rglob("*.lock"), *root.rglob("*.lock.probe"), *root.rglob(".lock")]
            assert all(is_free(str(path)) for path in locks), f"interrupted at call {number}"
            if not raised:
                break
    assert number > 20


@pytest.mark.parametrize("file", [".pylog/catalog.lock", "t-0/.lock"])
def test_a_deletion_waits_for_the_catalogs_lock_and_for_writers(tmp_log_dir: Path, file: str) -> None:
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        log.create_topic("t")
        path = str(tmp_log_dir / file)
        with pytest.raises(LogLocked) as caught:
            while_holding(OsFileSystem(), ManualClock(), path, lambda: log.delete_topic("t"))
        assert caught.value.path == path
        assert log.topics() == ["t"]


def test_producer_ids_wait_for_their_lock(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        path = str(tmp_log_dir / ".pylog" / "producer-ids.lock")
        with pytest.raises(LogLocked) as caught:
            while_holding(OsFileSystem(), ManualClock(), path, log.manager.next_producer_id)
        assert caught.value.path == path
        assert log.manager.next_producer_id() >= 0
