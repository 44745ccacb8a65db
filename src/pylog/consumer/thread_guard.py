"""One thread at a time uses a consumer. A second one is found out cheaply."""

from __future__ import annotations

import threading  # a lock nobody waits for, to find two threads in one consumer
from collections.abc import Iterator
from contextlib import contextmanager

from pylog.errors import WrongThread

_NO_THREAD = -1


class SingleThreadGuard:
    """``with guard.exclusive_call():`` around every public call; ``WrongThread`` while another call is under way."""

    __slots__ = ("_callback_thread", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callback_thread = _NO_THREAD  # the thread in which a callback runs; means nothing without the lock

    def exclusive_call(self) -> threading.Lock:
        """The lock to hold during a call that no callback may make.

        The look at the lock is what raises; two threads that look at the same instant take turns. In exchange no
        exception, not even a signal handler's, can come between taking the lock and the ``with`` that releases it.
        """
        if not self._lock.locked():
            return self._lock
        if self._callback_thread == threading.get_ident():
            raise WrongThread(
                "a callback of the group can commit, seek, pause and ask; it can't poll, subscribe, assign or close"
            )
        raise _other_call()

    def call(self) -> threading.Lock:
        """The lock to hold during a call that a callback may make as well.

        The lock tells whether the callback's call still runs: a signal handler's exception may have ended that call
        before it could forget the callback's thread.
        """
        if not self._lock.locked():
            return self._lock
        if self._callback_thread == threading.get_ident():
            return threading.Lock()
        raise _other_call()

    @contextmanager
    def callback(self) -> Iterator[None]:
        """While a callback runs: its thread is in the middle of a call, and may make others."""
        self._callback_thread = threading.get_ident()
        try:
            yield
        finally:
            self._callback_thread = _NO_THREAD

    def reset_in_child(self) -> bool:
        """In a forked child, where only this thread lives: True if a call was under way in another thread."""
        interrupted = self._lock.locked()
        self._lock, self._callback_thread = threading.Lock(), _NO_THREAD
        return interrupted


def _other_call() -> WrongThread:
    return WrongThread(
        "this consumer is in the middle of another call: of another thread, or of the one that a deserializer "
        "or signal handler interrupted"
    )
