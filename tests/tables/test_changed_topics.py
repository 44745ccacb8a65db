"""A table whose topic gets other partitions, another name, or is read-only; or has lost a key for
good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Log, RecordMetadata, TopicPartition
from pylog.errors import ReadOnlyTopic, TopicChanged, TopicNotFound
from pylog.tables.follower import FollowedPartition, Follower
from pylog.tables.mapping import Table
from pylog.tables.store import Entry
from tests.producer.fakes import call_in_thread
from tests.tables.scans import STORES, STORES_AND_VALUES, options, scan

KEYS = [b"%d" % number for number in range(20)]


@pytest.fixture(params=["this log", "another one"])
def changer(request: pytest.FixtureRequest, log: Log) -> Iterator[Log]:
    """The log by which the topic is changed: the table's own, or that of another process."""
    log.create_topic("t", partitions=4)
    if request.param == "this log":
        yield log
    else:
        with Log(log.path) as other:
            yield other


def filled(log: Log, **more: object) -> pylog.tables.WritableTable:
    table = pylog.table(log, "t", changelog=True, **more)  # type: ignore[call-overload]
    table.update((key, b"1") for key in KEYS)
    return table


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_a_table_of_a_repartitioned_topic_is_filled_again(
    log: Log, changer: Log, tmp_path: Path, store: str, values: str
) -> None:
    with filled(log, **options(store, values, tmp_path / "table")) as table:
        pairs = iter(table.items())
        changer.repartition("t", 2)
        assert dict(pairs) == dict.fromkeys(KEYS, b"1")
        assert dict(table.items()) == scan(log) == dict.fromkeys(KEYS, b"1")
        changer.repartition("t", 3)
        table[b"new"] = b"2"
        assert dict(table.items()) == scan(log) == {**dict.fromkeys(KEYS, b"1"), b"new": b"2"}


@pytest.mark.parametrize("store", STORES)
def test_values_read_from_the_log_are_the_newest_while_it_is_repartitioned(
    log: Log, changer: Log, tmp_path: Path, store: str
) -> None:
    """In the topic as it is now, an older record of a key may be where the newest one was."""
    expected = dict.fromkeys(KEYS, b"new")
    with filled(log, **options(store, "positions", tmp_path / "table")) as table:
        for key in KEYS:
            table.update([(key, b"old"), (key, b"new")])
        pairs = iter(table.items())
        some = [next(pairs) for _ in range(3)]
        changer.repartition("t", 2)
        assert table[KEYS[0]] == b"new"
        assert dict([*some, *pairs]) == dict(table.items()) == expected


def test_a_lookup_waits_while_another_thread_fills_the_table_again(
    log: Log, changer: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, missed, go_on = (threading.Event() for _ in range(3))
    read, look = Follower._read, Table._entry_now

    def read_later(self: Follower, number: int, each: FollowedPartition) -> None:
        begun.set()
        assert go_on.wait(60)
        read(self, number, each)

    def look_early(self: Table, key: bytes) -> Entry | None:
        entry = look(self, key)
        if entry is None:
            missed.set()
        return entry

    filled(log).close()
    with pylog.table(log, "t", auto_refresh=False) as table:
        changer.repartition("t", 2)
        monkeypatch.setattr(Follower, "_read", read_later)
        monkeypatch.setattr(Table, "_entry_now", look_early)
        refreshing = call_in_thread(table.refresh)
        assert begun.wait(60)
        found: list[bytes | bool] = []
        looking = [
            call_in_thread(lambda: found.append(table[KEYS[0]])),
            call_in_thread(lambda: found.append(KEYS[1] in table)),
        ]
        assert missed.wait(20)
        go_on.set()
        for thread in [refreshing, *looking]:
            thread.join(60)
        assert sorted(found, key=str) == [True, b"1"]
        assert b"absent" not in table


def test_waiting_and_lag_go_on_in_a_repartitioned_topic(log: Log, changer: Log) -> None:
    with filled(log) as table:
        changer.repartition("t", 1)
        assert table.lag() == {TopicPartition("t", 0): len(KEYS)}
        changer.repartition("t", 2)
        assert table.wait_for(RecordMetadata("t", 0, 0, -1), 0)


def test_a_comparison_begins_after_a_repartition(log: Log, changer: Log) -> None:
    with filled(log) as table:
        changer.repartition("t", 2)
        table.put(b"new", b"1", expected_offset=None)
        assert scan(log)[b"new"] == b"1"


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("key", [*KEYS[:3], b"new-1", b"new-3"])
def test_a_comparison_that_meets_a_repartition_writes_nothing(
    log: Log, changer: Log, monkeypatch: pytest.MonkeyPatch, partitions: int, key: bytes
) -> None:
    with filled(log) as table:
        offset = table.get_with_offset(key)[1]
        found = table._partition_of

        def change_after(keys: list[bytes]) -> list[pylog.Partition]:
            of_before = found(keys)
            changer.repartition("t", partitions)
            return of_before

        monkeypatch.setattr(table, "_partition_of", change_after)
        with pytest.raises(TopicChanged):
            table.put(key, b"2", expected_offset=offset)
        assert dict(table.items()) == scan(log) == dict.fromkeys(KEYS, b"1")


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_a_table_of_a_renamed_topic_goes_on_under_its_new_name(
    log: Log, changer: Log, tmp_path: Path, store: str, values: str
) -> None:
    opened = options(store, values, tmp_path / "table")
    with filled(log, **opened) as table:
        assert len(table) == len(KEYS)
        changer.rename_topic("t", "u")
        for asked in (lambda: table[KEYS[0]], table.lag, lambda: table.put(KEYS[0], b"2", expected_offset=0)):
            with pytest.raises(TopicNotFound):
                asked()
    with pylog.table(log, "u", **opened) as table:
        assert table.metrics()["records"] == table.metrics()["resets"] == 0
        assert dict(table.items()) == scan(log, "u") == dict.fromkeys(KEYS, b"1")


def test_a_topic_that_was_renamed_to_and_fro_is_found_again(log: Log, changer: Log) -> None:
    with filled(log) as table:
        record = table.put(b"last", b"1")
        changer.rename_topic("t", "u")
        changer.rename_topic("u", "t")
        assert table.wait_for(record, 0)
        assert table.metrics()["resets"] == 0


def test_a_table_of_a_read_only_topic_is_only_read(log: Log, changer: Log) -> None:
    with filled(log) as table:
        changer.alter_topic("t", writable=False)
        for write in (
            lambda: table.put(KEYS[0], b"2"),
            lambda: table.put(KEYS[0], b"2", expected_offset=table.get_with_offset(KEYS[0])[1]),
            lambda: table.update({KEYS[0]: b"2"}),
        ):
            with pytest.raises(ReadOnlyTopic):
                write()
        assert dict(table.items()) == scan(log) == dict.fromkeys(KEYS, b"1")


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_tombstone_tells_a_table_of_an_erased_key(
    log: Log, changer: Log, tmp_path: Path, store: str, values: str, is_open: bool
) -> None:
    opened = options(store, values, tmp_path / "table")
    table: pylog.tables.Table = filled(log, **opened)
    if not is_open:
        table.close()
    changer.erase("t", KEYS[0], tombstones=True)
    if not is_open:
        table = pylog.table(log, "t", **opened)
    with table:
        assert KEYS[0] not in table
        assert dict(table.items()) == scan(log)
