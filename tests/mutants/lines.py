"""Which tests run which line: one run of the tests under coverage, each of them its own context, with the time it took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

from tests.mutants.mutant import PACKAGE

ROOT = Path(__file__).parents[2]


class Lines(NamedTuple):
    """``tests[file][line]`` are node ids; ``seconds`` says how long each took."""

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def of(self, file: str, line: int, most_seconds: float) -> list[str]:
        """The tests that run a line, the quickest first, as many as take no longer than that."""
        chosen, left = [], most_seconds
        for test in sorted(self._near(file, line), key=lambda test: self.seconds.get(test, 0.0)):
            left -= self.seconds.get(test, 0.0) + 0.002
            if left < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def _near(self, file: str, line: int) -> list[str]:
        """The tests of the line; where it is the middle of a statement, of one just before; of what is run on import, all."""
        of_file = self.tests.get(file, {})
        for before in range(4):
            if of_file.get(line - before):
                return of_file[line - before]
        return sorted({test for tests in of_file.values() for test in tests})


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
            return (yield)  # type: ignore[return-value]
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
    found = json.loads(target.read_text())
    tests = {file: {int(line): names for line, names in lines.items()} for file, lines in found["tests"].items()}
    return Lines(tests, found["seconds"])


def main(target: str, files: str, *arguments: str) -> int:
    measuring = coverage.Coverage(data_file=None, branch=False, include=[f"{PACKAGE}/*"], config_file=False)
    contexts = Contexts(measuring)
    measuring.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[contexts])
    measuring.stop()
    data = measuring.get_data()
    tests = {
        file: {
            line: [name for name in names if name]
            for line, names in data.contexts_by_lineno(str(PACKAGE / file)).items()
        }
        for file in json.loads(files)
    }
    Path(target).write_text(json.dumps({"tests": tests, "seconds": contexts.seconds}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
