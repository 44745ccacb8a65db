"""Transactions listed, described, noted and aborted by another process than their owner's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord, TopicPartition
from pylog.catalog import TopicDescription
from pylog.errors import (
    ConfigError,
    CorruptSegment,
    InvalidTransactionState,
    NotAppended,
    TopicNotFound,
    TransactionAborted,
)
from pylog.manager.manager import LogManager
from pylog.partition.partition_log import PartitionLog
from pylog.transaction import admin
from pylog.transaction.owner import TransactionOwner
from tests.transaction.stage import ROOT, Stage

ALL = {TopicPartition("t", 0), TopicPartition("t", 1)}


def refuse_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotAppended("the disk refuses")

    monkeypatch.setattr(PartitionLog, "append_marker", refuse)


def producer_of(log: Log, transactional_id: str) -> Producer:
    producer = Producer(log, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def open_one(log: Log, transactional_id: str, timestamp_ms: int | None = None) -> Producer:
    """A producer with a record in an open transaction."""
    producer = producer_of(log, transactional_id)
    producer.begin_transaction()
    producer.send("t", transactional_id.encode(), timestamp_ms=timestamp_ms)
    producer.flush()
    return producer


def die(producer: Producer) -> None:
    """Free the lock that the kernel frees at a death."""
    transactions = producer._transactions
    assert transactions is not None
    assert transactions._owner is not None
    transactions._owner.close()
    transactions.forget_parent()


def values(log: Log, number: int = 0) -> list[bytes]:
    return [record.value for record in log.partition("t", number).scan() if record.value is not None]


# Open transactions


def test_a_topic_that_is_deleted_while_all_are_listed_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        log.create_topic("u")
        with open_one(log, "a"):
            describe = LogManager.describe_topic

            def deleted_meanwhile(manager: LogManager, name: str) -> TopicDescription:
                if "u" in manager.topics():
                    manager.delete_topic("u")
                return describe(manager, name)

            monkeypatch.setattr(LogManager, "describe_topic", deleted_meanwhile)
            assert [found.topic for found in log.open_transactions()] == ["t"]
            with pytest.raises(TopicNotFound):
                log.open_transactions(["t", "u"])


def test_a_topic_that_is_listed_and_never_found_is_an_error_and_no_endless_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: LogManager, name: str) -> TopicDescription:
        raise TopicNotFound(f"{name} is gone", topic=name)

    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        monkeypatch.setattr(LogManager, "describe_topic", never)
        with pytest.raises(TopicNotFound):
            log.open_transactions()


def test_the_oldest_is_the_first_by_the_time_of_its_first_batch(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        log.create_topic("other")
        now_ms = log.clock.now_ms()
        names = {"younger": now_ms - 10_000, "oldest": now_ms - 20_000, "ahead": now_ms + 10**6}
        producers = [open_one(log, name, timestamp_ms) for name, timestamp_ms in names.items()]
        producers[0].send("t", b"more", timestamp_ms=now_ms - 30_000)
        producers[0].flush()
        found = log.open_transactions()
        assert [each.transactional_id for each in found] == ["oldest", "younger", "ahead"]
        assert [each.first_offset for each in found] == [1, 0, 2]
        assert [each.has_owner for each in found] == [True, True, True]
        assert found[0].age_ms >= 20_000
        assert found[2].age_ms == 0
        assert log.open_transactions(["other"]) == []
        assert log.describe_transaction("younger").open_in == {TopicPartition("t", 0): 0}
        with pytest.raises(ConfigError, match="topics must be several values"):
            log.open_transactions("t")
        producers[1].commit_transaction()
        die(producers[0])
        with Log(log.path, read_only=True) as other:
            assert [(each.transactional_id, each.has_owner) for each in other.open_transactions(["t"])] == [
                ("younger", False),
                ("ahead", True),
            ]
        assert [each.transactional_id for each in log.open_transactions()] == ["younger", "ahead"]  # looking ends none
        producers[2].abort_transaction()


def test_the_next_producer_with_the_id_does_not_own_what_the_one_before_left(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        die(open_one(log, "app"))
        with producer_of(log, "app"):
            (found,) = log.open_transactions()
            assert (found.transactional_id, found.has_owner) == ("app", False)
            (note,) = log.verify().notes
            assert note.endswith("'app', which is gone: the next writer or reader ends it")


def test_verify_counts_them_and_notes_those_that_no_producer_will_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "NOTES_MAX", 2)
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producers = [open_one(log, name) for name in ("alive", "dead", "dead too", "dead as well")]
        report = log.verify()
        assert (report.ok, len(report.open_transactions), report.notes) == (True, 4, [])
        for producer in producers[1:]:
            die(producer)
        report = log.verify("t")
        assert (report.ok, len(report.open_transactions)) == (True, 4)
        *notes, more = report.notes
        assert [note.partition(", of producer")[0] for note in notes] == [
            f"t-0: a transaction is open from offset {offset} on" for offset in (1, 2)
        ]
        assert all(
            "'dead" in note and note.endswith("which is gone: the next writer or reader ends it") for note in notes
        )
        assert more.startswith("more transactions are open")
        assert list(log.find_problems()) == []  # without a report
        producers[0].abort_transaction()


def without_table(root: Path, *, damaged: bool) -> None:
    """The power has taken the table, or a disk has lost its file, and an open transaction is
    left."""
    with Log(root) as log:
        log.create_topic("t")
        die(open_one(log, "app"))
    for path in (root / "__transaction_state-0").iterdir():
        if path.name.endswith(".log") or (not damaged and path.name != "partition.metadata"):
            path.unlink()


def test_of_a_producer_that_no_record_names_verify_notes_that_it_will_be_aborted(tmp_path: Path) -> None:
    without_table(tmp_path / "log", damaged=False)
    with Log(tmp_path / "log", read_only=True) as log:
        (note,) = log.verify("t").notes
        assert note.endswith("of which there is no record: the next writer or reader aborts it")
    with Log(tmp_path / "log") as log:
        (described,) = log.open_transactions()
        assert (described.transactional_id, described.has_owner) == (None, False)
        log.abort_transaction_at(TopicPartition("t", 0), 0)
        assert log.open_transactions() == []
        assert values(log) == []


def test_with_a_damaged_table_nothing_is_aborted(tmp_path: Path) -> None:
    without_table(tmp_path / "log", damaged=True)
    with Log(tmp_path / "log") as log:
        (note,) = log.verify("t").notes
        assert "; whether that lives is not known: " in note
        with pytest.raises(CorruptSegment, match="__transaction_state-0"):
            log.open_transactions()
        with pytest.raises(CorruptSegment, match="__transaction_state-0"):
            log.abort_transaction_at(TopicPartition("t", 0), 0)
        assert log.manager.partition("t", 0).open_transactions() != []


# Aborting


def test_the_transaction_of_a_live_owner_is_aborted_by_the_offset_of_any_of_its_partitions(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t", partitions=2)
        producer = producer_of(log, "app")
        producer.begin_transaction()
        for number in (0, 1):
            producer.send("t", b"v", partition=number)
        producer.flush()
        described = log.abort_transaction_at(TopicPartition("t", 1), 0)
        assert (described.transactional_id, described.has_owner) == ("app", True)
        assert log.open_transactions() == []
        with pytest.raises(TransactionAborted):
            producer.commit_transaction()
        producer.abort_transaction()
        assert values(log, 0) == values(log, 1) == []


def test_a_commit_that_is_recorded_and_not_published_cannot_be_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner died between the two."""
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = open_one(log, "app")
        with monkeypatch.context() as refusing:
            refuse_markers(refusing)
            refusing.setattr(TransactionOwner, "_publish_decision", lambda *_: None)
            producer.commit_transaction()
        assert log.describe_transaction("app").state == "Ongoing"
        with pytest.raises(InvalidTransactionState, match="PrepareCommit: its commit was decided"):
            log.abort_transaction("app")
        assert log.open_transactions() == []
        assert values(log) == [b"app"]


@pytest.mark.parametrize("offset", [0, 1])
def test_a_transaction_whose_first_records_were_deleted_is_aborted_by_its_first_offset_or_what_is_left(
    tmp_path: Path, offset: int
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = open_one(log, "app")
        producer.send("t", b"more").result()
        log.delete_records(TopicPartition("t", 0), 1)
        assert [each.first_offset for each in log.open_transactions()] == [1]
        assert [found.first_offset for _, found in log.verify().open_transactions] == [0]
        log.abort_transaction_at(TopicPartition("t", 0), offset)
        assert log.open_transactions() == []
        producer.abort_transaction()


def synced(stage: Stage) -> None:
    with stage.machine.process().open_log(ROOT) as log:
        for topic in log.topics():
            for number in log.describe_topic(topic).numbers:
                partition = log.manager.partition(topic, number)
                partition.sync(partition.current().log_end_offset)


def test_after_a_restart_of_the_machine_what_is_left_is_aborted_by_its_id() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.commit({0: "before"})
    owner.begin({0: "x", 1: "y"})
    synced(stage)
    stage.lose_power()
    with stage.machine.process().open_log(ROOT) as log:
        assert {each[:2] for each in log.open_transactions()} == ALL
        assert not any(each.has_owner for each in log.open_transactions())
        log.abort_transaction("app")
        assert log.open_transactions() == []
        with pytest.raises(InvalidTransactionState, match="no records wait"):
            log.abort_transaction("app")
    assert stage.read() == {0: ["before"], 1: [], 2: [], 3: []}


@pytest.mark.parametrize("by_offset", [False, True])
def test_after_a_restart_of_the_machine_a_commit_is_not_aborted(
    monkeypatch: pytest.MonkeyPatch, by_offset: bool
) -> None:
    stage = Stage()
    owner = stage.owner()
    with monkeypatch.context() as refusing:
        refuse_markers(refusing)
        owner.commit({0: "x", 1: "y"})
    stage.lose_power()
    with stage.machine.process().open_log(ROOT) as log:
        with pytest.raises(InvalidTransactionState, match="PrepareCommit: its commit was decided"):
            log.abort_transaction_at(TopicPartition("t", 0), 0) if by_offset else log.abort_transaction("app")
        assert [each.partition for each in log.open_transactions()] == ([1] if by_offset else [])
    assert stage.read() == {0: ["x"], 1: ["y"], 2: [], 3: []}


def test_a_state_that_is_lost_does_not_let_a_live_owner_s_transaction_be_aborted(tmp_path: Path) -> None:
    """It may still commit."""
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = open_one(log, "app")
        (state,) = (tmp_path / "log" / ".pylog").glob("transactions/*/state")
        state.rename(state.with_name("lost"))
        for abort in (
            lambda: log.abort_transaction("app"),
            lambda: log.abort_transaction_at(TopicPartition("t", 0), 0),
        ):
            with pytest.raises(InvalidTransactionState, match="a producer of it lives that may still commit it"):
                abort()
        state.with_name("lost").rename(state)
        producer.commit_transaction()
        log.partition("t", 0).append([ProducerRecord(b"after")])
        assert values(log) == [b"app", b"after"]
