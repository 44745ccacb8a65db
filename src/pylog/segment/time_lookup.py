"""Finds records by time in one segment, from what is *known* of batches: a wrong guess would hide
records silently.

An entry of the time index claims that everything up to a batch is older, and only those batches can
prove it. So a lookup uses the seal, which has the times under its checksum; without one the
headers, which are read once and kept as an outline; and last the time index, whose batch must agree
then (``first_batch_since``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from pylog.codec.batch import BatchHeader
from pylog.errors import CorruptSegment
from pylog.index import TimeIndexReader
from pylog.interrupts import own
from pylog.segment.naming import TIME_INDEX
from pylog.segment.outline import extended, nothing_known, outline_of
from pylog.segment.reader import SegmentReader
from pylog.segment.seal import LEAST_EVERY_BYTES, TIMES_EVERY, Seal

NEAR_BLOCKS = 16  # to leave out fewer is not worth another span


def batches_of(seal: Seal, first_ms: int, last_ms: int) -> Iterator[tuple[int, int]]:
    """Ranges of batches, by number, that may have records from ``first_ms`` to ``last_ms``. All
    others have none."""
    oldest = bisect_left(seal.greatest_ms, first_ms) * TIMES_EVERY
    blocks: list[tuple[int, int]] = []
    for number, least_ms in enumerate(seal.least_ms):
        if least_ms <= last_ms:
            near = blocks.pop() if blocks and number - blocks[-1][1] < NEAR_BLOCKS else (number, number)
            blocks.append((near[0], number + 1))
    for low, high in blocks if seal.least_ms else [(0, seal.size_bytes)]:
        first = max(oldest, bisect_left(seal.positions, low * LEAST_EVERY_BYTES))
        stop = bisect_left(seal.positions, high * LEAST_EVERY_BYTES)
        if first < stop:
            yield first, stop


def _reaches(header: BatchHeader, timestamp_ms: int) -> bool:
    """Whether a record of the batch may be at or after the time. A marker has the time at which it
    was written."""
    return header.max_timestamp_ms >= timestamp_ms and not header.is_control


# The first since a time


def first_batch_since(segment: SegmentReader, timestamp_ms: int, offset: int, end: int) -> BatchHeader | None:
    """The header of the first batch at or after ``offset`` that has a record at or after the time;
    None without one.

    ``CorruptSegment`` if a damaged header hides later batches, and no time index leads past it.
    """
    start = segment.locate(offset, end) if offset > segment.base_offset else 0
    indexed = 0 if segment.dense_by_default else _indexed_time(segment, timestamp_ms, end)
    known = indexed or _known_older(segment, timestamp_ms, end)
    try:
        return _first_since(segment, timestamp_ms, max(start, known), end)
    except own(CorruptSegment) as damage:
        indexed = indexed or _indexed_time(segment, timestamp_ms, end)
        if indexed <= damage.position:
            raise
        return _first_since(segment, timestamp_ms, max(start, indexed), end)


def _first_since(segment: SegmentReader, timestamp_ms: int, position: int, end: int) -> BatchHeader | None:
    for _, header in segment.headers(position, end):
        if header is not None and _reaches(header, timestamp_ms):
            return header
    return None


def _known_older(segment: SegmentReader, timestamp_ms: int, end: int) -> int:
    """A position before which everything is older: from the seal, else from the headers."""
    seal = segment.seal
    if seal is not None and seal.greatest_ms:
        return outline_of(seal).start(timestamp_ms)
    outline = segment.outline
    if outline.end > end:
        outline = nothing_known(segment.base_offset)
    segment.outline = outline = extended(outline, segment.file, end, timestamp_ms, dense=segment.dense)
    return outline.start(timestamp_ms)


def _indexed_time(segment: SegmentReader, timestamp_ms: int, end: int) -> int:
    """The position to which the time index points, if its batch has the timestamp and offset; 0
    otherwise.

    Nothing proves that all batches before it are older. A damaged entry hardly ever agrees.
    """
    index = segment.open_index(TimeIndexReader, TIME_INDEX)
    if index is None:
        return 0
    try:
        entry = index.before(timestamp_ms)
    finally:
        index.close()
    if entry is None:
        return 0
    try:
        position = segment.locate(entry.offset, end)
    except own(CorruptSegment):
        return 0
    header = segment.header_at(position, end)
    if header is None:
        return 0
    agrees = header.last_offset == entry.offset if segment.dense_by_default else header.base_offset <= entry.offset
    return position if agrees and header.max_timestamp_ms == entry.timestamp_ms else 0


# A range of times


def spans_of_times(segment: SegmentReader, first_ms: int, last_ms: int, end: int) -> list[tuple[int, int | None]]:
    """Rising spans of offsets outside of which no record of a batch before ``end`` is from
    ``first_ms`` to ``last_ms``.

    The second offset of each is exclusive, None for the segment's end. ``CorruptSegment`` if damage
    hides the times.
    """
    seal = segment.seal
    if seal is not None and seal.greatest_ms:
        return _sealed_spans(segment, seal, first_ms, last_ms)
    header = first_batch_since(segment, first_ms, segment.base_offset, end)
    return [] if header is None else [(header.base_offset, None)]


def _sealed_spans(segment: SegmentReader, seal: Seal, first_ms: int, last_ms: int) -> list[tuple[int, int | None]]:
    spans: list[tuple[int, int | None]] = []
    for low, high in batches_of(seal, first_ms, last_ms):
        headers = (_sealed_header(segment, seal, number) for number in range(low, high))
        first = next((header for header in headers if _reaches(header, first_ms)), None)
        if first is not None:
            stop = _sealed_header(segment, seal, high).base_offset if high < len(seal.positions) else None
            spans.append((first.base_offset, stop))
    _require_rising(segment, spans)
    return spans


def _require_rising(segment: SegmentReader, spans: list[tuple[int, int | None]]) -> None:
    """Else a record would be read twice."""
    if any(stop is None or not start < stop <= following for (start, stop), (following, _) in pairwise(spans)):
        raise segment.damage(0, "the batches that its seal names are not in order")


def _sealed_header(segment: SegmentReader, seal: Seal, number: int) -> BatchHeader:
    header = segment.sealed_header(seal, number)
    if header is None:
        problem = "the batch header differs from the seal of this segment"
        raise segment.damage(seal.positions[number], problem)
    return header
