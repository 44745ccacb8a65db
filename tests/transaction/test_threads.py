"""A transactional producer that several threads use: no record changes its transaction, and none
escapes the fence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pylog import Delivery, Log, Producer, TopicPartition
from pylog.errors import ForkedHandle, InvalidTransactionState, LogLocked, OutcomeUnknown, ProducerFenced
from pylog.producer import transactions
from pylog.producer.sync_threads import SyncThreads
from pylog.producer.transactions import ProducerTransactions
from pylog.transaction.owner import TransactionOwner
from tests.system import of_the_system
from tests.transaction.stage import Stage, values_of
from tests.transaction.test_producer import each, refused


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as opened:
        opened.create_topic("t", partitions=3)
        yield opened


@pytest.fixture
def producer(log: Log) -> Iterator[Producer]:
    with Producer(log, transactional_id="app") as made:
        made.init_transactions()
        yield made


@contextmanager
def another_thread_appends(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, go_on: threading.Event
) -> Iterator[threading.Thread]:
    """Another thread has a batch of partition 0 in its hands, and waits for ``go_on`` before the
    append."""
    is_there, append = threading.Event(), ProducerTransactions.append

    def slow(self: ProducerTransactions, *arguments: Any) -> Any:
        if threading.current_thread() is thread:
            is_there.set()
            go_on.wait(60)
        return append(self, *arguments)

    monkeypatch.setattr(ProducerTransactions, "append", slow)
    thread = threading.Thread(target=producer.flush)
    thread.start()
    try:
        assert is_there.wait(60)
        yield thread
    finally:
        go_on.set()
        thread.join()


def test_a_record_of_an_aborted_transaction_is_not_in_the_next_one(
    log: Log, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.begin_transaction()
    deliveries = [producer.send("t", b"T1", partition=0)]
    go_on, abort = threading.Event(), TransactionOwner.abort

    def aborted(owner: TransactionOwner, *arguments: Any) -> None:
        abort(owner, *arguments)
        go_on.set()

    monkeypatch.setattr(TransactionOwner, "abort", aborted)
    with another_thread_appends(producer, monkeypatch, go_on):
        deliveries.append(producer.send("t", b"T1", partition=0))
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"T2", partition=0)
        producer.commit_transaction()
    assert values_of(log, 0) == ["T2"]
    assert all(each.exception() is not None for each in deliveries)


@pytest.mark.slow
def test_what_is_visible_is_what_was_committed_while_another_thread_flushes(
    log: Log, producer: Producer, seed: int
) -> None:
    """250 transactions, half of them aborted. Each value names its transaction."""
    random, is_over, committed = Random(seed), threading.Event(), set[str]()

    def flush() -> None:
        while not is_over.is_set():
            producer.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for number in range(250):
            producer.begin_transaction()
            values = [f"{number} {index}" for index in range(random.choice((1, 2, 5, 20)))]
            for value in values:
                producer.send("t", value.encode(), partition=random.randrange(3))
            if random.random() < 0.5:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed.update(values)
    finally:
        is_over.set()
        thread.join()
    found = [value for number in range(3) for value in values_of(log, number)]
    assert sorted(found) == sorted(committed), f"seed {seed}"


@pytest.mark.parametrize("place", ["a callback", "a write"])
def test_who_is_waited_for_does_not_wait_for_a_commit(
    log: Log, producer: Producer, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As a callback may, or a signal handler that interrupts a thread in a write."""
    is_there, is_committing = threading.Event(), threading.Event()
    refusals: list[Callable[[], object]] = []
    refuse_records, append = ProducerTransactions._refuse_records, ProducerTransactions.append

    def then_told(self: ProducerTransactions) -> None:
        refuse_records(self)
        is_committing.set()

    def called(_: Delivery | None = None) -> None:
        is_there.set()
        assert is_committing.wait(60)
        for call in calls:
            with pytest.raises(InvalidTransactionState):
                call()
            refusals.append(call)

    def interrupted(self: ProducerTransactions, *arguments: Any) -> Any:
        called()
        return append(self, *arguments)

    calls: list[Callable[[], object]] = [
        producer.abort_transaction,
        producer.commit_transaction,
        producer.begin_transaction,
        producer.close,
        lambda: producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group"),
    ]
    monkeypatch.setattr(ProducerTransactions, "_refuse_records", then_told)
    producer.begin_transaction()
    delivery = producer.send("t", b"T1", partition=0)
    if place == "a callback":
        delivery.add_done_callback(called)
    else:
        monkeypatch.setattr(ProducerTransactions, "append", interrupted)
    threads = [threading.Thread(target=call, daemon=True) for call in (producer.flush, producer.commit_transaction)]
    threads[0].start()
    assert is_there.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "they wait for each other"
    assert refusals == calls
    assert values_of(log, 0) == ["T1"]


def test_a_callback_may_abort_if_no_other_call_is_under_way(log: Log, producer: Producer) -> None:
    for value, end in ((b"T1", producer.abort_transaction), (b"T2", producer.commit_transaction)):
        producer.begin_transaction()

        def called(_: Delivery, end: Callable[[], None] = end) -> None:
            end()

        producer.send("t", value, partition=0).add_done_callback(called)
        thread = threading.Thread(target=producer.flush)
        thread.start()
        thread.join(60)
    producer.begin_transaction()
    producer.abort_transaction()
    assert values_of(log, 0) == ["T2"]


def test_an_abort_that_another_thread_keeps_from_its_end_can_be_repeated(
    log: Log, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_S", 0.0)
    producer.begin_transaction()
    producer.send("t", b"T1", partition=0)
    go_on = threading.Event()
    with another_thread_appends(producer, monkeypatch, go_on) as thread:
        producer.send("t", b"T1", partition=0)
        with pytest.raises(LogLocked):
            producer.abort_transaction()
        with pytest.raises(InvalidTransactionState):
            producer.begin_transaction()
        go_on.set()
        thread.join()
        producer.abort_transaction()
    with producer.transaction():
        producer.send("t", b"T2", partition=0)
    assert values_of(log, 0) == ["T2"]


def test_a_fenced_producers_only_batch_is_refused_whatever_thread_writes_it(
    log: Log, tmp_path: Path, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = ProducerTransactions._choose_one_batch

    def then_fenced(self: ProducerTransactions, sender: Any) -> bool:
        is_one = choose(self, sender)
        with Log(tmp_path / "log") as other, Producer(other, transactional_id="app") as successor:
            successor.init_transactions()
        thread = threading.Thread(target=producer.flush)
        thread.start()
        thread.join()
        return is_one

    monkeypatch.setattr(ProducerTransactions, "_choose_one_batch", then_fenced)
    producer.begin_transaction()
    producer.send("t", b"T1", partition=0)
    with pytest.raises(ProducerFenced):
        producer.commit_transaction()
    assert values_of(log, 0) == []


def test_one_batch_that_is_in_the_log_is_committed_though_another_producer_takes_over_before_the_commit_is_repeated() -> (
    None
):
    stage = Stage()
    owner = stage.owner()
    owner.producer.begin_transaction()
    owner.producer.send("t", b"T1", partition=0)
    with each(stage, "sync", "/t-0/", refused), pytest.raises(OutcomeUnknown):
        owner.producer.commit_transaction()
    stage.owner()
    owner.producer.commit_transaction()
    with pytest.raises(ProducerFenced):
        owner.commit({0: "T2"})
    assert stage.read()[0] == ["T1"]


def test_a_producer_is_not_initialized_before_the_decisions_of_earlier_ones_are_durable() -> None:
    """Else the offsets of such a transaction would count later, and not now, when its work may be
    repeated."""
    stage = Stage()
    first = stage.owner()
    first.begin({0: "T1"})
    with each(stage, "sync", "__transaction_state", refused):
        with pytest.raises(OutcomeUnknown):
            first.producer.commit_transaction()
        with pytest.raises(OutcomeUnknown):
            stage.owner()
    stage.owner()
    assert stage.read()[0] == ["T1"]


def test_send_arrow_is_refused_outside_of_a_transaction(producer: Producer, log: Log) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [b"outside"]})
    with pytest.raises(InvalidTransactionState):
        producer.send_arrow("t", table)
    with producer.transaction():
        producer.send_arrow("t", pa.table({"value": [b"inside"], "partition": [0]}))
    with pytest.raises(InvalidTransactionState):
        producer.send_arrow("t", table)
    assert values_of(log, 0) == ["inside"]


def test_the_partitions_of_a_topic_can_be_asked_for_outside_of_a_transaction(producer: Producer) -> None:
    assert producer.partitions_for("t") == {0, 1, 2}


# The syncs of a commit


def test_a_thread_that_outlives_the_main_thread_can_commit(tmp_path: Path) -> None:
    program = f"""
import threading
from pylog import Log, Producer

def copy():
    threading.main_thread().join()
    with Log({str(tmp_path / "log")!r}) as log:
        log.create_topic("t", partitions=3)
        with Producer(log, transactional_id="app") as producer:
            producer.init_transactions()
            with producer.transaction():
                for partition in range(3):
                    producer.send("t", b"T1", partition=partition)

threading.Thread(target=copy).start()
"""
    ended = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    with Log(tmp_path / "log", read_only=True) as log:
        assert [values_of(log, number) for number in range(3)] == [["T1"]] * 3


def test_calls_are_made_without_threads_if_none_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    @of_the_system
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    made: list[int] = []
    SyncThreads(2).run([partial(made.append, number) for number in range(4)], bool)
    assert made == [0, 1, 2, 3]


def test_an_error_in_another_thread_is_raised() -> None:
    is_there = threading.Event()

    def fail() -> None:
        is_there.set()
        raise OutcomeUnknown("the disk refused")

    threads = SyncThreads(1)
    for _ in range(3):
        is_there.clear()
        with pytest.raises(OutcomeUnknown):
            threads.run([is_there.wait, fail, bool], bool)
    threads.close()


def test_a_wait_for_a_thread_of_the_parent_process_ends() -> None:
    """In a child that a signal handler has forked in the middle of a commit, the other threads are
    gone."""
    is_there, go_on, threads = threading.Event(), threading.Event(), SyncThreads(1)

    def check() -> None:
        raise ForkedHandle("this commit is the parent process's")

    def slow() -> None:
        is_there.set()
        go_on.wait()

    with pytest.raises(ForkedHandle):
        threads.run([is_there.wait, slow], check)
    go_on.set()
    threads.close()
