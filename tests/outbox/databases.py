"""The databases on which the outbox's tests run: SQLite, a PostgreSQL server, and both through
SQLAlchemy."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from pylog.database import Database
from pylog.outbox import Outbox, StoredOffsets
from tests.engines.postgres import Postgres, needed


class Base:
    """A database of its own with the tables of pylog, and ``done`` of the application."""

    blob = "BLOB"

    def connect(self) -> Any:
        raise NotImplementedError

    def make(self) -> None:
        connection = self.connect()
        Outbox.create_table(connection)
        Outbox.create_table(connection)  # the second time it changes nothing
        StoredOffsets.create_table(connection)
        Database(connection).change(f"CREATE TABLE done (number BIGINT, value {self.blob})")
        connection.commit()
        connection.close()

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return Database(connection).query(statement, *values)
        finally:
            connection.close()

    def waiting(self) -> list[int | None]:
        """The batches of the rows that are still in the outbox."""
        return [batch for (batch,) in self.query("SELECT batch FROM pylog_outbox WHERE id <> 0 ORDER BY id")]


class Sqlite(Base):
    def __init__(self, path: Path) -> None:
        self.path = path
        connection = self.connect()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        self.make()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection


class Alchemy(Base):
    def __init__(self, url: str) -> None:
        alchemy = needed("sqlalchemy")
        self._engine = alchemy.create_engine(url, poolclass=alchemy.NullPool)
        self.blob = "BYTEA" if url.startswith("postgres") else "BLOB"
        if self.blob == "BLOB":
            self.make()

    def connect(self) -> Any:
        return self._engine.connect()


class OnServer(Base):
    """A fresh database of a server."""

    blob = "BYTEA"
    count = 0

    def __init__(self, server: Postgres) -> None:
        self._psycopg = needed("psycopg")
        OnServer.count += 1
        self.name = f"app_{OnServer.count}"
        connection = self._psycopg.connect(server.conninfo, autocommit=True)
        connection.execute(f"CREATE DATABASE {self.name}")
        connection.close()
        self.conninfo = server.conninfo.replace("dbname=postgres", f"dbname={self.name}")
        self.make()

    def connect(self) -> Any:
        return self._psycopg.connect(self.conninfo)
