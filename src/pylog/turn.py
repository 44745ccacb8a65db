"""Whose turn it is: a lock that a signal handler's exception (Ctrl-C) cannot leave locked, at whatever bytecode it comes.

CPython runs signal handlers behind a call, at the start of a Python function and at jumps, never between a ``finally`` and
the call into C that follows it. So ``leave`` is C's own method, ``take`` stands inside the ``try``, and ``leave`` may find
that it is nobody's turn:

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

The body calls what loops, and has no loop of its own: on the way back to a loop's beginning Python 3.13 runs signal handlers
outside of the ``try``. ``with turn.lock:`` is as safe, but has no timeout. ``with condition:`` and ``with
contextlib.suppress`` are not: they are Python. One method of ``Turn`` that runs the body would cost two calls and a closure
at each of the five places that one durable append passes.
"""

from __future__ import annotations

import threading  # that threads take turns is what this is about
from collections import deque
from collections.abc import Callable

from pylog.interrupts import own

NOT_MINE = RuntimeError
new_lock = threading.Lock  # one name, which a simulated machine replaces while a log is made
_WAIT_S_MAX = 0.05


def is_mine(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock: what a signal handler asks before it takes a lock that it may have interrupted."""
    return lock._is_owned()  # type: ignore[no-any-return, attr-defined]  # what threading.Condition asks of a lock


class Turn:
    """One thread at a time. ``take`` is RLock's ``acquire``, and would let the thread in twice: ask ``is_mine`` first."""

    __slots__ = ("is_mine", "leave", "lock", "take")

    def __init__(self) -> None:
        self.lock = lock = threading.RLock()
        self.take = lock.acquire
        self.leave = lock.release
        self.is_mine = lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition asks of a lock


class Waiters:
    """Threads that wait for what another one is doing for all of them, and that are woken all at once.

    If each took the lock and handed it on, they would wake one behind the other: a switch of threads each. A wait ends by
    itself after a while, since the exception of a signal handler may come before ``wake`` has reached everybody.
    """

    def __init__(self) -> None:
        self._new_lock = new_lock
        self._locks: deque[threading.Lock] = deque()

    def wait(self, look: Callable[[], bool]) -> bool:
        """What ``look()`` says: at once if it is true, else after a ``wake`` that came later than that, or after a while."""
        lock = self._new_lock()
        lock.acquire()
        self._locks.append(lock)  # from here on no wake is missed
        if look():
            return True
        lock.acquire(timeout=_WAIT_S_MAX)
        return look()

    def wake(self) -> None:
        """End the waits there are."""
        locks = self._locks
        while locks:
            try:
                locks.popleft().release()
            except own(IndexError):  # another thread took the last one
                return


def seconds_to_wait(timeout_s: float) -> float:
    """A timeout as ``take`` wants it."""
    return min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
