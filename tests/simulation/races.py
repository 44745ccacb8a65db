"""Operations that may meet, and what must hold whatever the order of their steps.

Each runs in a process of its own that has the log open already. They meet on a topic with a few records, in every order with at
most two preemptions, or in orders drawn at random, with kills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from random import Random

from pylog.testing.machine import (
    Interrupted,
    Killed,
    Machine,
    Priorities,
    Process,
    RandomWalk,
    Schedule,
    Step,
    Strategy,
    all_schedules,
)
from tests.simulation.actors import Actor, World
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.oracle import problems
from tests.simulation.workloads import SMALL

Operation = Callable[[Actor], None]


def append(actor: Actor) -> None:
    actor.append("t", 2, 100)
    actor.append("t", 1, 100)


def append_durably(actor: Actor) -> None:
    actor.append("t", 1, 100, acks="all")


def append_and_roll(actor: Actor) -> None:
    actor.append("t", 1, 700)
    actor.append("t", 1, 700)


def roll(actor: Actor) -> None:
    actor.roll("t")


def delete_records(actor: Actor) -> None:
    actor.delete_before("t", 2)


def read(actor: Actor) -> None:
    actor.read("t")
    actor.read("t")


def open_and_read(actor: Actor) -> None:
    actor.reopen()
    actor.read("t")


def create_topic(actor: Actor) -> None:
    actor.create("u", **SMALL)
    actor.append("u", 1)


def delete_topic(actor: Actor) -> None:
    actor.delete("t")


OPERATIONS: dict[str, Operation] = {
    work.__name__: work
    for work in (
        append, append_durably, append_and_roll, roll, delete_records, read, open_and_read, create_topic, delete_topic,
    )
}  # fmt: skip
PAIRS = list(combinations_with_replacement(OPERATIONS, 2))


def set_the_stage(machine: Machine, names: Sequence[str], *, rebooted: bool = False) -> tuple[World, list[Actor]]:
    """A topic with two segments and five records, and an actor for each operation, with the log open.

    ``rebooted``: power was lost since, so whoever comes first recovers the partition.
    """
    world = World(machine)
    first = world.actor()
    first.create("t", **SMALL)
    for _ in range(2):
        first.append("t", 2, 100)
    first.roll("t")
    first.append("t", 1, 300, acks="all")
    first.close()
    if rebooted:
        machine.boot += 1
    actors = [world.actor() for _ in names]
    for actor in actors:
        assert actor.log
    assert not world.errors, world.errors
    return world, actors


def run(
    names: Sequence[str], strategy: Strategy, *, seed: int = 0, rebooted: bool = False, kill_at: int = -1
) -> list[str]:
    """Run the operations together, ``strategy`` choosing the order. What is wrong afterwards."""
    machine = Machine(seed, tear_writes=True)
    world, actors = set_the_stage(machine, names, rebooted=rebooted)
    schedule = Schedule(machine, strategy)
    for name, actor in zip(names, actors, strict=True):
        schedule.add(actor.process, lambda work=OPERATIONS[name], actor=actor: work(actor))  # type: ignore[misc]
    if kill_at >= 0:
        machine.before_step.append(killer(schedule, kill_at, Random(seed)))
    schedule.run()
    machine.before_step.clear()
    found = world.seen + [f"{type(error).__name__}: {error}" for error in world.errors if not _may_be(error)]
    found += [f"lock {number} was never freed" for number in machine.locks]
    return found + problems(machine, world.ledger, power_lost=False)


def killer(schedule: Schedule, at: int, random: Random) -> Callable[[Process, Step], None]:
    def before(process: Process, step: Step) -> None:
        if schedule.steps == at and process.is_alive:
            process.kill()
            raise Interrupted(random.randint(0, step.size_bytes), Killed()) if step.name == "pwrite" else Killed

    return before


def _may_be(error: BaseException) -> bool:
    """What a process may be told when another one deletes the topic, or the records, that it is at."""
    return type(error).__name__ in {"TopicNotFound", "OffsetOutOfRange", "TopicExists"}


def systematically(names: Sequence[str], *, preemptions: int = 2, most: int = 1 << 30, rebooted: bool = False) -> Found:
    """Every order with at most so many preemptions, unless there are more than ``most``."""
    found = Found()

    def once(strategy: Strategy) -> None:
        wrong.extend(run(names, strategy, rebooted=rebooted))

    wrong: list[str] = []
    for choices in all_schedules(once, preemptions):
        found.crashes += 1
        found.problems += [f"{names}, rebooted={rebooted}, choices {choices}: {problem}" for problem in wrong]
        wrong.clear()
        if len(found.problems) >= PROBLEMS_MAX or found.crashes >= most:
            break
    return found


def at_random(seed: int, runs: int) -> Found:
    """Three or four operations in orders drawn at random, or by priorities; in half of the runs one process is killed."""
    found = Found()
    for number in range(runs):
        random = Random(f"{seed} {number}")
        names = random.choices(list(OPERATIONS), k=random.choice((3, 4)))
        steps = 60 * len(names)
        if random.random() < 0.5:
            strategy: Strategy = Priorities(number, len(names), steps)
        else:
            strategy = RandomWalk(number, random.choice((0.02, 0.1, 0.5)))
        kill_at = random.randrange(steps) if random.random() < 0.5 else -1
        rebooted = random.random() < 0.2
        found.crashes += 1
        found.problems += [
            f"{names}, seed {seed}, run {number}: {problem}"
            for problem in run(names, strategy, seed=number, rebooted=rebooted, kill_at=kill_at)
        ]
        if len(found.problems) >= PROBLEMS_MAX:
            break
    return found
