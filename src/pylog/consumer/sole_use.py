"""One thread at a time, found out cheaply."""

from __future__ import annotations

import threading  # a lock nobody waits for, to find two threads in one consumer

from pylog.errors import WrongThread


class SoleUse:
    """``with sole_use.begin():`` around every public call; ``WrongThread`` where another call is under way."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def begin(self) -> threading.Lock:
        """The lock to hold for the length of the call.

        The look before the lock is what raises; two threads that pass it at the same instant take turns. In exchange no
        exception, a signal's included, can come between taking the lock and the ``with`` that releases it.
        """
        if self._lock.locked():
            raise WrongThread(
                "this consumer is in the middle of another call: of another thread, or of the one that a deserializer "
                "or signal handler interrupted"
            )
        return self._lock

    def begin_in_child(self) -> bool:
        """In a forked child, where only this thread lives: True if a call was under way in another one."""
        interrupted = self._lock.locked()
        self._lock = threading.Lock()
        return interrupted
