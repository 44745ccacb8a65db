"""Measures pylog beside the machine's limits and what one would use instead; ratios are what counts.

Machines drift and are shared, so each round runs every contender once, in turn, and the median of the rounds' ratios is
given with its spread. A rival that is missing is named. benchmarks/README.md has the rules and the notes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import report
from benchmarks.rounds import Result, run
from benchmarks.settings import Scale
from benchmarks.workloads import WORKLOADS

ALL = "all"
SMOKE_SHARE = 0.002


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.list or not options.workloads:
        for workload in WORKLOADS.values():
            print(f"{workload.name:16} {workload.summary}")
        return 0
    names = list(WORKLOADS) if ALL in options.workloads else list(dict.fromkeys(options.workloads))
    scale = Scale(SMOKE_SHARE if options.smoke else 1.0)
    directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="pylog-benchmark-"))
    results: list[Result] = []
    try:
        for name in names:
            rounds = 1 if options.smoke else options.rounds
            results.append(run(WORKLOADS[name], directory, scale, rounds, without=options.without, progress=_say))
            _say("")
            shutil.rmtree(directory)
            directory.mkdir()
            if not options.json:
                print(report.measured(results[-1]), end="\n\n", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    written = json.dumps(report.as_json(results, scale.share), indent=1)
    if options.json:
        print(written)
    else:
        print(report.figures(results))
    if options.output:
        options.output.write_text(written + "\n")
    if options.plot:
        from benchmarks.plot import draw

        draw(results, options.plot)
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="NAME", help=f"what to run; {ALL} for everything")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender runs (5)")
    parser.add_argument("--without", action="append", default=[], metavar="RIVAL", help="leave a contender out")
    parser.add_argument("--directory", help="where to write; the filesystem matters")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON here as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a PNG (needs matplotlib)")
    parser.add_argument("--smoke", action="store_true", help="one tiny round each: that it runs, not how fast")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.workloads if name not in WORKLOADS and name != ALL]
    if unknown:
        parser.error(f"there is no workload {', '.join(unknown)}; --list says what there is")
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    return options


def _say(text: str) -> None:
    """One line of progress, on a terminal that somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
