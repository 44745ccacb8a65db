"""Cuts what a query reads into tasks, so that one large partition feeds every core.

Pieces end between batches, where the indexes know of one, about ``splitBytes`` apart; smaller where there would be fewer tasks
than ``minPartitions``. ``maxRecordsPerPartition`` cuts by offsets, as Spark's Kafka source does: gaps count as records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

from pylog.spark.options import Splitting
from pylog.spark.ranges import PartitionRange


def split(planned: Sequence[PartitionRange], splitting: Splitting) -> list[PartitionRange]:
    """The same offsets in the same order, in as many pieces as are asked for."""
    piece_bytes = splitting.piece_bytes
    if splitting.tasks_min > len(planned):
        piece_bytes = max(1, min(piece_bytes, sum(map(size_bytes, planned)) // splitting.tasks_min))
    return [
        piece
        for whole in planned
        for part in _cut(whole, _cuts(whole, piece_bytes))
        for piece in _cut(part, _every(part, splitting.offsets_max))
    ]


def _cuts(whole: PartitionRange, piece_bytes: int) -> list[int]:
    with closing(whole.source.reader(whole.published)) as reader:
        return reader.cuts(whole.start, whole.end, piece_bytes)


def size_bytes(whole: PartitionRange) -> int:
    """About, taking all records for as large as each other."""
    with closing(whole.source.reader(whole.published)) as reader:
        segments = reader.segment_infos()
    there = max(whole.published.log_end_offset - segments[0].base_offset, 1) if segments else 1
    return sum(segment.size_bytes for segment in segments) * (whole.end - whole.start) // there


def _every(whole: PartitionRange, offsets_max: int) -> Iterator[int]:
    return iter(range(whole.start + offsets_max, whole.end, offsets_max) if offsets_max else ())


def _cut(whole: PartitionRange, at: Iterator[int] | list[int]) -> Iterator[PartitionRange]:
    for start, end in pairwise([whole.start, *at, whole.end]):
        yield replace(whole, start=start, end=end)
