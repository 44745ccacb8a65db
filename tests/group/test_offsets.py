"""Committed offsets as others see them: from the log, from a checkpoint, after damage, whatever was
deleted meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import OutcomeUnknown
from pylog.group import offsets as offsets_module
from pylog.group.admin import GroupAdmin
from pylog.group.offset_records import Committed
from pylog.group.offsets import OffsetStore
from pylog.group.offsets_partition import OffsetsPartition
from tests.group.consumers import checkpoint
from tests.internal_records import append_by_hand

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=2)
        yield opened


def store_of(log: Log) -> OffsetStore:
    """One that knows nothing yet, as in another process."""
    return Log(log.path).manager.part(GroupAdmin).offsets


def at(offset: int, metadata: str = "") -> Committed:
    return Committed(offset, -1, metadata, 1_700_000_000_000, "")


def test_nothing_is_committed_in_a_log_without_commits(log: Log) -> None:
    assert store_of(log).committed("g") == {}
    assert store_of(log).groups() == set()
    assert OFFSETS_TOPIC not in log.topics()  # looking makes nothing


def test_the_last_commit_of_each_partition_counts_and_groups_are_apart(log: Log) -> None:
    store, other = store_of(log), store_of(log)
    store.append("g", {T0: at(1), T1: at(2)}, None)
    assert other.committed("g") == {T0: at(1), T1: at(2)}
    store.append("g", {T0: at(5, "note")}, None)
    store.append("h", {T0: at(9)}, None)
    assert other.committed("g") == {T0: at(5, "note"), T1: at(2)}
    assert other.committed("h") == {T0: at(9)}
    assert other.groups() == {"g", "h"}
    store.append("h", {T0: None}, None)
    assert (other.committed("h"), other.groups()) == ({}, {"g"})


def test_a_checkpoint_spares_the_history(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 50)
    store = store_of(log)
    for offset in range(120):
        store.append("g", {T0: at(offset)}, None)
        store.append("h", {T1: at(1000 + offset)}, None)
        checkpoint(store)
    assert (log.path / ".pylog" / "offsets-0.checkpoint").exists()
    fresh = store_of(log)
    taken = []
    monkeypatch.setattr(OffsetsPartition, "apply", lambda self, key, *_: taken.append(key))
    fresh.committed("g")
    assert len(taken) < 60  # of 240
    monkeypatch.undo()
    assert store_of(log).committed("g") == {T0: at(119)}
    assert store_of(log).committed("h") == {T1: at(1119)}


def test_whoever_is_far_behind_goes_on_from_a_checkpoint(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    behind, store = store_of(log), store_of(log)
    store.append("gone", {T1: at(3)}, None)
    assert behind.committed("gone") == {T1: at(3)}
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 20)
    monkeypatch.setattr(offsets_module, "_FAR_RECORDS", 30)
    store.append("gone", {T1: None}, None)
    for offset in range(100):
        store.append("g", {T0: at(offset)}, None)
        checkpoint(store)
    assert behind.committed("g") == {T0: at(99)}
    assert behind.groups() == {"g"}


@pytest.mark.parametrize("at_byte", [0, 9, 12, 20, 40, -1])
def test_a_damaged_checkpoint_is_worth_as_much_as_none(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at_byte: int
) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 5)
    store = store_of(log)
    for offset in range(12):
        store.append("g", {T0: at(offset)}, None)
        checkpoint(store)
    path = log.path / ".pylog" / "offsets-0.checkpoint"
    data = bytearray(path.read_bytes())
    data[at_byte] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert store_of(log).committed("g") == {T0: at(11)}
    assert "no checkpoint of committed offsets" in caplog.text
    for offset in range(12, 30):
        store.append("g", {T0: at(offset)}, None)
        checkpoint(store)
    assert store_of(log).committed("g") == {T0: at(29)}


def test_no_default_of_the_log_is_for_committed_offsets(tmpfs_dir: Path) -> None:
    """They would not have fitted into one commit."""
    with Log(tmpfs_dir / "log", max_message_bytes=200) as log:
        log.create_topic("t", partitions=50)
        log.manager.part(GroupAdmin).offsets.append(
            "g", {TopicPartition("t", number): at(number) for number in range(50)}, None
        )
        config = log.describe_topic(OFFSETS_TOPIC).config
        assert (config.retention_ms, config.retention_bytes) == (-1, -1)


def test_a_checkpoint_that_the_disk_refuses_fails_no_commit(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was committed was there already, and for whoever committed it looked as if it were
    not."""
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 1)
    store = store_of(log)
    store.append("g", {T0: at(1)}, None)

    def refused(*_: object) -> None:
        raise OutcomeUnknown("the disk refused")

    monkeypatch.setattr("pylog.partition.partition_log.PartitionLog.sync", refused)
    checkpoint(store)
    assert "no checkpoint of committed offsets: the disk refused" in caplog.text


def test_a_checkpoint_of_another_life_of_the_topic_says_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 5)
    store = store_of(log)
    for offset in range(12):
        store.append("g", {T0: at(offset)}, None)
        checkpoint(store)
    log.delete_topic(OFFSETS_TOPIC)
    assert store.committed("g") == {}
    for offset in range(20):
        store.append("h", {T0: at(offset)}, None)
    assert (store_of(log).committed("g"), store_of(log).committed("h")) == ({}, {T0: at(19)})


def test_records_that_say_nothing_are_passed_over(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    store = store_of(log)
    store.append("g", {T0: at(1)}, None)
    with Log(log.path) as other:
        damaged, no_key, of_group = ((b"\xff\xff", b"\0\1\0\1g"), (b"x", None), (b"x", b"\0\2\0\1g"))
        append_by_hand(other, OFFSETS_TOPIC, *(ProducerRecord(*record) for record in (damaged, no_key, of_group)))
    with caplog.at_level(logging.WARNING):
        assert store_of(log).committed("g") == {T0: at(1)}
    assert caplog.text.count("is skipped") == 1


def test_commits_whose_log_was_cut_short_in_front_are_not_read(log: Log) -> None:
    store = store_of(log)
    for offset in range(10):
        store.append("g", {T0: at(offset)}, None)
    log.delete_records(TopicPartition(OFFSETS_TOPIC, 0), 8)
    assert store_of(log).committed("g") == {T0: at(9)}


def test_offsets_of_a_topic_that_was_created_again_count_no_more(log: Log) -> None:
    groups = log.manager.part(GroupAdmin)
    id_ = log.describe_topic("t").id
    groups.commit_alone("g", {T0: at(7)._replace(topic_id=id_)})
    assert groups.committed("g") == {T0: at(7)._replace(topic_id=id_)}
    log.delete_topic("t")
    assert groups.committed("g") == {}
    log.create_topic("t", partitions=2)
    assert groups.committed("g") == {}
