"""What a compaction or an erasure that died has left in a partition: files that nothing reads, up
to the size of a segment.

One that is under way holds the cleaner's lock, so what is there while the lock is free is a
leftover. A recovery and the next compaction or erasure remove it, too.
"""

from __future__ import annotations

from contextlib import closing

from pylog.interrupts import suppress
from pylog.partition.directory import PartitionDirectory
from pylog.partition.repair import swaps
from pylog.segment.naming import CLEANER_LOCK
from pylog.storage import same_process


def are_left(directory: PartitionDirectory) -> bool:
    """Whether there are some, or a swap to be finished, and no compaction or erasure is under way.
    Takes no lock."""
    filesystem, path = directory.filesystem, f"{directory.path}/{CLEANER_LOCK}"
    if not filesystem.exists(path):  # none has ever begun
        return False
    names = directory.names()
    return (bool(swaps.unfinished(names)) or swaps.are_under_way(names)) and not filesystem.is_locked(path)


def leftover_bytes(directory: PartitionDirectory) -> int:
    size_bytes = 0
    for name in swaps.unfinished(directory.names()):
        with suppress(FileNotFoundError):  # others remove retired files, without the lock
            size_bytes += directory.filesystem.size(f"{directory.path}/{name}")
    return size_bytes


def remove_leftovers(directory: PartitionDirectory) -> int:
    """Remove them, unless a compaction or an erasure is under way. The number of bytes that were
    removed."""
    filesystem, path = directory.filesystem, directory.path
    check_process = same_process(filesystem, f"leftovers in {path} were being removed", path=path)
    with closing(filesystem.lock(f"{path}/{CLEANER_LOCK}")) as lock:
        if not lock.try_acquire() or not lock.is_in_place():
            return 0
        size_bytes = leftover_bytes(directory)
        swaps.remove_unfinished(filesystem, path, check_process)
        return size_bytes
