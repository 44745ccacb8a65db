"""Where in a segment to begin looking for a time: behind batches of which it is *known* that all are older.

The time index is not what it is known from. An entry says that everything up to a batch is older, and only those batches can
show it: where the entry is wrong, records would be passed over silently. A sealed segment's seal says it instead, under its
checksum; elsewhere the headers do, which are read once and remembered as an outline. What the index says is used where
neither will do, and then its batch must agree (``TimedSegmentReader.first_batch_since``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from pylog.codec.format import BATCH_OVERHEAD, HEADER_BYTES, INT64_MAX, MAGIC
from pylog.segment.block_times import NEAR_BLOCKS
from pylog.segment.seal import LEAST_EVERY_BYTES, TIMES_EVERY, Seal
from pylog.storage import ReadableFile

_FRONT = Struct(">qi4xb4x2xi8xq")  # base offset, length, magic, last offset delta, greatest timestamp
_WINDOW_BYTES = 8 << 10
_LEAST_LENGTH = HEADER_BYTES - BATCH_OVERHEAD


class Outline(NamedTuple):
    """Of every 64 batches: the position where they begin, and the greatest timestamp from the segment's start to their end.

    ``end`` is the position behind them, ``next_offset`` the offset there. Immutable: threads share it.
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
    """Ranges of batches, by number, that may have records from ``first_ms`` to ``last_ms``: all others are known to have none."""
    oldest = bisect_left(seal.greatest_ms, first_ms) * TIMES_EVERY
    blocks: list[tuple[int, int]] = []
    for number, least_ms in enumerate(seal.least_ms):
        if least_ms <= last_ms:
            near = blocks.pop() if blocks and number - blocks[-1][1] < NEAR_BLOCKS else (number, number)
            blocks.append((near[0], number + 1))
    for low, high in blocks if seal.least_ms else [(0, seal.size_bytes)]:
        first = max(oldest, bisect_left(seal.positions, low * LEAST_EVERY_BYTES))
        behind = bisect_left(seal.positions, high * LEAST_EVERY_BYTES)
        if first < behind:
            yield first, behind


def of_seal(seal: Seal) -> Outline:
    return Outline(seal.positions[::TIMES_EVERY], seal.greatest_ms, seal.size_bytes, seal.last_offset + 1)


def extended(outline: Outline, file: ReadableFile, end: int, timestamp_ms: int, *, dense: bool) -> Outline:
    """``outline`` with what follows before ``end``, until something reaches the time, or is not as batches must be.

    The tightest loop there is: it passes over a segment of a million batches. What is wrong with a batch others will say.
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
        base_offset, length, magic, delta, max_ms = _FRONT.unpack_from(window, at)
        if base_offset != expected and (dense or base_offset < expected):
            break
        if magic != MAGIC or delta < 0 or length < _LEAST_LENGTH or position + BATCH_OVERHEAD + length > end:
            break
        position += BATCH_OVERHEAD + length
        window_bytes = _WINDOW_BYTES if length < _WINDOW_BYTES else HEADER_BYTES  # no records that nobody looks at
        expected = base_offset + delta + 1
        if max_ms > latest_ms:
            latest_ms = max_ms
        count += 1
        if count == TIMES_EVERY:
            positions.append(known_end)
            greatest.append(latest_ms)
            known_end, known_offset, count = position, expected, 0
    return Outline(positions, greatest, known_end, known_offset)
