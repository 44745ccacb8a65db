"""The names of Kafka's own topics, which no user's topic gets, and ids of topics that Kafka's
commands can take."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.catalog.topic import INTERNAL_TOPICS
from pylog.checks import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pylog.errors import InvalidTopicName, TopicExists
from pylog.outbox import Outbox
from pylog.storage import OsFileSystem
from pylog.testing import produce_all
from tests.partition.logs import values


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_no_user_creates_a_topic_of_kafkas(tmp_log_dir: Path, name: str) -> None:
    with Log(tmp_log_dir, auto_create_topics=True) as log:
        for if_not_exists in (False, True):
            with pytest.raises(InvalidTopicName, match=f"'{name}': Kafka keeps its own state in it") as caught:
                log.create_topic(name, if_not_exists=if_not_exists)
            assert caught.value.name == name
        with Producer(log) as producer, pytest.raises(InvalidTopicName, match="Kafka keeps its own state"):
            producer.send(name, b"v").result()
        for similar in (name.upper(), f"_.{name[2:]}"):
            with pytest.raises(InvalidTopicName, match="Kafka keeps its own state"):
                log.create_topic(similar)
        assert log.topics() == []
        assert log.create_topic(name.strip("_")).name == name.strip("_")


def test_the_first_commit_creates_the_topic_of_commits(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        with Consumer(log, group_id="g") as consumer:
            consumer.commit({TopicPartition("t", 0): 0})
        assert log.topics() == ["__consumer_offsets", "t"]
        with pytest.raises(TopicExists):
            log.create_topic("__consumer_offsets")
        assert log.create_topic("__consumer_offsets", if_not_exists=True).partitions == 1


def test_a_topic_of_such_a_name_that_is_there_goes_on(tmp_log_dir: Path) -> None:
    name = "__share_group_state"
    with Log(tmp_log_dir) as log:
        log.manager.create_topic(name, internal=True)  # as an earlier version created it for users
    with Log(tmp_log_dir) as log:
        produce_all(log, name, [b"v"])
        assert values(log.partition(name, 0).read(0)) == ["v"]
        assert log.add_partitions(name, 2).partitions == 2
        assert log.create_topic(name, if_not_exists=True).partitions == 2
        log.delete_topic(name)
        with pytest.raises(InvalidTopicName):
            log.create_topic(name)


def test_only_commits_write_to_the_topic_of_commits(tmp_log_dir: Path) -> None:
    """A broker refuses a client's records there, too; and one that looks like a commit was taken
    for one."""
    with Log(tmp_log_dir) as log, Producer(log) as producer:
        log.create_topic("t")
        consumer = Consumer(log, group_id="g")
        consumer.commit({TopicPartition("t", 0): 0})
        with closing(sqlite3.connect(":memory:")) as connection:
            for call in (
                lambda: producer.send(OFFSETS_TOPIC, b"v"),
                lambda: producer.send_many(OFFSETS_TOPIC, [b"v"]),
                lambda: producer.send_arrow(OFFSETS_TOPIC, pa.table({"value": [b"v"]})),
                lambda: log.partition(OFFSETS_TOPIC, 0).append([ProducerRecord(b"v")]),
                lambda: Outbox(connection).add(OFFSETS_TOPIC, b"v"),
            ):
                with pytest.raises(InvalidTopicName, match="what the groups of this log have committed"):
                    call()
        with Producer(log, transactional_id="a") as transactions:
            transactions.init_transactions()
            with transactions.transaction():
                transactions.send_offsets_to_transaction({TopicPartition("t", 0): 0}, consumer.group_metadata())
        consumer.commit({TopicPartition("t", 0): 0})
        consumer.close()
        assert log.partition(OFFSETS_TOPIC, 0).latest_offset == 4, "three commits, and a marker"


def test_only_transactions_change_the_topic_of_their_decisions(tmp_log_dir: Path) -> None:
    """One record in it, and no transaction of the log could begin; without it, committed ones were
    hidden."""
    with Log(tmp_log_dir) as log, Producer(log, transactional_id="a") as transactions, Producer(log) as producer:
        log.create_topic("t")
        transactions.init_transactions()
        with closing(sqlite3.connect(":memory:")) as connection:
            for call in (
                lambda: producer.send(TRANSACTIONS_TOPIC, b"v"),
                lambda: producer.send_many(TRANSACTIONS_TOPIC, [b"v"]),
                lambda: log.partition(TRANSACTIONS_TOPIC, 0).append([ProducerRecord(b"v")]),
                lambda: log.delete_topic(TRANSACTIONS_TOPIC),
                lambda: log.delete_records(TopicPartition(TRANSACTIONS_TOPIC, 0), 1),
                lambda: Outbox(connection).add(TRANSACTIONS_TOPIC, b"v"),
            ):
                with pytest.raises(InvalidTopicName, match="which transactions of this log are committed"):
                    call()
        with transactions.transaction():
            transactions.send("t", b"v")
            transactions.flush()
        assert log.transactions() == ["a"]


class Drawing(OsFileSystem):
    """Draws these for ids of 16 bytes, one after the other, then others."""

    def __init__(self, *drawn: bytes) -> None:
        self._drawn = list(drawn)

    def random_bytes(self, size: int) -> bytes:
        return self._drawn.pop(0) if size == 16 and self._drawn else super().random_bytes(size)


def test_an_id_of_a_topic_is_none_that_kafka_would_not_draw(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    refused = [b"\xf8" + bytes(15), b"\xfb" + b"\xff" * 15, bytes(16), bytes(15) + b"\1"]
    with Log(tmp_log_dir, filesystem=Drawing(*refused, b"\xf7" + bytes(15))) as log:
        assert log.create_topic("t").id == "9wAAAAAAAAAAAAAAAAAAAA"


def test_an_id_that_begins_so_and_is_there_is_read(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    path = tmp_log_dir / ".pylog" / "topics" / "t.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "id": "-" + "A" * 21}))
    with Log(tmp_log_dir) as log:
        assert log.describe_topic("t").id == "-" + "A" * 21
        produce_all(log, "t", [b"v"])
