"""Groups as they are seen, reset and deleted by those who are not in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, OffsetAndMetadata, Producer, ProducerRecord
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import (
    ConfigError,
    GroupNotEmpty,
    GroupNotFound,
    ReadOnlyLog,
)
from pylog.group.offset_records import Committed, encode_key, encode_value
from tests.group.consumers import fill, lock_of, member, place
from tests.internal_records import append_by_hand

GOLDEN = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"


def test_a_group_is_described_to_whoever_asks(log: Log) -> None:
    fill(log, 10)
    one = member(log, client_id="worker-1")
    one.poll(0, max_records=4)
    one.commit()
    with Log(log.path, read_only=True) as other:
        found = other.describe_group("g")
        assert (found.state, found.generation, found.assignor) == ("Stable", 1, "cooperative-sticky")
        assert [(m.client_id, m.pid, len(m.assigned)) for m in found.members] == [("worker-1", os.getpid(), 4)]
        assert sum(p.lag for p in found.partitions.values() if p.lag is not None) == 36
        assert {p.member_id for p in found.partitions.values()} == {one.group_metadata().member_id}
        assert other.groups() == ["g"]
    second = member(log)
    assert log.describe_group("g").state == "Reconciling"
    one.close()
    second.close()
    assert log.describe_group("g").state == "Empty"


def test_a_group_that_is_not_there_is_named(log: Log) -> None:
    for ask in (log.describe_group, log.lag, log.delete_group):
        with pytest.raises(GroupNotFound, match=r"no group 'nope' .*groups: none"):
            ask("nope")


def test_a_group_whose_static_member_died_without_a_commit_can_be_deleted(log: Log) -> None:
    """It is waited for, so that the group is there, but nobody has made the topic of commits
    yet."""
    one = member(log, group_instance_id="a")
    lock_of(one).abandon()
    assert (log.groups(), OFFSETS_TOPIC in log.topics()) == (["g"], False)
    log.delete_group("g")
    assert (log.groups(), OFFSETS_TOPIC in log.topics()) == ([], False)
    assert not (log.path / ".pylog" / "groups" / "g").exists()


FIRST, SECOND = place(0), place(1)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [10, 10]),
        ({"to": 7}, [7, 7]),
        ({"to": 99}, [10, 10]),
        ({"shift_by": -3}, [2, 5]),
        ({"shift_by": 4}, [9, 10]),
        ({"offsets": {SECOND: 1}}, [5, 1]),
        ({"to_time_ms": 1_000_004}, [4, 4]),
        ({"to_time_ms": 2_000_000}, [10, 10]),
        ({"partitions": [SECOND], "to": 1}, [5, 1]),
    ],
)
def test_offsets_are_reset(log: Log, target: dict[str, Any], expected: list[int]) -> None:
    with Producer(log) as producer:
        for number in range(20):
            producer.send("t", b"x", partition=number % 2, timestamp_ms=1_000_000 + number // 2)
    with Consumer(log, group_id="g") as one:
        one.commit({FIRST: 5, SECOND: 8})
    plan = log.reset_offsets("g", **target, dry_run=True)
    assert log.lag("g") == {FIRST: 5, SECOND: 2}
    assert log.reset_offsets("g", **target) == plan
    assert [10 - lag for lag in log.lag("g").values()] == expected


def test_a_reset_may_name_a_topic_that_was_never_committed(log: Log) -> None:
    fill(log, 3)
    log.reset_offsets("g", "t", to="latest")
    assert log.lag("g") == {place(number): 0 for number in range(4)}


def test_a_group_with_members_is_neither_reset_nor_deleted(log: Log) -> None:
    with member(log) as one:
        one.commit()
        for change in (lambda: log.reset_offsets("g", to="earliest"), lambda: log.delete_group("g")):
            with pytest.raises(GroupNotEmpty, match=r"has members \(1, among them process \d+ on"):
                change()
    log.delete_group("g")
    assert log.groups() == []
    assert not (log.path / ".pylog" / "groups" / "g").exists()
    with member(log) as one:  # and it begins anew
        assert one.committed(place(0)) is None


def test_a_group_that_has_committed_only_in_topics_that_are_gone_can_be_looked_at_and_deleted(log: Log) -> None:
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0})
    log.delete_topic("t")
    committed = encode_value(Committed(0, 0, "", 0, ""))  # as an earlier version left it
    append_by_hand(log, OFFSETS_TOPIC, ProducerRecord(committed, encode_key("g", place(0))))
    assert log.groups() == ["g"]
    assert (log.lag("g"), log.describe_group("g").partitions) == ({}, {})
    log.delete_group("g")
    assert log.groups() == []


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"to": "earliest", "shift_by": 1},
        {"to": "begin"},
        {"to": -1},
        {"partitions": ["t"], "offsets": {("t", 0): 1}},
        {"offsets": {"t": 1}},
        {"partitions": [("t", "0")], "to": 0},
        {"to": "earliest", "dry_run": "no"},
    ],
)
def test_a_reset_that_says_nothing_clear_is_refused(log: Log, target: dict[str, Any]) -> None:
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0})
    with pytest.raises(ConfigError):
        log.reset_offsets("g", **target)


def test_a_single_partition_may_be_reset_without_a_list(log: Log) -> None:
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0, place(1): 0})
    assert list(log.reset_offsets("g", place(1), to="latest")) == [place(1)]


def test_a_mapping_of_offsets_in_the_place_of_partitions_is_told_its_option(log: Log) -> None:
    with pytest.raises(ConfigError, match="give the mapping as offsets="):
        log.reset_offsets("g", {place(0): 0})


@pytest.mark.parametrize("offsets", [[(place(0), 1)], [place(0)], 5, "t"])
def test_offsets_that_are_no_mapping_are_refused(log: Log, offsets: Any) -> None:
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0})
        for call in (lambda: one.commit(offsets), lambda: log.reset_offsets("g", offsets=offsets)):
            with pytest.raises(ConfigError, match="offsets must be a mapping of TopicPartition to offset"):
                call()
        with pytest.raises(ConfigError, match="timestamps_ms must be a mapping of TopicPartition to timestamp"):
            one.offsets_for_times(offsets)


@pytest.mark.parametrize("name", ["a b", "../x", "ü" * 30, ".hidden", "%41", "con", "a/b\0c"])
def test_any_text_may_name_a_group(log: Log, name: str) -> None:
    with member(log, name) as one:
        one.commit()
        assert log.groups() == [name]
        assert log.describe_group(name).group == name
    assert not (log.path / "x").exists()
    log.delete_group(name)
    assert log.groups() == []


def test_the_groups_of_a_kafka_directory_are_told() -> None:
    with Log(GOLDEN) as log:
        assert log.groups() == ["golden-group", "golden-transactional-group"]
        assert log.lag("golden-group")[place(1, "keyed")] == log.partition("keyed", 1).latest_offset - 12
        found = log.describe_group("golden-group")
        assert (found.state, found.members) == ("Empty", ())
        assert found.partitions[place(0, "keyed")].committed == OffsetAndMetadata(7, "seven")
        with pytest.raises(ReadOnlyLog):
            log.reset_offsets("golden-group", to="earliest")
        with pytest.raises(ReadOnlyLog):
            log.delete_group("golden-group")


def test_a_group_that_is_not_there_is_not_reset_by_a_slip(log: Log) -> None:
    with pytest.raises(GroupNotFound, match="no group 'typo'"):
        log.reset_offsets("typo", to="earliest")
    assert len(log.reset_offsets("new", ["t"], to="earliest")) == 4
