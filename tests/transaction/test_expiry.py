"""Transactional ids that nobody has used for a week are forgotten, and nothing else is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer, TopicPartition
from pylog.checks import TRANSACTIONS_TOPIC
from pylog.cleaner.report import PartitionMaintenance
from pylog.errors import ProducerFenced, TransactionNotFound
from pylog.storage import FileLock, OsFileSystem
from pylog.testing import ManualClock
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.expiry import TRANSACTIONAL_ID_EXPIRATION_MS, _Expiry
from pylog.transaction.records import Decision
from pylog.transaction.state import Status
from pylog.transaction.table import TransactionTable
from tests.partition.logs import values_of_topic
from tests.storage.filesystems import StandIn

WEEK_S = TRANSACTIONAL_ID_EXPIRATION_MS / 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_log_dir: Path, clock: ManualClock) -> Iterator[Log]:
    with Log(tmp_log_dir, clock=clock) as log:
        log.create_topic("data")
        yield log


def producer_of(log: Log, name: str) -> Producer:
    producer = Producer(log, transactional_id=name, transaction_timeout_ms=60_000)
    producer.init_transactions()
    return producer


def commit(producer: Producer, *values: bytes) -> None:
    with producer.transaction():
        for value in values:
            producer.send("data", value).result()  # a batch each, so that it is no plain one


def use(log: Log, name: str, *values: bytes) -> None:
    with producer_of(log, name) as producer:
        commit(producer, *values)


def expiry(log: Log, **options: Any) -> PartitionMaintenance:
    (done,) = (done for done in log.maintain(**options).partitions if done.step == "expiry")
    assert done.error == ""
    return done


def directories(log: Log) -> list[str]:
    return sorted(os.listdir(f"{log.path}/.pylog/transactions"))


def test_an_id_is_forgotten_after_a_week(log: Log, clock: ManualClock) -> None:
    use(log, "old", b"1", b"2")
    clock.advance(WEEK_S - 1)
    use(log, "new", b"3", b"4")
    assert (expiry(log).kept, log.transactions()) == ("not due", ["new", "old"])
    clock.advance(2)
    would = expiry(log, dry_run=True)
    assert (would.rules, would.detail) == (("transactional_id_expiration_ms",), "1 transactional ids")
    assert log.transactions() == ["new", "old"]
    assert expiry(log) == would
    assert log.transactions() == directories(log) == ["new"]
    with pytest.raises(TransactionNotFound):
        log.describe_transaction("old")
    assert values_of_topic(log, "data") == [b"1", b"2", b"3", b"4"]
    with Log(log.path, clock=clock) as other:
        assert other.transactions() == ["new"]
        assert values_of_topic(other, "data") == [b"1", b"2", b"3", b"4"]
    clock.advance(WEEK_S)
    assert expiry(log).rules
    assert (log.transactions(), directories(log)) == ([], [])
    assert log.maintain(dry_run=True).problems == []


def test_compaction_removes_what_is_left_of_it(log: Log, clock: ManualClock) -> None:
    use(log, "old", b"1", b"2")
    log.alter_topic(TRANSACTIONS_TOPIC, min_cleanable_dirty_ratio=0, delete_retention_ms=1)
    clock.advance(WEEK_S + 1)
    for _ in range(3):
        log.partition(TRANSACTIONS_TOPIC, 0).log.roll()
        log.maintain()
        clock.advance(1)
        use(log, "other", b"3", b"4")
    assert {record.key for record in log.partition(TRANSACTIONS_TOPIC, 0).scan()} == {b"\0\0\0\5other"}


def test_a_producer_that_lives_keeps_its_id_however_long_it_is_silent(log: Log, clock: ManualClock) -> None:
    """As a stopped process does. It is the only one that may go on as if nothing had happened."""
    with producer_of(log, "app") as producer:
        commit(producer, b"1", b"2")
        clock.advance(8 * WEEK_S)
        assert expiry(log).kept == "not due"
        commit(producer, b"3", b"4")
    assert values_of_topic(log, "data") == [b"1", b"2", b"3", b"4"]


def test_an_owner_that_was_fenced_stays_fenced(log: Log, clock: ManualClock) -> None:
    with producer_of(log, "app") as old:
        old.begin_transaction()
        old.send("data", b"zombie").result()
        use(log, "app", b"1", b"2")  # and is gone
        clock.advance(8 * WEEK_S)
        assert expiry(log).kept == "not due"  # the zombie still lives
        with pytest.raises(ProducerFenced):
            old.commit_transaction()
    assert expiry(log).rules
    with producer_of(log, "app") as newest:
        commit(newest, b"3", b"4")
    assert values_of_topic(log, "data") == [b"1", b"2", b"3", b"4"]


def test_an_open_transaction_of_a_dead_producer_is_aborted_first(log: Log, clock: ManualClock) -> None:
    with Log(log.path, clock=clock) as other:
        producer = producer_of(other, "app")
        producer.begin_transaction()
        producer.send("data", b"never").result()
        directory = f"{log.path}/.pylog/transactions/app"
        (owner,) = (name for name in os.listdir(directory) if name.endswith(".owner"))
        producer._transactions._owner._alive.close()  # type: ignore[union-attr]  # as a death does
        clock.advance(8 * WEEK_S)
        assert expiry(log).kept == "not due"
        assert f"{owner}" in os.listdir(directory)
        assert values_of_topic(log, "data") == []  # a reader has decided it
        log.maintain()
        clock.advance(8 * WEEK_S)
        log.maintain()
        assert (log.transactions(), directories(log)) == ([], [])
        use(log, "more", b"1", b"2")
        assert values_of_topic(log, "data") == [b"1", b"2"]
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
        producer.close()
    assert values_of_topic(log, "data") == [b"1", b"2"]


def test_markers_are_durable_before_a_commit_is_forgotten(log: Log, clock: ManualClock) -> None:
    use(log, "app", b"1", b"2")
    data = log.partition("data", 0)
    assert data.durable_offset < data.latest_offset
    clock.advance(8 * WEEK_S)
    assert expiry(log).rules
    assert data.durable_offset == data.latest_offset


def test_a_commit_whose_markers_the_disk_refuses_is_not_forgotten(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(log, "app", b"1", b"2")
    clock.advance(8 * WEEK_S)
    with monkeypatch.context() as patched:
        patched.setattr("pylog.transaction.expiry.finish", lambda *_: False)
        assert expiry(log).kept == "not due"
    assert log.transactions() == ["app"]
    assert expiry(log).rules


def test_an_id_that_comes_back_has_a_new_producer_id(log: Log, clock: ManualClock) -> None:
    use(log, "app", b"1", b"2")
    before = log.describe_transaction("app").producer_id
    clock.advance(8 * WEEK_S)
    expiry(log)
    use(log, "app", b"3", b"4")
    assert log.describe_transaction("app").producer_id != before
    assert values_of_topic(log, "data") == [b"1", b"2", b"3", b"4"]


def test_ids_that_kafka_may_have_given_stay(log: Log, clock: ManualClock) -> None:
    use(log, "app", b"1", b"2")
    table = log.manager.part(TransactionTable)
    table.append("kafka", [Decision("kafka", 7, 0, 60_000, Status.EMPTY, frozenset(), 0, -1)], bool)
    clock.advance(8 * WEEK_S)
    expiry(log)
    assert log.transactions() == ["kafka"]


def test_what_an_owner_has_left_before_it_appended_anything_is_removed(log: Log, clock: ManualClock) -> None:
    use(log, "app", b"1", b"2")
    os.mkdir(f"{log.path}/.pylog/transactions/half")
    os.mkdir(f"{log.path}/.pylog/transactions/.0123456789abcdef")
    Path(f"{log.path}/.pylog/transactions/.0123456789abcdef/lock").touch()
    log.maintain()
    assert directories(log) == ["app"]


def test_offsets_in_its_transactions_stay(log: Log, clock: ManualClock) -> None:
    place = TopicPartition("data", 0)
    with producer_of(log, "app") as producer, producer.transaction():
        producer.send("data", b"1").result()
        producer.send_offsets_to_transaction({place: 1}, "g")
    clock.advance(8 * WEEK_S)
    assert expiry(log).rules
    committed = log.describe_group("g").partitions[place].committed
    assert committed is not None
    assert committed.offset == 1


# Others meanwhile


def test_an_id_whose_lock_another_process_holds_is_forgotten_later(
    log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    use(log, "app", b"1", b"2")
    clock.advance(8 * WEEK_S)
    held = OsFileSystem().lock(f"{log.path}/.pylog/transactions/app/lock")
    assert held.try_acquire()
    assert expiry(log).kept == "not due"
    assert "'app' is not forgotten yet" in caplog.text
    held.close()
    assert (log.transactions(), bool(expiry(log).rules), log.transactions()) == (["app"], True, [])


def test_an_id_that_is_used_before_its_lock_is_taken_stays(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(log, "app", b"1", b"2")
    clock.advance(8 * WEEK_S)
    holding = _Expiry._holding

    def after_a_use(self: _Expiry, *given: Any) -> bool:
        monkeypatch.undo()
        use(log, "app")
        return holding(self, *given)

    monkeypatch.setattr(_Expiry, "_holding", after_a_use)
    assert expiry(log).kept == "not due"
    assert log.transactions() == directories(log) == ["app"]


def test_a_directory_that_a_new_owner_takes_before_it_is_cleared_away_stays(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(log, "app", b"1", b"2")
    os.mkdir(f"{log.path}/.pylog/transactions/half")
    holding = _Expiry._holding

    def after_a_use(self: _Expiry, *given: Any) -> bool:
        monkeypatch.undo()
        use(log, "half", b"3", b"4")
        return holding(self, *given)

    monkeypatch.setattr(_Expiry, "_holding", after_a_use)
    log.maintain()
    assert log.transactions() == directories(log) == ["app", "half"]


def test_ids_whose_directories_the_power_took_are_forgotten_all_the_same(log: Log, clock: ManualClock) -> None:
    use(log, "app", b"1", b"2")
    shutil.rmtree(log.path / ".pylog" / "transactions")
    assert expiry(log).kept == "not due"
    assert not (log.path / ".pylog" / "transactions").exists()
    clock.advance(8 * WEEK_S)
    assert expiry(log).rules
    assert (log.transactions(), directories(log)) == ([], [])


class Forking(StandIn):
    """Says that this is another process once ``is_child``."""

    is_child = False

    def process_id(self) -> int:
        return super().process_id() + self.is_child


def test_a_child_of_a_signal_handler_forgets_nothing_in_its_parents_place(
    tmp_log_dir: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filesystem = Forking()
    with Log(tmp_log_dir, clock=clock, filesystem=filesystem) as log:
        log.create_topic("data")
        use(log, "app", b"1", b"2")
        clock.advance(8 * WEEK_S)
        settle = TransactionTable.settle

        def forked(self: TransactionTable, *given: Any) -> None:
            settle(self, *given)
            filesystem.is_child = True

        monkeypatch.setattr(TransactionTable, "settle", forked)
        assert expiry(log).kept == "not due"
        assert "when a signal handler forked; the parent process continues" in caplog.text
        monkeypatch.undo()
        filesystem.is_child = False
        assert log.transactions() == directories(log) == ["app"]
        assert expiry(log).rules


def test_a_producer_whose_id_expires_before_it_has_the_lock_begins_with_a_new_directory(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(log, "app", b"1", b"2")
    clock.advance(8 * WEEK_S)
    open_lock = TransactionDirectory.open_lock

    def before_an_expiry(self: TransactionDirectory) -> FileLock:
        lock = open_lock(self)
        monkeypatch.undo()
        assert expiry(log).rules
        assert (log.transactions(), directories(log)) == ([], [])
        return lock

    monkeypatch.setattr(TransactionDirectory, "open_lock", before_an_expiry)
    use(log, "app", b"3", b"4")
    assert log.transactions() == directories(log) == ["app"]
    assert values_of_topic(log, "data") == [b"1", b"2", b"3", b"4"]
