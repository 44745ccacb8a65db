"""Committers compact ``__consumer_offsets`` when it is due: without maintenance it stays small."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.cleaner import cleaner as cleaners
from pylog.cleaner.cleaner import Cleaner
from pylog.errors import StorageError
from pylog.group.admin import GroupAdmin
from pylog.partition.partition_log import PartitionLog
from pylog.testing import ManualClock

SEGMENT_BYTES = 2000
PLACE = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_log_dir: Path) -> Iterator[Log]:
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        log.create_topic("t")
        with Producer(log) as producer:
            producer.send_many("t", [b"v"] * 1000)
        with Consumer(log, group_id="first") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0)
            consumer.commit({PLACE: 1})
        log.alter_topic(OFFSETS_TOPIC, segment_bytes=SEGMENT_BYTES)
        yield log


def commit(log: Log, count: int, group: str = "g") -> None:
    with Consumer(log, group_id=group) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0)
        for number in range(count):
            consumer.commit({PLACE: number})


def committed(log: Log, group: str) -> dict[TopicPartition, int]:
    return {place: each.offset for place, each in log.manager.part(GroupAdmin).offsets.committed(group).items()}


def size_bytes(log: Log) -> int:
    return log.partition(OFFSETS_TOPIC, 0).size_bytes


@pytest.mark.slow
def test_the_committer_that_closes_a_segment_compacts(log: Log) -> None:
    commit(log, 300)
    assert log.partition(OFFSETS_TOPIC, 0).latest_offset > 300
    assert size_bytes(log) < 3 * SEGMENT_BYTES
    assert committed(log, "g") == {PLACE: 299}
    assert committed(log, "first") == {PLACE: 1}


def test_offsets_in_transactions_are_compacted_too(log: Log) -> None:
    with Producer(log, transactional_id="app") as producer:
        producer.init_transactions()
        for number in range(100):
            with producer.transaction():
                producer.send("t", b"v")
                producer.send_offsets_to_transaction({PLACE: number}, "g")
    assert sum(1 for _ in log.partition(OFFSETS_TOPIC, 0).scan()) < 40  # markers stay for their time
    assert committed(log, "g") == {PLACE: 99}


def test_what_would_take_long_is_left_to_maintenance(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaners, "_SMALL_BYTES", SEGMENT_BYTES - 1000)
    commit(log, 100)
    before = size_bytes(log)
    assert before > 4 * SEGMENT_BYTES
    log.maintain()
    assert size_bytes(log) < 2 * SEGMENT_BYTES


@pytest.mark.parametrize("policy", ["none", "delete"])
def test_a_topic_that_is_not_compacted_is_left_alone(log: Log, policy: str) -> None:
    log.alter_topic(OFFSETS_TOPIC, cleanup_policy=policy)
    commit(log, 100)
    assert size_bytes(log) > 4 * SEGMENT_BYTES


def test_no_lock_of_a_group_or_a_transaction_is_held_meanwhile(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    compact, looks = Cleaner.compact_if_small, []
    manager = log.manager

    def look(self: Cleaner, partition: PartitionLog) -> None:
        for path in (f"{manager.layout.group('g')}/lock", f"{manager.layout.transaction('app')}/lock"):
            lock = manager.filesystem.lock(path)
            looks.append(lock.try_acquire())
            lock.close()
        compact(self, partition)

    monkeypatch.setattr(Cleaner, "compact_if_small", look)
    with Producer(log, transactional_id="app") as producer:
        producer.init_transactions()
        for number in range(40):
            with producer.transaction():
                producer.send("t", b"v")
                producer.send_offsets_to_transaction({PLACE: number}, "g")
        commit(log, 50)
    assert len(looks) > 4
    assert all(looks)


def test_a_compaction_that_fails_is_a_warning_and_the_commit_counts(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("no space is left")

    monkeypatch.setattr("pylog.cleaner.compaction.compact", fail)
    with caplog.at_level(logging.WARNING, "pylog.cleaner"):
        commit(log, 100)
    assert committed(log, "g") == {PLACE: 99}
    assert "compaction is left to the next roll: no space is left" in caplog.text
    monkeypatch.undo()
    commit(log, 50)
    assert size_bytes(log) < 3 * SEGMENT_BYTES
