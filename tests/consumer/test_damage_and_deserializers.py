"""Damage and deserializers that fail: the records before are delivered, nothing is lost, nothing is
swallowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.consumer import Consumer
from pylog.errors import CorruptRecord, MissingCodec, OffsetOutOfRange, SerializationError, StorageError
from pylog.model import Record, TopicPartition
from tests.codec.reference import take_payload
from tests.consumer.fakes import FakeLog, consumer_of, numbered, offsets, values

ORDERS = TopicPartition("orders", 0)


def damaged_log() -> FakeLog:
    """Offsets 0 to 99 in batches of ten; the batch of 30 to 39 is damaged."""
    log = FakeLog(orders=1)
    for start in range(0, 100, 10):
        log["orders"].append(*numbered(start, start + 10))
    log["orders"].damaged.add(30)
    return log


def badly_framed(*values: bytes) -> bytearray:
    """A batch whose checksum is right and whose last record is not."""
    encoder = RecordEncoder(1 << 20)
    for value in values:
        encoder.append(1, None, value, ())
    payload = bytearray(take_payload(encoder))
    payload[-1] ^= 0x7E  # headersCount of the last record
    whole = RecordEncoder(1 << 20)
    for value in values:
        whole.append(1, None, value, ())
    batch = build_batch(whole)
    batch[-len(payload) :] = payload
    from pylog.codec.header import _write_crc

    _write_crc(batch)
    return batch


def drain(poll: Callable[[], list[Any]]) -> tuple[list[int], CorruptRecord | None]:
    read: list[int] = []
    while True:
        try:
            records = poll()
        except CorruptRecord as error:
            return read, error
        if not records:
            return read, None
        read += offsets(records)


def poll_of(consumer: Consumer, way: str) -> Callable[[], list[Any]]:
    """``poll``, or ``poll_arrow`` with its rows as records."""
    if way == "poll":
        return consumer.poll

    def poll_arrow() -> list[Any]:
        table = consumer.poll_arrow()
        columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "value")]
        rows = zip(*columns, strict=True)
        return [Record(topic, number, offset, 0, None, value, ()) for topic, number, offset, value in rows]

    return poll_arrow


WAYS = pytest.mark.parametrize("way", ["poll", "poll_arrow"])


@WAYS
@pytest.mark.parametrize("max_records", [1, 7, 10, 30, 31, 500])
def test_the_records_before_damage_are_delivered_then_it_is_raised_and_seeking_past_it_goes_on(
    max_records: int, way: str
) -> None:
    consumer = consumer_of(damaged_log(), "orders", max_poll_records=max_records)
    poll = poll_of(consumer, way)
    read, error = drain(poll)
    assert read == list(range(30))
    assert error is not None
    assert (error.topic, error.partition, error.offset) == ("orders", 0, 30)
    assert consumer.position(ORDERS) == 30
    again = drain(poll)
    assert again[0] == []
    assert again[1] is not None
    consumer.seek(ORDERS, error.next_offset)
    assert drain(poll) == (list(range(40, 100)), None)


def test_an_iteration_raises_damage_behind_the_records_before_it() -> None:
    consumer = consumer_of(damaged_log(), "orders")
    read: list[int] = []
    with pytest.raises(CorruptRecord):
        read.extend(record.offset for record in consumer)
    assert read == list(range(30))
    assert consumer.position(ORDERS) == 30


@WAYS
@pytest.mark.parametrize("max_records", [1, 7, 500])
def test_a_batch_that_decodes_to_nonsense_is_named_with_its_offsets(max_records: int, way: str) -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    log["orders"].log.append_batch(badly_framed(b"10"))
    log["orders"].append(*numbered(11, 20))
    consumer = consumer_of(log, "orders", max_poll_records=max_records)
    poll = poll_of(consumer, way)
    read, error = drain(poll)
    assert read == list(range(10))
    assert error is not None
    assert (
        error.facts.items()
        >= {"topic": "orders", "partition": 0, "offset": 10, "base_offset": 10, "next_offset": 11}.items()
    )
    assert "orders-0, batch of offsets 10 to 10" in str(error)
    assert isinstance(error.__cause__, CorruptRecord)
    consumer.seek(ORDERS, error.next_offset)
    assert drain(poll) == (list(range(11, 20)), None)


@WAYS
def test_nothing_of_a_small_damaged_batch_is_returned(way: str) -> None:
    log = FakeLog(orders=1)
    log["orders"].log.append_batch(badly_framed(*numbered(0, 5)))
    read, error = drain(poll_of(consumer_of(log, "orders"), way))
    assert read == []
    assert error is not None
    assert error.offset == 0
    assert error.next_offset == 5


@WAYS
def test_a_damaged_partition_does_not_keep_the_others_from_being_read(way: str) -> None:
    log = FakeLog(orders=3)
    for number in range(3):
        for start in range(0, 100, 10):
            log.partition("orders", number).append(*numbered(start, start + 10))
    log.partition("orders", 1).damaged.add(0)
    consumer = consumer_of(log, "orders", max_poll_records=20)
    read, damaged = [], []
    for _ in range(40):
        try:
            read += [(record.partition, record.offset) for record in poll_of(consumer, way)()]
        except CorruptRecord as error:
            damaged.append(error.partition)
    assert sorted(read) == [(number, offset) for number in (0, 2) for offset in range(100)]
    assert set(damaged) == {1}
    assert len(damaged) > 5


@WAYS
def test_damage_met_behind_good_records_is_raised_by_the_very_next_poll(way: str) -> None:
    log = FakeLog(orders=3)
    for number in range(3):
        log.partition("orders", number).append(*numbered(0, 5))
        log.partition("orders", number).append(*numbered(5, 100))
    log.partition("orders", 1).damaged.add(0)
    consumer = consumer_of(log, "orders", max_poll_records=150)
    poll = poll_of(consumer, way)
    assert {record.partition for record in poll()} == {0}
    with pytest.raises(CorruptRecord):
        poll()
    assert {record.partition for record in poll()} == {2}


@WAYS
def test_an_offset_that_stays_out_of_range_after_the_reset_is_raised(way: str) -> None:
    log = FakeLog(orders=1)
    log["orders"].fetch_error = OffsetOutOfRange("whatever the offset", earliest=0, latest=0)
    consumer = consumer_of(log, "orders")
    with pytest.raises(OffsetOutOfRange):
        poll_of(consumer, way)()


@WAYS
def test_a_codec_that_is_missing_is_raised_with_the_place(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    log["orders"].append(*[b"x" * 100] * 10, codec="gzip")

    def absent(*_: object) -> bytes:
        raise MissingCodec("gzip is not installed")

    monkeypatch.setattr("pylog.codec.batch.decompress", absent)
    consumer = consumer_of(log, "orders")
    poll = poll_of(consumer, way)
    assert offsets(poll()) == list(range(10))
    with pytest.raises(MissingCodec) as caught:
        poll()
    assert caught.value.facts.items() >= {"topic": "orders", "partition": 0, "offset": 10}.items()
    monkeypatch.undo()
    assert offsets(poll()) == list(range(10, 20))


@WAYS
def test_a_disk_that_fails_is_raised_and_reading_goes_on_once_it_works(way: str) -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    poll = poll_of(consumer_of(log, "orders"), way)
    log["orders"].fetch_error = StorageError("the disk says no", path="orders-0")
    with pytest.raises(StorageError) as caught:
        poll()
    assert caught.value.facts == {"path": "orders-0", "topic": "orders", "partition": 0, "offset": 0}
    log["orders"].fetch_error = None
    assert offsets(poll()) == list(range(10))


# Deserializers


def poisoned_log() -> FakeLog:
    log = FakeLog(orders=1)
    for start in range(0, 40, 10):
        log["orders"].append(
            *[b"{" if number == 17 else b"%d" % number for number in range(start, start + 10)], key=b"k"
        )
    return log


@pytest.mark.parametrize("max_records", [1, 8, 17, 18, 500])
@pytest.mark.parametrize("way", ["poll", "iteration"])
def test_a_record_that_cannot_be_deserialized_is_named_behind_the_good_ones_and_skipped_by_a_seek(
    max_records: int, way: str
) -> None:
    consumer = consumer_of(
        poisoned_log(), "orders", value_deserializer=json.loads, max_poll_records=max_records, consumer_timeout_ms=0
    )

    def read_all(into: list[Any]) -> None:
        if way == "iteration":
            into.extend(record.value for record in consumer)
        while records := consumer.poll():
            into.extend(values(records))

    for _ in range(2):
        read: list[Any] = []
        with pytest.raises(SerializationError, match="value_deserializer failed on orders-0 at offset 17") as caught:
            read_all(read)
        assert read == ([] if _ else list(range(17))) or way == "iteration"
        assert caught.value.facts == {"topic": "orders", "partition": 0, "offset": 17, "field": "value"}
        assert isinstance(caught.value.__cause__, ValueError)
        assert consumer.position(ORDERS) == 17
    consumer.seek(ORDERS, 18)
    read = []
    read_all(read)
    assert read == list(range(18, 40))


def test_an_iteration_gives_out_the_good_records_before_it_raises() -> None:
    consumer = consumer_of(poisoned_log(), "orders", value_deserializer=json.loads)
    read: list[tuple[int, int]] = []
    with pytest.raises(SerializationError):
        read.extend((record.value, consumer.position(ORDERS)) for record in consumer)
    assert read == [(offset, offset + 1) for offset in range(17)]


def test_an_interrupted_iteration_before_a_poisoned_record_finds_it_again() -> None:
    consumer = consumer_of(poisoned_log(), "orders", value_deserializer=json.loads)
    for record in consumer:
        if record.offset == 5:
            break
    assert values(consumer.poll()) == list(range(6, 17))
    with pytest.raises(SerializationError):
        consumer.poll()


def test_pausing_between_good_records_and_a_failure_met_behind_them_raises_it_no_earlier() -> None:
    consumer = consumer_of(poisoned_log(), "orders", value_deserializer=json.loads)
    for record in consumer:
        if record.offset == 5:
            break
    consumer.pause(ORDERS)
    consumer.resume(ORDERS)
    assert values(consumer.poll()) == list(range(6, 17))
    with pytest.raises(SerializationError):
        consumer.poll()


def test_records_given_back_come_before_a_failure_met_behind_them_however_few_are_taken_at_a_time() -> None:
    consumer = consumer_of(poisoned_log(), "orders", value_deserializer=json.loads)
    for record in consumer:
        if record.offset == 5:
            break
    assert [values(consumer.poll(max_records=4)) for _ in range(3)] == [[6, 7, 8, 9], [10, 11, 12, 13], [14, 15, 16]]
    with pytest.raises(SerializationError):
        consumer.poll()


def test_the_first_of_two_failures_is_raised_first() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"0", b"{", b"2")
    log["orders"].log.append_batch(badly_framed(b"3"))
    consumer = consumer_of(log, "orders", value_deserializer=json.loads)
    assert values(consumer.poll()) == [0]
    with pytest.raises(SerializationError) as caught:
        consumer.poll()
    consumer.seek(ORDERS, caught.value.offset + 1)
    assert values(consumer.poll()) == [2]
    with pytest.raises(CorruptRecord):
        consumer.poll()


def test_keys_and_values_are_deserialized_and_none_stays_none() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"1", None, key=b"k")
    log["orders"].append(b"2")
    consumer = consumer_of(log, "orders", key_deserializer=bytes.decode, value_deserializer=int)
    assert [(record.key, record.value) for record in consumer.poll()] == [("k", 1), ("k", None), (None, 2)]


def test_a_key_that_cannot_be_deserialized_is_called_a_key() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"1", key=b"\xff")
    with pytest.raises(SerializationError, match="key_deserializer") as caught:
        consumer_of(log, "orders", key_deserializer=bytes.decode).poll()
    assert caught.value.field == "key"
