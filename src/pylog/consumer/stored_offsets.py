"""A consumer's positions in the application's own database: the inbox.

They are saved in the transaction that has the effects of the records, so both are there or none.
No consumer is trusted to own a partition still: each save requires that the stored position
is the one from which this consumer has read on. Of two consumers that have read the same records,
the second one to save gets ``CommitFailed``, and its transaction is rolled back. This is stronger
than a comparison of generations: it holds for a consumer that was stopped, for one without a group,
and after a group was deleted or its state lost, when generations begin again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from pylog.database import Database, check_table
from pylog.errors import CommitFailed
from pylog.model import TopicPartition

OFFSETS_TABLE = "pylog_offsets"
"""The table's name, unless another one is given."""

_CREATE = """
CREATE TABLE IF NOT EXISTS {table} (
    name TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition_number INTEGER NOT NULL,
    topic_id TEXT NOT NULL,
    next_offset BIGINT NOT NULL,
    PRIMARY KEY (name, topic, partition_number)
)"""


class Position(NamedTuple):
    """The next offset to read, in the topic with this id."""

    topic_id: str
    offset: int


class StoredOffsets:
    """The positions of one consumer in one database. ``Consumer.offsets_in`` makes it."""

    def __init__(
        self,
        connection: Any,
        name: str,
        table: str,
        current: Callable[[], Mapping[TopicPartition, Position]],
        move: Callable[[TopicPartition, int], object],
        make_durable: Callable[[TopicPartition, int], object],
    ) -> None:
        self._database = Database(connection)
        self._name = name
        self._table = check_table(table)
        self._current = current
        self._move = move
        self._make_durable = make_durable
        self._stored: dict[TopicPartition, Position | None] = {}  # what the database must have at the next save
        self._starts: dict[TopicPartition, Position] = {}  # of partitions without a stored position
        self._left: dict[TopicPartition, Position] = {}  # given up since the last save
        self._is_open = False  # a ``transaction`` has begun, and neither committed nor rolled back
        self._is_ahead = False  # a ``restore`` has failed: the consumer may be after the database

    @staticmethod
    def create_table(connection: Any, *, table: str = OFFSETS_TABLE) -> None:
        """Create the table, unless it exists, in the connection's transaction. The caller
        commits."""
        Database(connection).change(_CREATE.format(table=check_table(table)))

    def save(self) -> None:
        """Write the positions, in the transaction that the connection is in. The caller commits.

        Positions of partitions that were given up since the last save are written, too: this
        transaction may have the effects of their records. The records before a position are
        durable on return. ``CommitFailed`` if another consumer has saved further positions, or if
        ``restore`` has failed: roll back, then call ``restore``; so too after ``TopicNotFound`` (a
        topic was deleted since the last poll). ``OutcomeUnknown`` if a sync is refused.
        """
        if self._is_ahead:
            raise CommitFailed(
                f"restore() has failed, so the positions of {self._name!r} would skip records whose effects were rolled "
                "back: roll back, then call restore() again",
                name=self._name,
            )
        wanted = {**self._left, **self._current()}
        changed = {name: position for name, position in wanted.items() if self._stored.get(name) != position}
        for name, position in sorted(changed.items()):
            self._make_durable(name, position.offset)
            self._save(name, self._stored.get(name), position)
        self._stored.update(changed)
        self._left.clear()

    def restore(self) -> None:
        """After a rollback: continue where the database is, in all assigned partitions.

        If it fails, for example since the database is locked, repeat it: until then ``save`` is
        refused.
        """
        self._is_ahead = True
        found = self._read()
        self._left.clear()
        for name, position in self._current().items():
            stored = self._stored[name] = found.get(name)
            target = self._starts.get(name) if stored is None or stored.topic_id != position.topic_id else stored
            if target is not None:
                self._move(name, target.offset)
        self._is_ahead = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Save and commit after the body. An exception rolls back, and the records are read again.

        If the rollback, or reading the stored positions after it, fails too, the next one begins
        with it. ``ConfigError`` if the connection commits each statement by itself, and no
        transaction is open.
        """
        self._database.require_transaction()
        if self._is_open or self._is_ahead:
            self._undo()
        self._is_open = True
        try:
            yield
            self.save()
            self._database.commit()
        except BaseException:
            self._undo()
            raise
        self._is_open = False

    def _undo(self) -> None:
        self._database.rollback()
        self.restore()
        self._is_open = False

    # For the consumer

    def start(self, name: TopicPartition, topic_id: str, offset: int | None) -> int | None:
        """A partition is assigned, to be read from this offset. Returns the stored one, if there is
        one."""
        left = self._left.pop(name, None)
        if left is not None and left.topic_id == topic_id:
            return left.offset  # it was given up, and comes back in the same transaction
        stored = self._stored[name] = self._read().get(name)
        self._starts.pop(name, None)
        if offset is not None:
            self._starts[name] = Position(topic_id, offset)
        return offset if stored is None or stored.topic_id != topic_id else stored.offset

    def leave(self, name: TopicPartition, topic_id: str, offset: int) -> None:
        """A partition is given up at this position."""
        position = Position(topic_id, offset)
        if self._stored.get(name) != position:
            self._left[name] = position

    # Statements

    def _read(self) -> dict[TopicPartition, Position]:
        was_idle = self._database.is_idle()
        try:
            rows = self._database.query(
                f"SELECT topic, partition_number, topic_id, next_offset FROM {self._table} WHERE name = ?",  # noqa: S608
                self._name,
            )
        finally:
            if was_idle:
                self._database.rollback()  # else a read would leave a transaction open until the application's next one
        return {TopicPartition(topic, number): Position(id_, offset) for topic, number, id_, offset in rows}

    def _save(self, name: TopicPartition, stored: Position | None, position: Position) -> None:
        if stored is None:
            count = self._database.change(
                f"INSERT INTO {self._table} (name, topic, partition_number, topic_id, next_offset) "  # noqa: S608
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                self._name, *name, *position,
            )  # fmt: skip
        else:
            count = self._database.change(
                f"UPDATE {self._table} SET topic_id = ?, next_offset = ? "  # noqa: S608
                "WHERE name = ? AND topic = ? AND partition_number = ? AND topic_id = ? AND next_offset = ?",
                *position, self._name, *name, *stored,
            )  # fmt: skip
        if count != 1:
            raise CommitFailed(
                f"another consumer has saved a position of {name.topic}-{name.partition} under {self._name!r}, so these "
                "records may be processed already: roll back, then call restore()",
                name=self._name, topic=name.topic, partition=name.partition,
            )  # fmt: skip
