"""What must reach the medium of segments that are closed: their indexes too, since recovery won't make all of them again.

And the producers' state at their ends: once older segments are deleted, nothing else says it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from pylog.interrupts import own
from pylog.partition.segments import Segments
from pylog.segment.naming import OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, file_path
from pylog.storage import AppendableFile, FileSystem


def closed_since(segments: Segments, durable_offset: int, active_base: int) -> list[int]:
    """Closed segments that may have bytes, or indexes, that were not synced: from the one that ends at the durable end on."""
    return list(segments.bases[_first_unsynced(segments, durable_offset) : bisect_left(segments.bases, active_base)])


def is_rebuilt(segments: Segments, durable_offset: int, base: int) -> bool:
    """Whether a recovery makes the indexes of this segment again: of those since the durable end, the active one with them."""
    return bool(segments.bases) and base >= segments.bases[_first_unsynced(segments, durable_offset)]


def _first_unsynced(segments: Segments, durable_offset: int) -> int:
    """The number of the segment that holds the last durable record."""
    return max(bisect_right(segments.bases, max(durable_offset - 1, 0)) - 1, 0)


def open_side_files(filesystem: FileSystem, directory: str, base: int, following: int) -> Iterator[AppendableFile]:
    """A closed segment's indexes, and the snapshot at offset ``following``, one by one. What is not there is left out."""
    for offset, kind in ((base, OFFSET_INDEX), (base, TIME_INDEX), (base, TRANSACTION_INDEX), (following, SNAPSHOT)):
        try:
            file = filesystem.open_appendable(file_path(directory, offset, kind), create=False)
        except own(FileNotFoundError):
            continue
        try:
            yield file
        finally:
            file.close()


def sync_closed(filesystem: FileSystem, directory: str, base: int, following: int) -> None:
    """Force these files to the medium.

    Their bytes are durable on return, their names once the directory is synced. ``StorageError`` where one is refused: then
    it must not be synced again, but made anew.
    """
    for file in open_side_files(filesystem, directory, base, following):
        file.sync()
