"""``scripts/demo`` before it comes to the example: which Java it asks for, what it says. Its Python
is a stand-in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "scripts" / "demo"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment whose Python only shows what it is asked to run."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "pip"):
        (programs / name).write_text('#!/bin/sh\necho "ran $PYLOG_DEMO in $PWD: $*"\n')
        (programs / name).chmod(0o755)
    return programs.parent


def demo(venv: Path, *arguments: str, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    no_java = {"JAVA_HOME": str(venv / "nowhere"), "PYLOG_VENV": str(venv)}
    return subprocess.run(
        ["bash", script, *arguments], env={**os.environ, **no_java}, capture_output=True, text=True, timeout=50,
        cwd=venv.parent,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [("--no-spark",), ("--limit", "5", "--no-spark"), ("--help",)])
def test_without_spark_no_java_is_asked_for(venv: Path, arguments: tuple[str, ...]) -> None:
    done = demo(venv, *arguments)
    assert done.returncode == 0, done.stderr
    assert "the first time this takes a minute or more" in done.stdout
    wanted = f"ran scripts/demo in {venv.parent}: {PROJECT}/examples/departures/run.py {' '.join(arguments)}"
    assert done.stdout.splitlines()[-1] == wanted


def test_paths_begin_where_the_user_is_however_the_script_is_named(venv: Path) -> None:
    named = Path(os.path.relpath(SCRIPT, venv.parent.resolve()))
    done = demo(venv, "--no-spark", "--directory", "mylog", script=named)
    assert done.stdout.splitlines()[-1] == (
        f"ran scripts/demo in {venv.parent}: {PROJECT}/examples/departures/run.py --no-spark --directory mylog"
    )


def test_without_java_the_message_names_the_way_without(venv: Path) -> None:
    done = demo(venv)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("no Java found; Spark needs Java 17 or newer (install one, or point JAVA_HOME at it); "
        "scripts/demo --no-spark does without\n")  # fmt: skip
