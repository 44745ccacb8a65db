"""Filling a log, reading it, and comparing."""

from __future__ import annotations

from typing import Any

import pytest

from pylog.errors import InvalidPartition, RecordTooLarge, TopicNotFound
from pylog.log import Log
from pylog.model import ProducerRecord, Record
from pylog.testing import assert_records, consume_all, produce_all
from tests.partition.logs import batch, marker

RECORD = Record("t", 0, 4, 99, b"k", b"v", (("h", b"x"),))


def test_what_is_produced_is_consumed_in_order(log: Log) -> None:
    log.create_topic("t")
    sent = [b"value", None, (b"key", b"value"), ProducerRecord(b"v", b"k", [("h", None)], 7)]
    where = produce_all(log, "t", sent)
    assert [(place.partition, place.offset) for place in where] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert where[3].timestamp_ms == 7
    assert_records(consume_all(log, "t"), sent)


def test_everything_comes_by_partition_and_offset(log: Log) -> None:
    log.create_topic("t", partitions=3)
    for number in (2, 0, 1, 2):
        produce_all(log, "t", [b"a", b"b"], partition=number)
    places = [(record.partition, record.offset) for record in consume_all(log, "t")]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]
    assert {record.partition for record in consume_all(log, "t", partition=2)} == {2}


def test_consuming_changes_nothing(log: Log) -> None:
    log.create_topic("t")
    assert consume_all(log, "t") == []
    produce_all(log, "t", [b"a"])
    assert consume_all(log, "t") == consume_all(log, "t")


def test_isolation_is_the_consumers(log: Log) -> None:
    log.create_topic("t")
    log.partition("t", 0).log.append_batch(batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True))
    log.partition("t", 0).log.append_batch(marker(1, 0, commit=False))
    assert len(consume_all(log, "t", isolation_level="read_uncommitted")) == 1
    assert consume_all(log, "t") == []


def test_errors_are_the_librarys(log: Log) -> None:
    with pytest.raises(TopicNotFound):
        produce_all(log, "nope", [b"a"])
    with pytest.raises(TopicNotFound):
        consume_all(log, "nope")
    log.create_topic("t", max_message_bytes=200)
    with pytest.raises(InvalidPartition):
        consume_all(log, "t", partition=1)
    with pytest.raises(RecordTooLarge):
        produce_all(log, "t", [b"x" * 300])


@pytest.mark.parametrize(
    "expected",
    [
        b"v",
        (b"k", b"v"),
        ProducerRecord(b"v", b"k", [("h", b"x")]),
        ProducerRecord(b"v", b"k", [("h", b"x")], 99),
        RECORD,
        {"offset": 4, "partition": 0},
        {"headers": [["h", b"x"]]},
        {},
    ],
)
def test_what_is_equal_passes(expected: Any) -> None:
    assert_records([RECORD], [expected])
    assert_records(iter([RECORD]), iter([expected]))


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        ([b"w"], "record 0 (t-0, offset 4): value is b'v', expected b'w'"),
        ([None], "value is b'v', expected None"),
        ([(None, b"v")], "key is b'k', expected None"),
        ([ProducerRecord(b"v", b"k")], "headers is (('h', b'x'),), expected ()"),
        ([ProducerRecord(b"v", b"k", [("h", b"x")], 98)], "timestamp_ms is 99, expected 98"),
        ([RECORD._replace(topic="u")], "topic is 't', expected 'u'"),
        ([{"offset": 5}], "offset is 4, expected 5"),
        ([{"headers": [("h", b"y")]}], "headers is"),
        ([], "1 records, expected 0; the first not expected: Record("),
        ([b"v", b"w"], "1 records, expected 2; the first missing: b'w'"),
    ],
)
def test_the_first_difference_is_told(expected: list[Any], complaint: str) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_records([RECORD], expected)
    assert complaint in str(failure.value)
