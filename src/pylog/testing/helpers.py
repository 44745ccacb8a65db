"""Helpers to write records, read a topic and compare records. They need no test framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pylog.model import ProducerRecord, Record, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from pylog.log import Log

Sent = bytes | None | tuple[bytes | None, bytes | None] | ProducerRecord
"""A record for ``produce_all``: a value, a (key, value) pair, or a ``ProducerRecord``."""

Expected = Sent | Record | Mapping[str, Any]
"""A record for ``assert_records``: as in ``Sent``, a whole ``Record``, or some fields by name."""


def produce_all(
    log: Log, topic: str, records: Iterable[Sent], *, partition: int | None = None, acks: int | str = 1
) -> list[RecordMetadata]:
    """Send records in order and wait for all of them. Return their metadata in the same order.

    Raises the error of a delivery. With ``acks=1`` tests do not wait for the disk, and every
    process sees the records at once.
    """
    from pylog.producer import Producer

    with Producer(log, acks=acks) as producer:
        deliveries = []
        for sent in records:
            value, key, headers, timestamp_ms = _as_producer_record(sent)
            deliveries.append(
                producer.send(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
            )
        producer.flush()
        return [delivery.result() for delivery in deliveries]


def consume_all(
    log: Log, topic: str, *, partition: int | None = None, isolation_level: str = "read_committed"
) -> list[Record]:
    """The records of a topic or partition up to the current end, by partition, then offset."""
    from pylog.consumer import Consumer

    numbers = log.describe_topic(topic).numbers if partition is None else [partition]
    partitions = [TopicPartition(topic, number) for number in numbers]
    records: list[Record] = []
    with Consumer(log, auto_offset_reset="earliest", isolation_level=isolation_level) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while polled := consumer.poll(0.0):
            records += polled
    inside = [record for record in records if record.offset < ends[TopicPartition(record.topic, record.partition)]]
    return sorted(inside, key=lambda record: (record.partition, record.offset))


def assert_records(records: Iterable[Record], expected: Iterable[Expected]) -> None:
    """Raises ``AssertionError`` at the first difference of ``records`` and ``expected``, in order.

    Only the specified fields are compared: a value (bytes or None) ignores the key, a (key, value)
    pair ignores headers and timestamp, a mapping compares only the fields that it names
    (``{"partition": 0, "value": b"x"}``), and a ``ProducerRecord`` without a timestamp ignores it.
    """
    got, wanted = list(records), list(expected)
    for number, (record, want) in enumerate(zip(got, wanted, strict=False)):
        fields = _expected_fields(want)
        differing = [name for name, value in fields.items() if not _equal(getattr(record, name), value)]
        if differing:
            name = differing[0]
            raise AssertionError(
                f"record {number} ({record.topic}-{record.partition}, offset {record.offset}): "
                f"{name} is {getattr(record, name)!r}, expected {fields[name]!r}"
            )
    if len(got) != len(wanted):
        rest = f"not expected: {got[len(wanted)]!r}" if len(got) > len(wanted) else f"missing: {wanted[len(got)]!r}"
        raise AssertionError(f"{len(got)} records, expected {len(wanted)}; the first {rest}")


def _expected_fields(want: Expected) -> Mapping[str, Any]:
    if isinstance(want, Record):
        return want._asdict()
    if isinstance(want, Mapping):
        return want
    record = _as_producer_record(want)
    if isinstance(want, ProducerRecord):
        fields: dict[str, Any] = {"key": record.key, "value": record.value, "headers": record.headers}
        return fields if record.timestamp_ms is None else {**fields, "timestamp_ms": record.timestamp_ms}
    return {"key": record.key, "value": record.value} if isinstance(want, tuple) else {"value": record.value}


def _as_producer_record(sent: Sent) -> ProducerRecord:
    if isinstance(sent, ProducerRecord):
        return sent
    if isinstance(sent, tuple):
        key, value = sent
        return ProducerRecord(value, key)
    return ProducerRecord(sent)


def _equal(got: object, want: object) -> bool:
    """Compare values; headers compare as pairs in any kind of sequence."""
    if isinstance(got, tuple) and isinstance(want, Sequence) and not isinstance(want, bytes | str):
        return [tuple(item) for item in got] == [tuple(item) for item in want]
    return got == want
