"""Finds records by time in one segment, from what is *known* of batches: a wrong guess would hide records silently.

An entry of the time index claims that everything up to a batch is older, and only those batches can prove it. So a lookup
uses the seal, which has the times under its checksum; without one the headers, which are read once and kept as an outline;
and last the time index, whose batch must agree then (``TimedSegmentReader.first_batch_since``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from pylog.codec.batch import BatchHeader, check_header, header_crc, read_header
from pylog.codec.format import BATCH_OVERHEAD, CONTROL_BIT, HEADER_BYTES, INT64_MAX, MAGIC
from pylog.errors import CorruptSegment
from pylog.index import TimeIndexReader
from pylog.interrupts import own
from pylog.segment.naming import TIME_INDEX, file_path
from pylog.segment.reader import SegmentReader
from pylog.segment.seal import LEAST_EVERY_BYTES, TIMES_EVERY, Seal
from pylog.storage import ReadableFile

NEAR_BLOCKS = 16  # to leave out fewer is not worth another span

_FRONT = Struct(">qi4xb4xhi8xq")  # base offset, length, magic, attributes, last offset delta, greatest timestamp
_WINDOW_BYTES = 8 << 10
_LEAST_LENGTH = HEADER_BYTES - BATCH_OVERHEAD


class Outline(NamedTuple):
    """Of every 64 batches: the position where they begin, and the greatest timestamp from the segment's start to their end.

    ``end`` is the position after them, ``next_offset`` the offset there. Immutable: threads share it.
    """

    positions: array[int]
    greatest_ms: array[int]
    end: int
    next_offset: int

    def start(self, timestamp_ms: int) -> int:
        """A position before which everything is older than ``timestamp_ms``."""
        number = bisect_left(self.greatest_ms, timestamp_ms)
        return self.positions[number] if number < len(self.positions) else self.end


def nothing_known(base_offset: int) -> Outline:
    return Outline(array("I"), array("q"), 0, base_offset)


def batches_of(seal: Seal, first_ms: int, last_ms: int) -> Iterator[tuple[int, int]]:
    """Ranges of batches, by number, that may have records from ``first_ms`` to ``last_ms``. All others have none."""
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


def outline_of(seal: Seal) -> Outline:
    return Outline(seal.positions[::TIMES_EVERY], seal.greatest_ms, seal.size_bytes, seal.last_offset + 1)


def extended(outline: Outline, file: ReadableFile, end: int, timestamp_ms: int, *, dense: bool) -> Outline:
    """``outline`` extended up to ``end``, or to the first batch that reaches the time or is malformed, which reads report.

    The tightest loop in the package: a segment may have a million batches.
    """
    positions, greatest = outline.positions[:], outline.greatest_ms[:]
    known_end, known_offset = position, expected = outline.end, outline.next_offset
    latest_ms = greatest[-1] if greatest else -INT64_MAX - 1
    window, window_start, count, window_bytes = b"", position, 0, _WINDOW_BYTES
    while latest_ms < timestamp_ms and end - position >= HEADER_BYTES:
        at = position - window_start
        if at + _FRONT.size > len(window):
            window, window_start, at = file.pread(min(window_bytes, end - position), position), position, 0
            if len(window) < _FRONT.size:
                break
        base_offset, length, magic, attributes, delta, max_ms = _FRONT.unpack_from(window, at)
        if base_offset != expected and (dense or base_offset < expected):
            break
        if magic != MAGIC or delta < 0 or length < _LEAST_LENGTH or position + BATCH_OVERHEAD + length > end:
            break
        position += BATCH_OVERHEAD + length
        window_bytes = _WINDOW_BYTES if length < _WINDOW_BYTES else HEADER_BYTES  # long records are not read
        expected = base_offset + delta + 1
        if max_ms > latest_ms and not attributes & CONTROL_BIT:
            latest_ms = max_ms
        count += 1
        if count == TIMES_EVERY:
            positions.append(known_end)
            greatest.append(latest_ms)
            known_end, known_offset, count = position, expected, 0
    return Outline(positions, greatest, known_end, known_offset)


def _reaches(header: BatchHeader, timestamp_ms: int) -> bool:
    """Whether a record of the batch may be at or after the time. A marker has the time at which it was written."""
    return header.max_timestamp_ms >= timestamp_ms and not header.is_control


class TimedSegmentReader(SegmentReader):
    """``SegmentReader`` with lookups by time."""

    _outline: Outline | None = None

    # The first since a time

    def first_batch_since(self, timestamp_ms: int, offset: int, end: int) -> BatchHeader | None:
        """The header of the first batch at or after ``offset`` that has a record at or after the time; None without one.

        ``CorruptSegment`` if a damaged header hides later batches, and no time index leads past it.
        """
        start = self.locate(offset, end) if offset > self.base_offset else 0
        indexed = 0 if self._dense else self._indexed_time(timestamp_ms, end)
        known = indexed or self._known_older(timestamp_ms, end)
        try:
            return self._first_since(timestamp_ms, max(start, known), end)
        except own(CorruptSegment) as damage:
            indexed = indexed or self._indexed_time(timestamp_ms, end)
            if indexed <= damage.position:
                raise
            return self._first_since(timestamp_ms, max(start, indexed), end)

    def _first_since(self, timestamp_ms: int, position: int, end: int) -> BatchHeader | None:
        for _, header in self._walk(position, end):
            if header is not None and _reaches(header, timestamp_ms):
                return header
        return None

    def _known_older(self, timestamp_ms: int, end: int) -> int:
        """A position before which everything is older: from the seal, else from the headers."""
        seal = self.seal
        if seal is not None and seal.greatest_ms:
            return outline_of(seal).start(timestamp_ms)
        outline = self._outline
        if outline is None or outline.end > end:
            outline = nothing_known(self.base_offset)
        self._outline = outline = extended(outline, self._file, end, timestamp_ms, dense=self.dense)
        return outline.start(timestamp_ms)

    def _indexed_time(self, timestamp_ms: int, end: int) -> int:
        """The position to which the time index points, if its batch has the timestamp and offset; 0 otherwise.

        Nothing proves that all batches before it are older. A damaged entry hardly ever agrees.
        """
        try:
            index = TimeIndexReader(
                self._filesystem.open_readable(file_path(self._directory, self.base_offset, TIME_INDEX)),
                self.base_offset,
            )
        except own(FileNotFoundError):
            return 0
        try:
            entry = index.before(timestamp_ms)
        finally:
            index.close()
        if entry is None:
            return 0
        try:
            position = self.locate(entry.offset, end)
        except own(CorruptSegment):
            return 0
        front = self._file.pread(HEADER_BYTES, position) if position + HEADER_BYTES <= end else b""
        if len(front) < HEADER_BYTES or check_header(header := read_header(front)) is not None:
            return 0
        agrees = header.last_offset == entry.offset if self._dense else header.base_offset <= entry.offset
        return position if agrees and header.max_timestamp_ms == entry.timestamp_ms else 0

    # A range of times

    def spans_of_times(self, first_ms: int, last_ms: int, end: int) -> list[tuple[int, int | None]]:
        """Rising spans of offsets outside of which no record of a batch before ``end`` is from ``first_ms`` to ``last_ms``.

        The second offset of each is exclusive, None for the segment's end. ``CorruptSegment`` if damage hides the times.
        """
        seal = self.seal
        if seal is not None and seal.greatest_ms:
            return self._sealed_spans(seal, first_ms, last_ms)
        header = self.first_batch_since(first_ms, self.base_offset, end)
        return [] if header is None else [(header.base_offset, None)]

    def _sealed_spans(self, seal: Seal, first_ms: int, last_ms: int) -> list[tuple[int, int | None]]:
        spans: list[tuple[int, int | None]] = []
        for low, high in batches_of(seal, first_ms, last_ms):
            headers = (self._sealed_header(seal, number) for number in range(low, high))
            first = next((header for header in headers if _reaches(header, first_ms)), None)
            if first is not None:
                stop = self._sealed_header(seal, high).base_offset if high < len(seal.positions) else None
                spans.append((first.base_offset, stop))
        self._require_rising(spans)
        return spans

    def _require_rising(self, spans: list[tuple[int, int | None]]) -> None:
        """Else a record would be read twice."""
        if any(stop is None or not start < stop <= following for (start, stop), (following, _) in pairwise(spans)):
            raise self._damage(0, "the batches that its seal names are not in order", 0)

    def _sealed_header(self, seal: Seal, number: int) -> BatchHeader:
        position = seal.positions[number]
        front = self._file.pread(HEADER_BYTES, position)
        if len(front) < HEADER_BYTES or header_crc(front) != seal.header_crcs[number]:
            raise self._damage(position, "the batch header differs from the seal of this segment", seal.size_bytes)
        return read_header(front)
