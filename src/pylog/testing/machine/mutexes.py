"""Mutexes that a schedule decides about, so that several threads of one simulated process can be run in every order too.

A real mutex would block the only thread that runs. Within ``simulated_mutexes()`` whatever makes a ``threading.RLock`` gets one
of these: taking it is a step at which others may go first, and waiting for it is virtual.
"""

from __future__ import annotations

import threading  # what is replaced here
from collections.abc import Iterator
from contextlib import contextmanager

from pylog import turn
from pylog.testing.machine.schedule import Schedule

_POLL_S = 1e-6
_POLL_GROWTH = 2.0


class SimulatedRLock:
    """``threading.RLock``, with what ``threading.Condition`` asks of one, for threads of a ``Schedule``."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._owner: int | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As ``threading.RLock.acquire``; ``timeout`` is in virtual seconds."""
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
    """``threading.Lock``: also its holder waits for it, and anybody may release it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As ``threading.Lock.acquire``; ``timeout`` is in virtual seconds."""
        self._schedule.pause()
        if not self._wait(blocking, timeout):
            return False
        self._owner = threading.get_ident()
        return True

    def release(self) -> None:
        self._owner = None


@contextmanager
def simulated_mutexes(schedule: Schedule) -> Iterator[None]:
    """Whatever asks for a ``threading.RLock``, or is made to wait by ``turn.py``, gets simulated ones. For the making of logs."""
    real = threading.RLock, turn.new_lock
    threading.RLock = lambda: SimulatedRLock(schedule)  # type: ignore[assignment, return-value]
    turn.new_lock = lambda: SimulatedLock(schedule)  # type: ignore[assignment, return-value]
    try:
        yield
    finally:
        threading.RLock, turn.new_lock = real
