"""Waiting until something was published, by this process or by another."""

from __future__ import annotations

import threading  # threads wait here for one another's appends
from collections.abc import Callable

from pylog.clock import Clock

_WAIT_MIN_S = 50e-6
_WAIT_MAX_S = 20e-3
_WAIT_GROWTH = 1.3


class Changes:
    """Those of one log. Safe to share among threads; a forked child makes its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeups = threading.RLock()  # entered by itself: ``with condition:`` is no call into C, see turn.py
        self._condition = threading.Condition(self._wakeups)
        self._waiting = 0

    def notify(self) -> None:
        """Wake waiters of this process: something was published."""
        if self._waiting:
            with self._wakeups:
                self._condition.notify_all()

    def wait(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``ready()`` or until the time is over; whether it was ready.

        Appends of this process wake the wait; those of others are found by asking again after 50 µs, then less and less
        often, at most every 20 ms.
        """
        with self._wakeups:
            return self._wait(ready, self._clock.monotonic() + timeout_s)

    def _wait(self, ready: Callable[[], bool], deadline_s: float) -> bool:
        sleep_s = _WAIT_MIN_S
        self._waiting += 1
        try:
            while not ready():
                left_s = deadline_s - self._clock.monotonic()
                if left_s <= 0:
                    return False
                self._clock.wait(self._condition, min(sleep_s, left_s))
                sleep_s = min(sleep_s * _WAIT_GROWTH, _WAIT_MAX_S)
            return True
        finally:
            self._waiting -= 1
