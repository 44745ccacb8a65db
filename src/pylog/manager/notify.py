"""Waits until this process or another one has published something."""

from __future__ import annotations

import threading  # threads wait here for one another's appends
from collections.abc import Callable

from pylog.clock import Clock
from pylog.interrupts import own
from pylog.storage import Watch, after_fork_in_child
from pylog.turn import NOT_MINE, Condition

_WAIT_MIN_S = 50e-6
_WAIT_MAX_S = 20e-3
_WAIT_GROWTH = 1.3
_LOOK_EVERY_S = 0.2  # with a watch: a lost event costs no more than this


class _Sleepers:
    """The threads that wait on a condition."""

    __slots__ = ("condition", "count", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()  # entered directly: ``with condition:`` is not a call into C, see turn.py
        self.condition = Condition(self.lock)
        self.count = 0


class Changes:
    """The changes of one log. Safe to share among threads; a forked child starts empty."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_empty()
        after_fork_in_child(self._start_empty)

    def _start_empty(self) -> None:
        """Also in a forked child, which has none of the parent's waiters. A wait that a signal
        handler forked in ends with the old objects."""
        self._sleepers = _Sleepers()
        self._watches: dict[Watch, None] = {}

    def notify(self) -> None:
        """Wake the waiters of this process: something was published."""
        sleepers = self._sleepers
        if sleepers.count:
            with sleepers.lock:
                sleepers.condition.notify_all()

    def wake(self) -> None:
        """Wake the waiters with a watch as well: something has changed that is not in a file."""
        self.notify()
        for watch in list(self._watches):
            watch.wake()

    def wait(self, ready: Callable[[], bool], timeout_s: float, watch: Watch | None = None) -> bool:
        """Wait until ``ready()`` or the timeout; return whether it was ready.

        A ``watch`` is of all files that ``ready`` reads: it is called when one of them changes.
        Without a watch, appends of this process wake the wait. For those of others, ``ready`` is
        called again after 50 µs, then at growing intervals up to 20 ms.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        if watch is not None and watch.is_open:
            return self._wait_watching(ready, deadline_s, watch)
        sleepers = self._sleepers
        try:
            sleepers.lock.acquire()
            return self._wait(sleepers, ready, deadline_s)
        finally:
            try:  # see turn.py
                sleepers.lock.release()
            except own(NOT_MINE):  # a signal handler's exception came while the condition had released it
                pass

    def _wait_watching(self, ready: Callable[[], bool], deadline_s: float, watch: Watch) -> bool:
        self._watches[watch] = None  # before the first check, so that no wake is missed
        try:
            while not ready():
                left_s = deadline_s - self._clock.monotonic()
                if left_s <= 0:
                    return False
                if not watch.is_open:  # this is a child that a signal handler forked
                    return self.wait(ready, left_s)
                watch.wait(min(left_s, _LOOK_EVERY_S))
            return True
        finally:
            self._watches.pop(watch, None)

    def _wait(self, sleepers: _Sleepers, ready: Callable[[], bool], deadline_s: float) -> bool:
        sleep_s = _WAIT_MIN_S
        sleepers.count += 1
        try:
            while not ready():
                left_s = deadline_s - self._clock.monotonic()
                if left_s <= 0:
                    return False
                self._clock.wait(sleepers.condition, min(sleep_s, left_s))
                sleep_s = min(sleep_s * _WAIT_GROWTH, _WAIT_MAX_S)
            return True
        finally:
            sleepers.count -= 1
