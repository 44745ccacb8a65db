"""Cuts what a query reads into tasks: a large partition feeds every core, and small ones share a task.

Pieces end between batches, where the indexes know of one, about ``splitBytes`` apart; smaller where there would be fewer tasks
than ``minPartitions``. A rest of less than half a piece goes with the piece before it: it would start a task for little.
``maxRecordsPerPartition`` cuts by offsets, as Spark's Kafka source does: gaps count as records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

from pylog.partition.read.reader import PartitionReader
from pylog.spark.source.options import Splitting
from pylog.spark.source.ranges import PartitionRange, PartitionRanges

TASK_BYTES = 4 << 20
"""What is worth a task of its own: with less, starting it is most of what it does."""


def split(planned: Sequence[PartitionRange], splitting: Splitting) -> list[PartitionRange]:
    """The same offsets in the same order, in as many pieces as are asked for. All know their ``size_bytes``, about."""
    piece_bytes, rest_bytes = splitting.piece_bytes, splitting.piece_bytes // 2
    if splitting.tasks_min > len(planned):
        piece_bytes = max(1, min(piece_bytes, sum(whole.size_bytes for whole in planned) // splitting.tasks_min))
        rest_bytes = 0  # it may be one of the tasks that are asked for
    return [piece for whole in planned for piece in _pieces(whole, piece_bytes, rest_bytes, splitting.offsets_max)]


def coalesce(pieces: Sequence[PartitionRange], splitting: Splitting) -> list[PartitionRanges]:
    """Tasks of these pieces, in the same order: small ones share a task, up to 4 MiB or ``splitBytes``.

    Never fewer tasks than ``minPartitions``, if there are as many pieces; and with ``maxRecordsPerPartition`` each is a task.
    """
    if splitting.offsets_max:
        return [PartitionRanges((piece,)) for piece in pieces]
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
    return [PartitionRanges(tuple(task)) for task in tasks]


def _pieces(whole: PartitionRange, piece_bytes: int, rest_bytes: int, offsets_max: int) -> Iterator[PartitionRange]:
    """Cut by bytes, where as many as ``rest_bytes`` follow, and each piece by offsets."""
    if whole.size_bytes <= piece_bytes and not offsets_max:
        yield whole
        return
    with closing(whole.source.reader(whole.published)) as reader:
        cuts = reader.cuts(whole.start, whole.end, piece_bytes)
        if cuts and reader.size_bytes(cuts[-1], whole.end) < rest_bytes:
            del cuts[-1]
        for start, end in pairwise([whole.start, *cuts, whole.end]):
            for first, last in pairwise([start, *_every(start, end, offsets_max), end]):
                yield sized(reader, whole, first, last)


def sized(reader: PartitionReader, whole: PartitionRange, start: int, end: int) -> PartitionRange:
    """A part of a range, with its ``size_bytes``, about, as it is stored."""
    return replace(whole, start=start, end=end, size_bytes=max(reader.size_bytes(start, end), 1))


def _every(start: int, end: int, offsets_max: int) -> range:
    return range(start + offsets_max, end, offsets_max) if offsets_max else range(0)
