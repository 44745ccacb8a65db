"""What send takes, and what it refuses before anything is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pylog.errors import (
    Closed,
    InvalidPartition,
    InvalidTimestamp,
    InvalidTopicName,
    RecordTooLarge,
    SerializationError,
    TopicNotFound,
)
from pylog.model import Record, RecordMetadata
from tests.producer.fakes import START_MS, FakeLog


def test_a_record_arrives_with_all_its_parts() -> None:
    log = FakeLog()
    with log.producer() as producer:
        delivery = producer.send("t", b"v", key=b"k", timestamp_ms=7, headers=[("a", b"1"), ("b", None)])
        assert delivery.result() == RecordMetadata("t", 0, 0, 7)
    assert log.partition("t").records == [Record("t", 0, 0, 7, b"k", b"v", (("a", b"1"), ("b", None)))]


def test_a_record_without_a_timestamp_has_the_logs_time() -> None:
    log = FakeLog()
    log.clock.seconds = 1.5
    with log.producer() as producer:
        assert producer.send("t", b"v").result().timestamp_ms == START_MS + 1500


def test_a_log_append_time_topic_decides_the_timestamp() -> None:
    log = FakeLog()
    log.partition("t").append_time_ms = 99
    with log.producer() as producer:
        assert producer.send("t", b"v", timestamp_ms=7).result().timestamp_ms == 99


@pytest.mark.parametrize(
    ("headers", "stored"),
    [
        ((), ()),
        ({}, ()),
        ({"a": b"1", "b": None}, (("a", b"1"), ("b", None))),
        ([("a", b"1"), ("a", b"2")], (("a", b"1"), ("a", b"2"))),
        ((("é", bytearray(b"x")),), (("é", b"x"),)),
    ],
)
def test_headers_are_pairs_or_a_dict(headers: Any, stored: Any) -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"v", headers=headers)
    assert log.partition("t").records[0].headers == stored


def test_headers_that_can_be_read_only_once_are_refused() -> None:
    """The batch that is full would read them, and the one that takes the record find none."""
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"first")
        with pytest.raises(SerializationError, match="headers are zip, expected a sequence"):
            producer.send("t", b"v", headers=zip(["a"], [b"1"], strict=True))
    assert log.partition("t").values == [b"first"]


def test_a_buffer_can_be_reused_once_send_returns() -> None:
    log = FakeLog()
    with log.producer() as producer:
        value = bytearray(b"first")
        producer.send("t", value)
        value[:] = b"other"
    assert log.partition("t").values == [b"first"]


def test_none_is_a_tombstone_and_no_key() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", None, key=None)
    assert log.partition("t").records[0][4:6] == (None, None)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"value": "text"}, SerializationError),
        ({"value": 1}, SerializationError),
        ({"value": b"v", "key": "text"}, SerializationError),
        ({"value": b"v", "key": 5}, SerializationError),
        ({"value": b"v", "headers": [("a", "text")]}, SerializationError),
        ({"value": b"v", "headers": [(b"a", b"x")]}, SerializationError),
        ({"value": b"v", "headers": {1: b"x"}}, SerializationError),
        ({"value": b"v", "headers": 3}, SerializationError),
        ({"value": b"v", "timestamp_ms": -1}, InvalidTimestamp),
        ({"value": b"v", "timestamp_ms": 1 << 63}, InvalidTimestamp),
        ({"value": b"v", "timestamp_ms": 1.5}, InvalidTimestamp),
        ({"value": b"v", "partition": 2}, InvalidPartition),
        ({"value": b"v", "partition": -1}, InvalidPartition),
        ({"value": b"v", "partition": "0"}, InvalidPartition),
        ({"value": b"v", "partition": True}, InvalidPartition),
        ({"value": b"v", "topic": "absent"}, TopicNotFound),
        ({"value": bytes(2 << 20)}, RecordTooLarge),
        ({"value": b"v", "key": bytes(2 << 20)}, RecordTooLarge),
    ],
    ids=str,
)
@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("before", [0, 3])
def test_what_is_wrong_with_a_record_is_raised_at_once_and_spoils_nothing(
    arguments: dict[str, Any], error: type[Exception], linger_ms: int, before: int
) -> None:
    log = FakeLog(partitions=2)
    with log.producer(linger_ms=linger_ms) as producer:
        sent = [producer.send("t", b"%d" % n, key=b"k") for n in range(before)]
        with pytest.raises(error):
            producer.send(**{"topic": "t", **arguments})
        sent.append(producer.send("t", b"after", key=b"k"))
        producer.flush()
        assert [delivery.result().offset for delivery in sent] == list(range(before + 1))
    assert sum(len(partition.records) for partition in log.partitions.values()) == before + 1
    assert producer.metrics()["reserved_bytes"] == 0


@pytest.mark.parametrize("topic", [None, 5, ["t"], b"t"])
def test_a_topic_that_is_no_name_is_refused(topic: Any) -> None:
    with FakeLog().producer() as producer, pytest.raises(InvalidTopicName):
        producer.send(topic, b"v")


def test_serializers_turn_keys_and_values_into_bytes_but_none_stays_none() -> None:
    log = FakeLog()
    with log.producer(key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        producer.send("t", {"a": 1}, key="k")
        producer.send("t", None, key=None)
        producer.send_many("t", [[1], None], keys=[None, "z"])
    assert [record[4:6] for record in log.partition("t").records] == [
        (b"k", b'{"a": 1}'), (None, None), (None, b"[1]"), (b"z", None),
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["key", "value"])
def test_a_serializers_failure_is_the_cause_of_the_error(field: str) -> None:
    log = FakeLog()
    with log.producer(**{f"{field}_serializer": json.dumps}) as producer:
        with pytest.raises(SerializationError, match=f"{field} serializer") as caught:
            producer.send("t", **{"value": b"", "key": b"", field: object()})
        assert isinstance(caught.value.__cause__, TypeError)
        assert caught.value.field == field
    assert log.partitions == {}


def test_what_a_serializer_returns_must_be_bytes() -> None:
    with FakeLog().producer(value_serializer=json.dumps) as producer, pytest.raises(SerializationError, match="str"):
        producer.send("t", {"a": 1})


# Sizes


@pytest.mark.parametrize("batch_bytes", [200, 1000, 10_000])
def test_a_batch_never_exceeds_batch_bytes(batch_bytes: int) -> None:
    log = FakeLog()
    with log.producer(batch_bytes=batch_bytes) as producer:
        for n in range(500):
            producer.send("t", b"%d" % n * (n % 10))
    assert log.partition("t").values == [b"%d" % n * (n % 10) for n in range(500)]
    assert batch_bytes * 0.7 < max(len(batch) for batch in log.partition("t").batches) <= batch_bytes


def test_a_record_larger_than_batch_bytes_goes_alone_and_in_order() -> None:
    log = FakeLog()
    with log.producer(batch_bytes=1000) as producer:
        for value in (b"a", b"b", bytes(5000), b"c", b"d"):
            producer.send("t", value)
    assert log.partition("t").values == [b"a", b"b", bytes(5000), b"c", b"d"]
    assert [header.count for header in log.partition("t").headers] == [2, 1, 2]


def test_the_largest_record_a_topic_takes_fits_exactly_and_one_byte_more_does_not() -> None:
    log = FakeLog(max_message_bytes=5000)
    with log.producer(batch_bytes=1000) as producer:
        with pytest.raises(RecordTooLarge) as caught:
            producer.send("t", bytes(6000))
        largest = 6000 - (caught.value.size_bytes - 5000)
        producer.send("t", bytes(largest))
        with pytest.raises(RecordTooLarge) as caught:
            producer.send("t", bytes(largest + 1))
        assert (caught.value.size_bytes, caught.value.limit_bytes, caught.value.topic) == (5001, 5000, "t")
    assert [len(batch) for batch in log.partition("t").batches] == [5000]


def test_a_batch_never_exceeds_what_the_topic_takes() -> None:
    log = FakeLog(max_message_bytes=500)
    with log.producer() as producer:
        for n in range(100):
            producer.send("t", b"%03d" % n * 20)
    assert max(len(batch) for batch in log.partition("t").batches) <= 500
    assert len(log.partition("t").values) == 100


# Compression


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_the_producer_says_and_otherwise_as_the_topic_says(codec: str) -> None:
    for topic_type, option in ((codec, None), ("producer", codec), ("gzip", codec)):
        log = FakeLog(compression_type=topic_type)
        with log.producer(compression=option) as producer:
            for _ in range(100):
                producer.send("t", b"the same again and again")
        (header,) = log.partition("t").headers
        assert header.codec == ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
        assert log.partition("t").values == [b"the same again and again"] * 100
        assert (producer.metrics()["compression_rate"] < 0.5) == (codec != "none")


def test_bytes_that_do_not_compress_still_fit_the_topic(seed: int) -> None:
    from random import Random

    log = FakeLog(max_message_bytes=4000)
    with log.producer(compression="zstd") as producer:
        for _ in range(50):
            producer.send("t", Random(seed).randbytes(150))
        producer.flush()
    assert len(log.partition("t").values) == 50


# The catalog


def test_an_unknown_topic_is_created_where_the_log_says_so() -> None:
    log = FakeLog()
    log.auto_create_topics = True
    with log.producer() as producer:
        assert producer.send("new", b"v").result().topic == "new"


def test_partitions_added_meanwhile_are_used_from_the_next_batch_on() -> None:
    log = FakeLog(partitions=1)
    with log.producer(partitioner="round_robin") as producer:
        producer.send("t", b"1").result()
        log.add_partitions("t", 3)
        for _ in range(4):
            producer.send("t", b"2").result()
        assert producer.partitions_for("t") == {0, 1, 2}
    assert {number for _, number in log.partitions} == {0, 1, 2}


def test_a_partition_just_added_can_be_named_at_once() -> None:
    log = FakeLog(partitions=1)
    with log.producer() as producer:
        producer.send("t", b"1")
        log.add_partitions("t", 2)
        assert producer.send("t", b"2", partition=1).result().partition == 1


def test_a_topic_deleted_meanwhile_is_not_found_and_one_created_again_is_a_new_one() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"old").result()
        log.delete_topic("t")
        for _ in range(2):
            with pytest.raises(TopicNotFound):
                producer.send("t", b"lost")
        with pytest.raises(TopicNotFound):
            producer.partitions_for("t")
        log.partitions.clear()
        log.create_topic("t", partitions=2)
        assert producer.send("t", b"new", partition=1).result().offset == 0


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_topic_deleted_and_created_between_two_sends_gets_the_second(linger_ms: int) -> None:
    log = FakeLog()
    with log.producer(linger_ms=linger_ms) as producer:
        producer.send("t", b"old").result()
        log.delete_topic("t")
        log.partitions.clear()
        log.create_topic("t")
        assert producer.send("t", b"1").result().offset == 0
        assert producer.send_many("t", [b"2", b"3"]).result()[1].offset == 2
    assert log.partition("t").values == [b"1", b"2", b"3"]


def test_a_producer_looks_at_the_catalog_at_once_when_a_batch_has_failed() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"old").result()
        log.clock.seconds -= 0.01  # for what follows, no time passes
        log.delete_topic("t")
        log.partitions["t", 0].script.append(TopicNotFound("gone"))
        assert producer.send("t", b"lost").exception() is not None
        with pytest.raises(TopicNotFound):
            producer.send("t", b"refused")


def test_settings_changed_meanwhile_shape_the_next_batch() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"v" * 1000).result()
        log.alter_topic("t", compression_type="gzip", max_message_bytes=300)
        producer.send("t", b"v" * 200).result()
        with pytest.raises(RecordTooLarge):
            producer.send("t", b"v" * 1000)
        log.alter_topic("t", compression_type="producer")
        producer.send("t", b"v" * 200).result()
    assert [header.codec for header in log.partition("t").headers] == [0, 1, 0]


# The end


def test_nothing_can_be_sent_after_close_and_closing_again_is_allowed() -> None:
    producer = FakeLog().producer()
    producer.send("t", b"v")
    producer.close()
    producer.close()
    for call in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send("absent", b"v"),
        lambda: producer.send_many("t", [b"v"]),
        lambda: producer.partitions_for("t"),
    ):
        with pytest.raises(Closed):
            call()
    producer.flush()


def test_leaving_the_with_block_writes_everything_also_after_an_error() -> None:
    log = FakeLog()
    with pytest.raises(ZeroDivisionError), log.producer() as producer:  # noqa: PT012 - the error is the last line
        producer.send("t", b"v")
        raise ZeroDivisionError
    assert log.partition("t").values == [b"v"]


def test_metrics_count_what_happened() -> None:
    log = FakeLog()
    with log.producer() as producer:
        for _ in range(10):
            producer.send("t", b"v" * 100)
        assert producer.metrics()["buffered_bytes"] > 1000
        assert producer.metrics()["records_sent"] == 0
        producer.flush()
        metrics = producer.metrics()
    assert metrics["records_sent"] == 10
    assert metrics["batches_sent"] == 1
    assert metrics["bytes_sent"] == metrics["batch_size_avg"] == len(log.partition("t").batches[0])
    assert metrics["records_per_batch_avg"] == 10
    assert metrics["buffered_bytes"] == metrics["reserved_bytes"] == metrics["records_failed"] == 0
