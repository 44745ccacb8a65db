"""The loss that each rule of the protocol prevents; and each of them seen, with the rule taken out.

A scenario returns what is wrong. With the rules nothing is; without its rule, something.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from pylog.codec.format import INT64_MAX
from pylog.errors import (
    CorruptRecord,
    CorruptSegment,
    InvalidTransactionState,
    OutcomeUnknown,
    ProducerFenced,
    StorageFull,
)
from pylog.manager.manager import LogManager
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import OpenTransactions, Outcome, Undecided
from pylog.testing.machine import Killed, Process, Step
from pylog.transaction import unfinished
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.owner import TransactionOwner
from pylog.transaction.state import Status, TransactionState
from pylog.transaction.table import Found, TransactionTable
from pylog.transaction.unfinished import FINISHED_AT_ONCE
from tests.transaction.stage import Owner, Stage

Scenario = Callable[[], str]
TakeOut = Callable[[pytest.MonkeyPatch], None]


def kill_at(owner: Owner, name: str, path: str) -> None:
    """Kill the owner before its next such step."""

    def before(process: Process, step: Step) -> None:
        if process is owner.process and step.name == name and path in step.path:
            process.kill()
            raise Killed

    owner.process.machine.before_step.append(before)


# Rule 1


def an_epoch_that_was_lost_with_the_power_is_used_again() -> str:
    """T2's records reach the disk, no decision does. After the reboot, the id's second transaction
    commits."""
    stage = Stage()
    first = stage.owner()
    first.commit({0: "T1"})
    first.begin({1: "T2"})
    first.log.manager.partition("t", 1).sync(1)
    stage.lose_power()
    later = stage.owner()
    later.commit({2: "T3"})
    later.commit({3: "T4"})
    found = stage.read()
    return "" if found == {0: ["T1"], 1: [], 2: ["T3"], 3: ["T4"]} else f"T2 was adopted: {found}"


def without_new_producer_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogManager, "next_producer_id", lambda _: 1 << 50)


def an_epoch_without_a_record_is_used_again() -> str:
    """The table has T1's epoch. T2 is aborted, and T3's records reach the disk; then the power
    takes what is later there."""
    stage = Stage()
    first = stage.owner()
    first.commit({0: "T1"})
    first.begin({1: "T2"})
    first.producer.abort_transaction()
    first.begin({1: "T3"})
    first.log.manager.partition("t", 1).sync(1)
    stage.lose_power()
    stage.owner().commit({2: "T4", 3: "T4"})
    found = stage.read()
    return "" if found == {0: ["T1"], 1: [], 2: ["T4"], 3: ["T4"]} else f"T3 was adopted: {found}"


def with_the_next_epoch_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    with_new_id = TransactionOwner._with_new_id

    def with_next_epoch(self: TransactionOwner) -> TransactionState:
        latest = self._table.latest().get(self.transactional_id)
        if latest is None:
            return with_new_id(self)
        state = TransactionState(
            latest.producer_id, latest.epoch + 1, Status.EMPTY, self._owner, self._timeout_ms, self._now_ms()
        )
        self._append(state, frozenset())
        return state

    monkeypatch.setattr(TransactionOwner, "_with_new_id", with_next_epoch)


# Rule 2


def a_fenced_producer_writes_to_a_partition_no_later_transaction_touches() -> str:
    stage = Stage()
    fenced = stage.owner()
    fenced.begin({0: "T1"})
    stage.owner().commit({1: "T2"})
    delivery = fenced.producer.send("t", b"late", partition=2)
    with suppress(ProducerFenced):
        fenced.producer.flush()
    if not isinstance(delivery.exception(), ProducerFenced):
        return f"its record was not refused: {delivery.exception()!r}"
    with stage.machine.process().open_log("/log") as log:
        partition = log.manager.partition("t", 2)
        if partition.latest_offset or partition.open_transactions():
            return f"it stays open: {partition.open_transactions()}"
    return ""


def without_a_look_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionOwner, "require_ongoing", lambda *_: None)


# Rule 3


def a_decision_above_the_tables_durable_end_is_acted_on() -> str:
    """The owner dies before its decision is durable. Another process finishes one partition; then
    the power fails."""
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1", 1: "T1"})
    kill_at(owner, "sync", "__transaction_state")
    with pytest.raises(Killed):
        owner.producer.commit_transaction()
    stage.append(0)
    before = stage.read()
    stage.lose_power()
    after = stage.read()
    return "" if before == after and before[0] == before[1] else f"torn: {before}, after the power failure {after}"


def without_the_sync_of_who_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = [Found.sync]  # the owner's own

    def sync(found: Found) -> None:
        while syncs:
            syncs.pop()(found)

    monkeypatch.setattr(Found, "sync", sync)
    monkeypatch.setattr(Found, "is_made_durable", lambda _: True)


def t1_commits_t2_begins_and_the_power_takes_t1s_marker() -> str:
    stage = Stage()
    owner = stage.owner()
    owner.commit({0: "T1", 1: "T1"})
    for _ in range(FINISHED_AT_ONCE):
        owner.commit({2: "T2", 3: "T2"})
    owner.begin({2: "T3"})
    stage.lose_power()
    found, later = stage.read(), ["T2"] * FINISHED_AT_ONCE
    return "" if found == {0: ["T1"], 1: ["T1"], 2: later, 3: later} else f"T1 is lost: {found}"


def without_waiting_for_durable_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "_durable_offset", lambda _: INT64_MAX)


# Rule 4


def a_dead_owners_transaction_stays_open() -> str:
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1"})
    owner.process.kill()
    left = stage.append(0)
    return f"{left} stay open" if left else ""


def without_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "settle_transactions", lambda _: None)


def a_damaged_table_decides() -> str:
    """The owner dies after its decision and before its markers. The table is damaged for a
    while."""
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1", 1: "T1"})
    kill_at(owner, "pwrite", "/transactions/")
    with pytest.raises(Killed):
        owner.producer.commit_transaction()
    path = "/log/__transaction_state-0/00000000000000000000.log"
    file = stage.machine.process().filesystem.open_appendable(path)
    whole = file.pread(1, 70)
    file.pwrite(bytes([whole[0] ^ 0xFF]), 70)
    with suppress(CorruptSegment):
        stage.append(0)
        stage.read()
    file.pwrite(whole, 70)
    found = stage.read()
    return "" if found[0] == found[1] == ["T1"] else f"T1 is lost: {found}"


def without_regard_to_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    read = TransactionTable._read

    def careless(self: TransactionTable, *args: object) -> None:
        with suppress(CorruptRecord):
            read(self, *args)

    monkeypatch.setattr(TransactionTable, "_read", careless)
    monkeypatch.setattr(PartitionLog, "settle", lambda *_: None)


# Rule 5


def an_owner_commits_and_goes_on_between_two_looks_of_a_reader() -> str:
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1"})
    commit_of = TransactionTable.commit_of
    to_do = [lambda: (owner.producer.commit_transaction(), owner.begin({1: "T2"}))]

    def interrupted(self: TransactionTable, producer_id: int, epoch: int) -> Found | None:
        found = commit_of(self, producer_id, epoch)
        while to_do:
            to_do.pop()()
        return found

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(TransactionTable, "commit_of", interrupted)
        with stage.machine.process().open_log("/log", read_only=True) as log:
            reader = log.manager.partition("t", 0).reader
            state = reader.published.current()
            undecided = reader.undecided("written", state)
    return "" if not undecided.aborted else f"T1, which is committed, was skipped: {undecided}"


def with_the_table_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(self: Outcomes, producer_id: int, epoch: int) -> Outcome:
        found = self._table.commit_of(producer_id, epoch)
        directory = self._directory_of(producer_id)
        assert directory is not None
        state = self.state(directory)
        if state is not None and state.is_of(producer_id, epoch) and directory.is_alive(state.owner):
            return Outcome.UNDECIDED
        return Outcome.ABORTED if found is None else Outcome.COMMITTED

    monkeypatch.setattr(Outcomes, "outcome", outcome)
    monkeypatch.setattr(OpenTransactions, "without_committed", lambda _, undecided: undecided)


def the_table_forgets_a_commit_between_two_looks_of_a_reader() -> str:
    """T1's marker comes late: after the reader's look at the batches. Then it is durable, and T1 is
    completed."""
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1", 1: "T1"})
    outcome = Outcomes.outcome

    def go_on() -> None:
        owner.producer.commit_transaction()
        for _ in range(FINISHED_AT_ONCE):
            owner.commit({0: "later", 1: "later"})

    to_do = [go_on]

    def interrupted(self: Outcomes, producer_id: int, epoch: int) -> Outcome:
        while to_do:
            to_do.pop()()
        return outcome(self, producer_id, epoch)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Outcomes, "outcome", interrupted)
        with stage.machine.process().open_log("/log", read_only=True) as log:
            table = log.manager.part(TransactionTable)
            reader = log.manager.partition("t", 0).reader
            undecided: Undecided = reader.undecided("written")
            if table.commit_of(*owner.identity) is None or table.commit_of(owner.identity[0], 1) is not None:
                return "the scenario is wrong: T1 is not forgotten, or the last one is"
    return "" if not undecided.aborted else f"T1, which is committed, was skipped: {undecided}"


def without_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenTransactions, "without_committed", lambda _, undecided: undecided)


def dead_in_the_append_of_its_decision(stage: Stage) -> None:
    """The decision is in the table's file, whole, and not published."""
    owner = stage.owner()
    owner.begin({0: "T1", 1: "T1"})
    kill_at(owner, "pwrite", "/__transaction_state-0/.commit")
    with pytest.raises(Killed):
        owner.producer.commit_transaction()


def a_writer_decides_what_a_reader_saw_otherwise() -> str:
    stage = Stage()
    dead_in_the_append_of_its_decision(stage)
    before = stage.read()
    stage.append(0)
    after = stage.read()
    return "" if before == after and before[0] == before[1] == ["T1"] else f"torn: {before}, after a writer {after}"


def without_taking_in_what_the_owner_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_of(table: TransactionTable, _: str, producer_id: int, epoch: int, __: int = 0) -> Found | None:
        return table.commit_of(producer_id, epoch)

    monkeypatch.setattr(TransactionTable, "settled_commit_of", commit_of)


def an_abort_passes_over_a_decision_that_is_not_published() -> str:
    """A commit is interrupted in the append of its decision, and repeated in vain. Then the
    application aborts.

    If it is told that this is done, it must stay so, also after a power failure, which takes the
    markers.
    """
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1", 1: "T1"})
    errors: list[BaseException] = [StorageFull("no space left on device"), KeyboardInterrupt()]

    def before(_: Process, step: Step) -> None:
        if errors and step.name == "pwrite" and step.path.endswith("/__transaction_state-0/.commit"):
            raise errors.pop()

    stage.machine.before_step.append(before)
    with pytest.raises(KeyboardInterrupt):
        owner.producer.commit_transaction()
    with pytest.raises((StorageFull, OutcomeUnknown)):
        owner.producer.commit_transaction()
    try:
        owner.producer.abort_transaction()
        expected = []
    except InvalidTransactionState:
        expected = ["T1"]
    owner.process.kill()
    stage.owner("another").commit({2: "T2", 3: "T2"})
    stage.lose_power()
    found = stage.read()
    return "" if found[0] == found[1] == expected else f"T1 should have been {expected} in 0 and 1: {found}"


def a_decision_is_published_between_two_looks_of_a_reader() -> str:
    """Another producer's append to the table publishes what the dead owner has left there."""
    stage = Stage()
    dead_in_the_append_of_its_decision(stage)
    unpublished_commit_of = TransactionTable._unpublished_commit_of
    to_do = [lambda: stage.owner("another")]

    def interrupted(self: TransactionTable, producer_id: int, epoch: int) -> Found | None:
        while to_do:
            to_do.pop()()
        return unpublished_commit_of(self, producer_id, epoch)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(TransactionTable, "_unpublished_commit_of", interrupted)
        found = stage.read()
    return "" if found[0] == found[1] == ["T1"] else f"T1, which is committed, was skipped: {found}"


def with_the_published_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_commit_of(table: TransactionTable, producer_id: int, epoch: int) -> Found | None:
        return table.commit_of(producer_id, epoch) or table._unpublished_commit_of(producer_id, epoch)

    monkeypatch.setattr(TransactionTable, "last_commit_of", last_commit_of)


RULES: list[tuple[Scenario, TakeOut]] = [
    (an_epoch_that_was_lost_with_the_power_is_used_again, without_new_producer_ids),
    (an_epoch_without_a_record_is_used_again, with_the_next_epoch_of_the_table),
    (a_fenced_producer_writes_to_a_partition_no_later_transaction_touches, without_a_look_under_the_lock),
    (a_decision_above_the_tables_durable_end_is_acted_on, without_the_sync_of_who_recovers),
    (t1_commits_t2_begins_and_the_power_takes_t1s_marker, without_waiting_for_durable_markers),
    (a_dead_owners_transaction_stays_open, without_settling),
    (a_damaged_table_decides, without_regard_to_damage),
    (an_owner_commits_and_goes_on_between_two_looks_of_a_reader, with_the_table_first),
    (the_table_forgets_a_commit_between_two_looks_of_a_reader, without_the_second_look),
    (a_writer_decides_what_a_reader_saw_otherwise, without_taking_in_what_the_owner_left),
    (an_abort_passes_over_a_decision_that_is_not_published, without_taking_in_what_the_owner_left),
    (a_decision_is_published_between_two_looks_of_a_reader, with_the_published_ones_first),
]
every_rule = pytest.mark.parametrize(("scenario", "take_out"), RULES, ids=[each.__name__ for each, _ in RULES])


@every_rule
def test_a_rule_prevents_its_loss(scenario: Scenario, take_out: TakeOut) -> None:
    assert scenario() == ""


@every_rule
def test_without_the_rule_the_loss_is_seen(
    scenario: Scenario, take_out: TakeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    assert scenario() != ""


def test_a_fenced_producer_that_writes_to_a_partition_no_later_transaction_touches_is_refused_and_nothing_stays_open() -> (
    None
):
    assert a_fenced_producer_writes_to_a_partition_no_later_transaction_touches() == ""
