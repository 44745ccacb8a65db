"""The application's own database, on a connection of any driver: SQLite and PostgreSQL.

Nothing here opens, commits or closes what the application works with, unless it is asked to. A
driver is recognized by its module, so none is imported. SQLAlchemy's connections work too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pylog.errors import ConfigError

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_DRIVERS = {
    "sqlite3": SQLITE,
    "pysqlite3": SQLITE,
    "psycopg": POSTGRESQL,
    "psycopg2": POSTGRESQL,
    "pg8000": POSTGRESQL,
}
_PLACES = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_TABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,56}")
_IDLE = 0  # libpq's PQTRANS_IDLE

Row = tuple[Any, ...]


class Database:
    """Statements on one connection. In their text, ``?`` stands for a value."""

    def __init__(self, connection: Any) -> None:
        """Raises ``ConfigError`` if the connection is of no driver that is known here."""
        self.connection = connection
        self._is_alchemys = hasattr(connection, "exec_driver_sql")
        if self._is_alchemys:
            self.dialect, style = connection.dialect.name, connection.dialect.paramstyle
        else:
            self.dialect, style = _driver_of(connection)
        if self.dialect not in (SQLITE, POSTGRESQL) or style not in _PLACES:
            raise _unknown(connection)
        self._place = _PLACES[style]

    @property
    def is_sqlite(self) -> bool:
        """Whether it is SQLite, not PostgreSQL."""
        return bool(self.dialect == SQLITE)

    def change(self, statement: str, *values: object) -> int:
        """Execute a statement. Returns how many rows it has changed."""
        cursor = self._execute(statement, values)
        count: int = cursor.rowcount
        cursor.close()
        return count

    def query(self, statement: str, *values: object) -> list[Row]:
        """All rows that the statement finds, as tuples."""
        cursor = self._execute(statement, values)
        rows = [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in cursor.fetchall()]
        cursor.close()
        return rows

    def _execute(self, statement: str, values: Sequence[object]) -> Any:
        text = statement.replace("?", self._place)
        if self._is_alchemys:
            return self.connection.exec_driver_sql(text, tuple(values))
        cursor = self.connection.cursor()
        cursor.execute(text, tuple(values))
        return cursor

    def commit(self) -> None:
        """End the connection's transaction."""
        self.connection.commit()

    def rollback(self) -> None:
        """Undo the connection's transaction."""
        self.connection.rollback()

    def is_idle(self) -> bool:
        """Whether no transaction is open. False if the driver does not say."""
        if self._is_alchemys:
            return not self.connection.in_transaction()
        if self.is_sqlite:
            return not self.connection.in_transaction
        info = getattr(self.connection, "info", None)
        return bool(getattr(info, "transaction_status", None) == _IDLE)

    def require_transactions(self) -> None:
        """Raises ``ConfigError`` if each statement of this connection is a transaction of its
        own."""
        if self._is_automatic():
            raise ConfigError(
                "the connection commits each statement by itself (autocommit); open it with transactions",
                option="connection",
            )

    def require_transaction(self) -> None:
        """The same, unless the application has begun one."""
        if self._is_alchemys or self.is_idle():
            self.require_transactions()

    def _is_automatic(self) -> bool:
        connection = self.connection
        if self._is_alchemys:
            return str(connection.get_execution_options().get("isolation_level")).upper() == "AUTOCOMMIT"
        level = getattr(connection, "isolation_level", "")
        return getattr(connection, "autocommit", False) is True or (self.is_sqlite and level is None)


def is_connection(value: object) -> bool:
    """Whether this is a connection, and not a function that opens one. SQLite's can be called,
    too."""
    return hasattr(value, "exec_driver_sql") or (hasattr(value, "cursor") and hasattr(value, "commit"))


def check_table(name: object) -> str:
    """Return it if it can be the name of a table, perhaps with its schema; else ``ConfigError``."""
    if isinstance(name, str) and _TABLE.fullmatch(name):
        return name
    raise ConfigError(
        f"a table's name is letters, digits and _ (at most 57), perhaps after a schema and a dot, got {name!r:.80}",
        option="table", value=name,
    )  # fmt: skip


def _driver_of(connection: object) -> tuple[str, str]:
    """The dialect and the way of writing values, from the driver's module."""
    for kind in type(connection).__mro__:
        module = kind.__module__.partition(".")[0]
        if module in _DRIVERS and is_connection(connection):
            style = getattr(sys.modules[module], "paramstyle", "")
            return _DRIVERS[module], style
    raise _unknown(connection)


def _unknown(connection: object) -> ConfigError:
    kind = type(connection)
    return ConfigError(
        f"expected a connection of sqlite3, psycopg, psycopg2, pg8000 or SQLAlchemy (to SQLite or PostgreSQL, not asynchronous), "
        f"got {kind.__module__}.{kind.__qualname__}",
        option="connection",
    )  # fmt: skip
