"""A segment's reader that finds by time, too: the first batch since one, and where the records of a range may be."""

from __future__ import annotations

from itertools import pairwise

from pylog.codec.batch import BatchHeader, check_header, header_crc, read_header
from pylog.codec.format import HEADER_BYTES
from pylog.errors import CorruptSegment
from pylog.index import TimeIndexReader
from pylog.interrupts import own
from pylog.segment import times
from pylog.segment.block_times import BlockTimes, block_of, known_block_times, runs_that_may_hold
from pylog.segment.naming import TIME_INDEX, TIMES, file_path
from pylog.segment.reader import SegmentReader
from pylog.segment.seal import Seal

_FAR_BYTES = 4 << 20  # from here on it is worth reading headers from the segment's start, which are remembered


class TimedSegmentReader(SegmentReader):
    """``SegmentReader`` with lookups by time."""

    _outline: times.Outline | None = None

    # The first since a time

    def first_batch_since(self, timestamp_ms: int, offset: int, end: int) -> BatchHeader | None:
        """The first batch at or behind ``offset`` that has a record at or after the time, by its header; None without one.

        ``CorruptSegment`` where a damaged header hides the batches behind it, and no time index leads past it.
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
            if header is not None and header.max_timestamp_ms >= timestamp_ms:
                return header
        return None

    def _known_older(self, timestamp_ms: int, end: int) -> int:
        """A position before which everything is older: from the seal, else from the headers."""
        seal = self.seal
        if seal is not None and seal.greatest_ms:
            return times.of_seal(seal).start(timestamp_ms)
        outline = self._outline
        if outline is None or outline.end > end:
            outline = times.nothing_known(self.base_offset)
        self._outline = outline = times.extended(outline, self._file, end, timestamp_ms, dense=self._dense)
        return outline.start(timestamp_ms)

    def _indexed_time(self, timestamp_ms: int, end: int) -> int:
        """The position the time index points to, if its batch agrees about timestamp and offset; 0 otherwise.

        That what lies before it is older, too, nothing shows. A damaged entry hardly ever agrees.
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
        """Spans of offsets, rising, outside of which no record of a batch before ``end`` is from ``first_ms`` to ``last_ms``.

        The second of each is exclusive, None for the segment's end. ``CorruptSegment`` where damage hides what is known.
        """
        seal = self.seal
        if seal is not None and seal.greatest_ms:
            return self._sealed_spans(seal, first_ms, last_ms)
        path = file_path(self._directory, self.base_offset, TIMES)
        blocks = known_block_times(self._filesystem, path, end, closed=self._closed) if self._dense else []
        runs = runs_that_may_hold(blocks, first_ms, last_ms)
        spans: list[tuple[int, int | None]] = []
        for number, (low, high) in enumerate(runs):
            start = self._start_of_run(blocks, runs[number - 1][1] if number else 0, low, end)
            if start is None:
                continue  # no batch begins there
            if high > len(blocks):
                header = self._first_behind(first_ms, start, end)
                spans += [(header.base_offset, None)] if header is not None else []
            else:
                behind = next(block for block in blocks[high:] if block is not None and not block.is_empty)
                spans.append((start[1], self._header_of(behind).base_offset))
        self._require_rising(spans)
        return spans

    def _require_rising(self, spans: list[tuple[int, int | None]]) -> None:
        """Else a record would be read twice."""
        if any(
            behind is None or not start < behind <= following for (start, behind), (following, _) in pairwise(spans)
        ):
            raise self._damage(0, f"the batches that its seal, or {TIMES}, names are not in order", 0)

    def _start_of_run(self, blocks: list[BlockTimes | None], passed: int, low: int, end: int) -> tuple[int, int] | None:
        """Position and offset of the first batch that begins in block ``low`` or behind; those from ``passed`` on are known to
        have no such record: so the last of them must be the one that was told of."""
        if not low:
            return 0, self.base_offset
        block = blocks[low] if low < len(blocks) else None
        known = next(b for b in reversed(blocks[passed:low]) if b is not None and not b.is_empty)
        self._header_of(known)
        if block is not None:
            return block.position, self._header_of(block).base_offset
        for position, found in self._walk(known.position, end):
            if found is not None and block_of(position) >= low:
                return position, found.base_offset
        return None

    def _first_behind(self, timestamp_ms: int, start: tuple[int, int], end: int) -> BatchHeader | None:
        position, offset = start
        if not position or end - position > _FAR_BYTES:
            return self.first_batch_since(timestamp_ms, offset, end)
        return self._first_since(timestamp_ms, position, end)

    def _header_of(self, block: BlockTimes) -> BatchHeader:
        """Of the first batch of a block. ``CorruptSegment`` where another one stands there."""
        front = self._file.pread(HEADER_BYTES, block.position)
        if len(front) < HEADER_BYTES or header_crc(front) != block.front_crc:
            raise self._damage(block.position, f"the batch header differs from this segment's {TIMES}", block.position)
        return read_header(front)

    def _sealed_spans(self, seal: Seal, first_ms: int, last_ms: int) -> list[tuple[int, int | None]]:
        spans: list[tuple[int, int | None]] = []
        for low, high in times.batches_of(seal, first_ms, last_ms):
            headers = (self._sealed_header(seal, number) for number in range(low, high))
            first = next((header for header in headers if header.max_timestamp_ms >= first_ms), None)
            if first is not None:
                behind = self._sealed_header(seal, high).base_offset if high < len(seal.positions) else None
                spans.append((first.base_offset, behind))
        self._require_rising(spans)
        return spans

    def _sealed_header(self, seal: Seal, number: int) -> BatchHeader:
        position = seal.positions[number]
        front = self._file.pread(HEADER_BYTES, position)
        if len(front) < HEADER_BYTES or header_crc(front) != seal.header_crcs[number]:
            raise self._damage(position, "the batch header differs from the seal of this segment", seal.size_bytes)
        return read_header(front)
