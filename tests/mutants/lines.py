"""Which tests run which line: one run of the tests under coverage, each of them its own context,
with the time it took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

from tests.mutants.mutant import PACKAGE

ROOT = Path(__file__).parents[2]


class Lines(NamedTuple):
    """``names`` are node ids, the quickest test first; the n-th runs a line if bit n of
    ``tests[file][line]`` is set."""

    names: list[str]
    seconds: list[float]
    tests: dict[str, dict[int, int]]

    def of(self, file: str, line: int, most_seconds: float) -> list[str]:
        """The tests that run a line, the quickest first, as many as take no longer than that."""
        chosen, left, near = [], most_seconds, self._near(file, line)
        for number, (name, seconds) in enumerate(zip(self.names, self.seconds, strict=True)):
            if near >> number & 1:
                left -= seconds + 0.002
                if left < 0 and chosen:
                    break
                chosen.append(name)
        return chosen

    def _near(self, file: str, line: int) -> int:
        """The tests of the line; where it is the middle of a statement, of one just before; of what
        is run on import, all."""
        of_file = self.tests.get(file, {})
        for before in range(4):
            if of_file.get(line - before):
                return of_file[line - before]
        return reduce(or_, of_file.values(), 0)


class Contexts:
    """A plugin of pytest: tells coverage which test runs."""

    def __init__(self, measuring: coverage.Coverage) -> None:
        self._measuring = measuring
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measuring.switch_context(item.nodeid)
        started = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - started
            self._measuring.switch_context("")


def record(target: Path, files: list[str], arguments: list[str]) -> None:
    """Run the tests in another process, and note in ``target`` what they run of ``files``."""
    environment = {**os.environ, "PYLOG_PURE_PYTHON": "1", "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "tests.mutants.lines", str(target), json.dumps(files), *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, check=False)  # a test of memory may not like to be measured
    if not target.exists():
        raise RuntimeError("the tests did not come to their end, so nothing is known of them")


def load(target: Path) -> Lines:
    names, seconds, tests = json.loads(target.read_text())
    return Lines(
        names, seconds, {f: {int(line): int(bits, 16) for line, bits in of.items()} for f, of in tests.items()}
    )


def main(target: str, files: str, *arguments: str) -> int:
    measuring = coverage.Coverage(data_file=None, branch=False, include=[f"{PACKAGE}/*"], config_file=False)
    contexts = Contexts(measuring)
    measuring.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[contexts])
    measuring.stop()
    data, seconds = measuring.get_data(), contexts.seconds
    names = sorted(seconds, key=seconds.__getitem__)
    bits = {name: 1 << number for number, name in enumerate(names)}
    tests = {
        file: {
            line: f"{reduce(or_, (bits[name] for name in of_line if name), 0):x}"
            for line, of_line in data.contexts_by_lineno(str(PACKAGE / file)).items()
        }
        for file in json.loads(files)
    }
    Path(target).write_text(json.dumps([names, [seconds[name] for name in names], tests]))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
