"""The inbox: positions in the application's database, in the transaction that has the effects of
the records."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.database import Database
from pylog.errors import CommitFailed, ConfigError
from pylog.outbox import StoredOffsets
from tests.consumer.interrupts import Interrupt, interrupt_at
from tests.outbox.databases import Base, Sqlite

ROOMS = re.compile("pylog/(database|consumer/stored_offsets)")
ONE = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def topic(log: Log) -> None:
    log.create_topic("t", partitions=2)
    with Producer(log) as producer:
        producer.send_many("t", [b"%d" % n for n in range(10)], partition=0)
        producer.send_many("t", [b"%d" % n for n in range(10, 20)], partition=1)


@pytest.fixture
def connection(database: Base) -> Iterator[Any]:
    connection = database.connect()
    yield connection
    connection.close()


def reader(log: Log, **options: Any) -> Consumer:
    return Consumer(log, **{"auto_offset_reset": "earliest", "max_poll_records": 4, **options})


def work(consumer: Consumer, offsets: StoredOffsets, connection: Any) -> int:
    """One transaction. Returns how many records it has processed."""
    with offsets.transaction():
        records = consumer.poll(timeout=0)
        for record in records:
            Database(connection).change("INSERT INTO done (number) VALUES (?)", int(record.value or b""))
    return len(records)


def failed_work(consumer: Consumer, offsets: StoredOffsets) -> list[int]:
    """The offsets of the records whose transaction was rolled back."""
    read: list[int] = []
    with suppress(ZeroDivisionError), offsets.transaction():
        read += [record.offset for record in consumer.poll(timeout=0)]
        raise ZeroDivisionError
    return read


def done(database: Base) -> list[int]:
    return sorted(number for (number,) in database.query("SELECT number FROM done"))


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}])
def test_a_later_consumer_continues_where_the_database_is(
    log: Log, database: Base, connection: Any, options: dict[str, Any]
) -> None:
    for _ in range(3):
        with reader(log, **options) as consumer:
            offsets = consumer.offsets_in(connection, name="n")
            consumer.subscribe(["t"])
            work(consumer, offsets, connection)
            work(consumer, offsets, connection)
    assert done(database) == list(range(20))


def test_partitions_that_are_assigned_already_move_to_their_positions(
    log: Log, database: Base, connection: Any
) -> None:
    with reader(log) as consumer:
        consumer.assign([ONE])
        assert len(consumer.poll(timeout=0)) == 4
        offsets = consumer.offsets_in(connection, name="n")
        assert consumer.position(ONE) == 4, "there is no stored one"
        work(consumer, offsets, connection)
    with reader(log) as consumer:
        consumer.assign([ONE])
        consumer.offsets_in(connection, name="n")
        assert consumer.position(ONE) == 8
        consumer.offsets_in(connection, name="other")
        assert consumer.position(ONE) == 8


def test_an_exception_rolls_back_and_the_records_are_read_again(log: Log, database: Base, connection: Any) -> None:
    with reader(log) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        assert failed_work(consumer, offsets) == failed_work(consumer, offsets) == [0, 1, 2, 3]
        work(consumer, offsets, connection)
        assert failed_work(consumer, offsets) == [4, 5, 6, 7]
        while work(consumer, offsets, connection):
            pass
    assert done(database) == list(range(10))


def test_what_a_failed_restore_has_left_is_undone_before_the_next_transaction(
    log: Log, database: Base, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer stayed after the records whose effects were rolled back, and their positions
    were saved."""

    def locked(*_: object) -> None:
        raise TimeoutError("database is locked")

    with reader(log) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        work(consumer, offsets, connection)
        for failing in ("query", "rollback"):
            with monkeypatch.context() as patched, suppress(TimeoutError), offsets.transaction():
                assert len(consumer.poll(timeout=0)) == 4
                Database(connection).change("INSERT INTO done (number) VALUES (-1)")
                patched.setattr(Database, failing, locked)
                raise ZeroDivisionError
        while work(consumer, offsets, connection):
            pass
    assert done(database) == list(range(10))


def test_nothing_is_saved_after_a_failed_restore(
    log: Log, connection: Any, database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reader(log) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        consumer.poll(timeout=0)
        connection.rollback()
        with monkeypatch.context() as patched, suppress(TypeError):
            patched.setattr(Database, "query", None)
            offsets.restore()
        consumer.poll(timeout=0)
        with pytest.raises(CommitFailed, match="restore"):
            offsets.save()
        connection.rollback()
        offsets.restore()
        while work(consumer, offsets, connection):
            pass
    assert done(database) == list(range(10))


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])
def test_an_exception_at_any_place_of_a_transaction_passes_over_no_record(
    log: Log, database: Base, connection: Any, fails: bool
) -> None:
    for step in count(1, 2):
        with reader(log) as consumer:
            offsets = consumer.offsets_in(connection, name=f"n{step}")
            consumer.assign([ONE])
            Database(connection).change("DELETE FROM done")
            connection.commit()
            with suppress(Interrupt, ZeroDivisionError), interrupt_at(step, ROOMS) as passed:
                work(consumer, offsets, connection)
                with offsets.transaction():
                    consumer.poll(timeout=0)
                    if fails:
                        raise ZeroDivisionError
                    raise Interrupt
            while work(consumer, offsets, connection):
                pass
        assert done(database) == list(range(10)), f"place {step}"
        if passed[0] < step:
            break
    assert step > 20


def test_effects_that_are_no_transaction_are_refused(log: Log, tmp_path: Path) -> None:
    """A rollback left them, and the records were read again."""
    base = Sqlite(tmp_path / "automatic.db")
    with sqlite3.connect(base.path, isolation_level=None) as automatic, reader(log) as consumer:
        offsets = consumer.offsets_in(automatic, name="n")
        consumer.assign([ONE])
        with pytest.raises(ConfigError, match="autocommit"), offsets.transaction():
            raise AssertionError("the body ran")
        for _ in range(2):
            automatic.execute("BEGIN")
            assert failed_work(consumer, offsets) == [0, 1, 2, 3]
        for _ in range(3):
            automatic.execute("BEGIN")
            work(consumer, offsets, automatic)
    automatic.close()
    assert done(base) == list(range(10))


def test_of_two_consumers_with_the_same_records_the_second_to_save_fails_and_continues_after_the_first(
    log: Log, database: Base, connection: Any
) -> None:
    slow, fast = reader(log), reader(log, max_poll_records=3)
    other = database.connect()
    slow_offsets, fast_offsets = slow.offsets_in(other, name="n"), fast.offsets_in(connection, name="n")
    slow.assign([ONE])
    fast.assign([ONE])
    for _ in range(2):  # without a stored position, and with one
        records = slow.poll(timeout=0)
        assert records
        work(fast, fast_offsets, connection)
        for record in records:
            Database(other).change("INSERT INTO done (number) VALUES (?)", int(record.value or b""))
        with pytest.raises(CommitFailed, match="t-0"):
            slow_offsets.save()
        other.rollback()
        slow_offsets.restore()
        assert slow.position(ONE) == fast.position(ONE)
        work(slow, slow_offsets, other)
        fast_offsets.restore()
    assert done(database) == list(range(10))
    for item in (slow, fast, other):
        item.close()


def test_a_partition_that_is_given_up_before_its_records_are_saved_keeps_its_position(
    log: Log, database: Base, connection: Any
) -> None:
    with reader(log) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        with offsets.transaction():
            for record in consumer.poll(timeout=0):
                Database(connection).change("INSERT INTO done (number) VALUES (?)", int(record.value or b""))
            consumer.assign([TopicPartition("t", 1)])
            for record in consumer.poll(timeout=0):
                Database(connection).change("INSERT INTO done (number) VALUES (?)", int(record.value or b""))
            consumer.assign([ONE])
            assert consumer.position(ONE) == 4
            for record in consumer.poll(timeout=0):
                Database(connection).change("INSERT INTO done (number) VALUES (?)", int(record.value or b""))
        consumer.assign([ONE, TopicPartition("t", 1)])
        while work(consumer, offsets, connection):
            pass
    assert done(database) == list(range(20))


def test_a_member_that_lost_its_partition_saves_nothing_after_its_successor(
    log: Log, database: Base, connection: Any
) -> None:
    zombie = reader(log, group_id="g")
    other = database.connect()
    old = zombie.offsets_in(other)
    zombie.subscribe(["t"])
    taken = zombie.poll(timeout=0)
    with reader(
        log, group_id="g2"
    ) as successor:  # the zombie does not poll, so its group would not go on without it here
        offsets = successor.offsets_in(connection, name="g")
        successor.subscribe(["t"])
        while work(successor, offsets, connection):
            pass
    assert taken
    with pytest.raises(CommitFailed):
        old.save()
    other.rollback()
    old.restore()
    assert zombie.poll(timeout=0) == []
    zombie.close()
    other.close()
    assert done(database) == list(range(20))


def test_a_position_of_a_deleted_topic_is_not_one_of_its_successor(log: Log, database: Base, connection: Any) -> None:
    with reader(log) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        work(consumer, offsets, connection)
    log.delete_topic("t")
    log.create_topic("t")
    with Producer(log) as producer:
        producer.send("t", b"100")
    with reader(log) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        assert consumer.position(ONE) == 0
        work(consumer, offsets, connection)
        offsets.restore()
        assert consumer.position(ONE) == 1
    assert done(database) == [0, 1, 2, 3, 100]


def test_reading_the_positions_leaves_no_transaction_open(log: Log, connection: Any) -> None:
    with reader(log) as consumer:
        consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        assert Database(connection).is_idle()


def test_saved_records_are_durable(log: Log, connection: Any) -> None:
    with Producer(log, acks=1) as producer:
        producer.send("t", b"30", partition=0).result()
    with reader(log, max_poll_records=100) as consumer:
        offsets = consumer.offsets_in(connection, name="n")
        consumer.assign([ONE])
        assert log.partition("t", 0).durable_offset < 11
        work(consumer, offsets, connection)
        assert log.partition("t", 0).durable_offset == 11


def test_a_name_is_needed(log: Log, connection: Any) -> None:
    with reader(log) as consumer, pytest.raises(ConfigError, match="name"):
        consumer.offsets_in(connection)
    with reader(log) as consumer, pytest.raises(ConfigError, match="connection"):
        consumer.offsets_in(None, name="n")
