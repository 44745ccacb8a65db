"""Progress bars: only on a terminal, only after a second, and never without rich."""

from __future__ import annotations

import io
import sys

import pytest

from pylog.cli.progress import Meter
from tests.partition.logs import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(stream: io.StringIO, seconds: float, **options: object) -> str:
    """What a piece of work that takes so long leaves on the stream, before it is over."""
    clock = ManualClock()
    with Meter("verifying", 100, stream=stream, clock=clock) as meter:
        for _ in range(10):
            clock.sleep(seconds / 10)
            meter.advance(10)
        return stream.getvalue()


def test_work_over_a_second_has_a_bar_on_a_terminal() -> None:
    shown = work(Terminal(), 2)
    assert "verifying" in shown
    assert "100/100 bytes" in shown


def test_its_line_is_cleared_in_the_end() -> None:
    terminal = Terminal()
    shown = work(terminal, 2)
    assert terminal.getvalue().startswith(shown)
    assert terminal.getvalue()[len(shown) :].rstrip().endswith("\x1b[2K")


def test_short_work_has_none() -> None:
    assert work(Terminal(), 0.9) == ""


def test_without_a_terminal_there_is_none() -> None:
    assert work(io.StringIO(), 20) == ""


def test_without_rich_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert work(Terminal(), 20) == ""


def test_it_makes_way_for_other_lines_and_comes_back() -> None:
    clock, terminal = ManualClock(), Terminal()
    with Meter("verifying", 100, stream=terminal, clock=clock) as meter:
        meter.pause()
        assert terminal.getvalue() == ""
        clock.sleep(2)
        meter.advance(10)
        meter.pause()
        drawn = len(terminal.getvalue())
        clock.sleep(2)
        meter.advance(10)
        assert "verifying" in terminal.getvalue()[drawn:]


def test_it_is_drawn_at_most_ten_times_a_second() -> None:
    clock, terminal = ManualClock(), Terminal()
    with Meter("verifying", None, stream=terminal, clock=clock) as meter:
        clock.sleep(2)
        for _ in range(100):
            clock.sleep(0.01)
            meter.advance(1)
        assert 5 <= terminal.getvalue().count("verifying") <= 15


def test_what_it_says_is_safe() -> None:
    clock, terminal = ManualClock(), Terminal()
    with Meter("[red]\x1b]0;x\x07", 100, stream=terminal, clock=clock) as meter:
        clock.sleep(2)
        meter.advance(1)
        assert "[red]\\x1b]0;x\\x07" in terminal.getvalue()
        assert "\x1b]0" not in terminal.getvalue()
