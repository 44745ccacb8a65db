"""The runner of soaks: its parts run, its figures add up, and a part that finds something makes it
fail."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.soak import part
from tests.soak.part import Outcome

# The process of a part that hangs imports this file, which imports no part for that reason: it has
# little time.
PROJECT = Path(__file__).parents[2]


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the full disk needs Linux")
@pytest.mark.one_in(8)
def test_a_soak_of_a_few_seconds_prints_the_figures_of_its_parts(tmp_path: Path, seed: int) -> None:
    parts = ["overload", "full-disk", "faults", "random-schedules"]  # which no other test calls
    command = [sys.executable, "-m", "tests.soak", *parts, "--seed", str(seed), "--directory", str(tmp_path), "--json"]
    done = subprocess.run([*command, "--seconds", "1", "--jobs", "2"], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = json.loads(done.stdout)
    assert (printed["seed"], printed["problems"], list(printed["figures"])) == (seed, {}, parts)
    assert all(figures.get("anomalies", 0) == 0 for figures in printed["figures"].values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_each_target_of_the_fuzzer_reports_how_often_it_ran(seed: int) -> None:
    from tests.fuzz import soak as fuzz

    figures, problems = fuzz.run(0.0, seed, ("seal", "slots"))
    assert (list(figures), problems) == (["seal", "slots"], [])
    assert all(figures.values())


def test_a_part_that_finds_something_keeps_its_directory_and_says_how_to_run_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.soak import __main__ as runner

    outcomes = [Outcome({"kills": 3}, []), Outcome({"kills": 4}, ["it lost a record"])]
    monkeypatch.setattr(runner, "run_apart", lambda *_: (outcomes.pop(0), tmp_path))
    monkeypatch.setattr("sys.argv", ["soak", "chaos", "--minutes", "30", "--seed", "7"])
    assert runner.main() == 1
    printed = capsys.readouterr().out
    assert "it lost a record\nkept in" in printed
    assert "again: scripts/soak chaos --seconds 900 --seed " in printed
    assert "chaos: FAILED\n  kills             7\n" in printed


def sleep_for_ever(seconds: float, seed: int, directory: Path) -> Outcome:
    (directory / "begun").touch()
    time.sleep(1_000)
    return Outcome({}, [])


@pytest.mark.processes
def test_a_part_that_hangs_is_ended_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "_LATE_S", 3.0)
    monkeypatch.setattr(part, "_TO_DUMP_S", 1.0)
    outcome, kept = part.run_apart("sleeper", sleep_for_ever, 0.1, 1, str(tmp_path))
    assert outcome.problems == ["sleeper, with 0 s to run, hung: killed after 3 s"]
    assert (kept / "begun").exists()
    assert multiprocessing.active_children() == []
