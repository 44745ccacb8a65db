"""The names of Kafka's own topics, which no user's topic gets, and ids of topics that Kafka's commands can take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.catalog.topic import INTERNAL_TOPICS
from pylog.errors import InvalidTopicName, TopicExists
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
    with Log(tmp_log_dir) as log:
        log.manager.create_topic("__transaction_state", internal=True)  # as an earlier version created it for users
    with Log(tmp_log_dir) as log:
        produce_all(log, "__transaction_state", [b"v"])
        assert values(log.partition("__transaction_state", 0).read(0)) == ["v"]
        assert log.add_partitions("__transaction_state", 2).partitions == 2
        assert log.create_topic("__transaction_state", if_not_exists=True).partitions == 2
        log.delete_topic("__transaction_state")
        with pytest.raises(InvalidTopicName):
            log.create_topic("__transaction_state")


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
