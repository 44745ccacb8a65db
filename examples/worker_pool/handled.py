"""What the workers have done: an SQLite table that all of them write, with one row per record of
the log.

The row's key is the record's place in the log. An order that is handled again (its worker was
killed before it committed) meets the row it left the first time: the effect stays one, and
``times`` tells.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType

from orders import Order

from pylog import Record

FILE = "handled.sqlite"
PATIENCE_S = 30.0  # for another worker's write

CREATE = """
CREATE TABLE IF NOT EXISTS handled (
    partition INTEGER, offset INTEGER, number INTEGER, customer TEXT, cents INTEGER, worker TEXT, times INTEGER,
    PRIMARY KEY (partition, offset)
) WITHOUT ROWID
"""
ADD = """
INSERT INTO handled VALUES (?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (partition, offset) DO UPDATE SET times = times + 1, worker = excluded.worker
"""


class Handled:
    """The table in a directory, made if it is not there. A write survives the death
    of its process after the call has returned."""

    def __init__(self, directory: str | Path) -> None:
        self._database = sqlite3.connect(Path(directory, FILE), timeout=PATIENCE_S, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(CREATE)

    def add(self, record: Record, order: Order, worker: str) -> None:
        self._database.execute(ADD, (record.partition, record.offset, *order, worker))

    def orders(self) -> int:
        """How many different orders are in it."""
        return self._number("SELECT count(DISTINCT number) FROM handled")

    def twice(self) -> int:
        """How often an order was handled that had been handled before."""
        return self._number("SELECT coalesce(sum(times - 1), 0) FROM handled")

    def missing(self, sent: int) -> int:
        """How many of the orders numbered from 0 to below ``sent`` are not in it."""
        return sent - self._number(f"SELECT count(DISTINCT number) FROM handled WHERE number < {sent}")

    def _number(self, query: str) -> int:
        (number,) = self._database.execute(query).fetchone()
        return int(number)

    def __enter__(self) -> Handled:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._database.close()
