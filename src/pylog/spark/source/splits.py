"""Cuts a query's ranges into tasks: a large partition feeds every core, small ones share a task.

Pieces end at batches in the indexes, about ``splitBytes`` apart, or closer if there would be fewer
tasks than ``minPartitions``. A rest under half a piece joins the piece before it: it is not worth a
task. ``maxRecordsPerPartition`` cuts by offsets, as in Spark's Kafka source: gaps count as records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

from pylog.partition.read.reader import PartitionReader
from pylog.spark.source.options import Splitting
from pylog.spark.source.partition_range import PartitionRange

TASK_BYTES = 4 << 20
"""The size that is worth a task: with less, most of the work is to start the task."""


def split(planned: Sequence[PartitionRange], splitting: Splitting) -> list[PartitionRange]:
    """The same offsets, in order, in pieces with an approximate ``size_bytes``."""
    piece_bytes, rest_bytes = splitting.piece_bytes, splitting.piece_bytes // 2
    if splitting.tasks_min > len(planned):
        piece_bytes = max(1, min(piece_bytes, sum(whole.size_bytes for whole in planned) // splitting.tasks_min))
        rest_bytes = 0  # a rest may be one of the requested tasks
    return [piece for whole in planned for piece in _pieces(whole, piece_bytes, rest_bytes, splitting.offsets_max)]


def coalesce(pieces: Sequence[PartitionRange], splitting: Splitting) -> list[tuple[PartitionRange, ...]]:
    """Tasks of these pieces in order: small pieces share a task, up to 4 MiB or ``splitBytes``.

    At least ``minPartitions`` tasks if possible. ``maxRecordsPerPartition``: each piece is a task.
    """
    if splitting.offsets_max:
        return [(piece,) for piece in pieces]
    room_bytes = min(TASK_BYTES, splitting.piece_bytes)
    tasks: list[list[PartitionRange]] = []
    left_bytes = 0
    for number, piece in enumerate(pieces):
        is_one_needed = len(tasks) + len(pieces) - number <= splitting.tasks_min
        if tasks and piece.size_bytes <= left_bytes and not is_one_needed:
            tasks[-1].append(piece)
        else:
            tasks.append([piece])
            left_bytes = room_bytes
        left_bytes -= max(piece.size_bytes, 1)
    return [tuple(task) for task in tasks]


def _pieces(whole: PartitionRange, piece_bytes: int, rest_bytes: int, offsets_max: int) -> Iterator[PartitionRange]:
    """Cut by bytes, if at least ``rest_bytes`` follow, and each piece by offsets."""
    if whole.size_bytes <= piece_bytes and not offsets_max:
        yield whole
        return
    with closing(whole.source.reader(whole.published)) as reader:
        cuts = reader.cuts(whole.start, whole.end, piece_bytes)
        if cuts and reader.size_bytes(cuts[-1], whole.end) < rest_bytes:
            del cuts[-1]
        for start, end in pairwise([whole.start, *cuts, whole.end]):
            every = range(start + offsets_max, end, offsets_max) if offsets_max else ()
            for first, last in pairwise([start, *every, end]):
                yield sized(reader, whole, first, last)


def sized(reader: PartitionReader, whole: PartitionRange, start: int, end: int) -> PartitionRange:
    """A part of a range, with its approximate stored ``size_bytes``."""
    return replace(whole, start=start, end=end, size_bytes=max(reader.size_bytes(start, end), 1))
