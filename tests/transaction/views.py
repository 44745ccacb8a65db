"""What every face of the library shows of a topic, by default with ``read_committed``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pylog import Consumer, Log, TopicPartition
from pylog.partition.read.visibility import WRITTEN
from tests.spark import reading

TOPIC = "t"
Offsets = dict[int, int]
Seen = dict[int, list[str]]
"""The values of a topic, by partition."""


def by_read(log: Log, starts: Offsets, **level: Any) -> Seen:
    found: Seen = {}
    for number, start in starts.items():
        partition, offset, values = log.partition(TOPIC, number), start, found.setdefault(number, [])
        while records := partition.read(offset, **level):
            values += [record.value.decode() for record in records]
            offset = records[-1].offset + 1
    return found


def by_read_of_single_batches(log: Log, starts: Offsets, **level: Any) -> Seen:
    return by_read(log, starts, max_bytes=1, **level)


def by_scan(log: Log, starts: Offsets, **level: Any) -> Seen:
    return {
        number: [record.value.decode() for record in log.partition(TOPIC, number).scan(start, **level)]
        for number, start in starts.items()
    }


def by_arrow(log: Log, starts: Offsets, **level: Any) -> Seen:
    tables = {number: log.partition(TOPIC, number).to_arrow(start, **level) for number, start in starts.items()}
    return {number: [value.decode() for value in table.column("value").to_pylist()] for number, table in tables.items()}


def by_consumer(log: Log, starts: Offsets, **level: Any) -> Seen:
    found: Seen = {number: [] for number in starts}
    with consumer_at(log, starts, **level) as consumer:
        while records := consumer.poll():
            for record in records:
                found[record.partition].append(record.value.decode())
        assert sum(consumer.lag().values()) == 0
    return found


def by_consumer_arrow(log: Log, starts: Offsets, **level: Any) -> Seen:
    found: Seen = {number: [] for number in starts}
    with consumer_at(log, starts, **level) as consumer:
        while (table := consumer.poll_arrow()).num_rows:
            for number, value in zip(
                table.column("partition").to_pylist(), table.column("value").to_pylist(), strict=True
            ):
                found[number].append(value.decode())
    return found


def by_spark(log: Log, starts: Offsets, isolation_level: str = "read_committed") -> Seen:
    found: Seen = {number: [] for number in starts}
    ends = {
        number: log.partition(TOPIC, number).log.end_offset(isolation_level, WRITTEN) for number in starts
    }  # a start after it is an error
    starting = {TOPIC: {str(number): min(start, ends[number]) for number, start in starts.items()}}
    for row in reading.read(log.path, subscribe=TOPIC, startingOffsets=starting, isolationLevel=isolation_level):
        found[row["partition"]].append(row["value"].decode())
    return found


def consumer_at(log: Log, starts: Offsets, **options: Any) -> Consumer:
    consumer = Consumer(log, **options)
    consumer.assign([TopicPartition(TOPIC, number) for number in starts])
    for number, start in starts.items():
        consumer.seek(TopicPartition(TOPIC, number), start)
    return consumer


FACES: dict[str, Callable[..., Seen]] = {
    "read": by_read,
    "read of single batches": by_read_of_single_batches,
    "scan": by_scan,
    "arrow": by_arrow,
    "consumer": by_consumer,
    "consumer's arrow": by_consumer_arrow,
    "spark": by_spark,
}


def seen(log: Log, start: int = 0, **level: Any) -> Seen:
    """The same by every face; ``AssertionError`` if two of them differ."""
    starts = {
        number: min(start, log.partition(TOPIC, number).latest_offset) for number in log.describe_topic(TOPIC).numbers
    }
    found = {name: face(log, starts, **level) for name, face in FACES.items()}
    first = found["read"]
    differing = {name: each for name, each in found.items() if each != first}
    assert not differing, (first, differing)
    return first


def seen_read_only(root: Path, start: int = 0, **level: Any) -> Seen:
    with Log(root, read_only=True) as log:
        return seen(log, start, **level)
