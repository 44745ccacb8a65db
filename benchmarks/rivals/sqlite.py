"""SQLite in WAL mode, nothing synced: what many a queue in Python is made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import VALUE, Scale, check_count, fresh, keys, seconds
from benchmarks.workload import Measure, Sample

WRITING = "page cache: WAL, synchronous=OFF; transactions of 8,000 inserts"
READING = "a cursor over id, key and value"
TRANSACTION_RECORDS = 8_000


def _open(directory: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(directory / "events.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, key BLOB, value BLOB)")
    return connection


def _insert_all(connection: sqlite3.Connection, keys_: list[bytes]) -> None:
    insert = "INSERT INTO events (key, value) VALUES (?, ?)"
    for start in range(0, len(keys_), TRANSACTION_RECORDS):
        connection.execute("BEGIN")
        execute = connection.execute
        for key in keys_[start : start + TRANSACTION_RECORDS]:
            execute(insert, (key, VALUE))
        connection.execute("COMMIT")


@contextmanager
def writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Inserting the records one by one."""
    keys_ = keys(scale.of(500_000))

    def measure() -> Sample:
        with fresh(place) as directory:
            connection = _open(directory)
            took = seconds(lambda: _insert_all(connection, keys_))
            connection.close()
        return {"records_per_s": len(keys_) / took}

    yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """Iterating over all of them."""
    keys_ = keys(scale.of(500_000))
    connection = _open(place)
    _insert_all(connection, keys_)

    def read_all() -> None:
        cursor = connection.execute("SELECT id, key, value FROM events ORDER BY id")
        check_count(sum(1 for _ in cursor), len(keys_))

    yield lambda: {"records_per_s": len(keys_) / seconds(read_all)}
    connection.close()
