"""What the command line asks for. All of it is checked before the first workload runs: a run takes
a quarter of an hour."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks import plot
from benchmarks.rivals import RIVALS
from benchmarks.workloads import WORKLOADS

ALL = "all"
CONTENDERS = {
    contender.name.lower(): contender.name for workload in WORKLOADS.values() for contender in workload.contenders
}


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """The options; ``workloads`` are names that exist, ``without`` names of contenders. Ends the
    program with status 2 else."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="NAME", help=f"what to run; {ALL} for everything")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender runs (5)")
    parser.add_argument(
        "--without", action="append", default=[], metavar="RIVAL",
        help=f"leave a contender out: {', '.join(RIVALS)}, or another that has a row in a table; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--directory", type=Path, help="where to write (the temporary directory); the filesystem matters"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON here as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a PNG (needs matplotlib)")
    parser.add_argument("--smoke", action="store_true", help="one tiny round each: that it runs, not how fast")
    options = parser.parse_args(arguments)
    if problem := _problem(options):
        parser.error(problem)
    options.workloads = list(WORKLOADS) if ALL in options.workloads else list(dict.fromkeys(options.workloads))
    options.without = [CONTENDERS[name.lower()] for name in options.without]
    return options


def _problem(options: argparse.Namespace) -> str | None:
    """What is wrong with the options, in one sentence."""
    unknown = [name for name in options.workloads if name not in WORKLOADS and name != ALL]
    if unknown:
        return f"there is no workload {', '.join(unknown)}; --list says what there is"
    if options.rounds < 1:
        return f"--rounds must be at least 1, got {options.rounds}"
    for name in options.without:
        if name.lower() not in CONTENDERS:
            return f"--without {name}: there is no such contender; there are {'; '.join(CONTENDERS.values())}"
    if options.directory is not None and not _takes_files(options.directory):
        return f"--directory {options.directory}: not a directory that can be written to"
    for option, path in (("--output", options.output), ("--plot", options.plot)):
        if path is not None and (problem := _problem_of_file(path)):
            return f"{option} {path}: {problem}"
    if options.plot is not None:
        chosen = [workload for name, workload in WORKLOADS.items() if {name, ALL} & {*options.workloads}]
        return plot.problem_of(options.plot, chosen)
    return None


def _takes_files(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)


def _problem_of_file(path: Path) -> str | None:
    if path.is_dir():
        return "that is a directory"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if not (os.access(path, os.W_OK) if path.exists() else _takes_files(path.parent)):
        return "it cannot be written"
    return None
