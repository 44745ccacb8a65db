"""Holding a lock for the length of a call, waiting for it with patience that ends.

For locks that are held for milliseconds: the catalog's, that of producer ids, a partition's when it is retired. A holder
that is stopped keeps its lock, and rightly: its write may still land. So the wait ends in an error, not in a theft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pylog.clock import Clock
from pylog.errors import ForkedHandle, LogLocked
from pylog.interrupts import own
from pylog.storage.filesystem import FileLock, FileSystem

T = TypeVar("T")

_TIMEOUT_S = 30.0
_SLEEP_S = 0.001


def while_holding(
    filesystem: FileSystem, clock: Clock, path: str, work: Callable[[], T], timeout_s: float = _TIMEOUT_S
) -> T:
    """What ``work`` returns, called while the lock on ``path`` is held. ``LogLocked`` if it isn't free in time, uncalled.

    Whatever is raised on the way, by a signal handler too, and however long the exception is kept, the lock is free again.
    ``ForkedHandle`` in a child that was forked by a signal handler meanwhile, and whose work failed: it is the parent's work.
    """
    holder = filesystem.process_id()
    lock = filesystem.lock(path)
    try:
        try:
            _wait(lock, clock, path, timeout_s)
            return work()
        except own(Exception) as error:
            if filesystem.process_id() != holder:
                raise ForkedHandle(
                    f"this thread held {path} when a signal handler forked; the parent goes on with what it was doing, and "
                    f"in the child that failed: {error}",
                    path=path,
                ) from error
            raise
        finally:
            lock.release()
    finally:
        lock.close()


def _wait(lock: FileLock, clock: Clock, path: str, timeout_s: float) -> None:
    deadline = clock.monotonic() + timeout_s
    while not lock.try_acquire():
        if clock.monotonic() >= deadline:
            raise LogLocked(
                f"{path} stayed locked for {timeout_s:g} s; find out which process holds it, and whether it is stopped",
                path=path,
                timeout_s=timeout_s,
            )
        clock.sleep(_SLEEP_S)
