"""What a workload is made of. Everything measured is a number with its unit in its name; everything
promised is a ratio of two such numbers of one round, or one of them against a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.settings import Scale

Sample = dict[str, float]
"""What one contender measured in one round: {"records_per_s": 2.9e6}."""

Measure = Callable[[], Sample]
Prepare = Callable[[Path, Scale], AbstractContextManager[Measure]]
"""Takes an empty directory and how much to do; what it yields is called once a round, on files of
its own."""


class MissingError(Exception):
    """A contender that is not on this machine, and how to get it."""


def no_package(name: str) -> MissingError:
    """The error for a contender whose Python package is not installed."""
    return MissingError(f"the Python package {name} is not installed (pip install -r benchmarks/requirements.txt)")


@dataclass(frozen=True)
class Contender:
    """One that runs in a workload. ``settings`` is what a reader must know to call the comparison
    fair."""

    name: str
    settings: str
    prepare: Prepare


@dataclass(frozen=True)
class Value:
    """One number of a round: what ``contender`` measured as ``metric``."""

    contender: str
    metric: str


@dataclass(frozen=True)
class Figure:
    """A figure to reach: ``of``, or ``of / over`` (taken round by round, then the median), against
    a bound."""

    title: str
    of: Value
    over: Value | None = None
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def reached(self, value: float) -> bool:
        """Whether ``value`` is on the right side of the bound."""
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Workload:
    """Contenders that do the same, and the figures to reach among them."""

    name: str
    summary: str
    contenders: tuple[Contender, ...]
    figures: tuple[Figure, ...] = field(default=())
    rounds_max: int | None = None  # where one round takes minutes
