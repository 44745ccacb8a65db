"""Transactions that a Kafka broker left open in files that are topics of pylog's now."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord, TopicPartition
from pylog.checks import TRANSACTIONS_TOPIC
from pylog.errors import InvalidTransactionState, ReadOnlyLog, TopicNotFound
from pylog.partition.partition_log import PartitionLog
from pylog.transaction.records import Decision, decode
from pylog.transaction.state import Status
from pylog.transaction.table import TransactionTable
from tests.transaction.from_kafka import KAFKA, OPEN_ID, OPEN_OFFSET, OPEN_PRODUCER_ID, OPEN_TOPIC, take_files

BEFORE = [0, 1, 2, 3]
"""The offsets of committed records before the open transaction."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


def offsets(log: Log, **level: str) -> list[int]:
    return [record.offset for record in log.partition(OPEN_TOPIC, 0).scan(**level)]


def cut_table_after(root: Path, wanted: tuple[int, Status]) -> None:
    """The table ends with the last record of this producer id and status."""
    (path,) = (root / f"{TRANSACTIONS_TOPIC}-0").glob("*.log")
    with Log(root, read_only=True) as log:
        ends, end = {}, 0
        for view in log.partition(TRANSACTIONS_TOPIC, 0).log.batches(0, 1 << 62):
            end += view.header.size_bytes
            for record in view.records("", -1):
                decision = decode(record.key, record.value)
                if decision is not None:
                    ends.setdefault((decision.producer_id, decision.status), end)
    for each in path.parent.iterdir():
        if each != path and each.name != "partition.metadata":
            each.unlink()
    path.write_bytes(path.read_bytes()[: ends[wanted]])


@pytest.mark.parametrize("read_only", [True, False])
def test_a_commit_that_kafka_decided_and_did_not_mark_is_a_commit(root: Path, read_only: bool) -> None:
    """With transactions of version 2, Kafka's decision has the epoch after that of the batches."""
    take_files(root, [OPEN_TOPIC, TRANSACTIONS_TOPIC], segments=1)  # the second one begins with the marker
    cut_table_after(root, (1012, Status.PREPARE_COMMIT))
    with Log(root, read_only=read_only) as log:
        assert offsets(log) == [0, 1, 2, 3]
    with Log(root) as log:
        log.partition(OPEN_TOPIC, 0).append([ProducerRecord(b"after")])
        assert offsets(log) == [0, 1, 2, 3, 4]


def partition_of(log: Log) -> PartitionLog:
    return log.manager.partition(OPEN_TOPIC, 0)


def test_without_a_record_it_stays_open_for_readers_and_writers_until_it_is_aborted(root: Path) -> None:
    """Nobody knows whether Kafka has committed it elsewhere, so only a user decides."""
    take_files(root, [OPEN_TOPIC])
    with Log(root) as log:
        partition = log.partition(OPEN_TOPIC, 0)
        for _ in range(2):
            partition.append([ProducerRecord(b"after")], acks="all")
            partition.log.settle_transactions()
        assert offsets(log) == BEFORE
        assert partition.last_stable_offset == OPEN_OFFSET
        (described,) = log.open_transactions([OPEN_TOPIC])
        assert described[:7] == (OPEN_TOPIC, 0, OPEN_OFFSET, OPEN_PRODUCER_ID, 0, None, False)
        assert described.age_ms > 0
        with Producer(log, transactional_id="ours") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(OPEN_TOPIC, b"ours")
                producer.flush()
        assert [each.first_offset for each in log.open_transactions()] == [OPEN_OFFSET]
        assert offsets(log) == BEFORE

        aborted = log.abort_transaction_at(TopicPartition(OPEN_TOPIC, 0), OPEN_OFFSET)
        assert aborted[:7] == described[:7]
        assert offsets(log) == [*BEFORE, 7, 8, 14, 15, 16, 17, 18]
        assert log.open_transactions() == []
        assert log.verify().ok
    with Log(root, read_only=True) as log:
        assert offsets(log) == [*BEFORE, 7, 8, 14, 15, 16, 17, 18]


def test_what_did_not_begin_there_is_not_aborted(root: Path) -> None:
    take_files(root, [OPEN_TOPIC])
    with Log(root) as log:
        for offset in (4, 6, 13):
            with pytest.raises(InvalidTransactionState, match=r"offset \d+ of transactions-open-0 .* there: \[5\]"):
                log.abort_transaction_at(TopicPartition(OPEN_TOPIC, 0), offset)
        assert offsets(log) == BEFORE
        with pytest.raises(TopicNotFound):
            log.abort_transaction_at(TopicPartition("nothing", 0), 0)
    with Log(root, read_only=True) as log, pytest.raises(ReadOnlyLog):
        log.abort_transaction_at(TopicPartition(OPEN_TOPIC, 0), OPEN_OFFSET)


def test_with_kafka_s_table_what_has_no_commit_in_it_is_aborted(root: Path) -> None:
    take_files(root, [OPEN_TOPIC, TRANSACTIONS_TOPIC])
    with Log(root, read_only=True) as log:
        (described,) = log.open_transactions([OPEN_TOPIC])
        assert (described.transactional_id, described.has_owner) == (OPEN_ID, False)
        assert log.describe_transaction(OPEN_ID).open_in == {TopicPartition(OPEN_TOPIC, 0): OPEN_OFFSET}
        assert offsets(log) == [*BEFORE, 7, 8, 14, 15]
    with Log(root) as log:
        log.abort_transaction(OPEN_ID)
        assert partition_of(log).open_transactions() == []
        assert offsets(log) == [*BEFORE, 7, 8, 14, 15]
        with pytest.raises(InvalidTransactionState, match="no records wait"):
            log.abort_transaction(OPEN_ID)


def test_what_kafka_has_committed_cannot_be_aborted(root: Path) -> None:
    for number, abort in enumerate((
        lambda log: log.abort_transaction("open-one"),
        lambda log: log.abort_transaction_at(TopicPartition(OPEN_TOPIC, 0), 2),
    )):  # fmt: skip
        copy = root / str(number)
        copy.mkdir(parents=True)
        take_files(copy, [OPEN_TOPIC, TRANSACTIONS_TOPIC], segments=1)
        cut_table_after(copy, (1012, Status.PREPARE_COMMIT))
        with Log(copy) as log:
            with pytest.raises(InvalidTransactionState, match="PrepareCommit: its commit was decided"):
                abort(log)
            assert partition_of(log).open_transactions() == []
            assert offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 100, "../..", "a\0b"])
def test_an_id_that_no_producer_can_have_stops_nobody(root: Path, name: str) -> None:
    """Kafka limits only its bytes. A file of such a name could not even be looked for."""
    take_files(root, [OPEN_TOPIC])
    open_in = TopicPartition(OPEN_TOPIC, 0)
    with Log(root) as log:
        with Producer(log, transactional_id="ours") as producer:
            producer.init_transactions()
        decision = Decision(name, OPEN_PRODUCER_ID, 0, 1_000, Status.ONGOING, frozenset([open_in]), 1, 1)
        log.manager.part(TransactionTable).append(name, [decision], bool)
        with Log(root, read_only=True) as reader:
            assert offsets(reader) == [*BEFORE, 7, 8, 14, 15]
        assert log.transactions() == sorted([name, "ours"])
        (described,) = log.open_transactions()
        assert (described.transactional_id, described.has_owner) == (name, False)
        assert log.describe_transaction(name).open_in == {open_in: OPEN_OFFSET}
        log.abort_transaction(name)
        assert log.open_transactions() == []
        assert offsets(log) == [*BEFORE, 7, 8, 14, 15]


def test_verify_notes_it_and_finds_nothing_wrong(root: Path) -> None:
    take_files(root, [OPEN_TOPIC])
    with Log(root, read_only=True) as log:
        report = log.verify()
    assert report.ok
    ((partition, found),) = report.open_transactions
    assert (partition, found[:3]) == (TopicPartition(OPEN_TOPIC, 0), (OPEN_PRODUCER_ID, 0, OPEN_OFFSET))
    (note,) = [each for each in report.notes if "transaction" in each]
    assert note.endswith("pylog transactions abort --topic transactions-open --partition 0 --start-offset 5")


def test_in_kafka_s_own_directory_only_kafka_ends_it() -> None:
    with Log(KAFKA) as log:
        (described,) = log.open_transactions()
        assert described[:7] == (OPEN_TOPIC, 0, OPEN_OFFSET, OPEN_PRODUCER_ID, 0, OPEN_ID, None)
        assert offsets(log) == BEFORE
        (note,) = log.verify(OPEN_TOPIC).notes
        assert note.endswith("of 'open-left': only Kafka can end it")
        with pytest.raises(ReadOnlyLog):
            log.abort_transaction_at(TopicPartition(OPEN_TOPIC, 0), OPEN_OFFSET)
        with pytest.raises(ReadOnlyLog):
            log.abort_transaction(OPEN_ID)
