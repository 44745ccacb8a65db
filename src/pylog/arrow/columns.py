"""The columns of Spark's Kafka source, from what the codec decoded."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pylog.codec import Columns, microseconds
from pylog.codec.batch import BatchView
from pylog.codec.format import INT64_MAX, Buffer
from pylog.errors import InvalidTimestamp
from pylog.model import CREATE_TIME, LOG_APPEND_TIME, TopicPartition

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))  # Spark's own conversion names a list's items so
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

allocate = pa.allocate_buffer
"""Memory to decode into. Arrow's pool keeps freed memory and asks for huge pages. The C library
returns such blocks, and a page fault per 4 KiB of a new one costs more than the decoding."""


def schema(*, headers: bool = False) -> pa.Schema:
    """The columns of Spark's ``KafkaRecordToRowConverter``, ``headers`` last if asked for.

    ``timestampType`` is 0 for the producer's time, 1 for the append's. No headers: null.
    """
    return pa.schema([field for field in _TYPES.items() if headers or field[0] != "headers"])


def record_batch(parts: list[Part], common: Common) -> pa.RecordBatch:
    """The records of these parts. Raises ``InvalidTimestamp`` as ``check_times`` does."""
    count = sum(part.length() for part in parts)
    return pa.RecordBatch.from_arrays([column(parts, count, common) for column in common.columns], schema=common.wanted)


def check_times(columns: Columns, low: int, topic_partition: TopicPartition) -> tuple[int, InvalidTimestamp | None]:
    """The first index from ``low`` whose time overflows microseconds, or the count; the error."""
    times = _integers(columns.timestamps_ms[8 * low :])
    extremes = pc.min_max(times)
    if low == columns.count or max(-extremes["min"].as_py(), extremes["max"].as_py()) <= _LATEST_MS:
        return columns.count, None
    index = low + next(at for at, time in enumerate(int64s(columns.timestamps_ms[8 * low :])) if abs(time) > _LATEST_MS)
    return index, _out_of_range(columns, index, topic_partition)


class Common:
    """Common to a partition's record batches: the columns, and the memory of constant columns."""

    def __init__(self, topic_partition: TopicPartition, wanted: pa.Schema) -> None:
        self.topic_partition = topic_partition
        self.wanted = wanted
        self.columns = [_COLUMNS[name] for name in wanted.names]
        self.topic = _Repeated(_text(topic_partition.topic))
        self.partition = _Repeated(_int32(topic_partition.partition))
        self.timestamp_types = {kind: _Repeated(_int32(kind)) for kind in (CREATE_TIME, LOG_APPEND_TIME)}


class Part(NamedTuple):
    """Records ``low`` to ``high`` (exclusive) of a decoded batch, and their timestamp type."""

    columns: Columns
    low: int
    high: int
    timestamp_type: int

    @classmethod
    def of(cls, view: BatchView, columns: Columns, low: int, high: int) -> Part:
        """Some of the records decoded from ``view``."""
        return cls(columns, low, high, LOG_APPEND_TIME if view.header.is_log_append_time else CREATE_TIME)

    def length(self) -> int:
        return self.high - self.low

    def size_bytes(self) -> int:
        """About the size in Arrow: stored bytes, and 32 a record for the other columns."""
        it = self.columns
        stored = len(it.key_data) + len(it.value_data)
        if it.header_key_data is not None and it.header_value_data is not None:
            stored += len(it.header_key_data) + len(it.header_value_data)
        return stored * self.length() // it.count + 32 * self.length()

    def cut(self, values: Buffer) -> Buffer:
        """The part's values of a column of 64-bit numbers."""
        return values[8 * self.low : 8 * self.high]

    def keys(self) -> pa.Array:
        it = self.columns
        return _slots(pa.binary(), it.key_offsets, it.key_validity, it.key_data, self.low, self.length())

    def values(self) -> pa.Array:
        it = self.columns
        return _slots(pa.binary(), it.value_offsets, it.value_validity, it.value_data, self.low, self.length())

    def headers(self) -> pa.Array:
        """Lists of headers; null for a record without headers, as in Spark's Kafka source."""
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


# Each column is one array for its parts: the decoder's buffers for one part, a copy for several.


def _slots(
    kind: pa.DataType, ends: Buffer | None, validity: Buffer | None, data: Buffer | None, low: int, length: int
) -> pa.Array:
    valid = None if validity is None else _buffer(validity)
    return pa.Array.from_buffers(kind, length, [valid, _buffer(ends), _buffer(data)], offset=low)


def _buffer(data: Buffer | None) -> pa.Buffer:
    """Use a buffer from ``allocate`` without another object around it."""
    return data if isinstance(data, pa.Buffer) else pa.py_buffer(data)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _all(buffers: list[Buffer]) -> Buffer:
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)


def _integers(values: Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values) // 8, [None, _buffer(values)])


_LATEST_MS = INT64_MAX // 1000


def int64s(values: Buffer) -> memoryview[int]:
    return memoryview(values).cast("q")


# One value for many records. ``pa.scalar`` and ``pa.array`` would load an installed pandas: every
# new Spark worker would wait a third of a second.


class _Repeated:
    """One value, repeated. Keeps the longest array and the last: the next is often as long."""

    def __init__(self, one: pa.Array) -> None:
        self._longest = self._last = one

    def times(self, count: int) -> pa.Array:
        if count != len(self._last):
            if count > len(self._longest):
                self._longest = pa.repeat(self._longest[0], count + count // 8)
            self._last = self._longest.slice(0, count)
        return self._last


def _text(value: str) -> pa.Array:
    data = value.encode()
    return _slots(pa.string(), array("i", [0, len(data)]).tobytes(), None, data, 0, 1)


def _int32(value: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(array("i", [value]).tobytes())])


def _timestamps(parts: list[Part], common: Common) -> pa.Array:
    milliseconds = _all([part.cut(part.columns.timestamps_ms) for part in parts])
    found = microseconds(milliseconds, allocate)
    if found is None:
        found = [check_times(part.columns, part.low, common.topic_partition) for part in parts]
        raise next(
            problem for part, (index, problem) in zip(parts, found, strict=True) if problem and index < part.high
        )
    return pa.Array.from_buffers(_MICROSECONDS, len(milliseconds) // 8, [None, _buffer(found)])


def _out_of_range(columns: Columns, index: int, topic_partition: TopicPartition) -> InvalidTimestamp:
    topic, partition = topic_partition
    offset, timestamp_ms = int64s(columns.offsets)[index], int64s(columns.timestamps_ms)[index]
    return InvalidTimestamp(
        f"offset {offset} of {topic}-{partition} has timestamp {timestamp_ms} ms, out of range in microseconds",
        topic=topic, partition=partition, offset=offset, timestamp_ms=timestamp_ms,
    )  # fmt: skip


def _timestamp_types(parts: list[Part], count: int, common: Common) -> pa.Array:
    if len({part.timestamp_type for part in parts}) == 1:
        return common.timestamp_types[parts[0].timestamp_type].times(count)
    runs = groupby(parts, attrgetter("timestamp_type"))
    return _joined([common.timestamp_types[kind].times(sum(part.length() for part in run)) for kind, run in runs])


_COLUMNS: dict[str, Callable[[list[Part], int, Common], pa.Array]] = {
    "key": lambda parts, *_: _joined([part.keys() for part in parts]),
    "value": lambda parts, *_: _joined([part.values() for part in parts]),
    "topic": lambda _, count, common: common.topic.times(count),
    "partition": lambda _, count, common: common.partition.times(count),
    "offset": lambda parts, *_: _integers(_all([part.cut(part.columns.offsets) for part in parts])),
    "timestamp": lambda parts, _, common: _timestamps(parts, common),
    "timestampType": _timestamp_types,
    "headers": lambda parts, *_: _joined([part.headers() for part in parts]),
}
