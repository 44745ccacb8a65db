"""The one background thread of a process: it writes batches that were not filled within ``linger_ms``.

It starts with the first batch that has to wait and sleeps while none does. Meanwhile it holds the senders whose batches
wait, so records of a producer that was dropped without ``close`` are written all the same. At the end of the interpreter,
every sender is flushed. A thread that cannot be started (the interpreter is ending) is replaced by the caller.
A forked child has no such thread and no such senders: it starts its own when it needs one.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading  # the linger thread itself
from typing import Protocol

from pylog.interrupts import WeakSet, own
from pylog.storage import after_fork_in_child
from pylog.turn import is_mine

logger = logging.getLogger("pylog.producer")


class LingeringSender(Protocol):
    """What the thread looks after."""

    is_watched: bool

    def flush_due(self) -> float | None:
        """Write what is due; seconds until the next is, None if nothing waits."""

    def flush(self, timeout_s: float | None) -> bool:
        """Write all."""

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
        self._changed = threading.Condition(self._lock)  # entered by its lock: see turn.py
        self._senders: dict[LingeringSender, None] = {}
        self._has_news = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    def know(self, sender: LingeringSender) -> None:
        """Flush ``sender`` at the end of the interpreter, if it is there still."""
        self._known.add(sender)

    def watch(self, sender: LingeringSender) -> bool:
        """Look after ``sender`` until nothing of it waits; at once, if it is watched already.

        False at the end of the interpreter: then the caller must write by itself.
        """
        if is_mine(self._lock):  # a signal handler sends, and has interrupted this
            return False
        with self._lock:
            if self._is_over or (self._thread is None and not self._start()):
                return False
            sender.is_watched = True
            self._senders[sender] = None
            self._has_news = True
            self._changed.notify()
            return True

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="pylog-linger", daemon=True)
        try:
            thread.start()
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
                return  # a callback has forked, and this is the child, which does not need this thread
            with lock:
                if not self._has_news:
                    self._changed.wait(wait_s)
                self._has_news = False

    def _look(self) -> float | None:
        """One round over all senders; seconds until the next is due, None if none waits."""
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
        """Stop watching, unless a batch has come in since: its sender saw itself watched and did not call."""
        with self._lock:
            sender.is_watched = False
            if sender.is_waiting() and not self._is_over:
                sender.is_watched = True
                return 0.0
            self._senders.pop(sender, None)
            return None

    def flush_all(self) -> None:
        """Write all that waits, at the end of the interpreter, and leave what comes later to its sender."""
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
