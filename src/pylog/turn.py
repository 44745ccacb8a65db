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
        except NOT_MINE:        # it was not taken
            pass

The body calls what loops, and has no loop of its own: on the way back to a loop's beginning Python 3.13 runs signal handlers
outside of the ``try``. ``with lock:`` is as safe, but has no timeout. ``with condition:`` and ``with contextlib.suppress``
are not: they are Python.
"""

from __future__ import annotations

import threading  # that threads take turns is what this is about

NOT_MINE = RuntimeError


def is_mine(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock: what a signal handler asks before it takes a lock that it may have interrupted."""
    return lock._is_owned()  # type: ignore[no-any-return, attr-defined]  # what threading.Condition asks of a lock


class Turn:
    """One thread at a time. ``take`` is RLock's ``acquire``, and would let the thread in twice: ask ``is_mine`` first."""

    __slots__ = ("is_mine", "leave", "take")

    def __init__(self) -> None:
        lock = threading.RLock()
        self.take = lock.acquire
        self.leave = lock.release
        self.is_mine = lock._is_owned  # type: ignore[attr-defined]  # what threading.Condition asks of a lock


def seconds_to_wait(timeout_s: float) -> float:
    """A timeout as ``take`` wants it."""
    return min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
