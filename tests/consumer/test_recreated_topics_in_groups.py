"""A topic that was deleted and created again is another one, whoever of a group notices what."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Consumer, Log, TopicPartition
from pylog.testing import produce_all

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def member(log: Log) -> Consumer:
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest")
    consumer.subscribe("t")
    return consumer


def one_behind(log: Log, first: Consumer) -> Consumer:
    """Another member, whose turn comes later where a topic is divided that nobody has anything
    of."""
    while (consumer := member(log)).group_metadata().member_id < first.group_metadata().member_id:
        consumer.close()
    return consumer


def test_a_member_that_saw_neither_the_deletion_nor_the_creation_reads_the_new_topic_from_its_beginning(
    log: Log,
) -> None:
    """It went on where it was in the old one: what stands before that in the new one was never read
    by anybody."""
    log.create_topic("t", partitions=1)
    reader = member(log)
    other = one_behind(log, reader)
    produce_all(log, "t", [b"old 0", b"old 1", b"old 2"])
    assert len(reader.poll()) == 3
    log.delete_topic("t")
    other.poll()
    log.create_topic("t", partitions=1)
    produce_all(log, "t", [b"new 0", b"new 1", b"new 2", b"new 3"])
    other.poll()
    read = [record.value for _ in range(4) for consumer in (reader, other) for record in consumer.poll()]
    assert read == [b"new 0", b"new 1", b"new 2", b"new 3"]


def test_a_commit_of_what_was_read_of_a_deleted_topic_says_nothing_of_the_new_one(log: Log) -> None:
    """It was taken for a commit of the topic that has the name now, whose first records were passed
    over then."""
    log.create_topic("t", partitions=1)
    produce_all(log, "t", [b"old 0", b"old 1", b"old 2"])
    consumer = member(log)
    assert len(consumer.poll()) == 3
    log.delete_topic("t")
    log.create_topic("t", partitions=1)
    produce_all(log, "t", [b"new 0", b"new 1", b"new 2", b"new 3"])
    consumer.commit()
    assert consumer.committed(PARTITION) is None
    assert [record.value for record in consumer.poll()] == [b"new 0", b"new 1", b"new 2", b"new 3"]


def test_an_equal_offset_of_a_recreated_topic_is_committed(log: Log) -> None:
    log.create_topic("t", partitions=1)
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as reader:
        reader.assign([PARTITION])
        for values in ([b"old 0", b"old 1"], [b"new 0", b"new 1"]):
            produce_all(log, "t", values)
            assert [record.value for record in reader.poll(5.0)] == values
            reader.commit()
            assert reader.committed(PARTITION) == 2
            log.delete_topic("t")
            log.create_topic("t", partitions=1)
