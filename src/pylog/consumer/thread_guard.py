"""One thread at a time, found out cheaply."""

from __future__ import annotations

import threading  # a lock nobody waits for, to find two threads in one consumer
from collections.abc import Iterator
from contextlib import contextmanager

from pylog.errors import WrongThread


class SingleThreadGuard:
    """``with sole_use.begin():`` around every public call; ``WrongThread`` where another call is under way."""

    __slots__ = ("_lent_to", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent_to = (
            -1
        )  # the thread that a callback runs in, which may call what it may call there; void without the lock

    @contextmanager
    def lent(self) -> Iterator[None]:
        """While a callback runs: it is in the midst of a call, and may make others."""
        self._lent_to = threading.get_ident()
        try:
            yield
        finally:
            self._lent_to = -1

    def begin_in_callback(self) -> threading.Lock:
        """As ``begin``, for a call that a callback may make as well."""
        return threading.Lock() if self._is_in_callback() else self.begin()

    def begin(self) -> threading.Lock:
        """The lock to hold for the length of the call.

        The look before the lock is what raises; two threads that pass it at the same instant take turns. In exchange no
        exception, a signal's included, can come between taking the lock and the ``with`` that releases it.
        """
        if self._is_in_callback():
            raise WrongThread(
                "a callback of the group can commit, seek, pause and ask; it can't poll, subscribe, assign or close"
            )
        if self._lock.locked():
            raise WrongThread(
                "this consumer is in the middle of another call: of another thread, or of the one that a deserializer "
                "or signal handler interrupted"
            )
        return self._lock

    def _is_in_callback(self) -> bool:
        """Not where a signal handler's exception has ended the call before it could take back what it had lent."""
        return self._lent_to == threading.get_ident() and self._lock.locked()

    def begin_in_child(self) -> bool:
        """In a forked child, where only this thread lives: True if a call was under way in another one."""
        interrupted = self._lock.locked()
        self._lock, self._lent_to = threading.Lock(), -1
        return interrupted
