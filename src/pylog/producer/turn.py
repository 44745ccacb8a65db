"""Whose turn it is: a lock that knows its holder.

``leave`` does nothing in a thread whose turn it is not, so it can stand in a ``finally`` around ``take``: an exception of
a signal handler (Ctrl-C) between the two, at any bytecode, leaves nothing locked.

    if turn.is_mine():      # called again from inside, by a signal handler or a callback
        return False
    try:
        if not turn.take(timeout_s):
            return False
        ...
    finally:
        turn.leave()
"""

from __future__ import annotations

import threading  # senders of several threads take turns


class Turn:
    """One thread at a time. Not reentrant: ask ``is_mine`` first."""

    __slots__ = ("_changed", "_holder")

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._holder: int | None = None

    def is_mine(self) -> bool:
        return self._holder == threading.get_ident()

    def is_taken(self) -> bool:
        return self._holder is not None

    def take(self, timeout_s: float) -> bool:
        """Wait until nobody has it, and take it. False if that lasts longer than the time (``inf`` for any)."""
        with self._changed:
            if self._holder is not None and not self._changed.wait_for(
                lambda: self._holder is None, None if timeout_s == float("inf") else timeout_s
            ):
                return False
            self._holder = threading.get_ident()
            return True

    def leave(self) -> None:
        """Let the next one have it, if it is this thread's."""
        if self.is_mine():
            with self._changed:
                self._holder = None
                self._changed.notify()
