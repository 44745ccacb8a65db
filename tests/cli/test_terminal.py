"""On a real terminal: no code point and no byte in any place of data steers it, hides, or begins a
line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pylog.cli.progress import Meter
from pylog.log import Log
from pylog.model import ProducerRecord
from tests.cli.conftest import environment
from tests.cli.terminal import PLACES, chunks
from tests.cli.test_output import FORBIDDEN
from tests.partition.logs import ManualClock

pytestmark = pytest.mark.processes
STEERS = re.compile("[" + "".join(f"\\U{code:08x}" for code in sorted(FORBIDDEN)) + "]")
OWN_STYLE = re.compile(r"\x1b\[(\d+(;\d+)*m|\?25[hl]|[012]?K|\d*[AB])|\r")


@pytest.fixture(scope="module")
def every_code_point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic whose records have all of them as key, value, header name and header value, and then
    all bytes."""
    path = tmp_path_factory.mktemp("every") / "log"
    with Log(path) as log:
        write_every_code_point(log)
    return path


def write_every_code_point(log: Log) -> None:
    log.create_topic("t", max_message_bytes=16 << 20)
    for chunk in chunks():
        data, name = (
            chunk.encode("utf-8", "surrogatepass"),
            chunk.encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
        )
        log.partition("t", 0).append([ProducerRecord(data, data, [(name, data)])], acks=1)
    every_byte = bytes(range(256))
    log.partition("t", 0).append([ProducerRecord(every_byte, every_byte, [("h", every_byte)])], acks=1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.one_in(6)
def test_no_code_point_in_any_place_steers_a_terminal(every_code_point: Path, place: str) -> None:
    shown = of_terminal(["-m", "tests.cli.terminal", str(every_code_point), place], every_code_point)
    *lines, last = shown.removesuffix("\r\n").split("\r\n")
    assert last == f"{len(lines)} lines"
    assert not STEERS.search("".join(lines))


def of_terminal(arguments: list[str], log_dir: Path) -> str:
    """What a terminal receives of stdout and stderr of a Python that is run with these
    arguments."""
    parent, child = os.openpty()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=child,
        env=environment(log_dir),
        cwd=Path(__file__).parents[2],
    )
    os.close(child)
    pieces = []
    try:
        while piece := os.read(parent, 1 << 20):
            pieces.append(piece)
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(parent)
        assert process.wait() == 0, b"".join(pieces)[-2000:]
    return b"".join(pieces).decode()


def test_no_code_point_steers_a_terminal_by_way_of_a_progress_bar() -> None:
    for chunk in chunks():
        parent, child = os.openpty()
        clock = ManualClock()
        with os.fdopen(child, "w") as stream:
            with Meter(chunk[:300] + chunk[-40:], 1 << 30, stream=stream, clock=clock) as meter:
                clock.sleep(2.0)
                meter.advance(1 << 20)
            stream.flush()
            shown = os.read(parent, 1 << 20).decode()
        os.close(parent)
        assert shown
        assert not STEERS.search(OWN_STYLE.sub("", shown).replace("\n", ""))


def test_what_would_steer_is_found() -> None:
    for code in FORBIDDEN:
        assert STEERS.search(f"a{chr(code)}b")
    assert not STEERS.search("grüße 日本 \u200d")
