"""For a runner of long tests: every target for a share of the time, each in a process of its
own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import directories, engine
from tests.fuzz.__main__ import fuzz
from tests.soak.part import Outcome

FINDINGS = Path("build/fuzz")
_SHARES = {engine.NATIVE: 8, "records": 4, "batch": 4, directories.NAME: 4}  # of the others, one each


NAMES = (*engine.NAMES, directories.NAME)


def run(seconds: float, seed: int, names: Sequence[str] = NAMES) -> tuple[dict[str, int], list[str]]:
    """Executions of each target, and what was found, with the command that runs it again. At least
    a little of each."""
    share = seconds / sum(_SHARES.get(name, 1) for name in names)
    figures: dict[str, int] = {}
    problems: list[str] = []
    for name in names:
        report = fuzz(name, max(share * _SHARES.get(name, 1), 0.01), 1 << 62, seed, FINDINGS)
        figures[name] = report.executions
        problems += [f"{name}: {finding['problem']}; again: {finding['again']}" for finding in report.findings]
    return figures, problems


def as_part(seconds: float, seed: int, directory: Path) -> Outcome:
    """The same for ``scripts/soak``."""
    figures, problems = run(seconds, seed)
    return Outcome(dict(figures), problems)
