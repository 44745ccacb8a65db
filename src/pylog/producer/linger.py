"""The background thread of a process, which writes batches not filled within ``linger_ms``.

It starts with the first batch that has to wait, and sleeps while none does. It holds the senders of
waiting batches, so the records of a producer that was dropped without ``close`` are still written.
At interpreter exit it flushes every sender. If the thread cannot be started (the interpreter is
ending), the caller writes. A forked child starts its own thread when it needs one.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading  # the linger thread itself
from typing import Protocol

from pylog.interrupts import WeakSet, own, start_thread
from pylog.storage import after_fork_in_child
from pylog.turn import is_mine, seconds_to_wait

logger = logging.getLogger("pylog.producer")


class LingeringSender(Protocol):
    """What the linger thread needs of a sender."""

    is_watched: bool

    def flush_due(self) -> float | None:
        """Write what is due. Returns the seconds until the next batch is due, or None."""

    def flush(self, timeout_s: float | None) -> bool:
        """Write everything."""

    def is_waiting(self) -> bool:
        """Whether any batch waits."""


class Linger:
    """Watches senders from their first waiting batch to their last."""

    def __init__(self) -> None:
        self._known: WeakSet[LingeringSender] = WeakSet()
        self._begin()
        after_fork_in_child(self._begin)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        # Released for news. The thread that takes it looks at all senders, so one is enough.
        self._no_news = threading.Lock()
        self._no_news.acquire()
        self._senders: dict[LingeringSender, None] = {}
        self._is_over = False
        self._thread: threading.Thread | None = None

    def know(self, sender: LingeringSender) -> None:
        """Flush ``sender`` at interpreter exit, if it still exists."""
        self._known.add(sender)

    def watch(self, sender: LingeringSender) -> bool:
        """Watch ``sender`` until none of its batches waits. Look at once if it is watched already.

        False at interpreter exit: the caller must then write.
        """
        if is_mine(self._lock):  # in a signal handler that interrupted this method
            return False
        with self._lock:
            if self._is_over or (self._thread is None and not self._start()):
                return False
            sender.is_watched = True
            self._senders[sender] = None
            try:
                self._no_news.release()
            except own(RuntimeError):  # released already
                pass
            return True

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="pylog-linger", daemon=True)
        try:
            start_thread(thread)
        except own(RuntimeError):  # the interpreter is ending
            return False
        self._thread = thread
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:  # its children skip atexit (before Python 3.13), but not this
            multiprocessing.Finalize(None, self.flush_all, exitpriority=0)
        return True

    def _run(self) -> None:
        lock = self._lock
        while True:
            wait_s = self._look()
            if self._lock is not lock:
                return  # a callback forked: the child does not need this thread
            self._no_news.acquire(timeout=-1 if wait_s is None else seconds_to_wait(wait_s))

    def _look(self) -> float | None:
        """Look at every sender once. Returns the seconds until the next batch is due, or None."""
        shortest_s: float | None = None
        for sender in list(self._senders):
            try:
                wait_s = sender.flush_due()
            except Exception:
                logger.exception("lingering batches could not be written; trying again")
                wait_s = 1.0
            if wait_s is None:
                wait_s = self._let_go(sender)
            if wait_s is not None:
                shortest_s = wait_s if shortest_s is None else min(wait_s, shortest_s)
        return shortest_s

    def _let_go(self, sender: LingeringSender) -> float | None:
        """Stop watching, unless a batch arrived since. Its sender was watched and did not call."""
        with self._lock:
            sender.is_watched = False
            if sender.is_waiting() and not self._is_over:
                sender.is_watched = True
                return 0.0
            self._senders.pop(sender, None)
            return None

    def flush_all(self) -> None:
        """Write all waiting batches at interpreter exit. Senders write later batches themselves."""
        with self._lock:
            self._is_over = True
            senders = [*self._senders, *self._known]
            self._senders = {}
        for sender in senders:
            sender.is_watched = False
            try:
                sender.flush(None)
            except Exception:
                logger.exception("records could not be written at exit")


LINGER = Linger()
atexit.register(LINGER.flush_all)
