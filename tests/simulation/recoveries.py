"""Disasters during the repair of a disaster: power that fails again, a kill, or a refusal, at any
step of a recovery.

Whatever interrupts it, the next recovery must come to the same log, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random

from pylog.errors import LogNotFound, PylogError
from pylog.partition.commit_slots import latest
from pylog.partition.verify import Problem
from pylog.segment.naming import COMMIT_SLOTS
from pylog.testing.machine import Killed, Machine, Process, Step
from tests.simulation.actors import ROOT, World
from tests.simulation.crashes import PROBLEMS_MAX, Found, steps_of
from tests.simulation.faults import FAULTS, FILESYSTEM_BEHAVIOURS, error_of
from tests.simulation.ledger import Ledger
from tests.simulation.oracle import problems
from tests.simulation.workloads import Workload

_INTERRUPTIONS = ("kill", "power", "fault")


def recover(machine: Machine) -> None:
    """Open the log with a new process, and every partition of it, for writing."""
    process = machine.process()
    with process.open_log(ROOT) as log:
        for name in log.topics():
            log.partition(name, 0).log.roll()


def settled(machine: Machine) -> dict[str, bytes | None]:
    """The segments after a recovery, and a maintenance: it removes what the system refused to
    remove of a deleted topic."""
    recover(machine)
    with machine.process().open_log(ROOT) as log:
        assert log.maintain().failures == []
    return segments_of(machine)


def segments_of(machine: Machine) -> dict[str, bytes | None]:
    """Every segment but those that lie wholly before the log start, which may be removed now or by
    the next recovery."""
    contents = machine.disk.contents()
    found = {path: data for path, data in contents.items() if path.endswith(".log")}
    for path in sorted(found):
        directory = path.rpartition("/")[0]
        state = latest(contents.get(f"{directory}/{COMMIT_SLOTS}") or b"")
        later = [base_of(other) for other in found if other.rpartition("/")[0] == directory and other > path]
        if state is not None and later and min(later) <= state.log_start_offset:
            del found[path]
    return found


def base_of(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".log"))


def images_of(workload: Workload, seed: int, count: int) -> list[tuple[Machine, Ledger]]:
    """Machines that lost their power somewhere in the workload, drawn at random, each with what was
    promised."""
    random = Random(seed)
    found: list[tuple[Machine, Ledger]] = []
    world = World(Machine(seed))
    changing = [number for number, step in enumerate(steps_of(workload, seed)) if step.changes]
    chosen = set(random.sample(changing, min(count, len(changing))))
    taken = -1

    def before(_process: Process, _step: Step) -> None:
        nonlocal taken
        taken += 1
        if taken in chosen:
            machine = world.machine
            drawn = list(islice(machine.what_power_losses_leave(samples=1, seed=random.randrange(1 << 30)), 200))
            found.append((machine.rebooted(random.choice(drawn)), world.ledger.copy()))

    world.machine.before_step.append(before)
    workload(world)
    return random.sample(found, len(found))


def interrupted_recoveries(
    workload: Workload, seed: int, count: int, *, depth: int = 2, is_over: Callable[[], bool] = bool
) -> Found:
    """Each of ``count`` machines recovers, and is interrupted, up to ``depth`` times, at steps
    drawn at random."""
    found = Found()
    random = Random(seed)
    for number, (machine, ledger) in enumerate(images_of(workload, seed, count)):
        steps = _steps_to_recover(machine.copy())
        for step in range(len(steps)):
            if len(found.problems) >= PROBLEMS_MAX or is_over():
                return found
            found.crashes += 1
            kind = random.choice(_INTERRUPTIONS)
            wrong = _interrupt(machine, ledger, step, kind, random, depth)
            found.problems += [
                f"{workload.__name__}, seed {seed}, machine {number}, {kind} at step {step} of its recovery: {problem}"
                for problem in wrong
            ]
    return found


def killed_recoveries_verified(workload: Workload, seed: int, count: int) -> Found:
    """Each of ``count`` machines recovers and is killed, at every step. ``verify`` must name no
    small file that the next writer makes again.
    """
    found = Found()
    for number, (machine, _) in enumerate(images_of(workload, seed, count)):
        for step in range(-1, len(_steps_to_recover(machine.copy()))):
            if len(found.problems) >= PROBLEMS_MAX:
                return found
            found.crashes += 1
            killed = machine.copy()
            if step >= 0:
                _recover_until(killed, step, "kill", Random(seed))
            found.problems += [
                f"{workload.__name__}, seed {seed}, machine {number}, recovery killed at step {step}: {problem}"
                for problem in _verified_by_a_reader(killed)
            ]
    return found


def _verified_by_a_reader(machine: Machine) -> list[Problem]:
    """But topics whose creation was lost."""
    try:
        with machine.process().open_log(ROOT, read_only=True) as log:
            return [problem for problem in log.verify().problems if problem.kind != "topic"]
    except LogNotFound:
        return []


def _steps_to_recover(machine: Machine) -> list[Step]:
    steps: list[Step] = []
    machine.before_step.append(lambda _process, step: steps.append(step))
    recover(machine)
    return steps


def _interrupt(machine: Machine, ledger: Ledger, at: int, kind: str, random: Random, depth: int) -> list[str]:
    """What is wrong after a recovery that was interrupted at a step, and those after it."""
    whole = settled(machine.copy())
    current = machine.copy()
    for level in range(depth):
        _recover_until(current, at if level == 0 else random.randrange(at + 1), kind, random)
        current = _after(current, kind, random)
    if settled(current.copy()) != whole:
        return ["it came to another log than without the interruption"]
    return problems(current, ledger.copy(), power_lost=True)


def _recover_until(machine: Machine, at: int, kind: str, random: Random) -> None:
    taken = -1

    def before(process: Process, step: Step) -> None:
        nonlocal taken
        taken += 1
        if taken == at:
            kinds = [k for k in FAULTS[step.name] if k not in FILESYSTEM_BEHAVIOURS]
            if kind == "fault" and kinds:
                raise error_of(random.choice(kinds), step)
            process.kill()
            raise Killed

    machine.before_step.append(before)
    try:
        recover(machine)
    except (Killed, PylogError, KeyboardInterrupt, MemoryError):
        pass  # as it was meant to be
    finally:
        machine.before_step.clear()


def _after(machine: Machine, kind: str, random: Random) -> Machine:
    if kind != "power":
        return machine
    disks = machine.what_power_losses_leave(samples=2, seed=random.randrange(1 << 30))
    return machine.rebooted(random.choice(list(islice(disks, 100))))
