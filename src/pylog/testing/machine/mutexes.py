"""Mutexes under a schedule, to run the threads of one simulated process in every order too.

A real mutex would block the only running thread. Within ``simulated_mutexes()`` each new
``threading.RLock`` is simulated: before taking it others may run, and waiting for it is virtual.
"""

from __future__ import annotations

import threading  # its RLock is replaced
from collections.abc import Iterator
from contextlib import contextmanager

from pylog import turn
from pylog.testing.machine.schedule import Schedule

_POLL_S = 1e-6
_POLL_GROWTH = 2.0


class SimulatedRLock:
    """``threading.RLock`` for threads of a ``Schedule``; ``threading.Condition`` can use it."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._owner: int | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Like ``threading.RLock.acquire``; ``timeout`` is in virtual seconds."""
        me = threading.get_ident()
        if self._owner != me:
            self._schedule.pause()
            if not self._wait(blocking, timeout):
                return False
            self._owner = me
        self._count += 1
        return True

    def _wait(self, blocking: bool, timeout: float) -> bool:
        poll_s, waited_s = _POLL_S, 0.0
        while self._owner is not None:
            if not blocking or 0 <= timeout <= waited_s:
                return False
            self._schedule.sleep(poll_s)
            waited_s += poll_s
            poll_s *= _POLL_GROWTH
        return True

    def release(self) -> None:
        if self._owner != threading.get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    # For threading.Condition

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()

    def _release_save(self) -> int:
        count, self._count, self._owner = self._count, 0, None
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count


class SimulatedLock(SimulatedRLock):
    """``threading.Lock``: its holder must wait for it too, and any thread may release it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Like ``threading.Lock.acquire``; ``timeout`` is in virtual seconds."""
        self._schedule.pause()
        if not self._wait(blocking, timeout):
            return False
        self._owner = threading.get_ident()
        return True

    def release(self) -> None:
        self._owner = None


@contextmanager
def simulated_mutexes(schedule: Schedule) -> Iterator[None]:
    """Simulate each new ``threading.RLock`` and lock of ``turn.py``. Create logs within it."""
    real = threading.RLock, turn.new_lock
    threading.RLock = lambda: SimulatedRLock(schedule)  # type: ignore[assignment, return-value]
    turn.new_lock = lambda: SimulatedLock(schedule)  # type: ignore[assignment, return-value]
    try:
        yield
    finally:
        threading.RLock, turn.new_lock = real
