"""How the pool looks: a live picture on a terminal, a plain line now and then elsewhere, or without
rich."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from status import Progress, Status

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

LINE_EVERY_S = 2.0
NOTES = 5
BAR_WIDTH = 30
BAR_LAG = 100  # at which it is full, unless a lag is larger


class View(Protocol):
    def show(self, status: Status) -> None:
        """Called often, with what is so now."""

    def note(self, text: str) -> None:
        """Something has happened."""


@contextmanager
def view() -> Iterator[View]:
    """The view that suits where the output goes. Its last state stays."""
    if not sys.stdout.isatty() or find_spec("rich") is None:
        yield Lines()
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        yield Picture(live)


class Lines:
    def __init__(self) -> None:
        self._elapsed_s = self._shown_s = 0.0

    def show(self, status: Status) -> None:
        self._elapsed_s = status.elapsed_s
        if status.elapsed_s - self._shown_s < LINE_EVERY_S:
            return
        self._shown_s = status.elapsed_s
        reads = [f"{printable(member.name)}: {numbers(member.reads)}" for member in status.members]
        print(f"{status.elapsed_s:5.1f} s  {total(status)} | {' | '.join(reads)}", flush=True)

    def note(self, text: str) -> None:
        print(f"{self._elapsed_s:5.1f} s  {text}", flush=True)


class Picture:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._elapsed_s = 0.0
        self._notes: deque[str] = deque(maxlen=NOTES)

    def show(self, status: Status) -> None:
        self._elapsed_s = status.elapsed_s
        self._live.update(picture(status, list(self._notes)), refresh=True)

    def note(self, text: str) -> None:
        self._notes.appendleft(f"{self._elapsed_s:5.1f} s  {text}")


def picture(status: Status, notes: list[str]) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    members = Table(box=SIMPLE_HEAD, show_edge=False)
    for heading in ("worker", "process", "reads", "awaits", "lag"):
        members.add_column(heading, justify="right" if heading in ("process", "lag") else "left", min_width=9)
    lags: dict[int, int] = {partition.number: partition.lag for partition in status.partitions}
    for member in status.members:
        lag = sum(lags.get(number, 0) for number in member.reads)
        cells = (printable(member.name), str(member.pid), numbers(member.reads), numbers(member.awaits), f"{lag:,}")
        members.add_row(*map(Text, cells))
    partitions = Table(box=SIMPLE_HEAD, show_edge=False)
    for heading in ("partition", "read by", "committed", "end", "lag"):
        partitions.add_column(heading, justify="left" if heading == "read by" else "right", min_width=9)
    partitions.add_column(width=BAR_WIDTH)
    widest = max((partition.lag for partition in status.partitions), default=0)
    for partition in status.partitions:
        partitions.add_row(*map(Text, row(partition)), Text(bar(partition.lag, widest)))
    happened = "\n".join(notes + [""] * (NOTES - len(notes)))  # the latest first: a small terminal shows no more
    return Group(Text(total(status), style="bold"), members, Text(), partitions, Text(), Text(happened, style="dim"))


def row(partition: Progress) -> tuple[str, ...]:
    figures = (f"{figure:,}" for figure in (partition.committed, partition.end, partition.lag))
    return str(partition.number), printable(partition.owner) or "no member", *figures


def bar(lag: int, widest: int) -> str:
    return "█" * round(BAR_WIDTH * lag / max(widest, BAR_LAG))


def total(status: Status) -> str:
    return (
        f"{counted(len(status.members), 'member')}, lag {status.lag:,}, {status.sent_per_s:,.0f} sent/s, "
        f"{status.handled_per_s:,.0f} handled/s, {counted(status.rebalances, 'rebalance')}"
    )


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def numbers(partitions: list[int]) -> str:
    return " ".join(map(str, partitions)) or "-"


def printable(text: str) -> str:
    """Anybody may join the group, under any name; a terminal obeys control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)
