"""Lookups by time in one partition: by the seals or the headers, then in the batch.

Not by the time index: a wrong entry can look right and hide records (71 of 1,824 flipped bits did).
Without a seal the headers are read once: 0.5 s for the worst 128 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

from pylog.codec.batch import BatchView
from pylog.errors import CorruptSegment
from pylog.interrupts import suppress
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import OffsetAndTimestamp, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.published import Published
from pylog.partition.segments import Segments
from pylog.segment import SegmentReader, first_batch_since, spans_of_times


class Source(Protocol):
    """What a lookup uses of its reader."""

    topic_partition: TopicPartition
    published: Published

    def segments(self, state: CommitState) -> Segments: ...
    def segment(self, base: int, state: CommitState, following: int | None) -> tuple[SegmentReader, int]: ...
    def batches(self, start: int, end: int) -> Iterator[BatchView]: ...


class Times:
    """The part of a reader that knows times. A file that is gone raises ``FileNotFoundError``."""

    def __init__(self, reader: Source) -> None:
        self._reader = reader

    def first_since(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record whose timestamp is at or after ``timestamp_ms``; None if there is
        none."""
        state = self._reader.published.current()
        found = self._first_in(self._reader.segments(state), state, timestamp_ms)
        if self._reader.published.current().segments_version != state.segments_version:
            # A log may have met the seal of the one that replaced it: batches seem damaged, and are
            # skipped.
            raise FileNotFoundError(f"segments of {self._reader.topic_partition} were replaced during a lookup by time")
        return found

    def _first_in(self, segments: Segments, state: CommitState, timestamp_ms: int) -> OffsetAndTimestamp | None:
        first = segments.floor(state.log_start_offset)
        for base in segments.bases:
            if first is None or base >= first:
                found = self._first_in_segment(base, state, segments.after(base), timestamp_ms)
                if found is not None:
                    return found
        return None

    def spans(self, start: int, end: int, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
        """Rising spans between ``start`` and ``end`` that contain every record of these times.

        They include what is damaged or was deleted meanwhile: reading it raises the error.
        """
        state = self._reader.published.current()
        segments = self._reader.segments(state).since(start)
        found: list[tuple[int, int]] = []
        for base, following in pairwise([*segments.bases, state.log_end_offset]):
            if base >= end or (base == state.active_base and state.least_timestamp_ms > last_ms):
                break  # all of the active segment is younger
            spans: list[tuple[int, int | None]] = [(base, following)]
            with suppress(FileNotFoundError, CorruptSegment):
                segment, size = self._reader.segment(base, state, segments.after(base))
                spans = spans_of_times(segment, first_ms, last_ms, size)
            for first, limit in spans:
                low, high = max(first, start), min(following if limit is None else limit, end)
                if found and found[-1][1] == low < high:
                    found[-1] = found[-1][0], high
                elif low < high:
                    found.append((low, high))
        return found

    def _first_in_segment(
        self, base: int, state: CommitState, following: int | None, timestamp_ms: int
    ) -> OffsetAndTimestamp | None:
        """Find the batch by the headers, then the record in it."""
        start = max(base, state.log_start_offset)
        if following is None and not state.written_end:
            return None  # its file may not be there yet: a roll publishes it first
        segment, end = self._reader.segment(base, state, following)
        header = first_batch_since(segment, timestamp_ms, start, end) if end else None
        if header is None:
            return None
        return self._first_since(
            max(header.base_offset, start), state.log_end_offset if following is None else following, timestamp_ms
        )

    def _first_since(self, offset: int, end: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        for view in self._reader.batches(offset, end):
            if view.header.base_offset < end and view.header.max_timestamp_ms >= timestamp_ms:
                decoder = view.decoder(*self._reader.topic_partition)
                while records := decoder.take(RECORDS_AT_ONCE):
                    for record in records:
                        if record.timestamp_ms >= timestamp_ms and record.offset >= offset:
                            return OffsetAndTimestamp(record.offset, record.timestamp_ms)
        return None
