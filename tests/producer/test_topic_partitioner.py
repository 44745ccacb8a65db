"""The hash that places a topic's keys belongs to the topic: every producer follows it, or says that
it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pytest

from pylog.codec import murmur2
from pylog.errors import ConfigError, FormatVersionError
from pylog.log import Log
from pylog.producer import Producer
from pylog.producer.partitioner import KEY_HASHES, NAMED_PARTITIONERS
from tests.producer.fakes import FakeLog

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
COUNT = 7
KEYS = [b"key %d" % n for n in range(60)]
FORMULAS: dict[str, Callable[[bytes], int]] = {"murmur3": mmh3.hash, "murmur2": murmur2}
OTHERS: list[Any] = ["round_robin", "sticky", lambda key, count: 0]


def place_of(partitioner: str, key: bytes) -> int:
    return (FORMULAS[partitioner](key) & 0x7FFFFFFF) % COUNT


def send_one_by_one(producer: Producer, keys: list[bytes | None]) -> list[int]:
    return [delivery.result().partition for delivery in [producer.send("t", b"v", key=key) for key in keys]]


def send_many(producer: Producer, keys: list[bytes | None]) -> list[int]:
    return [metadata.partition for metadata in producer.send_many("t", [b"v"] * len(keys), keys=keys).result()]


def send_table(producer: Producer, keys: list[bytes | None]) -> list[int]:
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array([b"v"] * len(keys), pa.binary())})
    return [metadata.partition for metadata in producer.send_arrow("t", table).result()]


def send_rows(producer: Producer, keys: list[bytes | None]) -> list[int]:
    """Rows that ``send_arrow`` sends one by one: their timestamps differ."""
    table = pa.table({
        "key": pa.array(keys, pa.binary()),
        "value": pa.array([b"v"] * len(keys), pa.binary()),
        "timestamp": pa.array(range(len(keys)), pa.int64()),
    })  # fmt: skip
    return [metadata.partition for metadata in producer.send_arrow("t", table).result()]


WAYS = [send_one_by_one, send_many, send_table, send_rows]
Way = Callable[[Producer, list[Any]], list[int]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("partitioner", ["murmur3", "murmur2"])
def test_keys_go_where_the_topics_hash_says(partitioner: str, named: bool, way: Way) -> None:
    log = FakeLog(partitions=COUNT, partitioner=partitioner)
    with log.producer(**({"partitioner": partitioner} if named else {})) as producer:
        assert way(producer, KEYS) == [place_of(partitioner, key) for key in KEYS]


def test_one_producer_follows_each_of_its_topics() -> None:
    log = FakeLog(partitions=COUNT, partitioner="murmur2")
    log.create_topic("other", partitions=COUNT)
    with log.producer() as producer:
        for key in KEYS:
            assert producer.send("t", b"v", key=key).result().partition == place_of("murmur2", key)
            assert producer.send("other", b"v", key=key).result().partition == place_of("murmur3", key)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, COUNT])
@pytest.mark.parametrize(("topics", "named"), [("murmur3", "murmur2"), ("murmur2", "murmur3")])
def test_a_producer_that_names_another_hash_is_refused_with_both_and_the_remedy(
    topics: str, named: str, count: int, way: Way
) -> None:
    log = FakeLog(partitions=count, partitioner=topics)
    with log.producer(partitioner=named) as producer:
        for keys in (KEYS, [None]):
            with pytest.raises(
                ConfigError, match=f"topic 't' are placed by {topics}.*names {named}.*partitioner_override=True"
            ) as caught:
                way(producer, keys)
            facts = caught.value.facts
            assert (facts["option"], facts["topic"], facts["topic_partitioner"], facts["partitioner"]) == (
                "partitioner", "t", topics, named,
            )  # fmt: skip
    assert log.partitions == {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, COUNT])
@pytest.mark.parametrize("named", OTHERS)
def test_what_ignores_the_topics_hash_takes_records_without_a_key_alone(named: Any, count: int, way: Way) -> None:
    log = FakeLog(partitions=count)
    with log.producer(partitioner=named) as producer:
        assert set(way(producer, [None] * 3 * count)) <= set(range(count))
        with pytest.raises(ConfigError, match=r"placed by murmur3.*partitioner_override=True") as caught:
            way(producer, [None, b"key"])
        assert caught.value.facts["topic_partitioner"] == "murmur3"
        assert caught.value.facts["partitioner"] == (named if isinstance(named, str) else "a callable")
        assert producer.send("t", b"v", key=b"key", partition=0).result().partition == 0  # said for this record


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("named", ["murmur2", *OTHERS])
def test_a_producer_that_means_it_places_keys_elsewhere(named: Any, way: Way) -> None:
    log = FakeLog(partitions=COUNT)
    with log.producer(partitioner=named, partitioner_override=True) as producer:
        places = way(producer, KEYS)
    if named == "murmur2":
        assert places == [place_of("murmur2", key) for key in KEYS]
    elif callable(named):
        assert set(places) == {0}
    else:
        assert places != [place_of("murmur3", key) for key in KEYS]


@pytest.mark.parametrize(
    "override", [{"partitioner_override": True}, {"partitioner_override": 1, "partitioner": "sticky"}]
)
def test_an_override_of_nothing_is_a_contradiction(override: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="partitioner_override") as caught:
        FakeLog().producer(**override)
    assert caught.value.option == "partitioner_override"


def test_a_producer_follows_a_topic_that_changes_its_hash_or_is_created_again() -> None:
    log = FakeLog(partitions=COUNT)
    with log.producer() as follower, log.producer(partitioner="murmur3") as named:
        assert send_one_by_one(follower, KEYS) == send_one_by_one(named, KEYS)
        log.alter_topic("t", partitioner="murmur2")
        follower.flush()
        follower.send("t", b"v", partition=0).result()  # with a new batch the catalog is looked at
        assert send_one_by_one(follower, KEYS) == [place_of("murmur2", key) for key in KEYS]
        with pytest.raises(ConfigError, match=r"placed by murmur2, .* names murmur3"):
            named.send("t", b"v", key=b"key").result()
        log.delete_topic("t")
        log.create_topic("t", partitions=COUNT)
        follower.send("t", b"v", partition=0).result()
        assert send_one_by_one(follower, KEYS) == [place_of("murmur3", key) for key in KEYS]
        assert send_one_by_one(named, KEYS) == [place_of("murmur3", key) for key in KEYS]


# Where it is recorded


def test_a_topic_keeps_its_hash_and_names_it(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        assert log.create_topic("plain").config.partitioner == "murmur3"
        assert log.create_topic("javas", partitions=COUNT, partitioner="murmur2").config.partitioner == "murmur2"
        with pytest.raises(ConfigError, match="partitioner='crc32', expected one of murmur3, murmur2"):
            log.create_topic("t", partitioner="crc32")
    with Log(tmp_path / "log", partitioner="murmur2", auto_create_topics=True) as log:
        assert log.describe_topic("javas").config.partitioner == "murmur2"
        log.add_partitions("javas", COUNT + 1)
        assert log.alter_topic("javas", segment_ms=5).config.partitioner == "murmur2"
        with Producer(log) as producer:
            producer.send("made", b"v", key=b"k").result()
        assert log.describe_topic("made").config.partitioner == "murmur2"
        assert log.describe_topic("plain").config.partitioner == "murmur3"


def test_a_topic_of_before_is_murmur3_and_an_older_version_refuses_only_what_it_would_place_wrongly(
    tmp_path: Path,
) -> None:
    with Log(tmp_path / "log") as log:
        for name in ("murmur3", "murmur2"):
            log.create_topic(name, partitioner=name)
    recorded = {
        name: json.loads((tmp_path / "log/.pylog/topics" / f"{name}.json").read_text())["config"] for name in FORMULAS
    }
    # An older version refuses a topic with an option that it does not know, so only a topic that
    # needs it has it.
    assert "partitioner" not in recorded["murmur3"]
    assert recorded["murmur2"]["partitioner"] == "murmur2"


def test_an_option_of_a_later_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    path = tmp_path / "log/.pylog/topics/t.json"
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "config": {**content["config"], "tiered": True}}))
    with Log(tmp_path / "log") as log:
        with pytest.raises(FormatVersionError, match=r"'tiered'.*upgrade pylog") as caught:
            log.describe_topic("t")
        assert (caught.value.path, caught.value.field) == (str(path), "config.tiered")
        path.write_text(json.dumps({**content, "config": {**content["config"], "partitioner": "crc32"}}))
        with pytest.raises(FormatVersionError, match=r"partitioner='crc32'.*upgrade pylog"):
            log.partition("t", 0)


def test_kafkas_directories_are_murmur2() -> None:
    with Log(KAFKA) as log:
        assert {log.describe_topic(name).config.partitioner for name in log.topics()} == {"murmur2"}
        numbers = range(log.describe_topic("keyed").partitions)
        for number in numbers:
            for record in log.partition("keyed", number).scan():
                assert (KEY_HASHES["murmur2"](record.key) & 0x7FFFFFFF) % len(numbers) == number


def test_the_hash_changes_only_where_keys_have_one_place(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log, Log(tmp_path / "log") as other:
        log.create_topic("one")
        log.create_topic("many", partitions=3)  # empty or not: producers may hold records for it
        with Producer(other) as producer:
            for topic in ("one", "many"):
                producer.send(topic, b"v", key=b"k").result()
        assert log.alter_topic("one", partitioner="murmur2").config.partitioner == "murmur2"  # there is one place
        with pytest.raises(ConfigError, match=r"'many'.*murmur3.*to murmur2.*3 partitions") as caught:
            log.alter_topic("many", partitioner="murmur2")
        assert (caught.value.option, caught.value.topic_partitioner) == ("partitioner", "murmur3")
        assert log.describe_topic("many").config.partitioner == "murmur3"
        assert log.alter_topic("many", partitioner="murmur3", segment_ms=5).config.segment_ms == 5


def test_every_hash_of_a_topic_is_one_of_the_producers() -> None:
    assert list(KEY_HASHES) == ["murmur3", "murmur2"]
    assert {name for name, partitioner in NAMED_PARTITIONERS.items() if partitioner.key_hash} == set(KEY_HASHES)
