"""Cuts the power, or kills a process, at every step of a workload, and checks what is found
afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from pylog.errors import NotAppended, TopicNotFound
from pylog.testing.machine import Image, Interrupted, Killed, Machine, Process, Step
from pylog.testing.machine.images import TAILS, pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.actors import World
from tests.simulation.ledger import Ledger
from tests.simulation.oracle import problems, problems_found_at_once
from tests.simulation.workloads import Workload

PROBLEMS_MAX = 5
_GO_ON_WITH_ONE_IN = 4


@dataclass
class Found:
    """What an exploration did: how many crashes, how many different machines were left, and what
    was wrong."""

    crashes: int = 0
    images: int = 0
    problems: list[str] = field(default_factory=list)


def fingerprint(contents: Iterable[tuple[str, bytes | None]], ledger: Ledger) -> int:
    """Equal where the same bytes are left and the same was promised."""
    return hash((ledger.fingerprint(), tuple(sorted(contents))))


class PowerCuts:
    """Before every step of a workload that changes something, and at its end: each loss of power
    that may happen there."""

    def __init__(
        self,
        workload: Workload,
        seed: int,
        *,
        samples: int = 8,
        sector_bytes: int = 512,
        every: int = 1,
        one_in: int = 1,
        is_over: Callable[[], bool] = bool,
    ) -> None:
        """Of the moments one in ``every`` is taken, of their different images ``one_in`` so many:
        others with each seed.

        ``is_over`` ends it early: so do too many problems.
        """
        self.workload = workload
        self.seed = seed
        self.samples = samples
        self.sector_bytes = sector_bytes
        self.every = every
        self.one_in = one_in
        self._is_over = is_over
        self.found = Found()
        self._seen: set[int] = set()
        self._world = World(Machine(seed))

    def run(self) -> Found:
        self._world.machine.before_step.append(self._before)
        self.workload(self._world)
        self._world.machine.before_step.clear()
        self._cut("at the end")
        return self.found

    def _before(self, process: Process, step: Step) -> None:
        if step.changes:
            self._cut(f"before step {process.steps} of process {process.number}, {step.name} {step.path}")

    def _cut(self, where: str) -> None:
        found, machine, ledger = self.found, self._world.machine, self._world.ledger
        found.crashes += 1
        if found.crashes % self.every != self.seed % self.every:
            return
        disks = machine.what_power_losses_leave(
            samples=self.samples, sector_bytes=self.sector_bytes, seed=self.seed + found.crashes
        )
        for number, left in enumerate(disks):
            if len(found.problems) >= PROBLEMS_MAX or self._is_over():
                return
            mark = fingerprint(left.contents(), ledger)
            if mark not in self._seen:
                self._seen.add(mark)
                if len(self._seen) % self.one_in != self.seed % self.one_in:
                    continue
                found.images += 1
                check = problems if found.images % _GO_ON_WITH_ONE_IN == 0 else problems_found_at_once
                found.problems += [
                    f"{self.workload.__name__}, seed {self.seed}, power cut {where}, image {number}: {problem}"
                    for problem in check(machine.rebooted(left), ledger.copy(), power_lost=True)
                ]


def steps_of(workload: Workload, seed: int) -> list[Step]:
    """The steps of a run in which nothing happens."""
    steps: list[Step] = []
    world = World(Machine(seed))
    world.machine.before_step.append(lambda _process, step: steps.append(step))
    workload(world)
    errors = [error for error in world.errors if not of_a_topic_gone(error, world)]
    assert not errors, errors
    return steps


def of_a_topic_gone(error: BaseException, world: World) -> bool:
    """What a producer is told whose topic another process has deleted, and created again, since it
    last looked."""
    return world.ledger.has_deleted and isinstance(error, NotAppended) and isinstance(error.__cause__, TopicNotFound)


def kill_points(steps: list[Step]) -> Iterator[tuple[int, int]]:
    """Each step, and of each write several lengths: (step, bytes written of it)."""
    for number, step in enumerate(steps):
        size = step.size_bytes
        yield from ((number, written) for written in sorted({0, 1, size // 3, size - 1, size}) if 0 <= written <= size)


def killing(number: int, written: int) -> Callable[[Process, Step], None]:
    """A hook that kills the process which takes step ``number``, with so many bytes written if it
    is a write."""
    taken = -1

    def before(process: Process, step: Step) -> None:
        nonlocal taken
        taken += 1
        if taken == number:
            process.kill()
            raise Interrupted(written, Killed()) if step.name == "pwrite" else Killed

    return before


def killed_at(workload: Workload, seed: int, number: int, written: int) -> list[str]:
    """Kill the process that takes step ``number``, in its middle. The others go on. What is wrong
    afterwards."""
    world = World(Machine(seed))
    world.machine.before_step.append(killing(number, written))
    workload(world)
    world.machine.before_step.clear()
    errors = [str(error) for error in world.errors if not of_a_topic_gone(error, world)]
    found = [f"and a loss of power later: {problem}" for problem in without_power(world.machine, world.ledger)]
    return world.seen + errors + found + problems(world.machine, world.ledger, power_lost=False)


def without_power(machine: Machine, ledger: Ledger) -> list[str]:
    """What is wrong after a loss of power now that takes all it may take."""
    nothing = Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")
    return problems_found_at_once(machine.after_power_loss(nothing), ledger.copy(), power_lost=True)


def kills(workload: Workload, seed: int) -> Found:
    """One process killed, at each of the steps of all."""
    found = Found()
    for number, written in kill_points(steps_of(workload, seed)):
        if len(found.problems) >= PROBLEMS_MAX:
            break
        found.crashes += 1
        found.problems += [
            f"{workload.__name__}, seed {seed}, killed at step {number} with {written} bytes written: {problem}"
            for problem in killed_at(workload, seed, number, written)
        ]
    return found


def kills_then_power_cuts(workload: Workload, seed: int, *, kills: int, share: float = 0.35) -> Found:
    """One process killed at each of ``kills`` steps; then the power cut at a share of the steps
    that the others take.

    Each time with all lost that may be lost, and with two choices of it.
    """
    found, random = Found(), Random(seed)
    seen: set[int] = set()
    steps = range(len(steps_of(workload, seed)))
    for number in random.sample(steps, min(kills, len(steps))):
        world = World(Machine(seed))
        _kill_then_cut(
            world, number, random, share, found, seen, f"{workload.__name__}, seed {seed}, killed at {number}"
        )
        workload(world)
        if len(found.problems) >= PROBLEMS_MAX:
            break
    return found


def _kill_then_cut(
    world: World, number: int, random: Random, share: float, found: Found, seen: set[int], where: str
) -> None:
    taken = -1

    def before(process: Process, step: Step) -> None:
        nonlocal taken
        taken += 1
        if taken == number:
            found.crashes += 1
            process.kill()
            raise Killed
        if taken > number and step.changes and random.random() < share:
            units = pending_units(world.machine.disk, SECTOR_BYTES)
            kept = [tuple(random.randint(0, len(unit.changes)) for unit in units) for _ in range(2)]
            for image in (Image((0,) * len(units), "natural"), *(Image(some, random.choice(TAILS)) for some in kept)):
                left = world.machine.after_power_loss(image)
                mark = fingerprint(left.disk.contents().items(), world.ledger)
                if mark not in seen:
                    seen.add(mark)
                    found.images += 1
                    wrong = problems_found_at_once(left, world.ledger.copy(), power_lost=True)
                    found.problems += [f"{where}, power cut before {step.name} {step.path}: {text}" for text in wrong]

    world.machine.before_step.append(before)
