"""An owner stands still beyond its timeout before a step of its transaction, as by SIGSTOP, and
then goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pylog.testing.machine import Process, Replay, Schedule, Step
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.transactions import Application, Told
from tests.simulation.transactions_oracle import kill_all, wrong
from tests.simulation.transactions_schedules import Reader, begun

TIMEOUT_MS = 1_000
NEVER = 1 << 20


class Stalled(NamedTuple):
    """What is wrong afterwards, the steps that the owner has taken in all, and what it was told of
    its two transactions."""

    problems: list[str]
    steps: list[Step]
    told: list[Told]


def stall(seed: int, at: int) -> Stalled:
    """The owner stands still before its step ``at``.

    What holds the others up, a lock of its, lets it go on before they have ended.
    """
    machine, ledger = begun(seed)
    first = Application(machine, ledger, "a", timeout_ms=TIMEOUT_MS)
    first.start()
    second, reader = Application(machine, ledger, "b", "h"), Reader(machine, ledger, read_only=False)
    second.start()
    taken: list[Step] = []

    def note(process: Process, step: Step) -> None:
        if process is first.process:
            taken.append(step)

    def work() -> None:
        first.transaction("A")
        first.transaction("T1")  # whatever has become of the first one

    def others() -> None:
        machine.seconds += 10 * TIMEOUT_MS / 1000
        reader.read()
        second.transaction("B")
        reader.read()

    schedule = Schedule(machine, Replay([0] * at + [1]))
    schedule.add(first.process, work)
    schedule.add(second.process, others)
    machine.before_step.append(note)
    schedule.run()
    machine.before_step.clear()
    problems = kill_all(machine) + wrong(machine, ledger)
    found = ledger.transactions
    told = [found[name].told if name in found else Told.NOTHING for name in ("A", "T1", "B")]
    if Told.NOTHING in told or told.count(Told.ABORTED) > 1 or told[-1] is not Told.COMMITTED:
        problems.append(f"the producers were told {told}, errors: {ledger.errors}")
    return Stalled([f"seed {seed}, stopped before step {at}: {text}" for text in problems], taken, told[:2])


def steps_of_a_commit(seed: int) -> list[Step]:
    """The steps before which ``stalls`` stops the owner."""
    return stall(seed, NEVER).steps


def stalls(seed: int, *, every: int = 1, share: int = 0, is_over: Callable[[], bool] = bool) -> Found:
    """Before every step of two transactions, or one in ``every``."""
    found = Found()
    for at in range(1 + share % every, len(steps_of_a_commit(seed)) + 1, every):
        if len(found.problems) >= PROBLEMS_MAX or is_over():
            break
        found.crashes += 1
        found.problems += stall(seed, at).problems
    return found
