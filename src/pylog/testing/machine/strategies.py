"""Orders of programs: random, by few changes of priority, all with few preemptions, or replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from pylog.testing.machine.schedule import Strategy


class RandomWalk:
    """At each step, with the probability ``switch``, another program continues."""

    def __init__(self, seed: int, switch: float = 0.2) -> None:
        self._random = Random(seed)
        self._switch = switch

    def choose(self, able: Sequence[int], current: int | None) -> int:
        if current in able and self._random.random() >= self._switch:
            return current  # type: ignore[return-value]  # it is in able
        return self._random.choice([number for number in able if number != current])


class Priorities:
    """The program of the highest priority runs. At ``depth - 1`` random steps it gets the lowest.

    Finds an error of ``depth`` ordered steps with probability >= 1 / (programs * steps**(depth -
    1)).

    Source: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding
    Bugs", ASPLOS 2010 (PCT).
    """

    def __init__(self, seed: int, programs: int, steps: int, depth: int = 3) -> None:
        random = Random(seed)
        order = list(range(depth, depth + programs))
        random.shuffle(order)
        self._priority = dict(enumerate(order))
        self._changes = {random.randrange(max(steps, 1)): depth - 1 - number for number in range(depth - 1)}
        self._taken = 0

    def choose(self, able: Sequence[int], current: int | None) -> int:
        lowest = self._changes.get(self._taken)
        self._taken += 1
        if lowest is not None and current is not None:
            self._priority[current] = lowest
        return max(able, key=lambda number: self._priority[number])


class Point(NamedTuple):
    """A past choice."""

    able: tuple[int, ...]
    current: int | None
    chosen: int

    def others(self) -> list[int]:
        """The choices after this one, each once over all runs: the current program is first."""
        order = _in_order(self.able, self.current)
        return order[order.index(self.chosen) + 1 :]

    def is_preemption(self, chosen: int) -> bool:
        return self.current in self.able and chosen != self.current


def _in_order(able: Sequence[int], current: int | None) -> list[int]:
    return sorted(able, key=lambda number: (number != current, number))


class Replay:
    """Replays the given choices in order; after them the current program continues."""

    def __init__(self, choices: Sequence[int] = ()) -> None:
        self._choices = list(choices)
        self.points: list[Point] = []

    def choose(self, able: Sequence[int], current: int | None) -> int:
        number = len(self.points)
        chosen = self._choices[number] if number < len(self._choices) else _in_order(able, current)[0]
        self.points.append(Point(tuple(able), current, chosen))
        return chosen


def all_schedules(run: Callable[[Strategy], None], preemptions: int = 2) -> Iterator[list[int]]:
    """Call ``run`` with a strategy for every order of at most ``preemptions`` preemptions.

    A preemption interrupts a program that could continue. ``run`` must do the same each time. After
    each run, its choices are yielded, for ``Replay``.

    Source: Musuvathi and Qadeer, "Iterative Context Bounding for Systematic Testing of
    Multithreaded Programs", PLDI 2007.
    """
    choices: list[int] | None = []
    while choices is not None:
        strategy = Replay(choices)
        run(strategy)
        yield [point.chosen for point in strategy.points]
        choices = _following(strategy.points, preemptions)


def _following(points: list[Point], preemptions: int) -> list[int] | None:
    """The choices at the start of the next run; None after the last."""
    spent = [0]
    for point in points:
        spent.append(spent[-1] + point.is_preemption(point.chosen))
    for number in range(len(points) - 1, -1, -1):
        for other in points[number].others():
            if spent[number] + points[number].is_preemption(other) <= preemptions:
                return [point.chosen for point in points[:number]] + [other]
    return None
