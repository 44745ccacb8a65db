"""A directory that Kafka wrote, read by this consumer: record for record what Kafka's own consumer
read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.consumer import Consumer
from pylog.log import Log
from pylog.model import OffsetAndTimestamp, Record, TopicPartition

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
ISOLATIONS = ["read_uncommitted", "read_committed"]
TOPICS = sorted({path.name.partition(".")[0] for path in KAFKA.glob("expected/*.read_uncommitted.jsonl")})
PARTITIONS = [json.loads(line) for line in (KAFKA / "expected" / "partitions.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with Log(KAFKA / "log") as opened:
        yield opened


def hexed(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def as_kafka_shows_it(record: Record, shown: dict[str, Any]) -> dict[str, Any]:
    """The record in the form of the expected files; what a consumer is not told stands as it is
    shown."""
    value: dict[str, Any] = {"value": hexed(record.value)}
    if "value_sha256" in shown:
        value = {"value_sha256": hashlib.sha256(record.value).hexdigest(), "value_bytes": len(record.value)}
    return {
        "partition": record.partition,
        "offset": record.offset,
        "leader_epoch": shown["leader_epoch"],
        "timestamp": record.timestamp_ms,
        "timestamp_type": shown["timestamp_type"],
        "key": hexed(record.key),
        **value,
        "headers": [[name, hexed(value)] for name, value in record.headers],
    }


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("max_poll_records", [1, 500])
def test_every_record_is_the_one_that_kafkas_consumer_read(
    log: Log, topic: str, isolation: str, max_poll_records: int
) -> None:
    expected = expected_records(topic, isolation)
    with Consumer(
        log,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        max_poll_records=max_poll_records,
        consumer_timeout_ms=0,
    ) as consumer:
        consumer.subscribe(topic)
        records = sorted(consumer, key=lambda record: (record.partition, record.offset))
        assert set(consumer.lag().values()) == {0}
    assert [as_kafka_shows_it(*pair) for pair in zip(records, expected, strict=True)] == expected


def expected_records(topic: str, isolation: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (KAFKA / f"expected/{topic}.{isolation}.jsonl").read_text().splitlines()]


def first_record_of(shown: dict[str, Any], question: dict[str, Any]) -> OffsetAndTimestamp | None:
    """Kafka's answer, or the record behind it where Kafka named the marker of a transaction, which
    is nobody's record."""
    offset = question["offset"]
    if offset is None:
        return None
    mine = [r for r in expected_records(shown["topic"], "read_uncommitted") if r["partition"] == shown["partition"]]
    if offset in {record["offset"] for record in mine}:
        return OffsetAndTimestamp(offset, question["found_timestamp"])
    later = (r for r in mine if r["offset"] > offset and r["timestamp"] >= question["timestamp"])
    return next((OffsetAndTimestamp(record["offset"], record["timestamp"]) for record in later), None)


@pytest.mark.parametrize("shown", PARTITIONS, ids=lambda shown: f"{shown['topic']}-{shown['partition']}")
def test_offsets_by_time_and_both_ends_are_what_kafka_said(log: Log, shown: dict[str, Any]) -> None:
    partition = TopicPartition(shown["topic"], shown["partition"])
    with Consumer(log, isolation_level="read_uncommitted") as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: shown["log_start_offset"]}
        assert consumer.end_offsets([partition]) == {partition: shown["high_watermark"]}
        for question in shown["offsets_for_times"]:
            found = consumer.offsets_for_times({partition: question["timestamp"]})[partition]
            assert found == first_record_of(shown, question)
    with Consumer(log) as consumer:
        assert consumer.end_offsets([partition]) == {partition: shown["last_stable_offset"]}
