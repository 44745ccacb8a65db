"""The example of examples/exactly_once, run small: workers that are killed, and its own check of
all counts."""

from __future__ import annotations

import argparse
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pylog import Log, Producer

EXAMPLE = Path(__file__).parents[2] / "examples" / "exactly_once"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def figure(output: str, name: str) -> int:
    found = re.search(rf"^{name} +([\d,]+)", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.processes
@pytest.mark.slow
def test_the_counts_are_those_of_one_thread_however_many_workers_are_killed(tmp_path: Path) -> None:
    done = run("--kills", "10", "--directory", tmp_path / "log")
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    assert figure(done.stdout, "wrong counts") == 0
    assert figure(done.stdout, "workers killed") == 10
    assert figure(done.stdout, "words counted") == figure(done.stdout, "words") > 10_000
    with Log(tmp_path / "log") as log:
        assert list(log.verify().problems) == []


@pytest.mark.processes
def test_a_log_that_has_the_topic_already_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("lines")
    done = run("--directory", tmp_path / "log")  # which has the topic already
    assert done.returncode == 1
    assert "lines" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("more", "status"), [([], 0), ([b"log"], 1)])
def test_the_check_finds_a_word_that_was_counted_twice(
    tmp_path: Path, more: list[bytes], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    example = runpy.run_path(str(EXAMPLE / "run.py"))
    with Log(tmp_path / "log") as log:
        log.create_topic("counts")
        with Producer(log) as producer:
            for word, count in [(b"a", 2), (b"log", 1), *((word, 1) for word in more)]:
                producer.send("counts", b"%d" % count, key=word)
        arguments = argparse.Namespace(kills=0, seed=1)
        assert example["compare"](log, [b"A log", b"a"], arguments) == status
    assert ("log: counted 2 times, not 1" in capsys.readouterr().out) is bool(more)


def test_the_readme_shows_the_loop_of_the_worker() -> None:
    shown = [line for line in (EXAMPLE / "README.md").read_text().splitlines() if line.startswith("    ")]
    loop = textwrap.dedent("\n".join(line for line in shown if "python " not in line)).split("\nwords ")[0]
    assert len(loop.splitlines()) <= 10
    assert textwrap.indent(loop, "        ") in (EXAMPLE / "worker.py").read_text()
