"""What applications read, ``Partition.scan``, as the verdict that readers of Spark give: no code of
Spark's source, no Arrow."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pylog import Log
from pylog.model import CREATE_TIME, LOG_APPEND_TIME, Record
from pylog.spark.source.partition_range import PartitionRange

_INT64 = struct.Struct(">q")


def plain_verdict(path: Path, ranges: Iterable[PartitionRange]) -> str:
    """``rows <count> <CRC-32>`` over all columns of the records of these ranges."""
    crc = count = 0
    with Log(path, read_only=True) as log:
        for planned in ranges:
            partition = planned.source.topic_partition
            kind = _timestamp_type(log, partition.topic)
            for record in log.partition(*partition).scan(planned.start, isolation_level=planned.isolation_level):
                if record.offset >= planned.end:
                    break
                crc = zlib.crc32(b"".join(_columns(record, kind)), crc)
                count += 1
    return f"rows {count} {crc}"


def _timestamp_type(log: Log, topic: str) -> int:
    """By the topic's settings; of Kafka's, which are not in its segments, by the name of the golden
    topic."""
    is_appended = log.describe_topic(topic).config.message_timestamp_type == "LogAppendTime"
    return LOG_APPEND_TIME if is_appended or topic == "log-append-time" else CREATE_TIME


def _columns(record: Record, kind: int) -> Iterator[bytes]:
    """As ``Verdicts.java`` encodes them."""
    yield from _bytes(record.key)
    yield from _bytes(record.value)
    yield from _bytes(record.topic.encode())
    for number in (record.partition, record.offset, record.timestamp_ms * 1000, kind):
        yield _INT64.pack(number)
    yield _INT64.pack(len(record.headers) or -1)
    for name, value in record.headers:
        yield from _bytes(name.encode())
        yield from _bytes(value)


def _bytes(value: bytes | None) -> tuple[bytes, bytes]:
    return (_INT64.pack(-1), b"") if value is None else (_INT64.pack(len(value)), value)
