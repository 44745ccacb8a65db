"""An outbox in SQLite: its rows are relayed into a log exactly once, beside the least that any
relay does in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import TOPIC, VALUE, Scale, fresh, keys, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from pylog import Log
from pylog.outbox import Outbox, relay

ROWS = 200_000
BATCH_ROWS = 10_000
DATABASE = "SQLite alone"


def _filled(path: Path, count: int) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path)

    connection = connect()
    connection.execute("PRAGMA journal_mode = WAL")
    Outbox.create_table(connection)
    connection.executemany(
        "INSERT INTO pylog_outbox (topic, timestamp_ms, key, value) VALUES (?, 1, ?, ?)",
        [(TOPIC, key, VALUE) for key in keys(count)],
    )
    connection.commit()
    connection.close()
    return connect


@contextmanager
def _relays(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(ROWS, at_least=100)

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC, partitions=3)
            connect = _filled(directory / "app.db", count)
            took = seconds(lambda: relay(log, connect, batch_rows=BATCH_ROWS))
        return {"rows_per_s": count / took}

    yield measure


@contextmanager
def _reads_and_deletes(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(ROWS, at_least=100)

    def measure() -> Sample:
        with fresh(place) as directory:
            connection = _filled(directory / "app.db", count)()

            def empty() -> None:
                while rows := connection.execute(
                    "SELECT id, topic, key, value FROM pylog_outbox WHERE id > 0 ORDER BY id LIMIT ?", (BATCH_ROWS,)
                ).fetchall():
                    connection.execute("DELETE FROM pylog_outbox WHERE id > 0 AND id <= ?", (rows[-1][0],))
                    connection.commit()

            took = seconds(empty)
            connection.close()
        return {"rows_per_s": count / took}

    yield measure


_SETTINGS = f"{ROWS:,} rows of {len(VALUE)} bytes in WAL mode, {BATCH_ROWS:,} a transaction, synced"

WORKLOADS = (
    Workload(
        name="outbox",
        summary="rows of an outbox in SQLite, relayed exactly once",
        contenders=(
            Contender(NAME, f"{_SETTINGS}; one transaction of the log a batch", _relays),
            Contender(DATABASE, f"{_SETTINGS}; reads and deletes them, and sends nothing", _reads_and_deletes),
        ),
        figures=(
            Figure("rows relayed", Value(NAME, "rows_per_s"), at_least=20_000, unit="rows/s"),
            Figure(
                "of reading and deleting alone",
                Value(NAME, "rows_per_s"),
                over=Value(DATABASE, "rows_per_s"),
                at_least=0.1,
            ),
        ),
    ),
)
