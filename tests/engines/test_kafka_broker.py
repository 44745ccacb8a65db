"""What pylog writes, served by a real Kafka broker: nothing that Kafka's clients send or read is
lost by it.

Run by ``scripts/test --engines``. Each promise stands beside what was lost without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.codec import murmur2
from pylog.group.offset_records import Committed, encode_key, encode_value
from pylog.testing import produce_all
from tests.engines.broker import Broker
from tests.internal_records import append_by_hand

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

GROUP = "readers"
OURS = [b"pylog %d" % number for number in range(5)]
THEIRS = [b"kafka %d" % number for number in range(5)]
OLD, NEW = [b"old %d" % n for n in range(40)], [b"new %d" % n for n in range(60)]
KEYS = [b"", b"k", b"key", "grüße".encode(), b"\0\xff", *(b"key %d" % number for number in range(60))]
KEYED_PARTITIONS = 3
TOPICS = {
    OFFSETS_TOPIC: 1,
    "new-ids": 1,
    "ids-from-0": 1,
    "lost-ids": 1,
    "keyed": KEYED_PARTITIONS,
    "made-again": 1,
    "commits-left": 1,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    root = tmp_path_factory.mktemp("engine")
    write(root / "log")
    home = root / "broker"
    home.mkdir()
    broker = Broker(home)
    try:
        broker.serve(root / "log", TOPICS)
        yield broker
    finally:
        broker.stop()


def write(path: Path) -> None:
    with Log(path) as log:
        for topic, partitions in TOPICS.items():
            if topic != OFFSETS_TOPIC:
                log.create_topic(topic, partitions=partitions, partitioner="murmur2" if topic == "keyed" else "murmur3")
        one_by_one(log, "new-ids", OURS)
        lose_ids(log)
        with Producer(log) as producer:
            for key in KEYS[::2]:
                producer.send("keyed", b"pylog", key=key)
        make_again(log)
    count_from_0(path)


def one_by_one(log: Log, topic: str, values: list[bytes]) -> None:
    """By one new producer, each record a batch of its own, as a Java producer's that waits for
    each."""
    with Producer(log) as producer:
        for value in values:
            producer.send(topic, value).result()


def count_from_0(path: Path) -> None:
    """Batches as earlier versions wrote them: the ids that a new Kafka cluster hands out, too."""
    with Log(path) as log:
        log.manager.next_producer_id()
    (path / ".pylog" / "producer-ids").write_text("1000\n")
    with Log(path) as log:
        log.manager._producer_ids._left = list(reversed(range(1000)))
        for value in OURS * 2:
            one_by_one(log, "ids-from-0", [value])


def lose_ids(log: Log) -> None:
    """Two processes write, the count of ids is lost, and a third one writes."""
    with Log(log.path) as one, Log(log.path) as other, Log(log.path) as third:
        for each in (one, other, third):
            if each is third:
                (log.path / ".pylog" / "producer-ids").unlink()
            one_by_one(each, "lost-ids", OURS)


def make_again(log: Log) -> None:
    """Groups have read all of two topics, which are deleted and made again. Of one the commits are
    left, as they were before."""
    for topic in ("made-again", "commits-left"):
        produce_all(log, topic, OLD)
        with Consumer(log, group_id=GROUP) as consumer:
            consumer.commit({TopicPartition(topic, 0): len(OLD)})
        log.delete_topic(topic)
        log.create_topic(topic)
        produce_all(log, topic, NEW)
    left = Committed(len(OLD), 0, "", log.clock.now_ms(), "")
    record = ProducerRecord(encode_value(left), encode_key(GROUP, TopicPartition("commits-left", 0)))
    append_by_hand(log, OFFSETS_TOPIC, record)


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


def unkeyed(values: list[bytes]) -> list[tuple[bytes | None, bytes]]:
    return [(None, value) for value in values]


def test_records_of_a_new_kafka_producer_all_arrive(broker: Broker) -> None:
    assert broker.produce("new-ids", unkeyed(THEIRS)) == [(0, 5 + number) for number in range(5)]
    assert values(broker.read("new-ids")[0]) == OURS + THEIRS


def test_beside_ids_that_count_from_0_a_record_is_acknowledged_and_lost(broker: Broker) -> None:
    """Why new logs do not count so: the broker takes the first record for a repeat of pylog's, and
    answers with its offset."""
    (_, first), *others = broker.produce("ids-from-0", unkeyed(THEIRS))
    assert first < len(OURS * 2)
    assert others == [(0, 10 + number) for number in range(4)]
    assert values(broker.read("ids-from-0")[0]) == OURS * 2 + THEIRS[1:]


def test_keys_of_a_java_producer_go_where_pylogs_murmur2_puts_them(broker: Broker) -> None:
    found = broker.produce("keyed", [(key, b"java") for key in KEYS])
    assert [partition for partition, _ in found] == [(murmur2(key) & 0x7FFFFFFF) % KEYED_PARTITIONS for key in KEYS]
    places: dict[bytes, set[int]] = {}
    for number, records in enumerate(broker.read("keyed", KEYED_PARTITIONS)):
        for record in records:
            places.setdefault(record.key, set()).add(number)
    assert {key: len(numbers) for key, numbers in places.items()} == dict.fromkeys(KEYS, 1)


def test_a_log_that_lost_its_count_of_ids_has_every_record_and_takes_more(broker: Broker) -> None:
    assert values(broker.read("lost-ids")[0]) == OURS * 3
    assert broker.produce("lost-ids", unkeyed(THEIRS)) == [(0, 15 + number) for number in range(5)]
    assert values(broker.read("lost-ids")[0]) == OURS * 3 + THEIRS


def test_a_classic_group_reads_a_topic_that_was_made_again_from_its_beginning(broker: Broker) -> None:
    assert values(broker.read_as_group("made-again", GROUP, len(NEW))) == NEW


def test_where_commits_of_the_deleted_topic_are_left_it_skips_records(broker: Broker) -> None:
    """Why a deletion writes tombstones."""
    left = NEW[len(OLD) :]
    assert values(broker.read_as_group("commits-left", GROUP, len(left))) == left
