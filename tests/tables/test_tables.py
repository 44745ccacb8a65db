"""A table: what it shows of its topic, when it reads, how it is saved, and which uses it
refuses."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Log, Producer, ProducerRecord, Record, TopicPartition
from pylog.errors import (
    Closed,
    ConfigError,
    CorruptRecord,
    ForkedHandle,
    LogLocked,
    SerializationError,
    TopicNotFound,
    UnsafeDirectory,
)
from pylog.tables.store import Position
from tests.processes.sharing import forked, result_of
from tests.tables.scans import ROCKS, STORES, STORES_AND_VALUES, options, scan


def send(log: Log, *pairs: tuple[bytes | None, bytes | None], topic: str = "t", partition: int = 0) -> None:
    log.partition(topic, partition).append([ProducerRecord(value, key) for key, value in pairs], acks=1)


@pytest.fixture
def topic(log: Log) -> Log:
    log.create_topic("t")
    return log


# What it shows


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_a_table_has_the_newest_value_of_each_key(topic: Log, tmp_path: Path, store: str, values: str) -> None:
    send(topic, (b"a", b"1"), (b"b", b"2"), (None, b"x"), (b"a", b"3"), (b"c", b"4"), (b"c", None), (b"", b""))
    with pylog.table(topic, "t", **options(store, values, tmp_path / "table")) as table:
        assert dict(table) == {b"a": b"3", b"b": b"2", b"": b""} == scan(topic)
        assert sorted(table.items()) == [(b"", b""), (b"a", b"3"), (b"b", b"2")]
        assert sorted(table.values()) == [b"", b"2", b"3"]
        assert sorted(table) == sorted(table.keys()) == [b"", b"a", b"b"]
        assert len(table) == 3
        assert table[b"a"] == b"3"
        assert table.get(b"c") is None
        assert b"c" not in table
        assert table.get_with_offset(b"a") == (b"3", 3)
        assert table.get_with_offset(b"c") == (None, None)
        with pytest.raises(KeyError, match="c"):
            table[b"c"]
        assert table.metrics() == {"records": 7, "records_without_key": 1, "resets": 0}


@pytest.mark.parametrize("store", STORES)
def test_a_lookup_sees_what_was_visible_before_it(topic: Log, tmp_path: Path, store: str) -> None:
    with pylog.table(topic, "t", store=store, directory=tmp_path / "table") as table:
        for number in range(5):
            send(topic, (b"a", b"%d" % number))
            assert table[b"a"] == b"%d" % number
        topic.add_partitions("t", 3)
        send(topic, (b"b", b"in a new partition"), partition=2)
        assert b"b" in table
        assert table.positions() == {("t", 0): 5, ("t", 1): 0, ("t", 2): 1}


def test_without_auto_refresh_a_lookup_sees_what_refresh_has_read(topic: Log) -> None:
    send(topic, (b"a", b"1"))
    with pylog.table(topic, "t", auto_refresh=False) as table:
        send(topic, (b"a", b"2"), (b"b", b"2"))
        assert dict(table) == {b"a": b"1"}
        assert table.lag() == {TopicPartition("t", 0): 2}
        assert table.refresh() == 2
        assert dict(table) == {b"a": b"2", b"b": b"2"}
        assert table.refresh() == 0
        assert table.lag() == {TopicPartition("t", 0): 0}


def test_an_aborted_transaction_is_never_seen_and_an_open_one_when_it_has_ended(topic: Log) -> None:
    tables = [pylog.table(topic, "t", isolation_level=level) for level in ("read_committed", "read_uncommitted")]
    with Producer(topic, transactional_id="x") as producer:
        producer.init_transactions()
        for ends in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send("t", ends.__name__.encode(), key=b"a")
            producer.flush()
            send(topic, (b"b", ends.__name__.encode()))
            assert [table.get(b"a") for table in tables] == [None, ends.__name__.encode()]
            ends()
        assert [table[b"a"] for table in tables] == [b"commit_transaction"] * 2
        assert dict(tables[0]) == scan(topic)
        assert [*tables[0].lag().values()] == [0]


def test_wait_for_returns_when_the_record_was_read(topic: Log) -> None:
    with pylog.table(topic, "t", auto_refresh=False) as table, Producer(topic) as producer:
        sent = producer.send("t", b"1", key=b"a").result()
        assert table.wait_for(sent, 0)
        assert table[b"a"] == b"1"
        assert not table.wait_for(sent._replace(offset=sent.offset + 1), 0)
        later = threading.Thread(target=lambda: producer.send("t", b"2", key=b"a").result())
        later.start()
        assert table.wait_for(sent._replace(offset=sent.offset + 1))
        later.join()
        with pytest.raises(ConfigError, match="'t'"):
            table.wait_for(sent._replace(topic="u"))
        offset: Any = sent.offset
        with pytest.raises(ConfigError, match="takes a record or its metadata, not int"):
            table.wait_for(offset)


def test_serializers_stand_between_objects_and_bytes(topic: Log) -> None:
    send(topic, (b"a", b"1"), (b"b", b"x"))
    convert: dict[str, Any] = {
        "key_serializer": str.encode,
        "key_deserializer": bytes.decode,
        "value_deserializer": int,
    }
    with pylog.table(topic, "t", **convert) as table:
        assert table["a"] == 1
        assert "a" in table
        assert sorted(table) == ["a", "b"]
        with pytest.raises(SerializationError, match="value_deserializer failed on b'x'"):
            table["b"]
        with pytest.raises(SerializationError, match="key_serializer failed"):
            table[1]
    with pylog.table(topic, "t") as table, pytest.raises(SerializationError, match="the key is str, expected bytes"):
        table["a"]


def test_threads_share_a_table(topic: Log) -> None:
    problems: list[str] = []
    with pylog.table(topic, "t") as table:

        def look() -> None:
            newest = -1
            while newest < 299:
                found = int(table.get(b"a", b"-1"))
                if found < newest:
                    problems.append(f"{found} after {newest}")
                newest = found
                len(dict(table))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(300):
            send(topic, (b"a", b"%d" % number), (b"k%d" % number, b""))
        for thread in threads:
            thread.join()
    assert problems == []


# Its directory


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_the_next_start_reads_only_what_is_new(topic: Log, tmp_path: Path, store: str, values: str) -> None:
    send(topic, *((b"%d" % number, b"v%d" % number) for number in range(100)))
    with pylog.table(topic, "t", **options(store, values, tmp_path / "table")):
        pass
    send(topic, (b"7", None), (b"new", b"1"))
    with pylog.table(topic, "t", **options(store, values, tmp_path / "table")) as table:
        assert table.metrics()["records"] == 2
        assert dict(table) == scan(topic)
        assert len(table) == 100


def test_a_snapshot_is_written_after_some_records_and_not_only_at_the_end(topic: Log, tmp_path: Path) -> None:
    send(topic, *((b"%d" % number, b"") for number in range(25)))
    path = tmp_path / "table" / "table.snapshot"
    table = pylog.table(topic, "t", directory=tmp_path / "table", snapshot_records=10)
    written = [path.read_bytes()]
    for _ in range(8):
        send(topic, *((b"%d" % number, b"") for number in range(25)))
        table.refresh()
        written.append(path.read_bytes())
    assert [before == after for before, after in pairwise(written)] == [True, True, True, False] * 2  # 100 records
    table.close()


@pytest.mark.parametrize("store", STORES)
def test_one_table_has_a_directory_at_a_time(topic: Log, tmp_path: Path, store: str) -> None:
    with pylog.table(topic, "t", store=store, directory=tmp_path / "table"):
        with pytest.raises(LogLocked, match="another table"):
            pylog.table(topic, "t", store=store, directory=tmp_path / "table")
        with pylog.table(topic, "t", store=store, directory=tmp_path / "other"):
            pass
    with pylog.table(topic, "t", store=store, directory=tmp_path / "table"):
        pass


@pytest.mark.parametrize("store", STORES)
def test_a_store_of_another_topic_isolation_or_kind_of_values_begins_again(
    topic: Log, tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "table"
    send(topic, (b"a", b"1"), (b"b", b"2"))
    with pylog.table(topic, "t", store=store, directory=directory) as table:
        topic.delete_topic("t")
        with pytest.raises(TopicNotFound):
            table.refresh()
        topic.create_topic("t")
        send(topic, (b"c", b"3"))
        assert dict(table) == {b"c": b"3"}
        assert table.metrics()["resets"] == 1
    others: list[dict[str, Any]] = [{"isolation_level": "read_uncommitted"}, {"values": "positions"}, {}]
    for other in others:
        with pylog.table(topic, "t", store=store, directory=directory, **other) as table:
            assert table.metrics() == {"records": 1, "records_without_key": 0, "resets": 1}
            assert dict(table) == {b"c": b"3"}
    assert "begins again" in caplog.text


def test_a_table_is_private_and_refuses_a_directory_that_all_may_write(topic: Log, tmp_path: Path) -> None:
    with pylog.table(topic, "t", directory=tmp_path / "a" / "table") as table:
        assert (tmp_path / "a" / "table").stat().st_mode & 0o777 == 0o700
        table.save()
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(UnsafeDirectory, match="any user"):
        pylog.table(topic, "t", directory=open_to_all)


# When records are removed


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
@pytest.mark.parametrize("is_open", [True, False])
def test_keys_whose_newest_record_was_deleted_are_gone(
    topic: Log, tmp_path: Path, store: str, values: str, is_open: bool
) -> None:
    directory = options(store, values, tmp_path / "table")
    send(topic, (b"old", b"1"), (b"kept", b"1"))
    send(topic, (b"kept", b"2"))
    table = pylog.table(topic, "t", **directory)
    assert len(table) == 2
    if not is_open:
        table.close()
    topic.delete_records(TopicPartition("t", 0), 2)
    table = table if is_open else pylog.table(topic, "t", **directory)
    assert dict(table) == {b"kept": b"2"} == scan(topic)
    table.close()


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_a_position_before_the_log_start_continues_there_and_forgets_what_was_deleted(
    topic: Log, tmp_path: Path, store: str, values: str
) -> None:
    directory = options(store, values, tmp_path / "table")
    send(topic, (b"a", b"1"), (b"b", b"1"))
    pylog.table(topic, "t", **directory).close()
    send(topic, (b"a", None))
    send(topic, (b"c", b"2"))
    topic.delete_records(TopicPartition("t", 0), 3)
    with pylog.table(topic, "t", **directory) as table:
        assert dict(table) == {b"c": b"2"} == scan(topic)


def test_a_value_that_left_the_log_is_looked_up_again(topic: Log) -> None:
    send(topic, (b"a", b"1"), (b"b", b"1"))
    with pylog.table(topic, "t", values="positions", auto_refresh=False) as table:
        send(topic, (b"a", b"2"))
        topic.delete_records(TopicPartition("t", 0), 2)
        assert table[b"a"] == b"2"
        assert table.get(b"b") is None


# Damage, wrong use, the end


@pytest.mark.parametrize("position", [0, 9, 20, 40, 60, 100, -1])
def test_a_damaged_snapshot_counts_as_missing(
    topic: Log, tmp_path: Path, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    send(topic, (b"a", b"1"), (b"b", b"22"))
    pylog.table(topic, "t", directory=tmp_path).close()
    path = tmp_path / "table.snapshot"
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING), pylog.table(topic, "t", directory=tmp_path) as table:
        assert dict(table) == {b"a": b"1", b"b": b"22"}
        assert table.metrics()["records"] == 2
    assert "is no snapshot of a table" in caplog.text


def test_a_damaged_record_raises_and_the_table_stays_before_it(topic: Log) -> None:
    send(topic, (b"a", b"1"))
    send(topic, (b"a", b"2"))
    path = Path(topic.partition("t", 0).segments[0].path)
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    with pylog.table(topic, "t", auto_refresh=False) as table:
        path.write_bytes(data)
        assert table[b"a"] == b"2"  # read before
    with pytest.raises(CorruptRecord):
        pylog.table(topic, "t")


def test_a_closed_table_refuses_every_call(topic: Log, tmp_path: Path) -> None:
    table = pylog.table(topic, "t", directory=tmp_path / "table")
    table.close()
    table.close()
    for call in (
        table.refresh,
        table.save,
        table.positions,
        lambda: table[b"a"],
        lambda: len(table),
        lambda: dict(table),
    ):
        with pytest.raises(Closed):
            call()
    assert "Closed" in repr(table)


def test_a_table_may_be_closed_after_its_log(topic: Log, tmp_path: Path) -> None:
    send(topic, (b"a", b"1"))
    table = pylog.table(topic, "t", directory=tmp_path / "table")
    topic.close()
    with pytest.raises(Closed):
        table[b"a"]
    table.close()
    assert (tmp_path / "table" / "table.snapshot").exists()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_leaves_the_table_to_its_parent(topic: Log, tmp_path: Path, store: str) -> None:
    send(topic, (b"a", b"1"))
    with pylog.table(topic, "t", store=store, directory=tmp_path / "table") as table:

        def child() -> str:
            try:
                table[b"a"]
            except ForkedHandle as error:
                table.close()
                try:
                    pylog.table(topic, "t", store=store, directory=tmp_path / "table")
                except LogLocked:
                    return str(error)
            return "no error"

        assert "parent process" in result_of(forked(child))
        send(topic, (b"a", b"2"))
        assert table[b"a"] == b"2"
    with pylog.table(topic, "t", store=store, directory=tmp_path / "table") as table:
        assert table.metrics()["records"] == 0


@pytest.mark.parametrize("store", [ROCKS])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_with_rocksdb_can_exit(topic: Log, tmp_path: Path, store: str) -> None:
    with pylog.table(topic, "t", store=store, directory=tmp_path / "table"):
        child = os.fork()
        if child == 0:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"store": "lmdb"}, "'memory' or 'rocksdict'"),
        ({"values": "offsets"}, "'stored' or 'positions'"),
        ({"isolation_level": "none"}, "isolation_level"),
        ({"store": "rocksdict"}, "needs a directory"),
        ({"directory": 7}, "expected a path"),
        ({"snapshot_records": 0}, "snapshot_records"),
        ({"auto_refresh": 1}, "auto_refresh"),
        ({"key_deserializer": bytes.decode}, "belong together"),
        ({"value_deserializer": int, "changelog": True}, "belong together"),
        ({"value_deserializer": 3}, "callable"),
        ({"acks": 0, "changelog": True}, "expected 'all' or 1"),
        ({"storage": "memory"}, "did you mean store"),
        ({"group_id": "g"}, "without a group"),
    ],
)
def test_a_wrong_option_is_refused(topic: Log, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pylog.table(topic, "t", **wrong)


def test_a_table_of_a_missing_topic_is_refused(log: Log) -> None:
    with pytest.raises(TopicNotFound):
        pylog.table(log, "t")
    with pytest.raises(TopicNotFound):
        pylog.table(log, "t", changelog=True)
    with pytest.raises(ConfigError, match="the first argument is a Log"):
        pylog.table("log", "t")  # type: ignore[call-overload]


def test_without_the_package_rocksdict_the_error_says_what_to_install(
    topic: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with pytest.raises(ConfigError, match=r"pip install 'pylog-embedded\[table\]'"):
        pylog.table(topic, "t", store="rocksdict", directory=tmp_path / "table")
    pylog.table(topic, "t", directory=tmp_path / "table").close()  # the lock is free again


def test_what_a_few_compressed_bytes_expand_to_goes_to_the_store_in_pieces(
    topic: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.tables.follower._DECODED_BYTES", 50_000)
    with Producer(topic, compression="zstd", acks=1) as producer:
        for number in range(20):
            producer.send("t", b"x" * 20_000, key=b"%d" % (number % 7))
            producer.send("t", None, key=b"0")
            producer.flush()
    with pylog.table(topic, "t") as table:
        applied, held = table._store.apply, []

        def apply(partition: int, newest: Mapping[bytes, Record], position: Position) -> None:
            held.append(sum(len(record.value or b"") for record in newest.values()))
            applied(partition, newest, position)

        table._store.apply = apply
        table._store.positions.clear()
        table._follower.partitions[0].quiet_token = None
        assert dict(table.items()) == scan(topic)
    assert len(held) > 5
    assert max(held) <= 80_000


def test_values_are_looked_for_in_one_moment(topic: Log) -> None:
    send(topic, (b"a", b"1"), (b"b", b"2"))
    with pylog.table(topic, "t") as table:
        values = iter(table.values())
        send(topic, (b"a", None), (b"c", b"3"))
        assert list(values) == [b"1", b"2"]
        pairs, keys = iter(table.items()), iter(table)
        send(topic, (b"b", None))
        assert (list(pairs), list(keys)) == ([(b"b", b"2"), (b"c", b"3")], [b"b", b"c"])
        assert b"3" in table.values()
        assert b"2" not in table.values()


def test_threads_that_iterate_never_see_half_of_a_batch(topic: Log) -> None:
    """Each batch puts one key, and removes the one before."""
    send(topic, (b"0", b""))
    seen: list[list[bytes]] = []
    with pylog.table(topic, "t") as table:
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                seen.append([*table])
                assert len(table) == 1

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(300):
            send(topic, (b"%d" % (number + 1), b""), (b"%d" % number, None))
        done.set()
        for thread in threads:
            thread.join()
    assert {len(keys) for keys in seen} == {1}


def test_a_record_without_an_offset_is_not_waited_for(topic: Log) -> None:
    with (
        Producer(topic, acks=0) as producer,
        pylog.table(topic, "t") as table,
        pytest.raises(ConfigError, match="acks=0"),
    ):
        table.wait_for(producer.send("t", b"1", key=b"a").result(), 0)


def test_retention_that_overtakes_a_table_again_and_again_does_not_stop_it(topic: Log) -> None:
    """Retention may take what a slow table is about to read, again and again: it goes on while it
    reads something."""
    for number in range(20):
        send(topic, (b"%d" % number, b"v"))
    table = pylog.table(topic, "t", auto_refresh=False)
    table._follower.partitions[0].quiet_token = None
    table._store.positions.clear()
    each = table._follower.partitions[0]
    fetch = each.partition.fetch
    removed = []

    def removing(cursor: Any, **options: Any) -> Any:
        if len(removed) < 9 and (not removed or cursor.offset > removed[-1]):
            removed.append(cursor.offset + 1)
            topic.delete_records(TopicPartition("t", 0), removed[-1])
        return fetch(cursor, **{**options, "max_bytes": 1})

    each.partition.fetch = removing
    table.refresh()
    assert len(removed) > 6
    table._auto_refresh = True
    assert dict(table.items()) == scan(topic)
    table.close()
