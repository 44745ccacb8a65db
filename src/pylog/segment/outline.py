"""An outline of the times in a segment: from its seal, or from the headers as far as lookups have
read them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from pylog.codec.format import BATCH_OVERHEAD, CONTROL_BIT, HEADER_BYTES, INT64_MAX, MAGIC
from pylog.segment.seal import TIMES_EVERY, Seal
from pylog.storage import ReadableFile

_FRONT = Struct(">qi4xb4xhi8xq")  # base offset, length, magic, attributes, last offset delta, greatest timestamp
_WINDOW_BYTES = 8 << 10
_LEAST_LENGTH = HEADER_BYTES - BATCH_OVERHEAD


class Outline(NamedTuple):
    """Of every 64 batches: the position where they begin, and the greatest timestamp from the
    segment's start to their end.

    ``end`` is the position after them, ``next_offset`` the offset there. Immutable: threads share
    it.
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


def outline_of(seal: Seal) -> Outline:
    return Outline(seal.positions[::TIMES_EVERY], seal.greatest_ms, seal.size_bytes, seal.last_offset + 1)


def extended(outline: Outline, file: ReadableFile, end: int, timestamp_ms: int, *, dense: bool) -> Outline:
    """``outline`` extended up to ``end``, or to the first batch that reaches the time or is
    malformed, which reads report.

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
