"""A producer's transactions where something strikes between two steps: exceptions, refusals, other
threads, callbacks, forks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pylog import Delivery, Log, Producer
from pylog.errors import (
    Closed,
    ConfigError,
    InvalidTransactionState,
    LogLocked,
    OutcomeUnknown,
    ProducerFenced,
    StorageError,
    StorageFull,
    TransactionAborted,
)
from pylog.storage import write_atomically
from pylog.testing.machine import Killed, Process, Step
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.owner import TransactionOwner
from pylog.transaction.state import EPOCH_MAX
from pylog.transaction.table import TransactionTable
from pylog.transaction.unfinished import FINISHED_AT_ONCE, UNFINISHED_MAX
from tests.transaction.stage import PARTITIONS, Owner, Stage, values_of

BOTH = {0: "T1", 1: "T1"}


@contextmanager
def each(stage: Stage, name: str, path: str, error: Callable[[str], BaseException], times: int = -1) -> Iterator[None]:
    """The next ``times`` steps of this kind raise; all of them, if it is -1."""

    def before(_: Process, step: Step) -> None:
        nonlocal times
        if step.name == name and path in step.path and times:
            times -= 1
            raise error(step.path)

    stage.machine.before_step.append(before)
    try:
        yield
    finally:
        stage.machine.before_step.remove(before)


def refused(path: str) -> StorageError:
    return StorageError("the disk refused", path=path)


def full(path: str) -> StorageFull:
    return StorageFull("no space left on device", path=path)


def interrupt(_: str) -> KeyboardInterrupt:
    return KeyboardInterrupt()


def sent(owner: Owner, values: dict[int, str]) -> None:
    """In the producer's buffers only."""
    owner.producer.begin_transaction()
    for partition, value in values.items():
        owner.producer.send("t", value.encode(), partition=partition)


# Commit


@pytest.mark.parametrize("error", [refused, full], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("path", ["/state", "/t-0/", "/t-1/"])
def test_commit_does_not_raise_once_the_decision_is_durable(path: str, error: Callable[[str], BaseException]) -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    with each(stage, "pwrite", path, error):
        owner.producer.commit_transaction()
        assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}, "before the markers"
    owner.commit({0: "T2", 1: "T2"})
    owner.producer.close()
    assert stage.read() == {0: ["T1", "T2"], 1: ["T1", "T2"], 2: [], 3: []}
    assert stage.append(0) == stage.append(1) == []


@pytest.mark.parametrize("path", ["__transaction_state", "/t-0/", "/t-1/"])
def test_a_full_disk_before_the_decision_leaves_the_choice_to_commit_later_or_to_abort(path: str) -> None:
    for ends in (Producer.commit_transaction, Producer.abort_transaction):
        stage = Stage()
        owner = stage.owner()
        owner.begin({2: "T1"})
        with each(stage, "pwrite", path, full):
            for partition in (0, 1):
                owner.producer.send("t", b"T1", partition=partition)
            with pytest.raises((StorageFull, TransactionAborted)) as caught:
                owner.producer.commit_transaction()
        if isinstance(caught.value, TransactionAborted) or ends is Producer.abort_transaction:
            owner.producer.abort_transaction()
            expected: dict[int, list[str]] = {0: [], 1: [], 2: [], 3: []}
        else:
            owner.producer.commit_transaction()
            expected = {0: ["T1"], 1: ["T1"], 2: ["T1"], 3: []}
        assert stage.read() == expected
        owner.producer.close()


def test_abort_works_on_a_full_disk() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    with each(stage, "pwrite", ".log", full):
        owner.producer.abort_transaction()
        assert stage.read() == {0: [], 1: [], 2: [], 3: []}
    owner.commit({0: "T2"})
    assert stage.read()[0] == ["T2"]


def test_others_decide_for_a_dead_owner_on_a_full_disk() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    owner.process.kill()
    with each(stage, "pwrite", ".log", full):
        assert stage.read() == stage.read(read_only=False) == {0: [], 1: [], 2: [], 3: []}


def test_a_commit_whose_decision_could_not_be_synced_can_only_be_repeated() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    with each(stage, "sync", "__transaction_state", refused), pytest.raises(OutcomeUnknown):
        owner.producer.commit_transaction()
    assert stage.read()[0] == ["?"], "nobody acts on it yet"
    with pytest.raises(InvalidTransactionState):
        owner.producer.abort_transaction()
    owner.producer.commit_transaction()
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}


def test_closing_in_the_middle_of_a_commit_writes_no_marker_that_contradicts_the_table() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    with each(stage, "sync", "__transaction_state", refused), pytest.raises(OutcomeUnknown):
        owner.producer.commit_transaction()
    owner.producer.close()
    assert stage.append(0) == []
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["pwrite", "sync", "lock", "open", "pread"])
def test_an_interrupted_commit_can_be_repeated_whatever_step_it_was_in(step: str) -> None:
    for values in (BOTH, {0: "T1"}):
        for skipped in range(30):
            stage = Stage()
            owner = stage.owner()
            sent(owner, values)
            count, struck = iter(range(10**6)), []

            def before(
                _: Process, now: Step, count: Iterator[int] = count, skipped: int = skipped, struck: list[Step] = struck
            ) -> None:
                if now.name == step and next(count) == skipped:
                    struck.append(now)
                    raise KeyboardInterrupt

            stage.machine.before_step.append(before)
            try:
                owner.producer.commit_transaction()
            except KeyboardInterrupt:
                stage.machine.before_step.clear()
                owner.producer.commit_transaction()
            stage.machine.before_step.clear()
            owner.commit({0: "T2", 1: "T2"})
            found = stage.read()
            assert found == {n: [*([values[n]] if n in values else []), *(["T2"] if n < 2 else [])] for n in range(4)}
            if not struck:
                break


@pytest.mark.parametrize("step", ["pwrite", "lock", "open", "pread"])
def test_an_interrupted_abort_can_be_repeated_whatever_step_it_was_in(step: str) -> None:
    for skipped in range(40):
        stage = Stage()
        owner = stage.owner()
        owner.begin(BOTH)
        count, struck = iter(range(10**6)), []

        def before(
            _: Process, now: Step, count: Iterator[int] = count, skipped: int = skipped, struck: list[Step] = struck
        ) -> None:
            if now.name == step and next(count) == skipped:
                struck.append(now)
                raise KeyboardInterrupt

        stage.machine.before_step.append(before)
        try:
            owner.producer.abort_transaction()
        except KeyboardInterrupt:
            stage.machine.before_step.clear()
            owner.producer.abort_transaction()
        stage.machine.before_step.clear()
        owner.commit({0: "T2", 1: "T2"})
        assert stage.read() == {0: ["T2"], 1: ["T2"], 2: [], 3: []}
        if not struck:
            break


def test_an_interrupted_commit_of_one_batch_cannot_be_aborted_since_its_records_may_be_there() -> None:
    stage = Stage()
    owner = stage.owner()
    sent(owner, {0: "T1"})
    with each(stage, "pwrite", "/t-0/.commit", interrupt, 1), pytest.raises(KeyboardInterrupt):
        owner.producer.commit_transaction()
    with pytest.raises(InvalidTransactionState):
        owner.producer.abort_transaction()
    owner.producer.commit_transaction()
    assert stage.read()[0] == ["T1"]


def test_one_batch_whose_sync_fails_is_not_said_to_be_aborted_and_is_not_there_twice() -> None:
    stage = Stage()
    owner = stage.owner()
    sent(owner, {0: "T1"})
    with each(stage, "sync", "/t-0/", refused), pytest.raises(OutcomeUnknown):
        owner.producer.commit_transaction()
    owner.producer.commit_transaction()
    owner.commit({0: "T2"})
    assert stage.read()[0] == ["T1", "T2"]


# Fencing


def test_closing_a_fenced_producer_commits_nothing() -> None:
    stage = Stage()
    fenced = stage.owner()
    fenced.commit(BOTH)
    fenced.begin({0: "T2", 1: "T2"})
    stage.owner()
    fenced.producer.send("t", b"T2", partition=0)
    with pytest.raises(ProducerFenced):
        fenced.producer.commit_transaction()
    fenced.producer.close()
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}
    assert stage.append(0) == stage.append(1) == []


def test_a_producer_that_is_fenced_after_its_decision_has_committed() -> None:
    stage = Stage()
    first = stage.owner()
    first.begin(BOTH)
    taken: list[Owner] = []

    def take_over(_: Process, step: Step) -> None:
        if step.name == "pwrite" and step.path.endswith("/t-0/00000000000000000000.log"):
            stage.machine.before_step.remove(take_over)
            taken.append(stage.owner())

    stage.machine.before_step.append(take_over)
    first.producer.commit_transaction()
    assert taken
    with pytest.raises(ProducerFenced):
        first.producer.begin_transaction()
    first.producer.close()
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}


@pytest.mark.parametrize("damage", ["removed", "zeros", "cut"])
def test_a_lost_state_file_leads_to_no_other_outcome(damage: str) -> None:
    """Others wait for an owner that lives; the owner commits, or is fenced by the next one."""
    for is_taken_over in (False, True):
        stage = Stage()
        owner = stage.owner()
        owner.begin(BOTH)
        filesystem = stage.machine.process().filesystem
        path = "/log/.pylog/transactions/app/state"
        if damage == "removed":  # with its directory
            filesystem.remove(path)
            filesystem.remove("/log/.pylog/transactions/app/lock")
        else:
            file = filesystem.open_appendable(path)
            file.truncate(0)
            file.pwrite(bytes(128 if damage == "zeros" else 0), 0)
        assert stage.read()[0] == stage.read(read_only=False)[0] == ["?"]
        if is_taken_over:
            stage.owner()
        with pytest.raises(ProducerFenced):
            owner.producer.commit_transaction()
        owner.producer.close()
        assert stage.append(0) == []
        assert stage.read() == {0: [], 1: [], 2: [], 3: []}


# Readers without permission to write


@pytest.mark.parametrize("at", ["sync", "pwrite"])
def test_a_reader_is_told_what_a_dead_owner_decided_last_and_the_power_takes_it_no_more(at: str) -> None:
    """The owner dies before the sync of its decision, or before it has published the record."""
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    path = "__transaction_state-0/" + ("0000" if at == "sync" else ".commit")

    def before(process: Process, step: Step) -> None:
        if process is owner.process and step.name == at and path in step.path:
            process.kill()
            raise Killed

    stage.machine.before_step.append(before)
    with pytest.raises(Killed):
        owner.producer.commit_transaction()
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}
    stage.lose_power()
    assert stage.read() == stage.read(read_only=False) == {0: ["T1"], 1: ["T1"], 2: [], 3: []}


def test_a_reader_that_may_not_write_skips_aborted_records_after_a_loss_of_power() -> None:
    """The transaction index of the active segment is lost."""
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    owner.producer.abort_transaction()
    owner.commit({0: "T2", 1: "T2"})
    stage.lose_power()
    assert stage.read() == {0: ["T2"], 1: ["T2"], 2: [], 3: []}


# The table


def test_the_table_forgets_commits_whose_markers_are_durable() -> None:
    stage = Stage()
    owner = stage.owner()
    table = owner.log.manager.part(TransactionTable)
    for number in range(2 * UNFINISHED_MAX):
        owner.commit({number % 4: "T", (number + 1) % 4: "T"})
        table.latest()
        assert len(table._commits) <= UNFINISHED_MAX + 2


def test_the_next_owner_finishes_what_a_dead_one_has_left_and_the_table_forgets_it() -> None:
    stage = Stage()
    dead = stage.owner()
    dead.begin(BOTH)
    with each(stage, "pwrite", "/t-1/", refused):
        dead.producer.commit_transaction()
    dead.process.kill()
    later = stage.owner()
    with stage.machine.process().open_log("/log") as log:
        assert log.manager.partition("t", 1).open_transactions() == []
    for _ in range(FINISHED_AT_ONCE + 1):
        later.commit({0: "T2", 1: "T2"})
    table = later.log.manager.part(TransactionTable)
    assert table.commit_of(*dead.identity) is None
    assert stage.read()[0] == stage.read()[1] == ["T1", *["T2"] * (FINISHED_AT_ONCE + 1)]


def test_after_the_last_epoch_the_producer_gets_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.transaction.state.EPOCH_MAX", 3)
    assert EPOCH_MAX == 32_767
    stage = Stage()
    owner = stage.owner()
    identities = set()
    for number in range(9):
        owner.commit({0: f"T{number}", 1: f"T{number}"})
        identities.add(owner.identity)
    assert len(identities) == 9
    assert {epoch for _, epoch in identities} == {1, 2, 3}
    assert stage.read()[0] == stage.read()[1] == [f"T{number}" for number in range(9)]


def test_a_deleted_topic_does_not_stop_a_producer() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.log.create_topic("gone")
    owner.begin({0: "T1"})
    owner.producer.send("gone", b"T1")
    owner.producer.flush()
    owner.log.delete_topic("gone")
    owner.producer.abort_transaction()
    owner.commit({0: "T2", 1: "T2"})
    assert stage.read()[0] == stage.read()[1] == ["T2"]


# Calls at a wrong time


def test_a_callback_cannot_call_inside_a_commit() -> None:
    stage = Stage()
    process = stage.machine.process()
    log = process.open_log("/log")
    errors: list[BaseException] = []

    def called(_: Delivery) -> None:
        for call in (producer.abort_transaction, producer.commit_transaction, producer.begin_transaction):
            try:
                call()
            except InvalidTransactionState as error:
                errors.append(error)

    producer = Producer(log, transactional_id="app", on_delivery=called)
    producer.init_transactions()
    producer.begin_transaction()
    for partition in (0, 1):
        producer.send("t", b"T1", partition=partition)
    producer.commit_transaction()
    assert len(errors) == 6
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}


def test_init_transactions_is_called_once() -> None:
    producer = Stage().owner().producer
    with pytest.raises(InvalidTransactionState, match="was called before; continue with begin_transaction"):
        producer.init_transactions()


def test_a_record_outside_of_a_transaction_is_refused() -> None:
    stage = Stage()
    owner = stage.owner()
    for ends in (owner.producer.commit_transaction, owner.producer.abort_transaction):
        sent(owner, BOTH)
        ends()
        with pytest.raises(InvalidTransactionState):
            owner.producer.send("t", b"late")
        with pytest.raises(InvalidTransactionState):
            ends()
    owner.producer.close()
    assert stage.read()[0] == ["T1"]


def test_a_closed_producer_does_not_fence_its_successor() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.producer.close()
    successor = stage.owner()
    calls = (
        Producer.init_transactions,
        Producer.begin_transaction,
        Producer.commit_transaction,
        Producer.abort_transaction,
    )
    for call in (*calls, lambda producer: producer.send("t", b"late")):
        with pytest.raises(Closed):
            call(owner.producer)
    owner.producer.close()
    successor.commit({0: "T1"})
    assert stage.read()[0] == ["T1"]


@pytest.mark.parametrize("timeout_ms", [0, 0.9, 1 << 31])
def test_a_timeout_that_no_transaction_can_have_is_refused(timeout_ms: float) -> None:
    with Stage().machine.process().open_log("/log") as log, pytest.raises(ConfigError):
        Producer(log, transactional_id="app", transaction_timeout_ms=timeout_ms)


def test_closing_the_log_aborts_an_open_transaction() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    owner.log.close()
    assert stage.read() == {0: [], 1: [], 2: [], 3: []}


def test_an_aborted_record_is_not_an_error_of_close() -> None:
    stage = Stage()
    owner = stage.owner()
    sent(owner, BOTH)
    owner.producer.abort_transaction()
    owner.producer.close()


def test_a_transaction_of_one_batch_after_an_abort_is_written_once() -> None:
    """The aborted batch may have used the sequence numbers of the epoch."""
    stage = Stage()
    owner = stage.owner()
    for number in range(6):
        sent(owner, {0: f"T{number}"})
        if number % 2:
            with each(stage, "pwrite", "/t-0/.commit", refused), pytest.raises((TransactionAborted, OutcomeUnknown)):
                owner.producer.commit_transaction()
            owner.producer.abort_transaction()
        else:
            owner.producer.commit_transaction()
    assert stage.read()[0] == ["T0", "T2", "T4"]


def test_a_log_whose_producer_ids_begin_as_kafkas_do_hides_nothing_after_a_loss_of_power() -> None:
    """As those of earlier versions do. The power takes all that was not synced, and leaves the
    record."""
    stage = Stage()
    write_atomically(stage.machine.process().filesystem, "/log/.pylog/producer-ids", b"5000\n")
    owner = stage.owner()
    owner.begin({1: "T1"})
    owner.log.manager.partition("t", 1).sync(1)
    stage.lose_power()
    assert stage.read()[1] == []
    assert stage.append(1) == []


def test_outcomes_of_what_no_table_knows() -> None:
    stage = Stage()
    with stage.machine.process().open_log("/log") as log:
        outcomes = log.manager.part(Outcomes)
        assert outcomes.outcome(5, 0).name == "UNDECIDED", "Kafka may have given it"
        assert outcomes.outcome(1 << 50, 0).name == "ABORTED"


def ready(log: Log, **options: Any) -> Producer:
    """A producer that may begin a transaction, and its topic."""
    log.create_topic("t", partitions=PARTITIONS)
    producer = Producer(log, transactional_id="app", **options)
    producer.init_transactions()
    return producer


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_send_that_returns_after_the_transaction_has_ended_is_not_in_the_next_one(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another thread ended it while this one was between the look at the transaction and its
    batch."""
    with Log(tmp_path / "log") as log:
        producer = ready(log)
        producer.begin_transaction()
        early = producer.send("t", b"early", partition=0)
        append = producer._append

        def append_late(*arguments: Any, **named: Any) -> Delivery:
            getattr(producer, end)()
            return append(*arguments, **named)

        monkeypatch.setattr(producer, "_append", append_late)
        late = producer.send("t", b"late", partition=1)
        monkeypatch.undo()
        producer.begin_transaction()
        following = producer.send("t", b"following", partition=1)
        producer.commit_transaction()
        with pytest.raises(InvalidTransactionState, match="has no open transaction"):
            late.result()
        assert (early.exception() is None) == (end == "commit_transaction")
        assert following.exception() is None
        assert values_of(log, 1) == ["following"]
        producer.close()


def test_begin_refuses_also_what_comes_while_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if two threads were late, one more than the other."""
    with Log(tmp_path / "log") as log:
        producer = ready(log)
        buffers = producer._topics.find("t").buffers
        late = [producer._append(buffers[0], None, None, b"late", ())]
        give_up = producer._sender.give_up

        def one_more(*arguments: Any) -> None:
            monkeypatch.undo()
            give_up(*arguments)
            late.append(producer._append(buffers[1], None, None, b"later", ()))

        monkeypatch.setattr(producer._sender, "give_up", one_more)
        with producer.transaction():
            following = producer.send("t", b"following", partition=0)
        assert [str(delivery.exception()) for delivery in late] == ["send: this producer has no open transaction"] * 2
        assert following.exception() is None
        producer.close()


def test_what_is_sent_too_late_does_not_fail_a_commit_that_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_path / "log") as log:
        producer = ready(log)
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.send("t", b"early", partition=number)
        buffer = producer._topics.find("t").buffers[0]

        def refuse_and_be_late(*_: object) -> None:
            monkeypatch.undo()
            producer._append(buffer, None, None, b"late", ())
            producer.flush()  # it is refused
            raise LogLocked("a stopped process holds the lock of the id")

        monkeypatch.setattr(TransactionOwner, "commit", refuse_and_be_late)
        with pytest.raises(LogLocked):
            producer.commit_transaction()
        producer.commit_transaction()
        assert [values_of(log, number) for number in range(PARTITIONS)] == [["early"]] * PARTITIONS
        producer.close()


def until_returned(call: Callable[[], None]) -> None:
    """Again while another thread is about to write a record."""
    while True:
        with suppress(LogLocked):
            return call()


@pytest.mark.usefixtures("quick_switches")
def test_records_that_other_threads_send_during_a_commit_are_in_it_or_refused(tmp_path: Path, seed: int) -> None:
    """A record is visible if and only if its delivery succeeded and its transaction was
    committed."""
    log = Log(tmp_path / "log")
    producer = ready(log, batch_bytes=300)
    is_over, deliveries, sent = threading.Event(), dict[int, Delivery](), threading.Semaphore(0)

    def send() -> None:
        number = 0
        while not is_over.is_set():
            try:
                deliveries[number] = producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            except (InvalidTransactionState, TransactionAborted):
                continue
            number += 1
            sent.release()

    thread = threading.Thread(target=send)
    random = Random(seed)
    producer.begin_transaction()
    thread.start()
    looked_at, of_commits, of_aborts = 0, list[int](), list[int]()
    try:
        for _ in range(60):
            for _ in range(random.choice((1, 5, 50))):
                assert sent.acquire(timeout=60), f"the other thread sends no more; seed {seed}"
            kept = of_commits
            try:
                if random.random() < 0.2:
                    raise TransactionAborted("on purpose")
                until_returned(producer.commit_transaction)
            except TransactionAborted:
                until_returned(producer.abort_transaction)
                kept = of_aborts
            kept += range(looked_at + 1, len(deliveries))  # the first may be of the transaction before
            looked_at = len(deliveries)
            while sent.acquire(blocking=False):
                pass  # those sent meanwhile are of the transaction that is over
            until_returned(producer.begin_transaction)
    finally:
        is_over.set()
        thread.join()
    producer.abort_transaction()
    producer.close()
    values = [int(value) for number in range(PARTITIONS) for value in values_of(log, number)]
    assert len(values) == len(set(values)), f"seed {seed}"
    assert of_commits, f"seed {seed}"
    assert {*of_aborts}.isdisjoint(values), f"seed {seed}"
    hidden = {*of_commits} - {*values}
    assert all(deliveries[number].exception() is not None for number in hidden), f"of {hidden}; seed {seed}"
    for number in values:
        assert deliveries[number].exception() is None, f"{number} is visible, and was refused; seed {seed}"
    log.close()
