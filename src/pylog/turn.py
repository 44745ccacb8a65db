"""A lock that a signal handler's exception (Ctrl-C) cannot leave locked, at any bytecode.

CPython runs signal handlers after a call, at the start of a Python function and at jumps, never
between a ``finally`` and the following call into C. So ``leave`` is C's own method, ``take`` is
inside the ``try``, and ``leave`` may find the lock not taken:

    if turn.is_mine():          # called again from inside: by a signal handler, or a callback
        return False
    try:
        if not turn.take(timeout=timeout_s):
            return False
        ...
    finally:
        try:
            turn.leave()
        except own(NOT_MINE):   # it was not taken
            pass

The body calls what loops, but has no loop: on a jump back, Python 3.13 runs signal handlers outside
of the ``try``. ``with turn.lock:`` is as safe, without a timeout. ``with condition:`` and ``with
contextlib.suppress`` are not: they are Python. A method that runs the body would cost two calls and
a closure at each of the five places that one durable append passes.
"""

from __future__ import annotations

import threading  # this file is about threads
from collections.abc import Callable

from pylog.interrupts import own

NOT_MINE = RuntimeError
new_lock = threading.Lock  # one name, for a simulated machine to replace
_WAIT_S_MAX = 0.05


def is_mine(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock. Signal handlers ask this before they take it."""
    return lock._is_owned()  # type: ignore[no-any-return, attr-defined]  # what threading.Condition asks of a lock


class Turn:
    """One thread at a time. ``take`` (``RLock.acquire``) is reentrant: ask ``is_mine`` first.

    ``take(False)`` does not wait. ``take(blocking=False)`` is the same, but twice as slow.
    """

    __slots__ = ("is_mine", "leave", "lock", "take")

    def __init__(self) -> None:
        self.lock = lock = threading.RLock()
        self.take = lock.acquire
        self.leave = lock.release
        self.is_mine = lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition asks of a lock


class Waiters:
    """Threads that wait for another one's work for all of them, woken all at once.

    If each took the lock and passed it on, each wake would cost a thread switch. A wait also times
    out, since a signal handler's exception may interrupt ``wake``.
    """

    def __init__(self) -> None:
        self._new_lock = new_lock
        self.locks: list[threading.Lock] = []  # of the threads that wait; a deque is ten times as large

    def wait(self, look: Callable[[], bool]) -> bool:
        """The result of ``look()``: at once if true, else after a later ``wake``, or a timeout."""
        lock = self._new_lock()
        lock.acquire()
        self.locks.append(lock)  # from here on no wake is missed
        if look():
            return True
        lock.acquire(timeout=_WAIT_S_MAX)
        return look()

    def wake(self) -> None:
        """End all current waits."""
        locks = self.locks
        while locks:
            try:
                locks.pop(0).release()
            except own(IndexError):  # another thread took the last one
                return


class Condition(threading.Condition):
    """One that lets a signal handler's exception pass at any bytecode.

    That of ``threading`` takes a ``ValueError`` for its own, which says that a waiter has gone.
    Only ``notify_all`` wakes. An exception may cost the waiters their wake: give ``wait`` a
    timeout.
    """

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(lock)
        self._waiting: dict[threading.Lock, None] = {}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait with the lock released until ``notify_all``; whether it came in ``timeout`` seconds
        (None: no limit)."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting[waiter] = None
        saved = self._release_save()  # type: ignore[attr-defined]  # what the base class uses, too
        try:
            return waiter.acquire(timeout=-1 if timeout is None else seconds_to_wait(timeout))
        finally:
            self._acquire_restore(saved)  # type: ignore[attr-defined]
            self._waiting.pop(waiter, None)

    def notify_all(self) -> None:
        """End all current waits. The caller holds the lock."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.release()


def seconds_to_wait(timeout_s: float) -> float:
    """A timeout in the range that ``take`` accepts."""
    return min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
