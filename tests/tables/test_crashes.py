"""A kill or a power failure at any step: the next table is a scan of what the log has then, and of
what is added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pylog
from pylog import Log, Producer, ProducerRecord
from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss
from tests.tables.scans import crash, scan

LOG, TABLE = "/log", "/state/table"


def program(machine: Machine) -> None:
    """A table that is refreshed, saved, closed and opened, while its topic grows and is not
    synced."""
    with machine.process().open_log(LOG) as log:
        log.create_topic("t", partitions=2, if_not_exists=True)
        table: Any = pylog.table(log, "t", directory=TABLE, snapshot_records=3)
        for number in range(6):
            a, b = (b"a0", b"b0") if number % 2 else (b"a1", b"b1")  # a key belongs in one partition
            records = [ProducerRecord(b"%d" % number, a), ProducerRecord(None if number % 3 == 2 else b"b", b)]
            log.partition("t", number % 2).append(records[:1] if number % 2 else records, acks=1)
            table.refresh()
            if number == 2:
                table.close()
                table = pylog.table(log, "t", directory=TABLE, changelog=True, snapshot_records=1)
            elif number > 2:
                table[b"%d" % number] = b"written"
        table.save()
        log.partition("t", 0).log.sync(log.partition("t", 0).latest_offset)
        table.close()


def is_a_scan(log: Log) -> None:
    with pylog.table(log, "t", directory=TABLE) as table:
        assert dict(table) == scan(log)


@pytest.mark.slow
@pytest.mark.parametrize("for_every", [for_every_kill, for_every_power_loss], ids=["kill", "power"])
def test_after_a_crash_at_any_step_the_table_is_a_scan_of_the_log(for_every: Callable[..., int], seed: int) -> None:
    machine = Machine(seed, tear_writes=for_every is for_every_kill)

    def check(crashed: Machine) -> None:
        with crashed.copy().process().open_log(LOG) as log:
            if log.topics():
                is_a_scan(log)
        with crashed.process().open_log(LOG) as log:  # others use the lost offsets again, before the table looks
            if log.topics():
                for number in range(2):
                    records = [ProducerRecord(b"later", b"later %d-%d" % (number, each)) for each in range(8)]
                    log.partition("t", number).append(records, acks=1)
                is_a_scan(log)
                is_a_scan(log)

    options: dict[str, Any] = {} if for_every is for_every_kill else {"at_most": 6}
    assert for_every(machine, lambda: program(machine), check, **options) > 100


@pytest.mark.slow
def test_a_power_failure_that_removes_records_the_snapshot_has_makes_the_table_begin_again(seed: int) -> None:
    machine = Machine(seed)
    with machine.process().open_log(LOG) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"durable", b"a")])
        log.partition("t", 0).append([ProducerRecord(b"lost", b"a")], acks=1)
        table: Any = pylog.table(log, "t", directory=TABLE)
        table.save()
        found = set()
        for left in machine.power_losses():
            with left.process().open_log(LOG) as after:
                records = [ProducerRecord(b"later", b"b")] * 5
                after.partition("t", 0).append(records)
                with pylog.table(after, "t", directory=TABLE) as again:
                    assert dict(again) == scan(after)
                    found.add((again[b"a"], again.metrics()["resets"]))
        assert (b"durable", 1) in found
        crash(table)


@pytest.mark.slow
def test_a_table_that_aborts_and_commits_with_a_killed_producer_is_a_scan(seed: int) -> None:
    machine = Machine(seed)

    def transact() -> None:
        with machine.process().open_log(LOG) as log, Producer(log, transactional_id="x") as producer:
            log.create_topic("t", if_not_exists=True)
            producer.init_transactions()
            with pylog.table(log, "t", directory=TABLE, snapshot_records=1) as table:
                for number in range(3):
                    producer.begin_transaction()
                    producer.send("t", b"%d" % number, key=b"a")
                    producer.flush()
                    table.refresh()
                    (producer.abort_transaction if number == 1 else producer.commit_transaction)()
                    table.refresh()

    def check(crashed: Machine) -> None:
        with crashed.process().open_log(LOG) as log:
            if log.topics():
                is_a_scan(log)

    assert for_every_kill(machine, transact, check) > 50
