"""Crashes and faults at every step of a workload of transactions."""

from __future__ import annotations

from collections.abc import Callable

from pylog.testing.machine import Machine, for_every_kill
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.faults import faults_of, striking
from tests.simulation.transactions import Ledger, Told, Workload, snapshot, stage, steps_of
from tests.simulation.transactions_oracle import kill_all, mark_of, wrong


def for_every_crash(
    workload: Workload,
    seed: int,
    for_every: Callable[..., int],
    *,
    every: int = 1,
    is_over: Callable[[], bool] = bool,
    **options: int,
) -> Found:
    """A crash before every step that changes the disk, or before one in ``every``. Equal machines
    are checked once."""
    found, number = Found(), 0
    machine, ledger = stage(seed, tear_writes=for_every is for_every_kill).copy(), Ledger()
    checked: set[int] = set()

    def check(left: Machine) -> None:
        nonlocal number
        number += 1
        if number % every != seed % every or len(found.problems) >= PROBLEMS_MAX or is_over():
            return
        found.crashes += 1
        told = snapshot(ledger)
        mark = mark_of(left, told)
        if mark not in checked:
            checked.add(mark)
            found.images += 1
            where = f"{workload.__name__}, seed {seed}, {for_every.__name__}, crash {number}"
            found.problems += [f"{where}: {problem}" for problem in wrong(left, told)]

    for_every(machine, lambda: workload(machine, ledger), check, **options)
    assert all(each.told is not Told.NOTHING for each in ledger.transactions.values()) or ledger.errors
    return found


def sweep(
    workload: Workload, seed: int, *, every: int = 1, share: int | None = None, is_over: Callable[[], bool] = bool
) -> Found:
    """Every fault at every step, or one in ``every``. Not those with which a disk takes back what
    it has given."""
    found = Found()
    faults = [fault for fault in faults_of(steps_of(workload, seed)) if fault.kind != "lost"]
    for fault in faults[(seed if share is None else share) % every :: every]:
        if len(found.problems) >= PROBLEMS_MAX or is_over():
            break
        found.crashes += 1
        machine, ledger = stage(seed).copy(), Ledger()
        machine.before_step.append(striking(fault, [0, 0]))
        workload(machine, ledger)
        machine.before_step.clear()
        problems = kill_all(machine) + wrong(machine, ledger)
        found.problems += [f"{workload.__name__}, seed {seed}, {fault}: {problem}" for problem in problems]
    return found
