"""Batches as Arrow record batches. Memory is bounded by one piece and the largest batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from pylog.arrow.columns import Common, Part, allocate, int64s, record_batch, schema
from pylog.codec import Columns
from pylog.codec.batch import BatchView
from pylog.errors import CorruptRecord
from pylog.interrupts import own
from pylog.model import TopicPartition

PIECE_BYTES = 1 << 20
"""About the size of a record batch: Spark makes rows of Arrow fastest with this size."""


def table(
    views: Iterable[BatchView], topic_partition: TopicPartition, start: int, end: int, *, headers: bool = False
) -> pa.Table:
    """The offsets ``start`` to ``end`` (exclusive) as a table. Raises as ``record_batches``."""
    wanted = schema(headers=headers)
    return pa.Table.from_batches(record_batches(views, topic_partition, start, end, wanted), wanted)


def record_batches(
    views: Iterable[BatchView], topic_partition: TopicPartition, start: int, end: int, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The offsets ``start`` to ``end`` (exclusive), in pieces of about ``PIECE_BYTES``.

    ``views``: checked batches of a partition in order. ``wanted``: fields of ``schema()``.
    Raises ``CorruptRecord``, ``MissingCodec``, ``InvalidTimestamp`` (out of range in microseconds).
    """
    return _pieces(_parts(views, topic_partition, start, end, "headers" in wanted.names), topic_partition, wanted)


def table_of_parts(parts: Iterable[tuple[TopicPartition, Part]], wanted: pa.Schema) -> pa.Table:
    """Decoded records of any partitions as one table, in order; ``check_times`` has seen them."""
    runs = groupby(parts, itemgetter(0))
    pieces = (piece for name, run in runs for piece in _pieces((part for _, part in run), name, wanted))
    return pa.Table.from_batches(pieces, wanted)


def _pieces(parts: Iterable[Part], topic_partition: TopicPartition, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    common = Common(topic_partition, wanted)
    gathered: list[Part] = []
    size_bytes = 0
    for part in parts:
        gathered.append(part)
        size_bytes += part.size_bytes()
        if size_bytes >= PIECE_BYTES:
            yield from _cut(record_batch(gathered, common), size_bytes)
            gathered, size_bytes = [], 0
    if gathered:
        yield from _cut(record_batch(gathered, common), size_bytes)


def _cut(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = -(-batch.num_rows // max(1, size_bytes // PIECE_BYTES))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def _parts(
    views: Iterable[BatchView], topic_partition: TopicPartition, start: int, end: int, with_headers: bool
) -> Iterator[Part]:
    """The records in the range, batch by batch."""
    for view in views:
        if view.base_offset >= end:
            continue  # read with those before it
        columns = _decoded(view, topic_partition, with_headers)
        low, high = 0, columns.count
        if view.base_offset < start or view.last_offset >= end:
            offsets = int64s(columns.offsets)
            low, high = bisect_left(offsets, start), bisect_left(offsets, end)
        if low < high:
            yield Part.of(view, columns, low, high)


def _decoded(view: BatchView, topic_partition: TopicPartition, with_headers: bool) -> Columns:
    try:
        return view.columns(with_headers=with_headers, allocate=allocate)
    except own(CorruptRecord) as damage:
        topic, partition = topic_partition
        raise CorruptRecord(
            f"batch at offset {view.base_offset} of {topic}-{partition}: {damage}",
            **{**damage.facts, "topic": topic, "partition": partition, "offset": view.base_offset},
        ) from damage
