"""Lets one thread at a time use a consumer, and detects a second one cheaply."""

from __future__ import annotations

import threading  # a lock that no thread waits for, to detect two threads in one consumer
from collections.abc import Iterator
from contextlib import contextmanager

from pylog.errors import WrongThread

_NO_THREAD = -1


class SingleThreadGuard:
    """``with guard.exclusive_call():`` around public calls; ``WrongThread`` during another one."""

    __slots__ = ("_callback_thread", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callback_thread = _NO_THREAD  # the thread in which a callback runs; only valid while the lock is held

    def exclusive_call(self) -> threading.Lock:
        """The lock to hold during a call that a callback may not make.

        Checking the lock is what raises; two threads that check at the same instant take turns. In
        exchange, no exception, not even a signal handler's, can come between taking the lock and
        the ``with`` that releases it.
        """
        if not self._lock.locked():
            return self._lock
        if self._callback_thread == threading.get_ident():
            raise WrongThread(
                "a group's callback may commit, seek, pause and query, but not poll, subscribe, assign or close"
            )
        raise _other_call()

    def call(self) -> threading.Lock:
        """The lock to hold during a call that a callback may also make.

        The lock shows whether the callback's call still runs: a signal handler's exception may have
        ended that call before it cleared the callback's thread.
        """
        if not self._lock.locked():
            return self._lock
        if self._callback_thread == threading.get_ident():
            return threading.Lock()
        raise _other_call()

    @contextmanager
    def callback(self) -> Iterator[None]:
        """While a callback runs, its thread is inside a call and may make others."""
        self._callback_thread = threading.get_ident()
        try:
            yield
        finally:
            self._callback_thread = _NO_THREAD

    def reset_in_child(self) -> bool:
        """In a forked child, which has only this thread: True if another thread was in a call."""
        interrupted = self._lock.locked()
        self._lock, self._callback_thread = threading.Lock(), _NO_THREAD
        return interrupted


def _other_call() -> WrongThread:
    return WrongThread(
        "this consumer is in the middle of another call: of another thread, or of the one that a deserializer "
        "or signal handler interrupted"
    )
