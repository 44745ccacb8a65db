"""Sends the outbox's records, exactly once.

Each round does this:

1. in one transaction of the database: delete the batches that are in the log, number the next one;
2. read its rows;
3. in one transaction of the log: send their records, and the batch's number as an offset of the
   group ``outbox:<uuid of the table>``.

So the log itself says how far it came, and nothing depends on when the rows are deleted. A crash
before 3 is done leaves a numbered batch, which the next relay sends together with what is new. The
table's uuid is also the transactional id: a second relay of the table fences the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pylog.checks import require_callable, require_count, require_milliseconds
from pylog.database import Database, is_connection
from pylog.errors import ConfigError, PylogError
from pylog.group.position import POSITION, next_batch
from pylog.interrupts import own
from pylog.manager.access import manager_of
from pylog.outbox.table import TABLE, OutboxRow, OutboxTable
from pylog.producer import Producer

if TYPE_CHECKING:
    from pylog.log import Log

BATCH_ROWS = 10_000


def relay(
    log: Log,
    connection: Any,
    *,
    table: str = TABLE,
    batch_rows: int = BATCH_ROWS,
    poll_interval_ms: float | None = None,
    until: Callable[[], bool] | None = None,
) -> int:
    """Send the rows of an outbox to the log, exactly once and in order. Returns how many.

    ``connection`` is a function that opens one, which is closed at the end, or a connection that
    nothing else uses meanwhile: the relay commits on it. Returns when all rows are sent; with
    ``poll_interval_ms`` it looks again after that time. Returns, too, if ``until()`` is true after
    a batch or a look. Up to ``batch_rows`` rows are one transaction of the log, so readers with
    ``read_committed`` see each batch as a whole. A later call, also after a crash anywhere,
    continues where the log is.

    Raises the errors of ``Producer.send`` for the first row that cannot be sent, for example
    ``TopicNotFound``, with its id as the fact ``row``; nothing of its batch is in the log then, and
    the next call tries it again. ``ProducerFenced`` if another relay of this table has begun;
    else as ``Producer.init_transactions`` and ``commit_transaction``; ``ReadOnlyLog``.
    ``ConfigError`` if the database is older than what the log has of it (it was restored), or if
    the connection is of no use. And the driver's errors.
    """
    require_count("batch_rows", batch_rows, 1)
    if poll_interval_ms is not None:
        require_milliseconds("poll_interval_ms", poll_interval_ms)
    if until is not None:
        require_callable("until", until, "nothing")
    manager_of(log, "relay")
    if is_connection(connection):
        return _Relay(log, Database(connection), table, batch_rows).run(poll_interval_ms, until)
    require_callable("connection", connection, "nothing, and returns a connection")
    opened = connection()
    try:
        return _Relay(log, Database(opened), table, batch_rows).run(poll_interval_ms, until)
    finally:
        opened.close()


class _Relay:
    def __init__(self, log: Log, database: Database, table: str, batch_rows: int) -> None:
        database.require_transactions()
        self._log = log
        self._database = database
        self._table = OutboxTable(database, table)
        self._batch_rows = batch_rows
        self._table.prepare()
        uuid, _ = self._table.identity()
        database.commit()  # of a read; it may be the application's connection, and idle from here on
        self._group = f"outbox:{uuid}"
        self._sent = 0  # the last batch that is in the log

    def run(self, poll_interval_ms: float | None, until: Callable[[], bool] | None) -> int:
        count = 0
        with Producer(self._log, transactional_id=self._group) as producer:
            producer.init_transactions()  # from here on no other relay moves the position
            self._sent = self._position()
            while True:
                try:
                    sent = self._round(producer)
                except BaseException:
                    self._database.rollback()
                    raise
                count += sent
                if until is not None and until():
                    return count
                if not sent:
                    if poll_interval_ms is None:
                        return count
                    self._log.clock.sleep(poll_interval_ms / 1000)

    def _position(self) -> int:
        """The last batch that the log has."""
        sent = (next_batch(self._log.manager, self._group) or 1) - 1
        _, numbered = self._table.identity()
        self._database.commit()
        if numbered < sent:
            raise ConfigError(
                f"the outbox has numbered {numbered} batches, but the log has {sent} of it: an older state of the database was "
                "restored, and its rows may be in the log or not; compare them, delete the rows that are, and set batch of "
                f"the row with id 0 to {sent}",
                group=self._group, numbered=numbered, sent=sent,
            )  # fmt: skip
        return sent

    def _round(self, producer: Producer) -> int:
        """Send the next batch. Returns its number of rows, 0 if there are none."""
        has_new = self._table.has_new(self._sent)
        self._table.delete(self._sent)
        batch = self._table.number(self._batch_rows) if has_new else 0
        self._database.commit()
        if not has_new:
            return 0
        rows = self._table.rows(self._sent, batch)
        self._database.commit()
        with producer.transaction():
            for row in rows:
                _send(producer, row)
            producer.send_offsets_to_transaction({POSITION: batch + 1}, self._group)
        self._sent = batch
        return len(rows)


def _send(producer: Producer, row: OutboxRow) -> None:
    try:
        producer.send(
            row.topic,
            row.value,
            key=row.key,
            partition=row.partition,
            timestamp_ms=row.timestamp_ms,
            headers=row.headers,
        )
    except own(PylogError) as error:
        error.facts.setdefault("row", row.id)
        raise
