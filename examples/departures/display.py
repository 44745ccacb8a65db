"""How the board looks: a live table on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from events import AIRPORTS, TIME_ZONE, Departure

if TYPE_CHECKING:
    from board import Board
    from rich.console import Group

LINE_EVERY_S = 2.0
WORST = 5
NEW_YORK = ZoneInfo(TIME_ZONE)


@contextmanager
def display(board: Board) -> Iterator[Callable[[], None]]:
    """A function that shows the board as it is now; the last state is shown at the end."""
    if not sys.stdout.isatty() or find_spec("rich") is None:
        yield from _lines(board)
        return
    from rich.live import Live

    with Live(_picture(board), auto_refresh=False) as live:
        try:
            yield lambda: live.update(_picture(board), refresh=True)
        finally:
            live.update(_picture(board), refresh=True)


def _lines(board: Board) -> Iterator[Callable[[], None]]:
    shown_s = time.monotonic()

    def show() -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= LINE_EVERY_S:
            shown_s = time.monotonic()
            print(_progress(board), flush=True)

    yield show
    print(_progress(board))
    for airport in board.airports:
        print("  " + "  ".join(f"{cell:>12}" for cell in _row(board, airport)))
    for late in board.latest_hour(WORST):
        print("  late: " + ", ".join(_late_row(late)))
    sys.stdout.flush()


def _picture(board: Board) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    airports = Table(title="Departures from New York, 2013", title_justify="left", expand=True)
    for heading in ("airport", "event time", "flights", "cancelled", "mean delay"):
        airports.add_column(heading, justify="left" if heading in ("airport", "event time") else "right")
    for airport in board.airports:
        airports.add_row(*(Text(cell) for cell in _row(board, airport)))
    worst = Table(title="Most delayed in the last hour of event time", title_justify="left", expand=True)
    for heading in ("delay", "flight", "route", "scheduled", "aircraft"):
        worst.add_column(heading, justify="right" if heading == "delay" else "left")
    rows = [_late_row(late) for late in board.latest_hour(WORST)]
    for row in rows + [("",) * 5] * (WORST - len(rows)):
        worst.add_row(*(Text(cell) for cell in row))
    bar = ProgressBar(total=max(board.expected, 1) if board.is_announced else None, completed=board.read)
    return Group(airports, worst, Text(_progress(board)), bar)


def _progress(board: Board) -> str:
    if not board.planned:
        return "waiting for the producers"
    of_all = f" of {board.expected:,}" if board.is_announced else ""
    return f"read {board.read:,}{of_all} departures, {board.per_second:,.0f} records/s"


def _row(board: Board, airport: str) -> tuple[str, ...]:
    counts = board.of_airport(airport)
    departed = counts.flights - counts.cancelled
    return (
        f"{airport} {AIRPORTS[airport]}",
        _local_time(board.now_ms[airport]) if counts.flights else "",
        f"{counts.flights:,}",
        f"{counts.cancelled:,}",
        f"{counts.delay_min / departed:.1f} min" if departed else "",
    )


def _late_row(late: Departure) -> tuple[str, ...]:
    return (
        f"{late.delay_min} min",
        _printable(f"{late.carrier} {late.flight}"),
        _printable(f"{late.origin}-{late.dest}"),
        _local_time(late.scheduled_ms),
        _printable(late.aircraft or ""),
    )


def _local_time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, NEW_YORK).strftime("%d %b %H:%M")


def _printable(text: str) -> str:
    """What a log holds is anybody's; a terminal obeys control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)
