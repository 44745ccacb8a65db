"""The simulated machine by the hour: parts of ``scripts/soak``. Workloads are drawn; a failure
names the seed that draws it."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from pylog.testing.machine import for_every_kill, for_every_power_loss
from tests.simulation.cleaner_schedules import STARTS, in_parts
from tests.simulation.crashes import (
    PROBLEMS_MAX,
    Found,
    PowerCuts,
    kill_points,
    killed_at,
    kills_then_power_cuts,
    steps_of,
)
from tests.simulation.faults import sweep, sweep_in_a_row, sweep_of_repairs
from tests.simulation.races import PAIRS, PAIRS_OF_THREADS, at_random, systematically
from tests.simulation.recoveries import interrupted_recoveries
from tests.simulation.syscalls import sweep as refuse_calls
from tests.simulation.transactions import WORKLOADS as TRANSACTIONS
from tests.simulation.transactions_crashes import for_every_crash
from tests.simulation.transactions_crashes import sweep as sweep_transactions
from tests.simulation.transactions_schedules import RACES, Exploration, part_of_all, take_overs
from tests.simulation.transactions_stalls import stalls
from tests.simulation.workloads import drawn
from tests.soak.part import Outcome

_SHARE = 40  # of the faults of one workload; others are drawn from the next
_SHARE_IN_A_ROW = 80
_PARTS_OF_TRANSACTIONS = 16


def _until(seconds: float, seed: int, once: Callable[[int, Callable[[], bool]], Found]) -> Found:
    """Call ``once`` with one seed after another until the time is over, or too much is wrong."""
    logging.disable(logging.CRITICAL)  # recoveries warn, and there are very many
    end = time.monotonic() + seconds
    found = Found()
    random = Random(seed)
    while time.monotonic() < end and len(found.problems) < PROBLEMS_MAX:
        more = once(random.randrange(1 << 32), lambda: time.monotonic() >= end)
        found.crashes += more.crashes
        found.images += more.images
        found.problems += more.problems
    return found


def power_cuts(seconds: float, seed: int, directory: Path) -> Outcome:
    """Losses of power at every step of drawn workloads."""

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        sector_bytes = 512 if seed % 2 else 4096
        return PowerCuts(drawn(seed), seed, samples=6, sector_bytes=sector_bytes, is_over=is_over).run()

    found = _until(seconds, seed, once)
    return Outcome({"moments": found.crashes, "different crash images": found.images}, found.problems)


def kills(seconds: float, seed: int, directory: Path) -> Outcome:
    """Kills at the steps of drawn workloads."""

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        found, workload = Found(), drawn(seed)
        for number, written in kill_points(steps_of(workload, seed)):
            if is_over() or len(found.problems) >= PROBLEMS_MAX:
                break
            found.crashes += 1
            found.problems += [
                f"{workload.__name__}, killed at step {number} with {written} bytes written: {problem}"
                for problem in killed_at(workload, seed, number, written)
            ]
        return found

    found = _until(seconds, seed, once)
    return Outcome({"simulated kills": found.crashes}, found.problems)


def kills_and_power(seconds: float, seed: int, directory: Path) -> Outcome:
    """Kills at the steps of drawn workloads, and losses of power while others go on with what was
    left."""
    found = _until(seconds, seed, lambda seed, _: kills_then_power_cuts(drawn(seed), seed, kills=10))
    return Outcome({"kills": found.crashes, "different crash images": found.images}, found.problems)


def faults(seconds: float, seed: int, directory: Path) -> Outcome:
    """Refusals, failed syncs and exceptions at the steps of drawn workloads; two in a row; and
    during repairs after kills."""

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        if seed % 3 == 0:
            return sweep(drawn(seed), seed, every=_SHARE, offset=seed, is_over=is_over)
        if seed % 3 == 1:
            return sweep_in_a_row(drawn(seed), seed, every=_SHARE_IN_A_ROW, offset=seed, is_over=is_over)
        return sweep_of_repairs(drawn(seed), seed, every=_SHARE, offset=seed, is_over=is_over)

    found = _until(seconds, seed, once)
    return Outcome({"injected faults": found.crashes}, found.problems)


def syscalls(seconds: float, seed: int, directory: Path) -> Outcome:
    """Calls of the operating system that fail, on the real filesystem."""

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        place = directory / str(seed)
        place.mkdir()
        try:
            return refuse_calls(drawn(seed), place, every=_SHARE, offset=seed, is_over=is_over)
        finally:
            shutil.rmtree(place)

    found = _until(seconds, seed, once)
    return Outcome({"refused system calls": found.crashes}, found.problems)


def transactions(seconds: float, seed: int, directory: Path) -> Outcome:
    """Every crash, loss of power, fault and schedule of transactions, in parts in an order that the
    seed draws.

    If there is time left after all of them, with the next seed.
    """
    parts, finished = list[Callable[[], Found]](), 0

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        nonlocal finished
        if not parts:
            parts.extend(_parts_of_transactions(seed, is_over))
        found = parts.pop()()
        finished += not is_over()
        return found

    found = _until(seconds, seed, once)
    return Outcome(
        {
            "crashes, faults and schedules of transactions": found.crashes,
            "different machines checked": found.images,
            "times all of them": finished / len(_parts_of_transactions(0, bool)),
        },
        found.problems,
    )


def _parts_of_transactions(seed: int, is_over: Callable[[], bool]) -> list[Callable[[], Found]]:
    parts: list[Callable[[], Found]] = []
    for workload in TRANSACTIONS.values():
        parts += [
            partial(for_every_crash, workload, seed, for_every_kill, is_over=is_over),
            partial(for_every_crash, workload, seed, for_every_power_loss, at_most=8, is_over=is_over),
        ]
        parts += [
            partial(sweep_transactions, workload, seed, every=_PARTS_OF_TRANSACTIONS, share=number, is_over=is_over)
            for number in range(_PARTS_OF_TRANSACTIONS)
        ]
    for programs in RACES.values():
        race = Exploration(programs, seed, is_over)
        parts += [
            partial(race.explore, part_of_all(number, _PARTS_OF_TRANSACTIONS))
            for number in range(_PARTS_OF_TRANSACTIONS)
        ]
    parts.append(partial(take_overs, seed, is_over=is_over))
    parts.append(partial(stalls, seed, is_over=is_over))
    Random(seed).shuffle(parts)
    return parts


def recoveries(seconds: float, seed: int, directory: Path) -> Outcome:
    """Recoveries after losses of power in drawn workloads, interrupted twice."""
    found = _until(seconds, seed, lambda seed, is_over: interrupted_recoveries(drawn(seed), seed, 2, is_over=is_over))
    return Outcome({"interrupted recoveries": found.crashes}, found.problems)


def schedules(seconds: float, seed: int, directory: Path) -> Outcome:
    """All orders with two preemptions of pairs of operations, as many pairs as there is time
    for."""
    finished = 0

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        nonlocal finished
        random = Random(seed)
        if random.random() < 0.3:
            found = systematically(random.choice(PAIRS_OF_THREADS), as_threads=True, is_over=is_over)
        else:
            found = systematically(random.choice(PAIRS), rebooted=random.random() < 0.3, is_over=is_over)
        finished += not is_over()
        return found

    found = _until(seconds, seed, once)
    return Outcome({"schedules with two preemptions": found.crashes, "pairs finished": finished}, found.problems)


def cleaner_schedules(seconds: float, seed: int, directory: Path) -> Outcome:
    """All orders with two preemptions of compaction, or retention, and another program; as many
    races as there is time for."""
    finished = parts = 0
    left: list[str] = []

    def once(seed: int, is_over: Callable[[], bool]) -> Found:
        nonlocal finished, parts
        if not left:
            left.extend(Random(seed).sample(sorted(STARTS), len(STARTS)))
        done = list(in_parts(STARTS[left.pop()], seed, is_over))[-1]
        finished += done.finished
        parts += done.parts
        return done.found

    found = _until(seconds, seed, once)
    return Outcome(
        {
            "schedules of compaction and retention": found.crashes,
            "different ends checked": found.images,
            "share of the races begun": finished / max(parts, 1),
        },
        found.problems,
    )


def random_schedules(seconds: float, seed: int, directory: Path) -> Outcome:
    """Orders of three and four operations drawn at random, half of them with a kill."""
    found = _until(seconds, seed, lambda seed, _: at_random(seed, 50))
    return Outcome({"random schedules": found.crashes}, found.problems)
