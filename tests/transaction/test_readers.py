"""``read_committed`` in every face of the library, with real producers: what is decided is shown,
with or without its marker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer, TopicPartition
from pylog.errors import NotAppended
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import Outcome
from pylog.storage import OsFileSystem
from pylog.transaction import outcomes
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.table import TransactionTable
from tests.spark import reading
from tests.spark.streaming import Query
from tests.transaction.stage import ROOT, Stage
from tests.transaction.views import TOPIC, consumer_at, seen, seen_read_only

PARTITIONS = 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Log(tmp_path / "log") as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
    return tmp_path / "log"


@pytest.fixture
def log(root: Path) -> Any:
    with Log(root) as log:
        yield log


def producer_of(log: Log, transactional_id: str = "app", **options: Any) -> Producer:
    producer = Producer(log, transactional_id=transactional_id, **options)
    producer.init_transactions()
    return producer


def send(producer: Producer, *names: str, partition: int | None = None) -> None:
    """To one partition, or each of these to all. They are in the log on return."""
    for name in names:
        for number in range(PARTITIONS) if partition is None else [partition]:
            producer.send(TOPIC, name.encode(), partition=number)
    producer.flush()


def refuse_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotAppended("the disk refuses")

    monkeypatch.setattr(PartitionLog, "append_marker", refuse)


def everywhere(*names: str) -> dict[int, list[str]]:
    return {number: list(names) for number in range(PARTITIONS)}


def plain(log: Log, name: str) -> None:
    with Producer(log) as producer:
        send(producer, name)


@pytest.mark.slow
def test_commit_abort_commit_of_one_producer_from_every_offset(
    log: Log, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one fetch; the last transaction has no marker, or is under way."""
    producer = producer_of(log)
    expected: list[tuple[int, str]] = []

    def transact(name: str, *, commit: bool) -> None:
        producer.begin_transaction()
        for half in ("a", "b"):
            if commit:
                expected.append((log.partition(TOPIC, 0).latest_offset, name + half))
            send(producer, name + half, partition=0)
        producer.commit_transaction() if commit else producer.abort_transaction()

    def check() -> None:
        for start in range(log.partition(TOPIC, 0).latest_offset + 1):
            wanted = [name for offset, name in expected if offset >= start]
            assert seen(log, start)[0] == wanted
            assert seen_read_only(root, start)[0] == wanted

    for number, commit in enumerate([True, False, True, False, False, True]):
        transact(f"n{number}", commit=commit)
    check()
    producer.begin_transaction()
    send(producer, "open", partition=0)
    check()
    producer.abort_transaction()
    refuse_markers(monkeypatch)
    transact("last", commit=True)
    check()


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_shows_in_all_partitions_without_a_marker_in_any(
    log: Log, root: Path, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """A reader that starts after ``commit_transaction`` has returned sees all of it."""
    producer = producer_of(log)
    producer.begin_transaction()
    send(producer, "one", "two")
    plain(log, "after")
    assert seen(log) == seen_read_only(root) == everywhere()
    refuse_markers(monkeypatch)
    producer.commit_transaction() if commit else producer.abort_transaction()
    expected = everywhere("one", "two", "after") if commit else everywhere("after")
    assert seen(log) == seen_read_only(root) == expected
    producer.close()
    assert seen(log) == seen_read_only(root) == expected
    for number in range(PARTITIONS):
        partition = log.partition(TOPIC, number)
        assert partition.log.current().last_stable_offset == 0
        assert partition.last_stable_offset == partition.latest_offset == 3


def test_ends_and_lag_are_those_of_decided_records(log: Log, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_markers(monkeypatch)
    first, second = producer_of(log, "first"), producer_of(log, "second")
    first.begin_transaction()
    send(first, "one")
    first.commit_transaction()
    second.begin_transaction()
    send(second, "two")
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    for writable in (True, False):
        with Log(root, read_only=not writable) as other, consumer_at(other, dict.fromkeys(range(PARTITIONS), 0)) as it:
            assert it.end_offsets(partitions) == dict.fromkeys(partitions, 1)
            assert it.lag() == dict.fromkeys(partitions, 1)
            assert it.metrics()["records_lag_max"] == 1
            it.seek_to_end()
            assert [it.position(each) for each in partitions] == [1] * PARTITIONS
            assert it.poll() == []
        with (
            Log(root, read_only=not writable) as other,
            consumer_at(other, dict.fromkeys(range(PARTITIONS), 0), isolation_level="read_uncommitted") as it,
        ):
            assert it.end_offsets(partitions) == dict.fromkeys(partitions, 2)


@pytest.mark.slow
def test_a_consumer_that_may_write_writes_the_missing_markers(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """So later readers need not ask. It first gives their owner the time to do it."""
    producer = producer_of(log)
    with monkeypatch.context() as refusing:
        refuse_markers(refusing)
        producer.begin_transaction()
        send(producer, "one")
        producer.commit_transaction()
    partitions = [log.partition(TOPIC, number).log for number in range(PARTITIONS)]
    with consumer_at(log, dict.fromkeys(range(PARTITIONS), 0)) as consumer:
        assert len(consumer.poll()) == PARTITIONS
        assert [each.current().last_stable_offset for each in partitions] == [0] * PARTITIONS
        for _ in range(100):
            if all(each.current().last_stable_offset == 2 for each in partitions):
                break
            assert consumer.poll(0.3) == []
        assert [each.current().last_stable_offset for each in partitions] == [2] * PARTITIONS
        assert consumer.poll(0.3) == []
        assert not consumer._fetcher.must_look_again()


# The order of the questions: see transaction/outcomes.py


def dies_at(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, producer: Producer, *, commit: bool, before: bool
) -> None:
    """The owner ends its transaction and dies, once, just before or after this question is
    answered."""
    original = getattr(where, name)
    is_over: list[bool] = []

    def end() -> None:
        if not is_over:
            is_over.append(True)
            with monkeypatch.context() as refusing:
                refuse_markers(refusing)
                if commit:
                    producer.commit_transaction()
                producer.close()

    def asked(*given: Any, **options: Any) -> Any:
        if before:
            end()
        answer = original(*given, **options)
        end()
        return answer

    monkeypatch.setattr(where, name, asked)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (TransactionDirectory, "is_alive"),
        (TransactionTable, "commit_of"),
        (Outcomes, "state"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_an_owner_that_commits_and_dies_between_two_questions_is_not_taken_for_one_that_aborted(
    log: Log, root: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool, where: type, name: str, before: bool
) -> None:
    """Whether it lives is asked before the table is read: in the other order the table may lack a
    commit of a dead owner."""
    producer = producer_of(log)
    producer.begin_transaction()
    send(producer, "one")
    with Log(root, read_only=read_only) as other:
        partition = other.partition(TOPIC, 0)
        open_ = partition.log.reader.open_transactions()
        if not open_:  # nobody has looked
            assert partition.read(0) == []
            open_ = partition.log.reader.open_transactions()
        ((producer_id, epoch, *_),) = open_
        dies_at(monkeypatch, where, name, producer, commit=True, before=before)
        assert other.manager.part(Outcomes).outcome(producer_id, epoch) is not Outcome.ABORTED
        monkeypatch.undo()
        assert other.manager.part(Outcomes).outcome(producer_id, epoch) is Outcome.COMMITTED
        assert [record.value for record in partition.read(0)] == [b"one"]
    assert seen_read_only(root) == everywhere("one")


def test_a_reader_of_the_same_process_sees_no_part_of_what_is_decided_between_two_partitions(
    log: Log, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the first partition before: then it may lack there what it sees in others, but
    never within one."""
    producer = producer_of(log)
    producer.begin_transaction()
    send(producer, "one", "two")
    dies_at(monkeypatch, TransactionDirectory, "is_alive", producer, commit=True, before=False)
    with Log(root, read_only=True) as other:
        first = [[record.value for record in other.partition(TOPIC, number).read(0)] for number in range(PARTITIONS)]
    assert all(each in ([], [b"one", b"two"]) for each in first)
    assert seen_read_only(root) == everywhere("one", "two")


# The deadline of a poll


def polled_while_its_owner_dies(monkeypatch: pytest.MonkeyPatch, when: str, *, read_only: bool) -> list[bytes | None]:
    """What a poll of 0.1 s returns, if a transaction hides a plain record until its owner dies at
    this time."""
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "hides", 1: "hides"})
    stage.append(0)

    def end() -> None:
        owner.process.kill()
        stage.machine.seconds += 0.2

    with (
        stage.machine.process().open_log(ROOT, read_only=read_only) as log,
        consumer_at(log, dict.fromkeys(range(2), 0)) as consumer,
    ):
        if when == "while it waits":
            monkeypatch.setattr(log.manager, "wait_for_change", lambda *_: end())
        else:
            decided, asked = Outcomes.outcome, []

            def outcome(*given: Any) -> Outcome:
                asked.append(given)
                if len(asked) == 2:  # it found the first partition undecided
                    end()
                return decided(*given)

            monkeypatch.setattr(Outcomes, "outcome", outcome)
        return [record.value for record in consumer.poll(0.1)]


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("when", ["while it waits", "between two partitions, when the time is over"])
def test_a_poll_looks_after_its_deadline_once_more_at_a_transaction_that_hid_records(
    monkeypatch: pytest.MonkeyPatch, when: str, read_only: bool
) -> None:
    """The owner's death changes no file, so nothing else tells it that there is something to
    read."""
    assert polled_while_its_owner_dies(monkeypatch, when, read_only=read_only) == [b"plain", b"plain"]


# Where a free lock proves nothing


@pytest.mark.parametrize("how", ["network", "flock"])
def test_where_a_free_lock_proves_nothing_a_reader_stops_at_the_first_undecided_transaction(
    log: Log, root: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    committed, ongoing = producer_of(log, "committed"), producer_of(log, "ongoing")
    refuse_markers(monkeypatch)
    committed.begin_transaction()
    send(committed, "committed")
    committed.commit_transaction()
    ongoing.begin_transaction()
    send(ongoing, "under way")
    plain(log, "after")
    if how == "network":
        monkeypatch.setattr(OsFileSystem, "kind", lambda *_: "nfs4")
    else:
        monkeypatch.setattr(outcomes, "LOCK_KIND", "flock")
    monkeypatch.setattr(TransactionDirectory, "is_alive", lambda *_: False)  # as such a filesystem may say
    assert seen_read_only(root) == everywhere("committed")


# Spark


def test_a_plan_holds_whatever_is_decided_after_it(log: Log, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors ask nobody: they read what the driver has found."""
    refuse_markers(monkeypatch)
    done, aborted, ongoing = (producer_of(log, name) for name in ("done", "aborted", "ongoing"))
    for producer in (done, aborted, ongoing):
        producer.begin_transaction()
        send(producer, "x", partition=1)
    plain(log, "plain")
    done.commit_transaction()
    aborted.abort_transaction()
    ranges = reading.planned(root, subscribe=TOPIC)
    uncommitted = reading.planned(root, subscribe=TOPIC, isolationLevel="read_uncommitted")
    ongoing.commit_transaction()
    monkeypatch.setattr(Outcomes, "outcome", None)
    found = [(row["partition"], row["offset"]) for row in reading.read_ranges(ranges)]
    assert sorted(found) == [(0, 0), (1, 0), (2, 0)]
    found = [(row["partition"], row["offset"]) for row in reading.read_ranges(uncommitted)]
    assert sorted(found) == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]


def test_a_stream_takes_each_decided_record_once(log: Log, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_markers(monkeypatch)
    query = Query(root, subscribe=TOPIC, startingOffsets="earliest")

    def batch() -> list[str]:
        before = len(query.rows)
        query.batch()
        return sorted(row["value"].decode() for row in query.rows[before:])

    first, second = producer_of(log, "first"), producer_of(log, "second")
    first.begin_transaction()
    send(first, "one", partition=0)
    assert batch() == []
    second.begin_transaction()
    send(second, "two", partition=0)
    plain(log, "plain")
    assert batch() == ["plain", "plain"]
    second.abort_transaction()
    assert batch() == []
    first.commit_transaction()
    assert batch() == ["one", "plain"]
    assert batch() == []
    query.reader.stop()
