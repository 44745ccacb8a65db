"""A table that is written: what its own lookups see, compare-and-set between threads and processes,
open transactions."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Log, Producer, ProducerRecord
from pylog.errors import (
    ConfigError,
    DeliveryTimeout,
    InvalidTopicName,
    OffsetConflict,
    ReadOnlyLog,
    RecordTooLarge,
    SerializationError,
)
from tests.processes.sharing import forked, result_of
from tests.tables.scans import STORES_AND_VALUES, options, scan

COUNTS = int(os.environ.get("PYLOG_TEST_TABLE_COUNTS", "30"))  # of each thread


@pytest.fixture
def topic(log: Log) -> Log:
    log.create_topic("t", partitions=3)
    return log


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_what_is_written_is_a_record_and_seen_at_once(topic: Log, tmp_path: Path, store: str, values: str) -> None:
    with pylog.table(topic, "t", **options(store, values, tmp_path), changelog=True) as table:
        table[b"a"] = b"1"
        assert table[b"a"] == b"1"
        assert scan(topic) == {b"a": b"1"}
        place = table.put(b"b", b"2")
        assert topic.partition("t", place.partition).read(place.offset)[0].key == b"b"
        table.update({b"c": b"3", b"d": b"4"})
        table.update([(b"e", b"5")])
        assert dict(table) == scan(topic) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4", b"e": b"5"}
        del table[b"a"]
        with pytest.raises(KeyError):
            del table[b"a"]
        assert table.pop(b"b") == b"2"
        assert table.pop(b"b", None) is None
        with pytest.raises(KeyError):
            table.pop(b"b")
        assert table.setdefault(b"c", b"9") == b"3"
        assert table.setdefault(b"f", b"6") == b"6"
        assert dict(table) == scan(topic) == {b"c": b"3", b"d": b"4", b"e": b"5", b"f": b"6"}
        table.clear()
        assert len(table) == 0
        assert scan(topic) == {}


def test_writes_are_placed_where_producers_place_the_key(topic: Log) -> None:
    with pylog.table(topic, "t", changelog=True) as table, Producer(topic) as producer:
        for number in range(30):
            key = b"%d" % number
            assert table.put(key, b"").partition == producer.send("t", b"", key=key).result().partition


def test_a_write_is_durable_as_acks_says(topic: Log) -> None:
    for acks, is_durable in ((1, False), ("all", True)):
        with pylog.table(topic, "t", changelog=True, acks=acks) as table:
            place = table.put(b"a", b"1")
            assert (topic.partition("t", place.partition).durable_offset > place.offset) is is_durable


def test_compare_and_set_writes_only_after_the_record_that_was_read(topic: Log) -> None:
    with pylog.table(topic, "t", changelog=True) as table:
        first = table.put(b"a", b"1", expected_offset=None)
        with pytest.raises(OffsetConflict, match=f"at offset {first.offset}, expected None"):
            table.put(b"a", b"2", expected_offset=None)
        topic.partition("t", first.partition).append([ProducerRecord(b"x", b"other key")])  # does not conflict
        second = table.put(b"a", b"2", expected_offset=first.offset)
        with pytest.raises(OffsetConflict) as refused:
            table.delete(b"a", expected_offset=first.offset)
        assert (refused.value.offset, refused.value.expected_offset) == (second.offset, first.offset)
        table.delete(b"a", expected_offset=second.offset)
        table.put(b"a", b"3", expected_offset=None)
        with pytest.raises(ConfigError, match="expected_offset"):
            table.put(b"a", b"3", expected_offset=-1)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_and_threads_that_count_with_compare_and_set_lose_no_step(tmp_path: Path) -> None:
    processes, threads, steps = 4, 2, COUNTS
    with Log(tmp_path / "log") as log:
        log.create_topic("t", partitions=2)

    def count() -> int:
        conflicts = [0]
        with Log(tmp_path / "log") as log, pylog.table(log, "t", changelog=True, acks=1) as table:

            def work() -> None:
                done = 0
                while done < steps:
                    value, offset = table.get_with_offset(b"n")
                    try:
                        table.put(b"n", b"%d" % (int(value or b"0") + 1), expected_offset=offset)
                        done += 1
                    except OffsetConflict:
                        conflicts[0] += 1
                    table.put(b"other %d" % done, b"")  # records of other keys come in between

            workers = [threading.Thread(target=work) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        return conflicts[0]

    children = [forked(count) for _ in range(processes)]
    conflicts = [result_of(child) for child in children]
    with Log(tmp_path / "log") as log, pylog.table(log, "t") as table:
        assert table[b"n"] == b"%d" % (processes * threads * steps)
    print(f"conflicts: {conflicts}")
    assert sum(conflicts) > 0


def test_with_an_open_transaction_a_write_is_seen_here_and_compare_and_set_waits(log: Log) -> None:
    log.create_topic("t")
    with (
        pylog.table(log, "t", changelog=True, delivery_timeout_ms=50) as table,
        pylog.table(log, "t") as other,
        Producer(log, transactional_id="x") as producer,
    ):
        table[b"gone"] = b"1"
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"in the transaction", key=b"a")
        producer.flush()
        table[b"a"] = b"after it"
        del table[b"gone"]
        assert dict(table) == {b"a": b"after it"}
        assert len(table) == 1
        assert [*table] == [b"a"]
        assert b"gone" not in table
        assert table.get_with_offset(b"a") == (b"after it", 2)
        assert dict(other) == {b"gone": b"1"}
        with pytest.raises(DeliveryTimeout, match="open transaction"):
            table.put(b"b", b"1", expected_offset=None)
        producer.commit_transaction()
        assert dict(table) == dict(other) == {b"a": b"after it"} == scan(log)
        table.put(b"b", b"1", expected_offset=None)
    with pylog.table(log, "t", changelog=True) as table, Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1", key=b"c")
        producer.flush()
        waiting = threading.Thread(target=table.put, args=(b"b", b"2"), kwargs={"expected_offset": 5})
        waiting.start()
        producer.abort_transaction()
        waiting.join()
        assert table[b"b"] == b"2"
        assert b"c" not in table


def test_many_writes_are_cut_into_batches_that_fit(log: Log) -> None:
    log.create_topic("t", max_message_bytes=2000)
    with pylog.table(log, "t", changelog=True) as table:
        table.update({b"%d" % number: b"x" * 900 for number in range(20)})
        assert len(table) == 20
        assert dict(table) == scan(log)
        with pytest.raises(RecordTooLarge):
            table[b"a"] = b"x" * 3000
        assert b"a" not in table
        table.update()
        table.clear()
        table.clear()


def test_a_key_in_a_partition_where_producers_do_not_place_it_is_not_compared(log: Log) -> None:
    log.create_topic("t")
    with pylog.table(log, "t", changelog=True) as table:
        for number in range(8):
            table[b"%d" % number] = b""
        log.add_partitions("t", 2)
        moved = [key for key in table if table.put(key, b"new").partition == 1]
        assert 0 < len(moved) < 8
    with pylog.table(log, "t", changelog=True) as table:
        log.partition("t", 0).append([ProducerRecord(b"in the wrong partition", key) for key in moved])
        for key in moved:
            value, offset = table.get_with_offset(key)
            assert value == b"in the wrong partition"
            with pytest.raises(ConfigError, match="partitions were added since"):
                table.put(key, b"new", expected_offset=offset)


def test_what_cannot_be_written_is_refused(topic: Log, tmp_path: Path) -> None:
    with pylog.table(topic, "t", changelog=True) as table:
        with pytest.raises(SerializationError, match="the value is NoneType, expected bytes"):
            table[b"a"] = None
        with pytest.raises(SerializationError, match="the key is str"):
            table["a"] = b"1"
        with pytest.raises(TypeError):
            pylog.table(topic, "t")[b"a"] = b"1"  # type: ignore[index]
    with Log(topic.path, read_only=True) as reader, pytest.raises(ReadOnlyLog):
        pylog.table(reader, "t", changelog=True)
    with Producer(topic, transactional_id="x") as producer:
        producer.init_transactions()
    with pytest.raises(InvalidTopicName):
        pylog.table(topic, "__transaction_state", changelog=True)


def test_an_unknown_topic_is_created_if_the_log_allows_it(tmp_path: Path) -> None:
    with (
        Log(tmp_path / "log", auto_create_topics=True) as log,
        pylog.table(log, "new", changelog=True, key_serializer=str.encode, key_deserializer=bytes.decode) as table,
    ):
        table["a"] = b"1"
        assert dict(table) == {"a": b"1"}


def test_a_program_that_only_writes_does_not_keep_what_it_wrote(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.tables.writable._OWN_RECORDS", 10)
    log.create_topic("t")
    with pylog.table(log, "t", changelog=True, acks=1) as table:
        for number in range(100):
            table[b"%d" % number] = b"x"
            assert len(table._own) <= 10
        with Producer(log, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"1", key=b"open")
            producer.flush()
            for number in range(100):  # hidden by the transaction
                table[b"%d" % number] = b"y"
            assert table[b"7"] == b"y"
            assert len(table) == 100
            producer.commit_transaction()
        assert dict(table.items()) == scan(log)
        assert not table._own


def test_update_takes_what_dict_update_takes(log: Log) -> None:
    log.create_topic("t")
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row = connection.execute("SELECT 'DE' AS country, 'en' AS lang").fetchone()
    with pylog.table(
        log, "t", changelog=True, key_serializer=str.encode, key_deserializer=bytes.decode,
        value_serializer=str.encode, value_deserializer=bytes.decode,
    ) as table:  # fmt: skip
        table.update(row)
        table.update({"a": "1"}, b="2")
        table.update([("c", "3")])
        assert dict(table) == {"country": "DE", "lang": "en", "a": "1", "b": "2", "c": "3"}
    connection.close()


def test_clear_and_update_take_their_keys_little_by_little(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.tables.writable._BATCH_RECORDS_MAX", 10)
    log.create_topic("t")
    taken: list[int] = []

    def numbers() -> Iterator[tuple[bytes, bytes]]:
        for number in range(25):
            taken.append(log.partition("t", 0).latest_offset)
            yield b"%d" % number, b""

    with pylog.table(log, "t", changelog=True) as table:
        table.update(numbers())
        assert taken == [0] * 10 + [10] * 10 + [20] * 5
        assert log.partition("t", 0).durable_offset == len(table) == 25
        table.clear()
        assert len(table) == 0
        assert log.partition("t", 0).latest_offset == 50


def test_popitem_gives_each_key_to_one_of_several(log: Log, tmp_path: Path) -> None:
    log.create_topic("t")
    popped: list[tuple[bytes, bytes]] = []

    def pop_all() -> None:
        with Log(log.path) as own_log, pylog.table(own_log, "t", changelog=True, acks=1) as own_table:
            while True:
                try:
                    popped.append(own_table.popitem())
                except KeyError:
                    return

    with pylog.table(log, "t", changelog=True) as table:
        table.update({b"%d" % number: b"v" for number in range(40)})
        workers = [threading.Thread(target=pop_all) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(popped) == sorted((b"%d" % number, b"v") for number in range(40))
        assert len(table) == 0
