"""All of a transaction's records are visible, or none: to every reader, after every crash, every fault, in every order.

Here a share of them, another with each seed; ``scripts/soak transactions-simulated`` draws more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss
from tests.simulation.transactions import (
    RACES,
    WORKLOADS,
    Ledger,
    Programs,
    Told,
    Workload,
    anomalies,
    for_every_crash,
    schedules,
    sweep,
    wrong,
)

pytestmark = pytest.mark.slow

every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


@every_workload
def test_a_transaction_is_whole_or_absent_after_a_kill_at_any_step(workload: Workload, seed: int) -> None:
    found = for_every_crash(workload, seed, for_every_kill)
    assert found.problems == []
    assert found.crashes > 300


@every_workload
def test_a_transaction_is_whole_or_absent_after_a_loss_of_power_at_any_step(workload: Workload, seed: int) -> None:
    found = for_every_crash(workload, seed, for_every_power_loss, at_most=5, every=4)
    assert found.problems == []
    assert found.crashes > 200


@every_workload
def test_a_transaction_is_whole_or_absent_whatever_the_system_refuses(workload: Workload, seed: int) -> None:
    found = sweep(workload, seed, every=40)
    assert found.problems == []
    assert found.crashes > 150


@pytest.mark.parametrize("programs", RACES.values(), ids=RACES)
def test_a_transaction_is_whole_or_absent_in_every_order_of_steps(programs: Programs, seed: int) -> None:
    found = schedules(programs, seed, every=1500)
    assert found.problems == []
    assert found.crashes > 50


@pytest.mark.parametrize("programs", RACES.values(), ids=RACES)
def test_a_transaction_is_whole_or_absent_in_every_order_with_one_preemption(programs: Programs, seed: int) -> None:
    found = schedules(programs, seed, preemptions=1, every=5)
    assert found.problems == []
    assert found.crashes > 50


def test_the_workloads_end_as_they_are_meant_to() -> None:
    for workload in WORKLOADS.values():
        machine, ledger = Machine(), Ledger()
        workload(machine, ledger)
        assert {each.told for each in ledger.transactions.values()} >= {Told.COMMITTED}
        assert ledger.seen == []
        assert wrong(machine.copy(), ledger) == []


def _lose_a_record(found: dict[tuple[str, int], list[str]]) -> None:
    found["t", 1].remove("T1 0 t-1")


def _repeat_a_record(found: dict[tuple[str, int], list[str]]) -> None:
    found["t", 1].append("T1 0 t-1")


def _show_an_aborted_one(found: dict[tuple[str, int], list[str]]) -> None:
    found["t", 0].append("T2 0 t-0")


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(_lose_a_record, "torn-transaction"), (_repeat_a_record, "duplicate"), (_show_an_aborted_one, "aborted-read")],
)
def test_what_is_torn_is_found(damage: Callable[[dict[tuple[str, int], list[str]]], None], kind: str) -> None:
    machine, ledger = Machine(), Ledger()
    WORKLOADS["three_in_a_row"](machine, ledger)
    found = {
        ("t", number): [v for each in ledger.transactions.values() if each.told is Told.COMMITTED
                        for v in each.values if v.endswith(f"t-{number}")]
        for number in range(3)
    }  # fmt: skip
    found["offsets", 0] = [
        v for each in ledger.transactions.values() if each.told is Told.COMMITTED
        for v in each.values if v.endswith("offsets-0")
    ]  # fmt: skip
    assert anomalies(found, ledger) == []
    damage(found)
    assert any(anomaly.startswith(f"{kind}: ") for anomaly in anomalies(found, ledger))
