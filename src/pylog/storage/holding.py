"""Holding a lock for the length of a ``with`` block, waiting for it with patience that ends.

For locks that are held for milliseconds: the catalog's, that of producer ids, a partition's when it is retired. A holder
that is stopped keeps its lock, and rightly: its write may still land. So the wait ends in an error, not in a theft.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pylog.clock import Clock
from pylog.errors import LogLocked
from pylog.storage.filesystem import FileSystem

_TIMEOUT_S = 30.0
_SLEEP_S = 0.001


@contextmanager
def holding(filesystem: FileSystem, clock: Clock, path: str, timeout_s: float = _TIMEOUT_S) -> Iterator[None]:
    """Hold the lock on ``path`` inside the block. ``LogLocked`` if it isn't free within ``timeout_s`` seconds."""
    lock = filesystem.lock(path)
    try:
        deadline = clock.monotonic() + timeout_s
        while not lock.try_acquire():
            if clock.monotonic() >= deadline:
                raise LogLocked(
                    f"{path} stayed locked for {timeout_s:g} s; find out which process holds it, and whether it is stopped",
                    path=path,
                    timeout_s=timeout_s,
                )
            clock.sleep(_SLEEP_S)
        yield
    finally:
        lock.close()
