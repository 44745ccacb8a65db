"""The outbox: a record is in the log exactly if the transaction of the database was committed, and
exactly once."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Record
from pylog.codec.format import MAX_HEADERS
from pylog.database import Database
from pylog.errors import (
    ConfigError,
    InvalidPartition,
    InvalidTimestamp,
    InvalidTopicName,
    ProducerFenced,
    PylogError,
    RecordTooLarge,
    SerializationError,
    TopicNotFound,
)
from pylog.group.position import POSITION
from pylog.outbox import TABLE, Outbox, relay
from pylog.outbox.relay import _Relay
from pylog.outbox.table import OutboxTable
from pylog.producer import Producer
from tests.engines.postgres import serving
from tests.outbox.databases import Base, OnServer, Sqlite

TOPIC = "orders"


@pytest.fixture(autouse=True)
def topic(log: Log) -> str:
    log.create_topic(TOPIC)
    return TOPIC


def records(log: Log, topic: str = TOPIC) -> list[Record]:
    with Consumer(log, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found: list[Record] = []
        while taken := consumer.poll(timeout=0):
            found += taken
        return found


def values(log: Log) -> list[int]:
    return [int(record.value or b"") for record in records(log)]


def add(connection: Any, *numbers: int) -> None:
    for number in numbers:
        Outbox(connection).add(TOPIC, b"%d" % number)


@pytest.mark.slow
def test_what_was_committed_is_sent_once_and_what_was_rolled_back_never(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, 1, 2)
    connection.commit()
    add(connection, 3)
    connection.rollback()
    add(connection, 4)
    connection.commit()
    connection.close()
    assert relay(log, database.connect) == 3
    assert relay(log, database.connect) == 0
    assert values(log) == [1, 2, 4]
    assert database.waiting() == []


def test_all_of_a_record_arrives(log: Log, database: Base) -> None:
    log.create_topic("many", partitions=5)
    connection = database.connect()
    headers = [("a", b"\0\xff"), ("a", None), ("é", b"")]
    Outbox(connection).add("many", None, key=b"\xff", partition=3, timestamp_ms=1_000, headers=headers)
    Outbox(connection).add("many", b"", key=b"k", headers={"h": b"1"})
    connection.commit()
    connection.close()
    assert relay(log, database.connect) == 2
    tombstone, other = sorted(records(log, "many"), key=lambda record: record.timestamp_ms)
    assert (tombstone.value, tombstone.key, tombstone.partition, tombstone.timestamp_ms) == (None, b"\xff", 3, 1_000)
    assert list(tombstone.headers) == headers
    assert (other.value, other.key, list(other.headers)) == (b"", b"k", [("h", b"1")])


def test_a_connection_can_be_given_instead_of_a_function(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, 1)
    connection.commit()
    assert relay(log, connection) == 1
    assert Database(connection).is_idle()
    add(connection, 2)
    connection.commit()
    assert relay(log, connection) == 1
    connection.close()
    assert values(log) == [1, 2]


def test_small_batches_keep_the_order(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, *range(25))
    connection.commit()
    connection.close()
    assert relay(log, database.connect, batch_rows=4) == 25
    assert values(log) == list(range(25))


def test_a_relay_that_looks_again_ends_when_it_is_told(log: Log, database: Base) -> None:
    looks: list[int] = []

    def enough() -> bool:
        looks.append(len(looks))
        connection = database.connect()
        add(connection, len(looks))
        connection.commit()
        connection.close()
        return len(looks) == 3

    assert relay(log, database.connect, poll_interval_ms=0, until=enough) == 2
    assert values(log) == [1, 2]
    assert relay(log, database.connect) == 1


def test_a_relay_ends_between_two_batches_when_it_is_told(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, *range(10))
    connection.commit()
    connection.close()
    looks = iter([False, True])
    assert relay(log, database.connect, batch_rows=3, poll_interval_ms=0, until=lambda: next(looks)) == 6
    assert values(log) == list(range(6))
    assert relay(log, database.connect, batch_rows=3, until=lambda: True) == 3
    assert relay(log, database.connect) == 1
    assert values(log) == list(range(10))


def test_a_row_that_another_program_has_given_a_negative_id_is_sent_before_the_others(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, 2, 3)
    Database(connection).change(
        f"INSERT INTO {TABLE} (id, topic, timestamp_ms, value) VALUES (?, ?, 0, ?)",
        -7, TOPIC, b"1",
    )  # fmt: skip
    connection.commit()
    connection.close()
    assert relay(log, database.connect, batch_rows=2) == 3
    assert values(log) == [1, 2, 3]
    assert relay(log, database.connect) == 0
    assert database.waiting() == []


def test_a_row_for_a_topic_of_pylogs_own_meets_what_a_producer_meets(log: Log, database: Base) -> None:
    """No producer writes decisions, or offsets."""

    def of_producer(topic: str) -> type[PylogError] | None:
        with Producer(log) as producer:
            try:
                producer.send(topic, b"1").result()
            except PylogError as error:
                return type(error)
        return None

    def of_relay(topic: str) -> type[PylogError] | None:
        connection = database.connect()
        Database(connection).change(
            f"INSERT INTO {TABLE} (topic, timestamp_ms, value) VALUES (?, 0, ?)",
            topic, b"1",
        )  # fmt: skip
        connection.commit()
        try:
            relay(log, database.connect)
        except PylogError as error:
            Database(connection).change(f"DELETE FROM {TABLE} WHERE topic = ?", topic)
            connection.commit()
            return type(error)
        finally:
            connection.close()
        return None

    add_one = database.connect()
    add(add_one, 1)
    add_one.commit()
    for topic in ("__transaction_state", "__consumer_offsets"):
        assert of_relay(topic) is of_producer(topic) is InvalidTopicName
        with pytest.raises(InvalidTopicName):
            Outbox(add_one).add(topic, b"1")
    add(add_one, 2)
    add_one.commit()
    assert relay(log, add_one) == 2
    assert values(log) == [1, 2]
    add_one.close()


def test_a_row_that_cannot_be_sent_is_named_and_nothing_of_its_batch_is_sent(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, 1)
    Outbox(connection).add("missing", b"2")
    connection.commit()
    connection.close()
    with pytest.raises(TopicNotFound) as caught:
        relay(log, database.connect)
    assert caught.value.row == 2
    assert values(log) == []
    log.create_topic("missing")
    assert relay(log, database.connect) == 2
    assert values(log) == [1]


def test_a_later_relay_begins_with_the_batch_that_was_numbered_and_not_sent(log: Log, database: Base) -> None:
    connection = database.connect()
    add(connection, 1, 2)
    connection.commit()
    assert OutboxTable(Database(connection), TABLE).number(1) == 1
    connection.commit()
    add(connection, 3)
    connection.commit()
    connection.close()
    assert database.waiting() == [1, None, None]
    assert relay(log, database.connect) == 3
    assert values(log) == [1, 2, 3]


def test_rows_are_deleted_after_the_log_has_them_and_not_before(
    log: Log, database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = database.connect()
    add(connection, 1)
    connection.commit()
    connection.close()
    seen = []
    commit = Producer.commit_transaction

    def looking(producer: Producer) -> None:
        commit(producer)
        seen.append(database.waiting())

    monkeypatch.setattr(Producer, "commit_transaction", looking)
    relay(log, database.connect)
    assert seen == [[1]]
    assert database.waiting() == []


def test_a_second_relay_fences_the_first_whose_late_numbers_lose_nothing(log: Log, database: Base) -> None:
    connection, second = database.connect(), database.connect()
    first = _Relay(log, Database(connection), TABLE, 10)
    producer = Producer(log, transactional_id=first._group)
    producer.init_transactions()
    first._sent = first._position()
    add(second, 1)
    second.commit()
    assert first._round(producer) == 1
    add(second, 2)
    second.commit()
    assert relay(log, second) == 1
    add(second, 3)
    second.commit()
    with pytest.raises(ProducerFenced):
        first._round(producer)
    with suppress(ProducerFenced):
        producer.close()
    connection.rollback()
    assert database.waiting() == [3]
    assert relay(log, second) == 1
    assert values(log) == [1, 2, 3]
    connection.close()
    second.close()


def test_an_older_state_of_the_database_is_not_taken_for_the_present_one(log: Log, database: Base) -> None:
    connection = database.connect()
    for number in range(3):
        add(connection, number)
        connection.commit()
        relay(log, connection)
    Database(connection).change(f"UPDATE {TABLE} SET batch = 1 WHERE id = 0")
    add(connection, 1, 2)
    connection.commit()
    with pytest.raises(ConfigError, match="older") as caught:
        relay(log, connection)
    assert (caught.value.numbered, caught.value.sent) == (1, 3)
    connection.close()


def test_two_tables_are_two_outboxes(log: Log, database: Base) -> None:
    connection = database.connect()
    Outbox.create_table(connection, table="other")
    Outbox(connection, table="other").add(TOPIC, b"1")
    add(connection, 2)
    connection.commit()
    connection.close()
    assert relay(log, database.connect) == 1
    assert relay(log, database.connect, table="other") == 1
    assert values(log) == [2, 1]
    assert sum(name.startswith("outbox:") for name in log.groups()) == 2


@pytest.mark.parametrize("row_factory", ["dict", "Row"])
def test_a_connection_whose_rows_are_no_tuples_works(log: Log, tmp_path: Path, row_factory: str) -> None:
    connection = Sqlite(tmp_path / "app.db").connect()
    connection.row_factory = (
        sqlite3.Row
        if row_factory == "Row"
        else lambda c, row: dict(zip([d[0] for d in c.description], row, strict=True))
    )
    add(connection, 1)
    connection.commit()
    assert relay(log, connection) == 1
    connection.close()


def test_the_relay_makes_durable_what_it_sends(log: Log, tmp_path: Path) -> None:
    connection = Sqlite(tmp_path / "app.db").connect()
    assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
    relay(log, connection)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


def test_the_position_is_an_offset_of_a_group(log: Log, tmp_path: Path) -> None:
    connection = Sqlite(tmp_path / "app.db").connect()
    add(connection, 1)
    connection.commit()
    relay(log, connection)
    [(uuid,)] = Database(connection).query(f"SELECT topic FROM {TABLE} WHERE id = 0")
    committed = log.describe_group(f"outbox:{uuid}").partitions[POSITION].committed
    assert committed is not None
    assert committed.offset == 2
    connection.close()


# What is refused


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "a/b"}, InvalidTopicName),
        ({"value": "text"}, SerializationError),
        ({"key": 1}, SerializationError),
        ({"headers": [("a", "b")]}, SerializationError),
        ({"headers": ["abc"]}, SerializationError),
        ({"headers": {"\ud800": b"x"}}, SerializationError),
        ({"headers": [("h", None)] * (MAX_HEADERS + 1)}, RecordTooLarge),
        ({"partition": -1}, ConfigError),
        ({"timestamp_ms": 1.5}, ConfigError),
    ],
)
def test_a_record_that_no_log_takes_is_refused_when_it_is_added(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    connection = Sqlite(tmp_path / "app.db").connect()
    with pytest.raises(error):
        Outbox(connection).add(**{"topic": TOPIC, "value": b"1", **arguments})
    connection.close()


@pytest.mark.parametrize("connection", [None, object(), "app.db"])
def test_what_is_no_connection_is_refused(log: Log, connection: Any) -> None:
    with pytest.raises(ConfigError):
        Outbox(connection)
    with pytest.raises(ConfigError):
        relay(log, connection)


@pytest.mark.parametrize("interval", [-1, float("nan"), float("inf"), "1", True])
def test_a_relay_looks_again_after_milliseconds(log: Log, tmp_path: Path, interval: Any) -> None:
    with pytest.raises(ConfigError, match="poll_interval_ms"):
        relay(log, Sqlite(tmp_path / "app.db").connect, poll_interval_ms=interval)


@pytest.mark.parametrize("table", ["", "a b", "a;b", "1a", "a.b.c", "x" * 60, None])
def test_a_table_has_a_plain_name(tmp_path: Path, table: Any) -> None:
    connection = Sqlite(tmp_path / "app.db").connect()
    with pytest.raises(ConfigError, match="table"):
        Outbox(connection, table=table)
    connection.close()


def test_a_relay_needs_transactions_and_its_table(log: Log, tmp_path: Path) -> None:
    automatic = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    Outbox.create_table(automatic)
    with pytest.raises(ConfigError, match="autocommit"):
        relay(log, automatic)
    automatic.execute(f"DELETE FROM {TABLE}")
    automatic.close()
    with pytest.raises(ConfigError, match="row 0"):
        relay(log, lambda: sqlite3.connect(tmp_path / "app.db"))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("value = 'text'", SerializationError),
        ("value = 17", SerializationError),  # was sent as 17 zeros
        ("key = 1.5", SerializationError),
        ("headers = '{'", SerializationError),
        ("headers = x'ff'", SerializationError),
        ("headers = 17", SerializationError),
        ("headers = '[[\"a\"]]'", SerializationError),
        ('headers = \'[["a", "zz"]]\'', SerializationError),
        (f"headers = '{'[' * 100_000}'", SerializationError),
        ("topic = x'ff'", InvalidTopicName),
        ("partition_number = 0.5", InvalidPartition),
        ("timestamp_ms = 'x'", InvalidTimestamp),
    ],
)
def test_a_row_of_another_programs_types_is_named_and_nothing_is_sent(
    log: Log, tmp_path: Path, change: str, kind: type[PylogError]
) -> None:
    """SQLite keeps whatever type was written."""
    base = Sqlite(tmp_path / "app.db")
    connection = base.connect()
    add(connection, 1, 2)
    connection.execute(f"UPDATE {TABLE} SET {change} WHERE id = 2")
    connection.commit()
    for _ in range(2):
        with pytest.raises(kind) as caught:
            relay(log, base.connect)
        assert caught.value.row == 2
    assert values(log) == []
    connection.execute(f"DELETE FROM {TABLE} WHERE id = 2")
    connection.commit()
    assert relay(log, base.connect) == 1
    connection.close()


@pytest.mark.parametrize(
    "change", ["batch = 'x'", "batch = NULL", "batch = 1.5", f"batch = {2**63 - 1}", "topic = x'ff'"]
)
def test_a_changed_row_0_is_told_of(log: Log, tmp_path: Path, change: str) -> None:
    base = Sqlite(tmp_path / "app.db")
    connection = base.connect()
    add(connection, 1)
    connection.execute(f"UPDATE {TABLE} SET {change} WHERE id = 0")
    connection.commit()
    connection.close()
    with pytest.raises(ConfigError, match="row 0"):
        relay(log, base.connect)


@pytest.mark.parametrize("headers", [5, [5], ["ab"], [("a",)], [("a", "b")]])
def test_headers_that_are_no_pairs_are_refused(database: Base, headers: Any) -> None:
    connection = database.connect()
    with pytest.raises(SerializationError):
        Outbox(connection).add(TOPIC, b"1", headers=headers)
    connection.close()


def test_without_a_transaction_nothing_is_added(tmp_path: Path) -> None:
    """The record was there at once, whatever became of the application's other changes."""
    base = Sqlite(tmp_path / "app.db")
    automatic = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    with pytest.raises(ConfigError, match="autocommit"):
        add(automatic, 1)
    automatic.execute("BEGIN")
    add(automatic, 2)
    automatic.rollback()
    automatic.execute("BEGIN")
    add(automatic, 3)
    automatic.commit()
    automatic.close()
    assert base.query(f"SELECT value FROM {TABLE} WHERE id > 0") == [(b"3",)]


# PostgreSQL: ids become visible out of order


@pytest.mark.engine
def test_a_row_that_commits_late_is_not_passed_over(log: Log, server: OnServer) -> None:
    late, early = server.connect(), server.connect()
    add(late, 1)
    add(early, 2)
    early.commit()
    assert relay(log, server.connect) == 1
    add(early, 3)
    early.commit()
    assert relay(log, server.connect) == 1
    late.commit()
    assert relay(log, server.connect) == 1
    assert values(log) == [2, 3, 1]
    assert relay(log, server.connect) == 0
    late.close()
    early.close()


@pytest.mark.engine
def test_a_row_that_commits_between_numbering_and_reading_is_in_the_next_batch(
    log: Log, server: OnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = server.connect(), server.connect()
    add(late, 1)
    add(early, 2)
    early.commit()
    rows = OutboxTable.rows
    seen: list[int] = []

    def interleaved(table: OutboxTable, after: int, until: int) -> Any:
        if not seen:
            late.commit()
        found = rows(table, after, until)
        seen.append(len(found))
        return found

    monkeypatch.setattr(OutboxTable, "rows", interleaved)
    assert relay(log, server.connect) == 2
    assert seen == [1, 1]
    assert values(log) == [2, 1]
    late.close()
    early.close()


@pytest.mark.engine
def test_a_record_that_follows_a_committed_one_is_sent_after_it_whichever_transaction_began_first(
    log: Log, server: OnServer
) -> None:
    old, blocking, new = server.connect(), server.connect(), server.connect()
    old.execute("INSERT INTO done (number) VALUES (1)")  # has the lowest transaction id
    blocking.execute("INSERT INTO done (number) VALUES (2)")  # between the two, and stays open
    add(new, 1)
    new.commit()
    add(old, 2)  # after it has seen what new did
    old.commit()
    assert relay(log, server.connect) == 2, "an open transaction of something else holds nothing up"
    assert values(log) == [1, 2]
    blocking.rollback()
    for connection in (old, blocking, new):
        connection.close()


@pytest.mark.engine
def test_many_writers_at_once_lose_and_double_nothing(log: Log, server: OnServer, seed: int) -> None:
    running = list(range(6))

    def write(writer: int) -> None:
        choice = random.Random(seed + writer)
        connection = server.connect()
        for number in range(120):
            for at in range(choice.randrange(1, 4)):
                value = writer * 10_000 + number * 10 + at
                connection.execute("INSERT INTO done (number) VALUES (%s)", (value,))
                add(connection, value)
            (connection.rollback if choice.random() < 0.15 else connection.commit)()
        connection.close()
        running.remove(writer)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in list(running)]
    for thread in threads:
        thread.start()
    relay(log, server.connect, batch_rows=7, poll_interval_ms=1, until=lambda: not running)
    for thread in threads:
        thread.join()
    relay(log, server.connect)
    sent = values(log)
    assert sorted(sent) == sorted(number for (number,) in server.query("SELECT number FROM done"))
    for writer in range(6):
        mine = [value for value in sent if value // 10_000 == writer]
        assert mine == sorted(mine), "the order of one writer"


@pytest.mark.engine
def test_a_commit_that_waits_for_no_disk_is_durable_before_its_record_is_sent(log: Log) -> None:
    with serving(wal_writer_delay="10s") as own:
        database = OnServer(own)
        connection = database.connect()
        connection.execute("SET synchronous_commit = off")
        for number in range(20):
            connection.execute("INSERT INTO done (number) VALUES (%s)", (number,))
            add(connection, number)
            connection.commit()
        sender = database.connect()
        sender.execute("SET synchronous_commit = off")
        sender.commit()
        assert relay(log, sender) == 20
        own.stop("immediate")
        for lost in (connection, sender):
            lost.close()
        own.start()
        assert sorted(number for (number,) in database.query("SELECT number FROM done")) == sorted(values(log))
        assert relay(log, database.connect) == 0
