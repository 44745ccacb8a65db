"""Waits for a lock between processes, and holds one during a call.

A stopped holder keeps its lock, because it may still write. So the wait ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pylog.clock import Clock
from pylog.errors import ForkedHandle, LogLocked
from pylog.interrupts import own
from pylog.storage.filesystem import FileLock, FileSystem

T = TypeVar("T")

LOCK_TIMEOUT_S = 30.0
LOCK_TIMEOUT_MS = int(LOCK_TIMEOUT_S * 1000)
"""How long a call waits by default. A process may be stopped while it holds a lock."""
_SLEEP_MIN_S = 20e-6
SLEEP_MAX_S = 2e-3
"""The longest pause between two attempts. A waiter can take a lock that is free for longer."""


def acquire(lock: FileLock, clock: Clock, timeout_s: float, while_waiting: Callable[[], object] = bool) -> bool:
    """Take the lock; False if not free in ``timeout_s``. The caller releases it in a ``finally``.

    ``while_waiting`` is called after each pause of the maximum length.
    """
    if lock.try_acquire():
        return True
    deadline, sleep_s = clock.monotonic() + timeout_s, _SLEEP_MIN_S
    while clock.monotonic() < deadline:
        clock.sleep(sleep_s)
        if lock.try_acquire():
            return True
        if sleep_s == SLEEP_MAX_S:
            while_waiting()
        sleep_s = min(sleep_s * 1.5, SLEEP_MAX_S)
    return False


def while_holding(
    filesystem: FileSystem, clock: Clock, path: str, work: Callable[[], T], timeout_s: float = LOCK_TIMEOUT_S
) -> T:
    """Call ``work`` while holding the lock on ``path``, which is opened for it. See ``holding``."""
    lock = filesystem.lock(path)
    try:
        return holding(lock, path, filesystem, clock, work, timeout_s)
    finally:
        lock.close()


def holding(
    lock: FileLock,
    path: str,
    filesystem: FileSystem,
    clock: Clock,
    work: Callable[[], T],
    timeout_s: float = LOCK_TIMEOUT_S,
) -> T:
    """Call ``work`` while holding ``lock``, whose file is ``path``. ``LogLocked`` if it is not free
    in time.

    Any exception releases the lock, also a signal handler's, and even if a caller keeps it.
    ``ForkedHandle`` if a signal handler forked and ``work``, the parent's, failed in the child.
    """
    holder = filesystem.process_id()
    try:
        if not acquire(lock, clock, timeout_s):
            raise LogLocked(
                f"{path} stayed locked for {timeout_s:g} s; find out which process holds it, and whether it is stopped",
                path=path,
                timeout_s=timeout_s,
            )
        return work()
    except own(Exception) as error:
        if filesystem.process_id() != holder and not isinstance(error, ForkedHandle):
            raise ForkedHandle(
                f"this thread held {path} when a signal handler forked; the parent process continues, and in the child "
                f"the work failed: {error}",
                path=path,
            ) from error
        raise
    finally:
        lock.release()
