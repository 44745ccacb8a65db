"""Tries mutants: each in a process of its own, forked from one that has loaded pytest but nothing
of pylog.

A mutant is caught where one of its tests fails. It is broken, which is a mistake in the table and
not a catch, where the library cannot be loaded, a name is unknown, or no test ran.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis.stateful  # noqa: F401 - loaded once for all children, like pytest
import pytest

from tests.mutants.mutant import put_copy

ROOT = Path(__file__).parents[2]
TEST_SECONDS = 40  # of one with a bug, which may hang; without one a test may take as long as the trial
TRIAL_SECONDS = 600
_MISTAKES = {"NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError"}


class Trial(NamedTuple):
    """What to run: pytest's ``arguments`` on the library with ``source`` in ``file``; with no file,
    on the library as it is."""

    name: str
    file: str
    source: str
    arguments: tuple[str, ...]


class Verdict(NamedTuple):
    """``caught``, ``survived`` or ``broken``; by which test, or why."""

    outcome: str
    by: str
    seconds: float


class Judge:
    """A plugin of pytest: notes the first failure, and how many tests ran."""

    def __init__(self) -> None:
        self.ran = 0
        self.first: tuple[str, str, str, str] | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call" and not report.skipped

    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object]) -> None:
        if self.first is None and call.excinfo is not None:
            self.first = node.nodeid, call.when, call.excinfo.typename, str(call.excinfo.value)[:300]

    def verdict(self, code: int) -> tuple[str, str]:
        if self.first is not None:
            node, when, kind, text = self.first
            is_mistake = when == "collect" or kind in _MISTAKES
            return ("broken", f"{node}: {kind}: {text}") if is_mistake else ("caught", node)
        if code == 0 and self.ran:
            return "survived", f"{self.ran} tests pass"
        return "broken", f"pytest ended with {code} after {self.ran} tests"


class Running(NamedTuple):
    trial: Trial
    process: int
    directory: Path
    started: float


def try_all(trials: Iterable[Trial], jobs: int) -> Iterator[tuple[Trial, Verdict]]:
    """The verdicts, in the order in which the trials end."""
    if "pylog" in sys.modules:
        raise RuntimeError(
            "pylog is loaded already, so its children could not load another: use python -m tests.mutants"
        )
    waiting = deque(trials)
    with selectors.DefaultSelector() as ends:
        while waiting or ends.get_map():
            while waiting and len(ends.get_map()) < jobs:
                running, end = _start(waiting.popleft())
                ends.register(end, selectors.EVENT_READ, running)
            ready = [(key.fd, key.data) for key, _ in ends.select(1.0)]
            for end, running in ready:
                ends.unregister(end)
                yield running.trial, _ended(running, end)
            for key in list(ends.get_map().values()):
                if time.monotonic() - key.data.started > TRIAL_SECONDS:
                    os.killpg(key.data.process, signal.SIGKILL)


def _start(trial: Trial) -> tuple[Running, int]:
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="pylog-mutant-", dir=memory if memory.is_dir() else None))
    put_copy(directory, trial.file, trial.source)
    readable, writable = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(readable)
        try:
            _child(trial, directory, writable)
        except BaseException:  # noqa: BLE001 - nothing of the parent may run in the child
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    os.close(writable)
    return Running(trial, process, directory, time.monotonic()), readable


def _child(trial: Trial, directory: Path, output: int) -> None:
    os.setpgid(0, 0)
    said = os.open(directory / "said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(ROOT)
    sys.path[:0] = [str(directory)]
    os.environ.update(PYLOG_PURE_PYTHON="1", PYTHONPATH=str(directory), HYPOTHESIS_STORAGE_DIRECTORY=str(directory))
    os.environ.setdefault("PYLOG_TEST_SEED", "1")
    judge = Judge()
    options = [
        "-q",
        "-x",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        f"--timeout={TEST_SECONDS if trial.file else TRIAL_SECONDS}",
        "--hypothesis-seed=1",
    ]
    code = pytest.main([*options, f"--basetemp={directory}/tmp", *trial.arguments], plugins=[judge])
    verdict = judge.verdict(int(code))
    loaded = getattr(sys.modules.get("pylog"), "__file__", None)
    if verdict[0] != "broken" and loaded != f"{directory}/pylog/__init__.py":
        verdict = "broken", f"the tests ran with {loaded}, not with the copy"
    os.write(output, json.dumps(verdict).encode()[:60_000])
    os._exit(0)


def _ended(running: Running, end: int) -> Verdict:
    with open(end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(running.process, 0)
    seconds = time.monotonic() - running.started
    if data:
        outcome, by = json.loads(data)
    else:
        said = (running.directory / "said").read_text(errors="replace") if (running.directory / "said").exists() else ""
        outcome, by = "broken", f"no verdict after {seconds:.0f} s: {said[-500:]}"
    shutil.rmtree(running.directory, ignore_errors=True)
    return Verdict(outcome, by, seconds)
