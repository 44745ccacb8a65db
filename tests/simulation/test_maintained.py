"""Maintenance that compacts pylog's own topics, killed or without power at each of its steps:
nothing decided is lost."""

from __future__ import annotations

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss

pytestmark = [pytest.mark.slow, pytest.mark.one_in(16)]

ROOT = "/log"
PARTITION = TopicPartition("data", 0)
OWN = {"segment_bytes": 1024, "min_cleanable_dirty_ratio": 0, "index_interval_bytes": 64}


def transact(log: Log, name: str, value: bytes, offset: int, *, commits: bool = True) -> None:
    with (
        Producer(log, transactional_id=name, acks="all", linger_ms=0) as producer,
        Consumer(log, group_id="g") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(["data"])
        consumer.poll(0)
        producer.begin_transaction()
        producer.send("data", value).result()
        producer.send_offsets_to_transaction({PARTITION: offset}, consumer.group_metadata())
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def staged(seed: int) -> Machine:
    """Commits whose markers are not synced, aborts, and producer ids that were superseded."""
    machine = Machine(seed, tear_writes=True)
    with machine.process().open_log(ROOT) as log:
        log.create_topic("data")
        transact(log, "a", b"first", 0)
        for topic in ("__consumer_offsets", "__transaction_state"):
            log.alter_topic(topic, **OWN)
        for number in range(5):
            transact(log, "ab"[number % 2], b"%d" % number, number, commits=number != 2)
        for name in "ab":  # their last commits are no longer the newest records of these ids
            with Producer(log, transactional_id=name) as producer:
                producer.init_transactions()
        for topic in ("__consumer_offsets", "__transaction_state"):
            log.partition(topic, 0).log.roll()
        data, table = log.partition("data", 0).log, log.partition("__transaction_state", 0).log
        assert data.durable_offset < data.latest_offset  # the last marker
        table.sync(table.latest_offset)
    return machine


def seen(log: Log) -> tuple[list[bytes | None], int]:
    values = [record.value for record in log.partition("data", 0).scan(isolation_level="read_committed")]
    committed = log.describe_group("g").partitions[PARTITION].committed
    return values, -1 if committed is None else committed.offset


def check(machine: Machine, expected: tuple[list[bytes | None], int]) -> None:
    with machine.process().open_log(ROOT, read_only=True) as log:
        assert seen(log) == expected
    with machine.process().open_log(ROOT) as log:
        assert seen(log) == expected
        assert log.maintain().problems == []
        assert seen(log) == expected
        transact(log, "a", b"more", 77)
        assert seen(log) == ([*expected[0], b"more"], 77)
        assert not (found := log.verify().problems), found


def test_a_compaction_of_its_own_topics_drops_records(seed: int) -> None:
    machine = staged(seed)
    with machine.process().open_log(ROOT) as log:
        expected = seen(log)
        report = log.maintain()
        dropped = {done.topic: done.records_dropped for done in report.partitions}
        assert dropped["__consumer_offsets"] > 2
        assert dropped["__transaction_state"] > 5
    check(machine, expected)


def test_a_kill_at_any_step_loses_nothing(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    expected = seen(log)
    assert for_every_kill(machine, log.maintain, lambda left: check(left, expected)) > 60


def test_a_loss_of_power_at_any_step_loses_nothing(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    expected = seen(log)
    assert for_every_power_loss(machine, log.maintain, lambda left: check(left, expected), at_most=2) > 60
