"""Where a range of offsets can be cut into pieces of about as many bytes, by the indexes alone.

A cut is the offset after an indexed batch, or a segment's first one, so that no batch is read
twice. With a sparse or missing index, pieces are larger.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import pairwise

from pylog.index import OffsetIndexReader
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.segments import Segments
from pylog.segment.naming import LOG, OFFSET_INDEX


def cuts(
    directory: PartitionDirectory, segments: Segments, state: CommitState, start: int, end: int, piece_bytes: int
) -> Iterator[int]:
    """Offsets between ``start`` and ``end``, rising, with about ``piece_bytes`` of segments between
    one and the next.

    Each costs the segments and index entries up to it, none after it.
    """
    last = start
    for cut in _all_cuts(directory, segments, state, start, end, piece_bytes):
        if last < cut < end:
            yield cut
            last = cut


def _all_cuts(
    directory: PartitionDirectory, segments: Segments, state: CommitState, start: int, end: int, piece_bytes: int
) -> Iterator[int]:
    left = piece_bytes  # until the next cut
    for base, following in pairwise([*segments.since(start).bases, state.log_end_offset]):
        if base >= end:
            break
        left = yield from _cuts_in_segment(directory, state, base, following, (start, end), piece_bytes, left)
        if left <= 0:
            yield following
            left = piece_bytes


def _cuts_in_segment(
    directory: PartitionDirectory,
    state: CommitState,
    base: int,
    following: int,
    wanted: tuple[int, int],
    piece_bytes: int,
    left: int,
) -> Generator[int, None, int]:
    """The cuts of one segment; returns how many bytes are left until the next, after it."""
    start, end = wanted
    try:
        is_active = base == state.active_base
        size = state.written_end if is_active else directory.filesystem.size(directory.file_path(base, LOG))
        index = OffsetIndexReader(directory.filesystem.open_readable(directory.file_path(base, OFFSET_INDEX)), base)
    except own(FileNotFoundError):  # deleted meanwhile, or the index is lost
        return left
    with closing(index):
        at = index.floor(start).position if start > base else 0
        last = index.floor(end).position if end < following else size
        while at + left < last:
            batch = index.at(at + left)
            if batch.position > at:
                yield batch.offset + 1
                at, left = batch.position, piece_bytes
            else:  # one batch, or a gap in the index, is that large
                left *= 2
    return left - max(last - at, 0)


def size_bytes(
    directory: PartitionDirectory,
    segments: Segments,
    state: CommitState,
    start: int,
    end: int,
    enough: int | None = None,
) -> int:
    """About how many bytes of segments hold the offsets from ``start`` to ``end``, by the indexes.

    With ``enough`` no segment is looked at once there are as many.
    """
    total = 0
    for base, following in pairwise([*segments.since(start).bases, state.log_end_offset]):
        if base >= end or (enough is not None and total >= enough):
            break
        low = high = 0
        try:
            high = (
                state.written_end
                if base == state.active_base
                else directory.filesystem.size(directory.file_path(base, LOG))
            )
            if start > base or end < following:
                index = OffsetIndexReader(
                    directory.filesystem.open_readable(directory.file_path(base, OFFSET_INDEX)), base
                )
                with closing(index):
                    low = index.floor(start).position if start > base else 0
                    high = index.floor(end).position if end < following else high
        except own(FileNotFoundError):  # deleted meanwhile, or an index that was lost
            pass
        total += max(high - low, 0)
    return total
