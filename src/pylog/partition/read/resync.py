"""Where a segment can be read again after damage: for readers that skip it, and for the check of a
whole log.

A seal records every batch. Without one the next whole batch is searched. Its checksum does not
cover its offsets, so it counts if the header after it continues it, or is not a valid header.
"""

from __future__ import annotations

from collections.abc import Callable

from pylog.codec.batch import BatchHeader, BatchView, check_header, read_header
from pylog.codec.format import HEADER_BYTES
from pylog.errors import CorruptSegment
from pylog.interrupts import own
from pylog.segment import SegmentReader, find_next_batch
from pylog.storage import ReadableFile


def next_whole(
    segment: SegmentReader, file: ReadableFile, damage: CorruptSegment, offset: int, end: int, end_offset: int
) -> tuple[int, int] | None:
    """Position and base offset of the first batch after ``damage`` that is whole and reaches
    ``offset``; None without one.

    ``end`` is where the segment's published part ends, ``end_offset`` the offset there. Each step
    is further than the last.
    """
    at: int = damage.facts["position"]
    known = damage.facts.get("next_position")
    while True:
        if known is not None and known > at:
            at, known = known, None
        else:
            candidate = _candidate(file, at, end, segment.base_offset, dense=segment.dense)
            if candidate is None:
                return None
            at = candidate
        try:
            at = segment.locate(offset, end, at)
            views = segment.read(at, end, max_bytes=HEADER_BYTES)
        except own(CorruptSegment) as further:
            at = max(at, further.facts["position"])
            continue
        if not views:
            return None
        if segment.seal is not None or _is_followed(views[0], file, at, end, end_offset, dense=segment.dense):
            return at, views[0].base_offset


def _candidate(file: ReadableFile, position: int, end: int, least_offset: int, *, dense: bool) -> int | None:
    """Where a whole batch may follow the damaged one at ``position``."""

    def continues(header: BatchHeader, following: BatchHeader) -> bool:
        expected = header.last_offset + 1
        return following.base_offset == expected if dense else following.base_offset >= expected

    try:
        found, offset = resume_after(file, position, end, least_offset, continues)
    except own(CorruptSegment):  # too much looks like batches and is none
        return None
    return None if offset is None else found


def resume_after(
    file: ReadableFile,
    position: int,
    end: int,
    least_offset: int,
    continues: Callable[[BatchHeader, BatchHeader], bool] | None = None,
) -> tuple[int, int | None]:
    """Where batches continue after damage at ``position``, and at which offset; ``end`` and None if
    nowhere.

    That is where the length of the damaged batch leads, if that is right: if ``continues(its
    header, the next header)``, by default if the next one's offset is at least ``least_offset``.
    Else the next whole batch is looked for. ``CorruptSegment`` if too much looks like batches and
    is none.
    """
    header = _header(file, position, end)
    following = None if header is None else _header(file, position + header.size_bytes, end)
    if (
        header is not None
        and following is not None
        and (following.base_offset >= least_offset if continues is None else continues(header, following))
    ):
        return position + header.size_bytes, following.base_offset
    found = find_next_batch(file, position + 1, end, least_offset)
    return (end, None) if found is None else (found[0], found[1].base_offset)


def _header(file: ReadableFile, position: int, end: int) -> BatchHeader | None:
    front = file.pread(HEADER_BYTES, position) if position + HEADER_BYTES <= end else b""
    return header if len(front) == HEADER_BYTES and check_header(header := read_header(front)) is None else None


def _is_followed(view: BatchView, file: ReadableFile, position: int, end: int, end_offset: int, *, dense: bool) -> bool:
    batch_end, expected = position + view.header.size_bytes, view.last_offset + 1
    if batch_end >= end:
        return expected == end_offset if dense else expected <= end_offset
    header = _header(file, batch_end, end)
    if header is None:
        return expected < end_offset
    return header.base_offset == expected if dense else header.base_offset >= expected
