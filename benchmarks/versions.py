"""Compares this checkout with another one: python -m benchmarks.versions ../old append_send
append_sync --rounds 9

Each round runs every workload once in each checkout, in turn, each with its own benchmarks and its
own source, in a new process and without rivals. The other checkout needs its compiled codec
(``python setup.py build_ext --inplace``). A figure is the time that this checkout takes for the
same work, as a multiple of the other's: below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.limits import MACHINE

HERE = Path(__file__).parents[1]


class Measured(NamedTuple):
    """One value of one contender in one run."""

    workload: str
    contender: str
    value: str


def measure(checkout: Path, workload: str, options: list[str]) -> Iterator[tuple[Measured, float]]:
    """One round of a workload, with the source of this checkout."""
    without = [word for rival in rivals(checkout) for word in ("--without", rival)]
    printed = _run(checkout, workload, "--rounds", "1", "--json", *without, *options)
    for contender, samples in json.loads(printed)["workloads"][workload]["samples"].items():
        if contender != MACHINE.name:
            for value, amount in samples[0].items():
                yield Measured(workload, contender, value), amount


@cache
def rivals(checkout: Path) -> list[str]:
    """Those that its benchmarks know, from the last line of ``--list``: another checkout can have
    fewer."""
    line = _run(checkout, "--list").strip().rpartition("\n")[2]
    return line.partition(": ")[2].partition(", or another")[0].split(", ")


def _run(checkout: Path, *arguments: str) -> str:
    """What its benchmarks print."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def time_ratio(value: str, this: float, other: float) -> float:
    """The time (or the memory, or the size) of ``this`` as a multiple of ``other``; rates are
    inverted."""
    above, below = (other, this) if value.endswith("per_s") else (this, other)
    if not below:  # such as the calls of an idle group
        return math.inf if above else 1.0
    return above / below


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="another checkout of pylog")
    parser.add_argument("workloads", nargs="+", choices=list(WORKLOADS), metavar="NAME", help="what to run")
    parser.add_argument("--rounds", type=int, default=5, help="how often each checkout runs (5)")
    parser.add_argument("--directory", help="where to write (the temporary directory)")
    parser.add_argument("--smoke", action="store_true", help="tiny rounds: that it runs, not how fast")
    options = parser.parse_args(arguments)
    passed = ["--directory", options.directory] if options.directory else []
    passed += ["--smoke"] if options.smoke else []
    other = options.other.resolve()
    if not (other / "benchmarks").is_dir():
        parser.error(f"{other}: not a checkout of pylog")
    print("| workload | contender | value | time beside the other: median (least to most) |\n| --- | --- | --- | --- |")
    for workload in options.workloads:
        ratios: dict[Measured, list[float]] = {}
        for number in range(options.rounds):
            pair = [HERE, other] if number % 2 else [other, HERE]
            found = {checkout: dict(measure(checkout, workload, passed)) for checkout in pair}
            for measured in found[HERE].keys() & found[other].keys():
                ratio = time_ratio(measured.value, found[HERE][measured], found[other][measured])
                ratios.setdefault(measured, []).append(ratio)
        for measured, of_rounds in sorted(ratios.items()):
            spread = f"{statistics.median(of_rounds):.2f}x ({min(of_rounds):.2f}x to {max(of_rounds):.2f}x)"
            print(f"| `{measured.workload}` | {measured.contender} | {measured.value} | {spread} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
