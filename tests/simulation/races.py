"""Operations that may meet, and what must hold whatever the order of their steps.

Each runs in a process of its own that has the log open already. They meet on a topic with a few
records, in every order with at most two preemptions, or in orders drawn at random, with kills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from itertools import combinations_with_replacement, groupby
from random import Random

from pylog.errors import NotAppended, OffsetOutOfRange, OutcomeUnknown, TopicExists, TopicNotFound
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
    simulated_mutexes,
)
from tests.simulation.actors import Actor, World
from tests.simulation.crashes import PROBLEMS_MAX, Found, fingerprint, without_power
from tests.simulation.oracle import problems
from tests.simulation.workloads import SMALL

Operation = Callable[[Actor], None]


def append(actor: Actor) -> None:
    actor.append("t", 2, 100)
    actor.append("t", 1, 100)


def append_durably(actor: Actor) -> None:
    actor.append("t", 1, 100, acks="all")


def send(actor: Actor) -> None:
    actor.send("t", 2, 100)
    actor.send("t", 1, 100)


def append_and_roll(actor: Actor) -> None:
    actor.append("t", 1, 700)
    actor.append("t", 1, 700)


def roll(actor: Actor) -> None:
    actor.roll("t")


def delete_records(actor: Actor) -> None:
    actor.delete_before("t", 2)


def retain(actor: Actor) -> None:
    actor.retain("t", retention_bytes=100)


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
        append, append_durably, send, append_and_roll, roll, delete_records, retain, read, open_and_read, create_topic,
        delete_topic,
    )
}  # fmt: skip
OF_THREADS = [name for name in OPERATIONS if name != open_and_read.__name__]  # which closes the log that they share
PAIRS = list(combinations_with_replacement(OPERATIONS, 2))
PAIRS_OF_THREADS = list(combinations_with_replacement(OF_THREADS, 2))


@cache
def stage(seed: int) -> World:
    """A topic with two segments and five records, before anybody acts. To be copied."""
    world = World(Machine(seed, tear_writes=True))
    first = world.actor()
    first.create("t", **SMALL)
    for _ in range(2):
        first.append("t", 2, 100)
    first.roll("t")
    first.append("t", 1, 300, acks="all")
    first.close()
    assert not world.errors, world.errors
    return world


def run(
    names: Sequence[str],
    strategy: Strategy,
    *,
    seed: int = 0,
    rebooted: bool = False,
    kill_at: int = -1,
    as_threads: bool = False,
    checked: set[int] | None = None,
) -> list[str]:
    """Run the operations together, ``strategy`` choosing the order. What is wrong afterwards.

    Each in a process of its own, or all ``as_threads`` of one. ``checked`` notes what was found
    right, to be passed over when another order leads there too.
    """
    world = World(stage(seed).machine.copy())
    world.ledger = stage(seed).ledger.copy()
    machine = world.machine
    machine.boot += rebooted
    schedule = Schedule(machine, strategy)
    with simulated_mutexes(schedule) if as_threads else nullcontext():
        actors = [world.actor()] * len(names) if as_threads else [world.actor() for _ in names]
        for name, actor in zip(names, actors, strict=True):
            assert actor.log  # open before they meet
            schedule.add(actor.process, partial(OPERATIONS[name], actor))
        if kill_at >= 0:
            machine.before_step.append(killer(schedule, kill_at, Random(seed)))
        schedule.run()
    machine.before_step.clear()
    found = world.seen + [f"{type(error).__name__}: {error}" for error in world.errors if not _may_be(error)]
    found += [f"lock {number} was never freed" for number in machine.locks]
    mark = fingerprint(machine.disk.contents().items(), world.ledger)
    if checked is None or mark not in checked:
        found += [f"and a loss of power later: {problem}" for problem in without_power(machine, world.ledger)]
        found += problems(machine, world.ledger, power_lost=False)
        if checked is not None and not found:
            checked.add(mark)
    return found


def killer(schedule: Schedule, at: int, random: Random) -> Callable[[Process, Step], None]:
    def before(process: Process, step: Step) -> None:
        if schedule.steps == at and process.is_alive:
            process.kill()
            raise Interrupted(random.randint(0, step.size_bytes), Killed()) if step.name == "pwrite" else Killed

    return before


def _may_be(error: BaseException) -> bool:
    """What a process may be told when another one deletes the topic, or the records, that it is
    at."""
    return isinstance(error, TopicNotFound | OffsetOutOfRange | TopicExists) or (
        isinstance(error, NotAppended | OutcomeUnknown) and isinstance(error.__cause__, TopicNotFound)
    )


def systematically(
    names: Sequence[str],
    *,
    preemptions: int = 2,
    rebooted: bool = False,
    as_threads: bool = False,
    is_over: Callable[[], bool] = bool,
) -> Found:
    """Every order with at most so many preemptions, unless ``is_over`` ends it."""
    found = Found()
    checked: set[int] = set()

    def once(strategy: Strategy) -> None:
        wrong.extend(run(names, strategy, rebooted=rebooted, as_threads=as_threads, checked=checked))

    wrong: list[str] = []
    for choices in all_schedules(once, preemptions):
        found.crashes += 1
        found.problems += [
            f"{problem} ({names}, rebooted={rebooted}, as_threads={as_threads}, choices {shortened(choices)})"
            for problem in wrong
        ]
        wrong.clear()
        if len(found.problems) >= PROBLEMS_MAX or is_over():
            break
    return found


def shortened(choices: Sequence[int]) -> str:
    """Choices to read: ``0*3 1*2``. ``lengthened`` gives them back, for ``Replay``."""
    return " ".join(f"{number}*{len(list(same))}" for number, same in groupby(choices))


def lengthened(text: str) -> list[int]:
    pairs = (part.split("*") for part in text.split())
    return [int(number) for number, count in pairs for _ in range(int(count))]


def at_random(seed: int, runs: int) -> Found:
    """Three or four operations in orders drawn at random, or by priorities; in half of the runs one
    process is killed."""
    found = Found()
    for number in range(runs):
        random = Random(f"{seed} {number}")
        as_threads = random.random() < 0.3
        names = random.choices(OF_THREADS if as_threads else list(OPERATIONS), k=random.choice((3, 4)))
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
            for problem in run(names, strategy, seed=number, rebooted=rebooted, kill_at=kill_at, as_threads=as_threads)
        ]
        if len(found.problems) >= PROBLEMS_MAX:
            break
    return found
