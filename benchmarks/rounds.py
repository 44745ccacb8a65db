"""Runs the contenders of a workload in turn: one round is each of them once, on fresh files, in an
order that changes.

The first round warms up and is not counted. A contender that is missing is named with the reason;
one that fails ends the run, since a comparison without it would say something else.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.settings import Scale
from benchmarks.workload import Figure, Measure, MissingError, Sample, Value, Workload


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, and the least and the most of them."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C, with the rounds that were whole by then."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


@dataclass(frozen=True)
class Result:
    """What the rounds of one workload brought, round by round."""

    workload: Workload
    samples: dict[str, list[Sample]]
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return max((len(samples) for samples in self.samples.values()), default=0)

    def values(self, value: Value) -> list[float] | None:
        """One number of each round; None where the contender is missing."""
        samples = self.samples.get(value.contender)
        return None if samples is None else [sample[value.metric] for sample in samples]

    def spread(self, figure: Figure) -> Spread | None:
        """What was measured of the figure; None where a contender of it is missing."""
        own = self.values(figure.of)
        if figure.over is None or own is None:
            return None if own is None else Spread.of(own)
        other = self.values(figure.over)
        return None if other is None else Spread.of([one / two for one, two in zip(own, other, strict=True)])


def run(
    workload: Workload,
    directory: Path,
    scale: Scale,
    rounds: int,
    *,
    without: Collection[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """All rounds of one workload, below ``directory``. Contenders ``without`` which it is to be run
    count as missing.

    Raises ``InterruptedRun`` on Ctrl-C.
    """
    rounds = min(rounds, workload.rounds_max or rounds)
    samples: dict[str, list[Sample]] = {}
    missing: dict[str, str] = {}
    try:
        _run(workload, directory, scale, rounds, without, progress, samples, missing)
    except KeyboardInterrupt:
        whole = min((len(taken) for taken in samples.values()), default=0)
        samples = {name: taken[:whole] for name, taken in samples.items() if whole}
        raise InterruptedRun(Result(workload, samples, missing)) from None
    return Result(workload, samples, missing)


def _run(
    workload: Workload, directory: Path, scale: Scale, rounds: int, without: Collection[str],
    progress: Callable[[str], None], samples: dict[str, list[Sample]], missing: dict[str, str],
) -> None:  # fmt: skip
    with ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for number, contender in enumerate(workload.contenders):
            if contender.name in without:
                missing[contender.name] = "left out of this run"
                continue
            progress(f"{workload.name}: preparing {contender.name}")
            place = directory / f"{workload.name}-{number}"
            place.mkdir()
            try:
                measures[contender.name] = stack.enter_context(contender.prepare(place, scale))
            except MissingError as reason:
                missing[contender.name] = str(reason)
        warm_up = 0 if workload.rounds_max == 1 else 1
        for round_number in range(rounds + warm_up):
            for name in _order(list(measures), round_number):
                progress(f"{workload.name}: round {round_number + 1 - warm_up} of {rounds}: {name}")
                gc.collect()
                sample = measures[name]()
                if round_number >= warm_up:
                    samples.setdefault(name, []).append(sample)


def _order(names: list[str], round_number: int) -> list[str]:
    """Who comes second has the other's dirty pages written back beside it; so each comes first in
    its turn."""
    at = round_number % max(1, len(names))
    return names[at:] + names[:at]
