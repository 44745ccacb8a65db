"""All of a transaction's records and offsets are visible, or none: to every reader, after every
crash, every fault, in any order.

Here a share of them, another with each seed; ``scripts/soak transactions-simulated`` tries all.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog.testing.machine import for_every_kill, for_every_power_loss
from tests.simulation.transactions import ROOT, WORKLOADS, Ledger, Told, Workload, stage
from tests.simulation.transactions_crashes import for_every_crash, sweep
from tests.simulation.transactions_oracle import OFFSETS, Seen, torn, visible, wrong
from tests.simulation.transactions_schedules import RACES, Exploration, Programs, a_share, take_overs
from tests.simulation.transactions_stalls import NEVER, stall, stalls

pytestmark = [pytest.mark.slow, pytest.mark.one_in(16)]

every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


@every_workload
def test_a_transaction_is_whole_or_absent_after_a_kill_at_any_step(workload: Workload, seed: int) -> None:
    found = for_every_crash(workload, seed, for_every_kill, every=4)
    assert found.problems == []
    assert found.crashes > 50


@every_workload
def test_a_transaction_is_whole_or_absent_after_a_loss_of_power_at_any_step(workload: Workload, seed: int) -> None:
    found = for_every_crash(workload, seed, for_every_power_loss, at_most=3, every=7)
    assert found.problems == []
    assert found.crashes > 60


@every_workload
def test_a_transaction_is_whole_or_absent_whatever_the_system_refuses(workload: Workload, seed: int) -> None:
    found = sweep(workload, seed, every=90)
    assert found.problems == []
    assert found.crashes > 50


@pytest.mark.parametrize("programs", RACES.values(), ids=RACES)
def test_a_transaction_is_whole_or_absent_in_every_order_of_steps(programs: Programs, seed: int) -> None:
    found = Exploration(programs, seed).explore(a_share(seed, 0.05, 0.03))
    assert found.problems == []
    assert found.crashes > 3  # two of them without a preemption


def test_a_transaction_is_whole_or_absent_if_another_producer_takes_over_at_any_step(seed: int) -> None:
    """The first one goes on, or is dead; the second one commits a transaction, or dies after the
    take-over."""
    found = take_overs(seed, every=12, share=seed)
    assert found.problems == []
    assert found.crashes > 30


def test_a_transaction_is_whole_or_absent_if_its_owner_stands_still_beyond_its_timeout_at_any_step(seed: int) -> None:
    """A process with permission to write reads, and may end it; another producer commits. Then the
    first one goes on."""
    found = stalls(seed, every=6, share=seed)
    assert found.problems == []
    assert found.crashes > 10


def test_an_owner_stands_still_in_every_part_of_a_commit_and_its_decision_is_what_counts(seed: int) -> None:
    """Before the decision's record is in the table, it is aborted meanwhile; after that it is
    committed."""
    steps = [(step.name, step.path.removeprefix(ROOT)) for step in stall(seed, NEVER).steps]
    data, table = "/00000000000000000000.log", "/__transaction_state-0/00000000000000000000.log"
    written = ["/t-0" + data, "/t-1" + data, "/t-2" + data, "/__consumer_offsets-0" + data]
    decided = steps.index(("pwrite", table))
    parts = [
        *((steps.index(("sync", each)), Told.ABORTED) for each in written),
        (decided, Told.COMMITTED),  # it holds the id's lock
        (steps.index(("sync", table)), Told.COMMITTED),
        (steps.index(("pwrite", "/.pylog/transactions/a/state"), decided), Told.COMMITTED),
        *((steps.index(("pwrite", each), decided), Told.COMMITTED) for each in written),
    ]
    assert [number for number, _ in parts] == sorted(number for number, _ in parts)
    for number, told in parts:
        stalled = stall(seed, number + 1)
        assert (stalled.problems, stalled.told) == ([], [told, Told.COMMITTED]), (number, steps[number])


def test_the_workloads_end_as_they_are_meant_to() -> None:
    for workload in WORKLOADS.values():
        machine, ledger = stage(0).copy(), Ledger()
        workload(machine, ledger)
        assert {each.told for each in ledger.transactions.values()} >= {Told.COMMITTED}
        assert ledger.seen == []
        assert wrong(machine.copy(), ledger) == []


def _lose_a_record(found: Seen) -> None:
    found["t", 1].remove("T1 0 t-1")


def _lose_an_offset(found: Seen) -> None:
    found[OFFSETS].remove("T3 offset g")


def _repeat_a_record(found: Seen) -> None:
    found["t", 1].append("T1 0 t-1")


def _show_an_aborted_one(found: Seen) -> None:
    found["t", 0].append("T2 0 t-0")


def _show_an_aborted_offset(found: Seen) -> None:
    found[OFFSETS].append("T2 offset g")


@pytest.mark.parametrize(
    "damage", [_lose_a_record, _lose_an_offset, _repeat_a_record, _show_an_aborted_one, _show_an_aborted_offset]
)
def test_what_is_torn_is_found(damage: Callable[[Seen], None]) -> None:
    machine, ledger = stage(0).copy(), Ledger()
    WORKLOADS["three_in_a_row"](machine, ledger)
    with machine.process().open_log(ROOT, read_only=True) as log:
        found = visible(log)
    assert list(torn(found, ledger)) == []
    damage(found)
    assert list(torn(found, ledger)) != []
