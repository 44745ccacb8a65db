"""Threads that sync, or append to, several partitions at once, for the commits of one producer.

They are kept for some seconds, since to start threads takes longer than a sync of a fast disk, and
none delays the end of the interpreter. What no thread has begun is done by the caller: also if no
thread can be started any more, and in a child that a signal handler has forked meanwhile.
"""

from __future__ import annotations

import threading  # this file is about threads
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue  # what these threads are to do

from pylog.interrupts import own, start_thread

_CHECK_S = 0.05
_IDLE_S = 10.0


class _Work:
    """One call, made in one thread and waited for in another."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._error: Exception | None = None
        self._is_over = threading.Lock()
        self._is_over.acquire()

    def do(self) -> None:
        try:
            self._call()
        except own(Exception) as error:  # of any kind: ``wait`` raises it
            self._error = error
        finally:
            self._is_over.release()

    def wait(self, check: Callable[[], object]) -> None:
        while not self._is_over.acquire(timeout=_CHECK_S):
            check()
        if self._error is not None:
            raise self._error


class SyncThreads:
    """Up to ``threads_max`` threads besides the caller's, started when they are needed."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._to_do: SimpleQueue[_Work | None] = SimpleQueue()

    def run(self, calls: Sequence[Callable[[], object]], check: Callable[[], object]) -> None:
        """Make all of these calls. Raises an error of one of them.

        ``check`` is called while this waits for a thread, and raises if that thread is the parent
        process's.
        """
        works = [_Work(call) for call in calls[1:]]
        self._start(len(works))
        for work in works:
            self._to_do.put(work)
        calls[0]()
        self._help()
        for work in works:
            work.wait(check)

    def _start(self, wanted: int) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while len(self._threads) < min(wanted, self._threads_max):
            thread = threading.Thread(target=_do_all, args=(self._to_do,), name="pylog-commit", daemon=True)
            try:
                start_thread(thread)
            except own(RuntimeError):  # the interpreter is ending, or the system has no more threads
                return
            self._threads.append(thread)

    def _help(self) -> None:
        try:
            while (work := self._to_do.get_nowait()) is not None:
                work.do()
        except own(Empty):
            pass

    def close(self) -> None:
        """End the threads, after what they do now."""
        for _ in self._threads:
            self._to_do.put(None)
        self._threads.clear()


def _do_all(to_do: SimpleQueue[_Work | None]) -> None:
    """Until there was nothing to do for ``_IDLE_S``: their producer may be gone without having been
    closed."""
    try:
        while (work := to_do.get(timeout=_IDLE_S)) is not None:
            work.do()
    except own(Empty):
        pass
