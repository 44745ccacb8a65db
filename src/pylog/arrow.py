"""Batches as Arrow record batches, with the columns of Spark's Kafka source. Reads no file and knows no log.

The buffers of keys, values and offsets are the decoder's own, not copies, where one batch fills a piece; small batches are
put together. Memory is bounded by a piece and the largest batch, whatever the number of batches. Loading this module
needs pyarrow, so nothing imports it before it is asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pylog.codec import Columns
from pylog.codec.batch import BatchView
from pylog.codec.format import INT64_MAX
from pylog.errors import ConfigError, CorruptRecord, InvalidTimestamp
from pylog.model import CREATE_TIME, LOG_APPEND_TIME, TopicPartition

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ConfigError(
        "Arrow output needs pyarrow, which is not installed: pip install 'pylog-embedded[arrow]', or pip install pyarrow",
        extra="arrow",
    ) from error

PIECE_BYTES = 1 << 20
"""About how much one record batch holds: Spark's way from Arrow to rows is fastest with pieces of this size."""

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))  # the name Spark's own conversion gives to what is in a list
_MICROSECONDS = pa.timestamp("us", tz="UTC")
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _MICROSECONDS,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}


def schema(*, headers: bool = False) -> pa.Schema:
    """The columns of Spark's Kafka source (its ``KafkaRecordToRowConverter``), ``headers`` the last of them if asked for.

    ``timestampType`` is 0 for the producer's time, 1 for the time of the append. A record without headers has null there.
    """
    return pa.schema([field for field in _TYPES.items() if headers or field[0] != "headers"])


def table(
    views: Iterable[BatchView], topic_partition: TopicPartition, start: int, end: int, *, headers: bool = False
) -> pa.Table:
    """The records of ``views`` from offset ``start`` to ``end`` (exclusive) as one table. Raises as ``record_batches``."""
    wanted = schema(headers=headers)
    return pa.Table.from_batches(record_batches(views, topic_partition, start, end, wanted), wanted)


def record_batches(
    views: Iterable[BatchView], topic_partition: TopicPartition, start: int, end: int, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The records of ``views`` from offset ``start`` to ``end`` (exclusive), in pieces of about ``PIECE_BYTES``.

    ``views`` are checked batches of one partition in order. ``wanted`` is ``schema()``, or some of its fields in any order.
    Raises ``CorruptRecord``, ``MissingCodec``, and ``InvalidTimestamp`` for a time that is out of range in microseconds.
    """
    piece = _Piece(topic_partition, wanted)
    for view in views:
        piece.add(view, start, end)
        if piece.size_bytes >= PIECE_BYTES:
            yield from piece.take()
    yield from piece.take()


class _Piece:
    """Gathers parts of one partition until they are enough for a record batch."""

    def __init__(self, topic_partition: TopicPartition, wanted: pa.Schema) -> None:
        self._topic_partition = topic_partition
        self._wanted = wanted
        self._with_headers = "headers" in wanted.names
        self._parts: list[_Part] = []
        self.size_bytes = 0

    def add(self, view: BatchView, start: int, end: int) -> None:
        """Take the records of one batch that are in the range."""
        columns = self._decode(view)
        low, high = 0, columns.count
        if view.base_offset < start or view.last_offset >= end:
            offsets = _int64s(columns.offsets)
            low, high = bisect_left(offsets, start), bisect_left(offsets, end)
        if low < high:
            part = _Part(columns, low, high, LOG_APPEND_TIME if view.header.is_log_append_time else CREATE_TIME)
            self._parts.append(part)
            self.size_bytes += part.size_bytes()

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was added, as record batches; nothing if there was nothing."""
        parts, self._parts = self._parts, []
        size_bytes, self.size_bytes = self.size_bytes, 0
        if parts:
            arrays = [_COLUMNS[name](parts, self._topic_partition) for name in self._wanted.names]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._wanted)
            rows = -(-batch.num_rows // max(1, size_bytes // PIECE_BYTES))
            yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))

    def _decode(self, view: BatchView) -> Columns:
        try:
            return view.columns(with_headers=self._with_headers)
        except CorruptRecord as damage:
            topic, partition = self._topic_partition
            raise CorruptRecord(
                f"batch at offset {view.base_offset} of {topic}-{partition}: {damage}",
                **{**damage.facts, "topic": topic, "partition": partition, "offset": view.base_offset},
            ) from damage


class _Part(NamedTuple):
    """Records ``low`` to ``high`` (exclusive) of one decoded batch, and which kind of timestamps they have."""

    columns: Columns
    low: int
    high: int
    timestamp_type: int

    def length(self) -> int:
        return self.high - self.low

    def size_bytes(self) -> int:
        """About what Arrow takes for it: what was stored, and 32 bytes a record for the other columns."""
        it = self.columns
        stored = len(it.key_data) + len(it.value_data)
        if it.header_key_data is not None and it.header_value_data is not None:
            stored += len(it.header_key_data) + len(it.header_value_data)
        return stored * self.length() // it.count + 32 * self.length()

    def offsets(self) -> bytes:
        return self.columns.offsets[8 * self.low : 8 * self.high]

    def timestamps_ms(self) -> bytes:
        return self.columns.timestamps_ms[8 * self.low : 8 * self.high]

    def keys(self) -> pa.Array:
        it = self.columns
        return _slots(pa.binary(), it.key_offsets, it.key_validity, it.key_data, self.low, self.length())

    def values(self) -> pa.Array:
        it = self.columns
        return _slots(pa.binary(), it.value_offsets, it.value_validity, it.value_data, self.low, self.length())

    def headers(self) -> pa.Array:
        """Lists of headers; null where there are none, as Spark's Kafka source has it."""
        it = self.columns
        count = len(it.header_key_offsets or b"") // 4 - 1
        names = _slots(pa.string(), it.header_key_offsets, None, it.header_key_data, 0, count)
        values = _slots(pa.binary(), it.header_value_offsets, it.header_value_validity, it.header_value_data, 0, count)
        bounds = pa.Array.from_buffers(pa.int32(), it.count + 1, [None, pa.py_buffer(it.header_list_offsets)])
        return pa.ListArray.from_arrays(
            bounds,
            pa.StructArray.from_arrays([names, values], fields=[*_HEADER]),
            type=_HEADERS,
            mask=pc.equal(bounds.slice(1), bounds.slice(0, it.count)),
        ).slice(self.low, self.length())


# Each column is one array of some parts: the decoder's buffers where there is one part, a copy where there are more.


def _slots(
    kind: pa.DataType, ends: bytes | None, validity: bytes | None, data: bytes | None, low: int, length: int
) -> pa.Array:
    valid = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, length, [valid, pa.py_buffer(ends), pa.py_buffer(data)], offset=low)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _integers(values: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values) // 8, [None, pa.py_buffer(values)])


_US_PER_MS = _integers(array("q", [1000]).tobytes())[0]


def _int64s(values: bytes) -> memoryview[int]:
    return memoryview(values).cast("q")


# One value for many records. Not made with ``pa.scalar`` or ``pa.array``: those load pandas where it is installed, a third
# of a second for which every new Spark worker would wait.


def _repeated(one: pa.Array, parts: Iterable[_Part]) -> pa.Array:
    return pa.repeat(one[0], sum(part.length() for part in parts))


def _text(value: str) -> pa.Array:
    data = value.encode()
    return _slots(pa.string(), array("i", [0, len(data)]).tobytes(), None, data, 0, 1)


def _int32(value: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(array("i", [value]).tobytes())])


def _offsets(parts: list[_Part]) -> pa.Array:
    return _integers(b"".join([part.offsets() for part in parts]))


def _timestamps(parts: list[_Part], topic_partition: TopicPartition) -> pa.Array:
    milliseconds = b"".join([part.timestamps_ms() for part in parts])
    try:
        return pc.multiply_checked(_integers(milliseconds), _US_PER_MS).view(_MICROSECONDS)
    except pa.ArrowInvalid as error:
        topic, partition = topic_partition
        times = _int64s(milliseconds)
        at = next(at for at, time in enumerate(times) if abs(time) > INT64_MAX // 1000)
        offset = _offsets(parts)[at].as_py()
        raise InvalidTimestamp(
            f"offset {offset} of {topic}-{partition} has timestamp {times[at]} ms, out of range in microseconds",
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=times[at],
        ) from error


def _timestamp_types(parts: list[_Part]) -> pa.Array:
    runs = groupby(parts, attrgetter("timestamp_type"))
    return _joined([_repeated(_int32(kind), run) for kind, run in runs])


_COLUMNS: dict[str, Callable[[list[_Part], TopicPartition], pa.Array]] = {
    "key": lambda parts, _: _joined([part.keys() for part in parts]),
    "value": lambda parts, _: _joined([part.values() for part in parts]),
    "topic": lambda parts, of: _repeated(_text(of.topic), parts),
    "partition": lambda parts, of: _repeated(_int32(of.partition), parts),
    "offset": lambda parts, _: _offsets(parts),
    "timestamp": _timestamps,
    "timestampType": lambda parts, _: _timestamp_types(parts),
    "headers": lambda parts, _: _joined([part.headers() for part in parts]),
}
