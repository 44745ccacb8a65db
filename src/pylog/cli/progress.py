"""A progress bar for work over a second, on a terminal. Nothing otherwise, nor without rich.

The working thread draws it when it reports progress. There is no other thread, so a bar that stops
means work that stopped. The line is cleared at the end, and before other output (``pause``).
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from pylog.cli.output import safe
from pylog.clock import Clock, SystemClock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOW_AFTER_S = 1.0
REDRAW_EVERY_S = 0.1


class Meter:
    """Counts bytes of work done. ``total_bytes`` None draws a bar without an end."""

    def __init__(
        self, doing: str, total_bytes: int | None, *, stream: TextIO | None = None, clock: Clock | None = None
    ) -> None:
        self._doing = safe(doing)
        self._total_bytes = total_bytes
        self._stream = stream or sys.stderr
        self._clock = clock or SystemClock()
        self._due_s = self._clock.monotonic() + SHOW_AFTER_S
        self._done_bytes = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._is_wanted = self._stream.isatty()

    def advance(self, size_bytes: int) -> None:
        """Add bytes that are done."""
        self._done_bytes += size_bytes
        if self._is_wanted:
            now_s = self._clock.monotonic()
            if now_s >= self._due_s:
                self._due_s = now_s + REDRAW_EVERY_S
                self._draw()

    def pause(self) -> None:
        """Clear the bar for other output; the next ``advance`` draws it again."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()

    def _draw(self) -> None:
        if self._bar is None:
            self._start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done_bytes)
            self._bar.refresh()

    def _start(self) -> None:
        try:
            from rich import console, progress
        except ImportError:
            self._is_wanted = False
            return
        bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=console.Console(file=self._stream), get_time=self._clock.monotonic,
            auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._task = bar.add_task(self._doing, total=self._total_bytes, completed=self._done_bytes)
        bar.start()
        self._bar = bar

    def __enter__(self) -> Meter:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.pause()
