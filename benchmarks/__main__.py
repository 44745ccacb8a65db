"""Measures pylog beside the machine's limits and what one would use instead; ratios are what
counts.

Machines drift and are shared, so each round runs every contender once, in turn, and the median of
the rounds' ratios is given with its spread. A rival that is missing is named. benchmarks/README.md
has the rules and the notes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import plot, report
from benchmarks.options import parse
from benchmarks.rivals import RIVALS
from benchmarks.rounds import InterruptedRun, Result, run
from benchmarks.settings import Scale
from benchmarks.workloads import WORKLOADS

SMOKE_SHARE = 0.002
FAILED, INTERRUPTED = 1, 130


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments, __doc__)
    if options.list or not options.workloads:
        for workload in WORKLOADS.values():
            print(f"{workload.name:16} {workload.summary}")
        print(f"\n--without leaves out: {', '.join(RIVALS)}, or another contender of a workload")
        return 0
    results: list[Result] = []
    try:
        _run_all(options, results)
    except KeyboardInterrupt as interruption:
        if isinstance(interruption, InterruptedRun) and interruption.result.rounds:
            results.append(interruption.result)
            if not options.json:
                print(report.measured(results[-1]), end="\n\n")
        _say("")
        print(f"interrupted: {'what was measured until then follows' if results else 'nothing was measured'}",
              file=sys.stderr)  # fmt: skip
        if results:
            _publish(results, options)
        return INTERRUPTED
    return _publish(results, options)


def _run_all(options: argparse.Namespace, results: list[Result]) -> None:
    """Each workload's result as soon as it is there."""
    directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="pylog-benchmark-"))
    rounds = 1 if options.smoke else options.rounds
    try:
        for name in options.workloads:
            results.append(
                run(WORKLOADS[name], directory, _scale(options), rounds, without=options.without, progress=_say)
            )
            _say("")
            shutil.rmtree(directory)
            directory.mkdir()
            if not options.json:
                print(report.measured(results[-1]), end="\n\n", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _scale(options: argparse.Namespace) -> Scale:
    return Scale(SMOKE_SHARE if options.smoke else 1.0)


def _publish(results: Sequence[Result], options: argparse.Namespace) -> int:
    """Print, write and draw. What fails of it is named, and does not keep the rest from being
    done."""
    written = json.dumps(report.as_json(results, _scale(options).share), indent=1)
    print(written if options.json else report.figures(results, _scale(options).share))
    status = 0
    try:
        if options.output:
            options.output.write_text(written + "\n")
    except OSError as error:
        status = _failed(f"--output {options.output}: {error.strerror}")
    try:
        if options.plot and not plot.draw(results, options.plot):
            status = _failed(f"--plot {options.plot}: nothing was measured that could be drawn")
    except OSError as error:
        status = _failed(f"--plot {options.plot}: {error.strerror}")
    return status


def _failed(text: str) -> int:
    print(f"python -m benchmarks: error: {text}", file=sys.stderr)
    return FAILED


def _say(text: str) -> None:
    """One line of progress, on a terminal that somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
