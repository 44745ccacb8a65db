"""The consumer's process: reads the departures while they are being sent, and keeps a board of the
delays.

    python board.py DIRECTORY

It ends when it has read as many departures as the producers of all airports announced.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from display import display
from events import AIRPORTS, PLANS, TIME_ZONE, TOPIC, Cell, Counts, Departure, Table, decode, total

from pylog import Consumer, Log
from pylog.errors import PylogError

HOUR_MS = 3_600_000
REFRESH_S = 0.25
PATIENCE_S = 30.0  # without a record, once the producers have begun
NEW_YORK = ZoneInfo(TIME_ZONE)


class Board:
    """What has been read so far."""

    def __init__(self, airports: list[str]) -> None:
        self.airports = airports
        self.planned: dict[str, int] = {}
        self.read = 0
        self.began_s: float | None = None
        self.now_ms = dict.fromkeys(airports, 0)  # each airport's event time: its latest scheduled departure
        self.late: list[Departure] = []
        self.steps_back = 0
        self._cells: defaultdict[Cell, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._last_ms: dict[tuple[str, str], int] = {}

    @property
    def expected(self) -> int:
        return sum(self.planned.values())

    @property
    def is_announced(self) -> bool:
        """Whether all producers have said how many departures they have, so that ``expected`` is
        the final number."""
        return set(self.planned) == set(self.airports)

    @property
    def is_complete(self) -> bool:
        return self.is_announced and self.read >= self.expected

    @property
    def per_second(self) -> float:
        return 0.0 if self.began_s is None else self.read / max(time.monotonic() - self.began_s, 1e-3)

    def add(self, departure: Departure) -> None:
        if self.began_s is None:
            self.began_s = time.monotonic()
        self.read += 1
        self.now_ms[departure.origin] = max(self.now_ms[departure.origin], departure.scheduled_ms)
        local = datetime.fromtimestamp(departure.scheduled_ms / 1000, NEW_YORK)
        counts = self._cells[Cell(departure.origin, local.hour, departure.carrier)]
        counts[0] += 1
        if departure.delay_min is None:
            counts[1] += 1
        else:
            counts[2] += departure.delay_min
            if departure.delay_min > 0:
                self.late.append(departure)
        self._check_order(departure)

    def _check_order(self, departure: Departure) -> None:
        """An airport sends in order of time, and a key's records keep their order: time never goes
        back."""
        if departure.aircraft is None:
            return
        key = departure.aircraft, departure.origin
        if departure.scheduled_ms < self._last_ms.get(key, 0):
            self.steps_back += 1
        self._last_ms[key] = departure.scheduled_ms

    def table(self) -> Table:
        return {cell: Counts(*counts) for cell, counts in self._cells.items()}

    def of_airport(self, airport: str) -> Counts:
        return total(counts for cell, counts in self.table().items() if cell.origin == airport)

    def latest_hour(self, count: int) -> list[Departure]:
        """The most delayed flights of the last hour, by each airport's own event time."""
        self.late = [late for late in self.late if late.scheduled_ms > self.now_ms[late.origin] - HOUR_MS]
        return sorted(self.late, key=lambda late: late.delay_min or 0, reverse=True)[:count]

    def save(self, path: Path) -> None:
        aircraft = {aircraft for aircraft, _ in self._last_ms}
        cells = [[*cell, *counts] for cell, counts in self.table().items()]
        path.write_text(json.dumps({"cells": cells, "aircraft": len(aircraft), "steps_back": self.steps_back}))


def watch(directory: str, airports: list[str]) -> Board:
    """Read until the board is complete. SystemExit if the producers began and then nothing comes
    any more."""
    board = Board(airports)
    with (
        Log(directory, read_only=True) as log,
        Consumer(log, auto_offset_reset="earliest", max_poll_records=5_000) as consumer,
        display(board) as show,
    ):
        consumer.subscribe([PLANS, TOPIC])
        last_record_s = next_show_s = time.monotonic()
        while not board.is_complete:
            records = consumer.poll(timeout=REFRESH_S)
            for record in records:
                if record.topic == PLANS:
                    board.planned[record.key.decode()] = int(record.value)
                else:
                    board.add(decode(record))
            now_s = time.monotonic()
            if records or not board.planned:
                last_record_s = now_s
            elif now_s - last_record_s > PATIENCE_S:
                raise SystemExit(
                    f"no record for {PATIENCE_S:.0f} s: read {board.read:,} of {board.expected:,} departures"
                )
            if now_s >= next_show_s:
                show()
                next_show_s = now_s + REFRESH_S
    return board


def main() -> None:
    parser = argparse.ArgumentParser(description="Show a live board of the departures in the log.")
    parser.add_argument("directory")
    parser.add_argument("--airports", nargs="+", choices=AIRPORTS, default=list(AIRPORTS))
    parser.add_argument("--totals", type=Path, metavar="FILE", help="write what was counted, as JSON")
    arguments = parser.parse_args()
    # The display ends first, and restores the terminal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        board = watch(arguments.directory, arguments.airports)
    except PylogError as error:
        sys.exit(f"board: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if arguments.totals:
        board.save(arguments.totals)


if __name__ == "__main__":
    main()
