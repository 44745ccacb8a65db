"""``python -m tests.fuzz``: every target, or some, each in a process of its own, which may die.

    python -m tests.fuzz --seconds 60                       all of them, a share of the time each
    python -m tests.fuzz --target native --executions 100000000
    python -m tests.fuzz --target records --replay FILE     one input again, with what comes of it

The exit code is 1 where anything was found. ``scripts/fuzz`` makes the environment, and
``--sanitize`` there a compiled codec that watches its own memory.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.fuzz import corpus, directories, engine, native
from tests.fuzz.scratch import Scratch, left_in
from tests.fuzz.targets import TARGETS

NAMES = (*engine.NAMES, directories.NAME)
_GRACE_S = 120.0  # for a process to start and to be found hanging


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.worker is not None:
        return _work(options)
    if options.replay is not None:
        return _replay(options)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    names = options.target or list(NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        raise SystemExit(f"no target {unknown[0]!r}; there are {', '.join(NAMES)}")
    seconds = math.inf if options.executions and not options.seconds else (options.seconds or 60.0) / len(names)
    found = 0
    for name in names:
        report = fuzz(name, seconds, options.executions or sys.maxsize, seed, options.findings, keep=options.keep)
        found += len(report.findings)
        print(json.dumps(asdict(report)) if options.json else _line(report), flush=True)
        for finding in report.findings if not options.json else ():
            print(f"  {finding['problem']}\n    {finding['again']}")
    return 1 if found else 0


def fuzz(
    target: str, seconds: float, executions: int, seed: int, findings: Path, *, keep: bool = False
) -> engine.Report:
    """One target in a process of its own. What it dies of, or hangs at, is a finding like any
    other."""
    with tempfile.TemporaryDirectory(prefix="pylog-fuzz-") as directory:
        order = engine.Order(
            target, seed, min(seconds, 1e9), executions, Path(directory) / "scratch", findings.absolute(), keep
        )  # fmt: skip
        command = [sys.executable, "-m", "tests.fuzz", "--worker", json.dumps(asdict(order), default=str)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([path for path in sys.path if path] + [os.getcwd()])}
        errors = Path(directory) / "errors"
        with errors.open("wb") as stderr:
            try:
                done = subprocess.run(
                    command,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    check=False,
                    timeout=min(seconds, 1e6) + _GRACE_S,
                )
            except subprocess.TimeoutExpired:
                done = subprocess.CompletedProcess(command, -1, b"", b"")
        if done.returncode == 0:
            return engine.Report(**json.loads(done.stdout))
        report = engine.Report(target, seed)
        said = errors.read_text(errors="replace")
        data = left_in(order.scratch) if order.scratch.exists() else b""
        engine.note(order, report, data, f"the process ended with {done.returncode}: {said[:3000]}")
        return report


def _work(options: argparse.Namespace) -> int:
    given = json.loads(options.worker)
    order = engine.Order(**{**given, "scratch": Path(given["scratch"]), "findings": Path(given["findings"])})
    report = directories.run(order) if order.target == directories.NAME else engine.run(order)
    print(json.dumps(asdict(report)))
    return 0


def _replay(options: argparse.Namespace) -> int:
    path = options.replay
    target = options.target[0] if options.target else path.parent.name
    if target == directories.NAME:
        return directories.replay(path)
    if target not in TARGETS:
        raise SystemExit(f"--target is needed: {path} does not lie in a directory that is named after one")
    data = path.read_bytes()
    if target == "records":
        with tempfile.TemporaryDirectory() as directory:
            native.once(data, Scratch(Path(directory) / "scratch"))
    print(TARGETS[target].verdict(data))  # a traceback is the answer, too
    if options.keep:
        print(corpus.keep(target, data))
    return 0


def _line(report: engine.Report) -> str:
    return (
        f"{report.target:18} {report.executions:>12,} executions {report.per_second:>11,.0f} a second "
        f"{report.values:>12,} values {report.shapes:>5} shapes  slowest {report.slowest_ms:.1f} ms  "
        f"memory +{report.grown_bytes / (1 << 20):.1f} MiB  {len(report.findings)} findings  seed {report.seed}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Give hostile input to everything that reads.")
    parser.add_argument("--target", action="append", help=f"one of {', '.join(NAMES)}; may be repeated (default: all)")
    parser.add_argument("--seconds", type=float, help="for all targets together (default: 60, if no --executions)")
    parser.add_argument("--executions", type=int, help="at most so many of each target")
    parser.add_argument("--seed", type=int, help="the same seed, the same inputs (default: drawn, and printed)")
    parser.add_argument(
        "--findings", type=Path, default=Path("build/fuzz"), help="where inputs that break something go"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input, and show what comes of it")
    parser.add_argument("--keep", action="store_true", help="put inputs that are new in kind into the corpus")
    parser.add_argument("--json", action="store_true", help="one object a target")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
