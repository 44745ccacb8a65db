"""Records without a key in compacted topics: no way of sending takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylog import Log, Partition, Producer, ProducerRecord
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.errors import InvalidRecord
from pylog.producer.keys import require_keys
from tests.producer.fakes import FakeLog

POLICIES = ["compact", "compact,delete"]


def batch_of(*keys: bytes | None) -> bytes:
    encoder = RecordEncoder(10_000)
    for number, key in enumerate(keys):
        encoder.append(1000 + number, key, b"v", ())
    return bytes(build_batch(encoder))


def table_of(keys: list[bytes | None], **columns: Any) -> pa.Table:
    return pa.table({"key": keys, "value": [b"v"] * len(keys), **columns})


SENDS: dict[str, tuple[Callable[[Producer], object], int]] = {
    "send": (lambda p: p.send("t", b"v"), 0),
    "send, partition": (lambda p: p.send("t", b"v", partition=0), 0),
    "tombstone": (lambda p: p.send("t", None), 0),
    "send_many, no keys": (lambda p: p.send_many("t", [b"v"]), 0),
    "send_many": (lambda p: p.send_many("t", [b"v"] * 4, keys=[b"a", b"b", None, b"c"]), 2),
    "send_many, partition": (lambda p: p.send_many("t", [b"v"] * 4, keys=[b"a", b"b", None, b"c"], partition=0), 2),
    "send_arrow": (lambda p: p.send_arrow("t", table_of([b"a", None])), 1),
    "send_arrow, times": (lambda p: p.send_arrow("t", table_of([b"a", None], timestamp=[5, 6])), 1),
}


@pytest.mark.parametrize("way", SENDS)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("linger_ms", [0, 60_000])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_send_takes_a_record_without_a_key(
    tmp_log_dir: Path, way: str, partitions: int, linger_ms: int, before: int, policy: str
) -> None:
    send, accepted = SENDS[way]
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=partitions, cleanup_policy=policy)
        with Producer(log, linger_ms=linger_ms) as producer:
            for number in range(partitions if before else 0):
                producer.send("t", b"v", key=b"k", partition=number)
            with pytest.raises(InvalidRecord, match="give the record a key") as caught:
                send(producer)
            assert (caught.value.topic, caught.value.index) == ("t", accepted)
            producer.send("t", b"v", key=b"k", partition=0)
        records = [record for number in range(partitions) for record in log.partition("t", number).scan()]
    assert len(records) == (partitions if before else 0) + accepted + 1
    assert all(record.key is not None for record in records)


def test_an_empty_key_is_a_key(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", cleanup_policy="compact")
        with Producer(log) as producer:
            producer.send("t", b"v", key=b"")
            producer.send_many("t", [b"v"], keys=[b""])
        assert [record.key for record in log.partition("t", 0).scan()] == [b"", b""]


def test_many_records_are_looked_at_once_however_many_batches_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(is_compacted=True)
    looks: list[tuple[int, int]] = []

    def look(topic: str, keys: Any, start: int, stop: int) -> None:
        looks.append((start, stop))
        require_keys(topic, keys, start, stop)

    monkeypatch.setattr("pylog.producer.send_many.require_keys", look)
    with log.producer(batch_bytes=150) as producer:
        producer.send_many("t", [b"v"] * 1000, keys=[b"k"] * 1000)
    assert len(log.partition("t").records) == 1000
    assert looks == [(0, 1000)]


def test_a_named_producer_counts_no_record_that_was_refused(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", cleanup_policy="compact")
        with Producer(log, name="import") as producer:
            producer.send("t", b"v", key=b"k", sequence=4)
            with pytest.raises(InvalidRecord):
                producer.send("t", b"v", sequence=5)
            with pytest.raises(InvalidRecord) as caught:
                producer.send_many("t", [b"v", b"v"], keys=[b"k", None], sequence=5)
            assert caught.value.index == 1
            producer.flush()
            assert producer.last_sequence("t") == 5


def test_in_a_transaction_the_others_are_committed(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", cleanup_policy="compact")
        with Producer(log, transactional_id="app") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v", key=b"k")
            with pytest.raises(InvalidRecord):
                producer.send("t", b"v")
            producer.commit_transaction()
        assert [record.key for record in log.partition("t", 0).scan()] == [b"k"]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_append_takes_one(tmp_log_dir: Path, policy: str) -> None:
    def refused(partition: Partition, records: Any) -> int:
        with pytest.raises(InvalidRecord, match="give the record a key") as caught:
            partition.append(records)
        return int(caught.value.index)

    with Log(tmp_log_dir) as log:
        log.create_topic("t", cleanup_policy=policy)
        partition = log.partition("t", 0)
        assert refused(partition, [ProducerRecord(b"v", key=b"k"), ProducerRecord(b"v")]) == 1
        assert refused(partition, [(b"v", None, (), None)]) == 0
        assert refused(partition, batch_of(b"a", b"b", None)) == 2
        partition.append(batch_of(b"a"))
        assert partition.latest_offset == 1
        log.alter_topic("t", cleanup_policy="delete")
        partition.append(batch_of(None))
        partition.append([ProducerRecord(b"v")])
        assert partition.latest_offset == 3


def test_a_topic_that_is_altered_refuses_from_the_next_batch_on() -> None:
    log = FakeLog()
    with log.producer(linger_ms=60_000) as producer:
        producer.send("t", b"v")
        log.alter_topic("t", is_compacted=True)
        producer.send("t", b"in the open batch")
        producer.flush()
        with pytest.raises(InvalidRecord):
            producer.send("t", b"v")
        with pytest.raises(InvalidRecord):
            producer.send_many("t", [b"v"])
        producer.send("t", b"v", key=b"k")
        producer.flush()
        log.alter_topic("t", is_compacted=False)
        producer.send("t", b"v")
    assert [record.key for record in log.partition("t").records] == [None, None, b"k", None]


def test_send_many_learns_of_an_altered_topic_when_it_opens_a_batch() -> None:
    log = FakeLog()
    with log.producer(linger_ms=60_000) as producer:
        producer.send("t", b"v")
        producer.flush()
        log.alter_topic("t", is_compacted=True)
        with pytest.raises(InvalidRecord) as caught:
            producer.send_many("t", [b"v", b"v"], keys=[b"k", None])
        assert caught.value.index == 1
    assert [record.key for record in log.partition("t").records] == [None, b"k"]


def test_compaction_drops_what_was_there_before_the_topic_was_compacted(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=2000)
        partition = log.partition("t", 0)
        for _ in range(3):
            partition.append([ProducerRecord(bytes(500)), ProducerRecord(bytes(500), key=b"k")])
        partition.append([ProducerRecord(bytes(1500), key=b"other")])
        log.alter_topic("t", cleanup_policy="compact")
        (done,) = log.maintain().partitions
        assert (done.error, done.records_dropped) == ("", 5)
        assert [(record.offset, record.key) for record in partition.scan()] == [(5, b"k"), (6, b"other")]
