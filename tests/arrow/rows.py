"""What Arrow output is compared with: rows as plain values, made from records without Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch, read_header, stamp
from pylog.codec.compression import codec_id
from pylog.model import CREATE_TIME, ProducerRecord, Record, TopicPartition

TP = TopicPartition("orders", 7)
T0 = 1_700_000_000_000
CORNERS = [
    ProducerRecord(b"value", b"key", (("trace", b"7f"),)),
    ProducerRecord(None, b"tombstone"),
    ProducerRecord(None, None),
    ProducerRecord(b"", b""),
    ProducerRecord(b"many headers", None, (("h", b""), ("h", None), ("", b"x"), ("ключ 鍵", b"\x00\xff"))),
    ProducerRecord(bytes(range(256)), b"\x00", (), T0 - 5_000),
    ProducerRecord(b"far", b"away", (("n", None),), T0 + 10**10),
]


def view_of(
    records: Sequence[ProducerRecord], base_offset: int = 0, *, codec: str = "none", append_time_ms: int | None = None
) -> BatchView:
    """One batch as it stands in a log."""
    encoder = RecordEncoder(1 << 30)
    for record in records:
        encoder.append(
            T0 if record.timestamp_ms is None else record.timestamp_ms, record.key, record.value, record.headers
        )
    batch = build_batch(encoder, codec=codec_id(codec))
    stamp(batch, base_offset, 0, append_time_ms)
    return BatchView(batch, read_header(batch))


def rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a table; ``timestamp`` in microseconds, since Python's own type ends with the
    year 9999."""
    names = table.schema.names
    if "timestamp" in names:
        at = names.index("timestamp")
        table = table.set_column(at, "timestamp", table.column(at).cast(pa.int64()))
    return list(table.to_pylist())


def expected(
    records: Iterable[Record], timestamp_type: int = CREATE_TIME, *, headers: bool = False
) -> list[dict[str, Any]]:
    """The rows that the records must become."""
    found = []
    for record in records:
        row: dict[str, Any] = {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": timestamp_type,
        }
        if headers:
            pairs = [{"key": name, "value": value} for name, value in record.headers]
            row["headers"] = pairs or None
        found.append(row)
    return found
