"""Lets the system refuse one step of a workload, or two in a row, or every step from one on, or
raises in the midst; and checks what is left. Also two refusals while a new process repairs what one
that was killed has left.

A refusal is what ``OsFileSystem`` makes of the system's error. Which steps can fail how is in
``FAULTS``. The actors go on after it: what they are told must be so, no lock may stay behind, and a
new process must find everything in order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from random import Random
from typing import NamedTuple

from pylog.errors import CorruptSegment, OffsetOutOfRange
from pylog.storage.os_errors import storage_error
from pylog.testing.machine import Interrupted, Machine, Process, Step, SyncFailure
from tests.simulation.actors import ROOT, World
from tests.simulation.crashes import PROBLEMS_MAX, Found, kill_points, killing, steps_of, without_power
from tests.simulation.ledger import Ledger
from tests.simulation.oracle import problems
from tests.simulation.workloads import Workload

ANYWHERE = ("EIO", "EACCES", "KeyboardInterrupt", "MemoryError")
SPACE = ("ENOSPC", "EDQUOT")
READ_ONLY = "EROFS"  # and from there on: what a journaling filesystem does after a failed write of names
FAULTS: dict[str, tuple[str, ...]] = {
    "open": (*ANYWHERE, "EMFILE"),
    "create": (*ANYWHERE, "EMFILE", *SPACE, READ_ONLY),
    "is_locked": (*ANYWHERE, "EMFILE"),
    "lock": ("EIO", "KeyboardInterrupt", "MemoryError"),
    "pread": ("EIO", "EINTR", "KeyboardInterrupt", "MemoryError"),
    "pwrite": ("EIO", "EINTR", *SPACE, "EFBIG", READ_ONLY, "short", "KeyboardInterrupt", "MemoryError", "torn"),
    "truncate": ("EIO", READ_ONLY, "KeyboardInterrupt", "MemoryError"),
    "sync": (READ_ONLY, "dirty", "clean", "lost", "KeyboardInterrupt", "MemoryError"),
    "sync_directory": (*ANYWHERE, "EMFILE", READ_ONLY),
    "names": (*ANYWHERE, "EMFILE"),
    "size": ("EIO", "KeyboardInterrupt", "MemoryError"),
    "modified": (*ANYWHERE,),
    "set_modified": (*ANYWHERE, READ_ONLY),
    "mkdir": (*ANYWHERE, *SPACE, READ_ONLY),
    "replace": (*ANYWHERE, *SPACE, READ_ONLY),
    "remove": (*ANYWHERE, READ_ONLY),
    "rmdir": (*ANYWHERE, READ_ONLY),
    "exists": ("KeyboardInterrupt", "MemoryError"),
    "is_directory": ("KeyboardInterrupt", "MemoryError"),
    "sleep": ("KeyboardInterrupt",),
}
RAISED: dict[str, type[BaseException]] = {"KeyboardInterrupt": KeyboardInterrupt, "MemoryError": MemoryError}
FILESYSTEM_BEHAVIOURS = ("dirty", "clean", "lost")
# Code meets all others as one of these.
IN_A_ROW = ("EIO", "ENOSPC", "short", "torn", "KeyboardInterrupt", *FILESYSTEM_BEHAVIOURS)
_REPAIRS = 3  # of what each kill has left, each with other errors


class Fault(NamedTuple):
    """At step ``number``: ``kind``, and with ``sticky`` again at every later step that can fail
    so."""

    number: int
    kind: str
    sticky: bool


NEXT, NEXT_CHANGE = 1, 0


class Twice(NamedTuple):
    """A fault, and another one ``gap`` steps later: at the next step (1), or at the next that
    changes the disk (0).

    Where that step cannot fail so, at the first one after it that can.
    """

    first: Fault
    gap: int
    kind: str
    sticky: bool


def error_of(kind: str, step: Step) -> BaseException:
    """What the step raises."""
    if kind in RAISED:
        return RAISED[kind]()
    if kind in FILESYSTEM_BEHAVIOURS:
        return SyncFailure(kind)
    if kind == "short":
        return Interrupted(step.size_bytes // 2, error_of("ENOSPC", step))
    if kind == "torn":
        return Interrupted(step.size_bytes // 2, KeyboardInterrupt())
    number = getattr(errno, kind)
    return storage_error(step.name, step.path, OSError(number, os.strerror(number)))


def faults_of(steps: list[Step]) -> Iterator[Fault]:
    """Every way in which one of the steps can fail."""
    for number, step in enumerate(steps):
        for kind in FAULTS[step.name]:
            yield Fault(number, kind, sticky=False)
            if kind not in RAISED and kind != "torn":
                yield Fault(number, kind, sticky=True)


def striking(fault: Fault, count: list[int]) -> Callable[[Process, Step], None]:
    """A hook that lets the fault happen; ``count`` has the number of steps taken, and of times it
    struck."""

    def before(_process: Process, step: Step) -> None:
        number, count[0] = count[0], count[0] + 1
        if number == fault.number or (fault.sticky and number > fault.number and fault.kind in FAULTS[step.name]):
            count[1] += 1
            raise error_of(fault.kind, step)

    return before


def faults_in_a_row(steps: list[Step]) -> Iterator[Twice]:
    """Every kind of failure at each of the steps, with the next step failing too, once or for ever,
    or the next change."""
    for number, step in enumerate(steps):
        for kind in (kind for kind in FAULTS[step.name] if kind in IN_A_ROW):
            second = kind if kind in ("ENOSPC", *FILESYSTEM_BEHAVIOURS) else "EIO"
            for gap, sticky in ((NEXT, False), (NEXT, True), (NEXT_CHANGE, False)):
                yield Twice(Fault(number, kind, sticky=False), gap, second, sticky)


def striking_twice(faults: Twice) -> Callable[[Process, Step], None]:
    """A hook that lets both happen."""
    first_count, since = [0, 0], 0
    is_over = False
    strike_first = striking(faults.first, first_count)

    def before(process: Process, step: Step) -> None:
        nonlocal since, is_over
        if not first_count[1]:
            strike_first(process, step)
            return
        since += 1
        is_due = step.changes if faults.gap == NEXT_CHANGE else since >= faults.gap
        if (is_due or is_over) and (faults.sticky or not is_over) and faults.kind in FAULTS[step.name]:
            is_over = True
            raise error_of(faults.kind, step)

    return before


def struck_by(workload: Workload, seed: int, fault: Fault | Twice, *, power_cuts: int = 0) -> list[str]:
    """What is wrong after a run with the fault; also after so many losses of power at its end."""
    world = World(Machine(seed))
    if isinstance(fault, Fault):
        world.machine.before_step.append(striking(fault, [0, 0]))
        kinds = {fault.kind}
    else:
        world.machine.before_step.append(striking_twice(fault))
        kinds = {fault.first.kind, fault.kind}
    workload(world)
    world.machine.before_step.clear()
    found = list(world.seen)
    found += [f"lock {number} was never freed" for number in world.machine.locks]
    return found + _wrong_afterwards(world, seed, power_cuts, was_lost="lost" in kinds)


def _wrong_afterwards(world: World, seed: int, power_cuts: int, *, was_lost: bool) -> list[str]:
    found: list[str] = []
    if not was_lost:
        found += [f"then without power: {problem}" for problem in without_power(world.machine, world.ledger)]
    for image in islice(world.machine.power_losses(samples=power_cuts, seed=seed), power_cuts):
        ledger = world.ledger.copy()
        wrong = _what_is_left(image, ledger) if was_lost else problems(image, ledger, power_lost=True)
        found += [f"then without power: {problem}" for problem in wrong]
    if was_lost:
        return found + _what_is_left(world.machine, world.ledger)
    return found + problems(world.machine, world.ledger, power_lost=False)


def _what_is_left(machine: Machine, ledger: Ledger) -> list[str]:
    """What must hold where a disk took back what it had been given: all that was durable is there,
    by offset."""
    process = machine.process()
    found = []
    with process.open_log(ROOT) as log:
        for name, topic in ledger.topics.items():
            if topic.there:
                records: dict[int, bytes] = {}
                try:
                    for record in log.partition(name, 0).scan(topic.start_asked):
                        records[record.offset] = record.value
                except (CorruptSegment, OffsetOutOfRange):
                    pass  # then something behind the durable end is gone, or what follows says so
                found += [
                    f"{name}: durable offset {offset} is {records.get(offset)!r}, expected {value!r}"
                    for offset, value in topic.acknowledged().items()
                    if topic.start_asked <= offset < topic.durable_end and records.get(offset) != value
                ]
    return found


def sweep(
    workload: Workload,
    seed: int,
    *,
    every: int = 1,
    offset: int = 0,
    kinds: Collection[str] = (),
    is_over: Callable[[], bool] = bool,
) -> Found:
    """Each fault by itself, or those of some kinds; of all only one in ``every``, until
    ``is_over``."""
    found = Found()
    faults = (fault for fault in faults_of(steps_of(workload, seed)) if not kinds or fault.kind in kinds)
    for number, fault in enumerate(faults):
        if number % every == offset % every and len(found.problems) < PROBLEMS_MAX and not is_over():
            found.crashes += 1
            power_cuts = 3 if fault.kind in FILESYSTEM_BEHAVIOURS else 0
            found.problems += [
                f"{workload.__name__}, seed {seed}, {fault}: {problem}"
                for problem in struck_by(workload, seed, fault, power_cuts=power_cuts)
            ]
    return found


def sweep_in_a_row(
    workload: Workload, seed: int, *, every: int = 1, offset: int = 0, is_over: Callable[[], bool] = bool
) -> Found:
    """Two faults in a row at each step; of all only one in ``every``, until ``is_over``. The power
    is lost at the end, too."""
    found = Found()
    for number, faults in enumerate(faults_in_a_row(steps_of(workload, seed))):
        if number % every == offset % every and len(found.problems) < PROBLEMS_MAX and not is_over():
            found.crashes += 1
            found.problems += [
                f"{workload.__name__}, seed {seed}, {faults}: {problem}"
                for problem in struck_by(workload, seed, faults, power_cuts=found.crashes % 2)
            ]
    return found


class Repair(NamedTuple):
    """A process is killed at step ``number``, ``written`` bytes into it. The next one meets an EIO
    at its step ``first``, and another one ``gap`` steps later."""

    number: int
    written: int
    first: int
    gap: int


def repairs_of(steps: list[Step], random: Random) -> Iterator[Repair]:
    """A kill at every step that changes the disk, and several times the errors at steps drawn at
    random."""
    for number, written in kill_points(steps):
        if steps[number].changes:
            for _ in range(_REPAIRS):
                gap = random.choice((NEXT, NEXT_CHANGE, random.randrange(2, 80)))
                yield Repair(number, written, random.randrange(150), gap)


def repaired(workload: Workload, seed: int, repair: Repair) -> list[str]:
    """What is wrong after that, and after a loss of power as well."""
    world = World(Machine(seed))
    world.machine.before_step.append(killing(repair.number, repair.written))
    workload(world)
    world.machine.before_step.clear()
    world.machine.before_step.append(striking_twice(Twice(Fault(repair.first, "EIO", False), repair.gap, "EIO", False)))
    actor = world.actor()
    for name, topic in list(world.ledger.topics.items()):
        if topic.there:
            for _ in range(4):
                actor.append(name)
            actor.sync(name)
    world.machine.before_step.clear()
    actor.close()
    found = world.seen + [f"lock {number} was never freed" for number in world.machine.locks]
    return found + _wrong_afterwards(world, seed, 1, was_lost=False)


def sweep_of_repairs(
    workload: Workload, seed: int, *, every: int = 1, offset: int = 0, is_over: Callable[[], bool] = bool
) -> Found:
    """Repairs after kills that meet two errors; of all only one in ``every``, until ``is_over``."""
    found = Found()
    for number, repair in enumerate(repairs_of(steps_of(workload, seed), Random(seed))):
        if number % every == offset % every and len(found.problems) < PROBLEMS_MAX and not is_over():
            found.crashes += 1
            found.problems += [
                f"{workload.__name__}, seed {seed}, {repair}: {problem}" for problem in repaired(workload, seed, repair)
            ]
    return found
