"""Runs a schedule again and again, in other orders, and collects what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from pylog.testing.machine import RandomWalk, Strategy, all_schedules
from tests.simulation.crashes import PROBLEMS_MAX, Found
from tests.simulation.races import shortened

Once = Callable[[Strategy], list[str]]
"""One run in the order of a strategy; returns what is wrong."""


def in_all_orders(once: Once, preemptions: int) -> int:
    """In how many with at most so many preemptions; and nothing may be wrong in any."""
    wrong: list[str] = []
    runs = 0
    for choices in all_schedules(lambda strategy: wrong.extend(once(strategy)), preemptions):
        assert wrong == [], choices
        runs += 1
    return runs


def in_every_order(once: Once, preemptions: int = 1) -> Found:
    """Every order with at most so many preemptions, until there are enough problems."""
    found = Found()
    problems: list[str] = []
    for choices in all_schedules(lambda strategy: problems.extend(once(strategy)), preemptions):
        found.crashes += 1
        found.problems += [f"{problem} (choices {shortened(choices)})" for problem in problems]
        problems.clear()
        if len(found.problems) >= PROBLEMS_MAX:
            break
    return found


def at_random(once: Once, seed: int, runs: int) -> Found:
    """Orders drawn at random, many of them with a few switches."""
    found = Found()
    for number in range(runs):
        switches = Random(f"{seed} {number}").choice((0.005, 0.02, 0.1, 0.5))
        found.crashes += 1
        found.problems += [
            f"{problem} (seed {seed}, run {number})" for problem in once(RandomWalk(seed + number, switches))
        ]
        if len(found.problems) >= PROBLEMS_MAX:
            break
    return found
