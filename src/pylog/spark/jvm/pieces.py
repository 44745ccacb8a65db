"""A plan's ranges with what a reader in Java needs beside them: files, positions, aborted
transactions.

``Piece.java`` explains the fields.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from operator import attrgetter
from typing import Any

from pylog.errors import CorruptSegment, OffsetOutOfRange
from pylog.interrupts import own
from pylog.partition.read.reader import PartitionReader
from pylog.partition.read.visibility import READ_COMMITTED
from pylog.partition.segments import SegmentInfo
from pylog.spark.source.partition_range import PartitionRange

Task = Sequence[PartitionRange]
Fields = dict[str, Any]


class Pieces:
    """The pieces of one plan. Ranges of one partition share a reader, which knows its indexes."""

    def __init__(self) -> None:
        self._reader: PartitionReader | None = None
        self._infos: Sequence[SegmentInfo] = ()  # the reader's
        self._of: PartitionRange | None = None

    def task(self, ranges: Task) -> Fields:
        return {
            "pieces": [self._piece(planned) for planned in ranges],
            "sizeBytes": sum(planned.size_bytes for planned in ranges),
        }

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _piece(self, planned: PartitionRange) -> Fields:
        source, reader = planned.source, self._reader_of(planned)
        topic, partition = source.topic_partition
        is_committed = planned.isolation_level == READ_COMMITTED
        return {
            "topic": topic,
            "partition": partition,
            "directory": source.directory,
            "start": planned.start,
            "end": planned.end,
            "readCommitted": is_committed,
            "isKafka": source.is_kafka,
            "identity": base64.b64encode(source.identity).decode(),
            "home": source.partition_directory().home,
            "segments": [*_segments(planned, reader, self._infos)],
            "aborted": [*_aborted(planned, reader)] if is_committed else [],
        }

    def _reader_of(self, planned: PartitionRange) -> PartitionReader:
        known = self._of
        if (
            self._reader is None
            or known is None
            or (known.source, known.published) != (planned.source, planned.published)
        ):
            self.close()
            self._reader = planned.source.reader(planned.published, planned.aborted)
            self._infos = self._reader.segment_infos()
        self._of = planned
        return self._reader


def _segments(planned: PartitionRange, reader: PartitionReader, infos: Sequence[SegmentInfo]) -> Iterator[Fields]:
    """The segments that the range lies in. ``OffsetOutOfRange`` if the first of them is gone."""
    state = planned.published
    segments = reader.segments(state)
    first = bisect_right(infos, planned.start, key=attrgetter("base_offset")) - 1
    if first < 0:
        raise _removed(planned, infos[0].base_offset)
    for info in infos[first:]:
        base, is_closed = info.base_offset, info.base_offset != state.active_base
        if base >= planned.end:
            return
        if base in segments.swaps:
            raise CorruptSegment(
                f"a compaction is replacing {info.path!r}: load the frame again; if that does not help, the compaction has "
                'died, and maintenance completes it (format("pylog") reads the partition meanwhile)',
                path=info.path, position=0,
            )  # fmt: skip
        following = segments.after(base)
        yield {
            "base": base,
            "nextBase": -1 if following is None else following,
            "path": info.path,
            "sizeBytes": info.size_bytes,
            "isClosed": is_closed,
            "startPosition": _start_position(reader, base, planned.start, following) if base < planned.start else 0,
        }


def _removed(planned: PartitionRange, first: int) -> OffsetOutOfRange:
    """Retention was faster than the planner, which has read the log start before."""
    topic, partition = planned.source.topic_partition
    return OffsetOutOfRange(
        f"offset {planned.start} of {topic}-{partition} was lost: retention has removed what is before offset {first} "
        f"(planned were offsets {planned.start} to {planned.end} of {planned.source.directory!r}); load the frame again",
        topic=topic, partition=partition, offset=planned.start, earliest=first,
    )  # fmt: skip


def _start_position(reader: PartitionReader, base: int, offset: int, following: int | None) -> int:
    """A batch at or before the offset begins there."""
    try:
        segment, end = reader.segment(base, reader.published.current(), following)
        return segment.indexed_start(offset, end)
    except own(FileNotFoundError):
        return 0  # deleted meanwhile: the task says so


def _aborted(planned: PartitionRange, reader: PartitionReader) -> Iterator[Fields]:
    """The aborted transactions that overlap the range."""
    with closing(reader.aborted_since(planned.start)) as transactions:
        for producer_id, first, last, last_stable in transactions:
            if first < planned.end and planned.start <= last:
                yield {"producerId": producer_id, "firstOffset": first, "lastOffset": last}
            if last_stable >= planned.end:
                return  # all later ones began after the range
