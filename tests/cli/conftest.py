"""Runs the command line inside the test's process, and as its own process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pylog.cli.main import main
from pylog.log import Log

SOURCE = Path(__file__).parents[2] / "src"


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


Run = Callable[..., Ran]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(log_dir: Path) -> Iterator[Log]:
    with Log(log_dir) as opened:
        yield opened


@pytest.fixture
def pylog(log_dir: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """``pylog("topics", "list")`` on this test's log; ``stdin`` is bytes."""
    monkeypatch.setenv("PYLOG_LOG", str(log_dir))
    monkeypatch.delenv("PYLOG_DEBUG", raising=False)

    def run(*argv: str | Path, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in argv])
        out, err = capsysbinary.readouterr()
        return Ran(code, out.decode("latin-1") if b"--raw" in map(os.fsencode, argv) else out.decode(), err.decode())

    return run


def environment(log_dir: Path, **more: str) -> dict[str, str]:
    """For a process of its own: it finds this source and this log."""
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # nobody's default
    return {**inherited, "PYTHONPATH": path, "PYLOG_LOG": str(log_dir), "PYTHONUTF8": "1", **more}


def start(log_dir: Path, *argv: str, **options: Any) -> subprocess.Popen[bytes]:
    """``python -m pylog`` as a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(log_dir), **options}
    return subprocess.Popen([sys.executable, "-m", "pylog", *argv], **options)


@pytest.fixture
def without_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra ``codecs`` were not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lz4", "cramjam")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("lz4", "lz4.frame", "cramjam"):
        monkeypatch.setitem(sys.modules, name, None)
