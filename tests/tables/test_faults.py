"""What interrupts a table: a full disk at each write, a signal handler's exception at each step, a
call in a handler."""

from __future__ import annotations

import re
import shutil
import threading  # a process that is held up is played by one
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import pylog
from pylog import Log, ProducerRecord, TopicPartition
from pylog.errors import Closed, DeliveryTimeout, OutcomeUnknown, StorageFull
from pylog.storage import OsFileSystem
from pylog.tables import memory_store
from pylog.tables.snapshot import read_snapshot
from tests.consumer.interrupts import Interrupt, interrupt_at
from tests.storage.filesystems import Faulty, Nth, full, io_error, nothing
from tests.tables.scans import ROCKS, STORES, scan

PACKAGE = re.escape(str(Path(pylog.__file__).parent))
TABLES = re.compile(PACKAGE + "/tables/(?!rocks_store)")  # which is as slow as its database, and has a test of its own
ROCKS_STORE = re.compile(PACKAGE + "/tables/rocks_store")
SNAPSHOT = "table.snapshot.tmp"


def send(log: Log, *pairs: tuple[bytes, bytes | None]) -> None:
    log.partition("t", 0).append([ProducerRecord(value, key) for key, value in pairs], acks=1)


# A full disk


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[tuple[Faulty, Log]]:
    filesystem = Faulty()
    with Log(tmp_path / "log", filesystem=filesystem) as log:
        log.create_topic("t")
        send(log, (b"a", b"0"))
        yield filesystem, log
        filesystem.hook = nothing


def test_a_lookup_does_not_fail_because_a_snapshot_cannot_be_written(
    faulty: tuple[Faulty, Log], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filesystem, log = faulty
    with pylog.table(log, "t", directory=tmp_path / "table", snapshot_records=4) as table:
        tried = []

        def hook(operation: str, path: str) -> None:
            if path.endswith(SNAPSHOT) and operation == "pwrite":
                tried.append(path)
                raise full(path)

        filesystem.hook = hook
        for number in range(16):
            send(log, (b"a", b"%d" % number))
            assert table[b"a"] == b"%d" % number
        assert len(tried) == 4  # after each four records, not at each lookup
        assert "without a new snapshot" in caplog.text
        with pytest.raises(StorageFull):
            table.save()
        filesystem.hook = nothing
        table.save()
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert table.metrics()["records"] == 0
        assert table[b"a"] == b"15"


def test_a_table_that_outgrows_its_snapshot_is_told_when_it_is_saved_and_not_in_lookups(
    faulty: tuple[Faulty, Log], tmp_path: Path
) -> None:
    _, log = faulty
    too_large = pylog.errors.ConfigError("too large")
    with (
        mock.patch.object(memory_store, "write_snapshot", side_effect=too_large) as writes,
        pylog.table(log, "t", directory=tmp_path / "table", snapshot_records=2) as table,
    ):
        for number in range(8):
            send(log, (b"a", b"%d" % number))
            assert table[b"a"] == b"%d" % number
        assert writes.call_count == 2
        with pytest.raises(pylog.errors.ConfigError):
            table.save()
        writes.side_effect = None


@pytest.mark.slow
@pytest.mark.parametrize("error", [full, io_error])
def test_with_a_full_disk_at_any_write_the_table_is_a_scan_then_and_later(
    tmp_path: Path, error: Callable[[str], BaseException]
) -> None:
    for step in count():
        filesystem, path = Faulty(), tmp_path / f"{step}"
        with Log(path / "log", filesystem=filesystem) as log:
            log.create_topic("t")
            hook = Nth(
                step, {"open", "pwrite", "truncate", "sync", "replace", "sync_directory", "make_directory"}, error
            )

            def opened(log: Log = log, path: Path = path) -> Any:
                return pylog.table(log, "t", directory=path / "table", snapshot_records=2, changelog=True)

            def work(log: Log = log, opened: Callable[[], Any] = opened) -> None:
                table: Any = opened()
                try:
                    for number in range(3):
                        send(log, (b"a", b"%d" % number), (b"b", None if number else b"b"))
                        table[b"c"] = b"%d" % number
                        table.put(b"d", b"d", expected_offset=table.get_with_offset(b"d")[1])
                    table.save()
                finally:
                    with suppress(pylog.errors.PylogError):
                        table.refresh()
                        assert dict(table.items()) == scan(log)
                    table.close()

            filesystem.hook = hook
            with suppress(pylog.errors.PylogError):
                work()
            filesystem.hook = nothing
            with opened() as table:
                assert dict(table.items()) == scan(log)
                table[b"c"] = b"again"
                assert table[b"c"] == b"again"
        if not hook.raised:
            break
    print(f"{step} steps")
    assert step > 20


def test_a_write_whose_sync_failed_shows_as_the_log_has_it(faulty: tuple[Faulty, Log]) -> None:
    filesystem, log = faulty
    with pylog.table(log, "t", changelog=True) as table:

        def refuse(operation: str, path: str) -> None:
            if operation == "sync":
                raise io_error(path)

        filesystem.hook = refuse
        with pytest.raises(OutcomeUnknown):
            table[b"a"] = b"unknown"
        filesystem.hook = nothing
        assert dict(table.items()) == scan(log)


# A signal handler's exception


def work_on(log: Log, path: Path, store: str) -> Any:
    table: Any = pylog.table(log, "t", store=store, directory=path, snapshot_records=2, changelog=True, acks=1)
    send(log, (b"a", b"1"), (b"b", None), (b"c", b"1"))
    table.get(b"a")
    table[b"own"] = b"1"
    table.put(b"d", b"2", expected_offset=table.get_with_offset(b"d")[1])
    len(table)
    list(table.items())
    log.delete_records(TopicPartition("t", 0), 2)
    table.pop(b"c", None)
    table.update({b"e": b"3", b"f": b"3"})
    table.save()
    table.close()
    return table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "rooms"), [("memory", TABLES), pytest.param("rocksdict", ROCKS_STORE, marks=ROCKS.marks)]
)
def test_after_an_exception_of_a_signal_handler_at_any_step_the_table_is_a_scan(
    tmp_log_dir: Path, store: str, rooms: re.Pattern[str], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """At one step of so many; another seed has others."""
    stride = 9
    opening = pylog.table
    opened: list[Any] = []
    monkeypatch.setattr(pylog, "table", lambda *args, **options: opened.append(opening(*args, **options)) or opened[-1])
    raised = 0
    shutil.rmtree(tmp_log_dir, ignore_errors=True)
    for step in count(1 + seed % stride, stride):
        path = tmp_log_dir / str(step)
        with Log(path / "log") as log:
            log.create_topic("t")
            send(log, (b"a", b"0"), (b"b", b"0"))
            opening(log, "t", store=store, directory=path / "table").close()
            opened.clear()
            with suppress(Interrupt), interrupt_at(step, rooms) as passed:
                work_on(log, path / "table", store)
            if opened:
                table = opened[0]
                with suppress(Closed):
                    assert dict(table.items()) == scan(log)
                with suppress(Closed):
                    table.save()
                table.close()
                if store == "memory":
                    found = read_snapshot(OsFileSystem(), str(path / "table" / "table.snapshot"))
                    assert found is not None
                    assert all(at < found.positions[number].offset for at, number, _ in found.entries.values())
            del opened[:]
            with opening(log, "t", store=store, directory=path / "table") as again:
                assert dict(again.items()) == scan(log), step
        shutil.rmtree(path)
        if passed[0] < step:
            break
        raised += 1
    print(f"{raised} steps")
    assert raised > 20


def test_entries_that_are_ahead_of_their_position_are_not_saved(tmp_path: Path, log: Log) -> None:
    """They would stay if a power failure took their records, since the position says nothing of
    them."""
    log.create_topic("t", partitions=2)
    send(log, (b"a", b"0"))
    log.partition("t", 1).append([ProducerRecord(b"1", b"other")], acks=1)
    table = pylog.table(log, "t", directory=tmp_path / "table", auto_refresh=False)
    send(log, (b"a", b"1"), (b"b", b"1"))
    store: Any = table._store

    class Interrupted(dict[int, Any]):
        def __setitem__(self, partition: int, position: Any) -> None:
            raise Interrupt

    kept, store.positions = store.positions, Interrupted(store.positions)
    with pytest.raises(Interrupt):
        table.refresh()
    store.positions = kept
    table.close()
    found = read_snapshot(OsFileSystem(), str(tmp_path / "table" / "table.snapshot"))
    assert found is not None
    assert (set(found.positions), set(found.entries)) == ({1}, {b"other"})
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log)


# A call inside of a signal handler


@pytest.mark.parametrize("store", STORES)
def test_a_lookup_in_a_handler_that_interrupted_the_reading_leaves_nothing_out(
    log: Log, tmp_path: Path, store: str
) -> None:
    log.create_topic("t")
    send(log, (b"a", b"0"))
    with pylog.table(log, "t", store=store, directory=tmp_path / "table", changelog=True) as table:
        applied, seen = table._store.apply, []

        def apply(*arguments: Any) -> None:
            if not seen:
                seen.append(None)
                send(log, (b"a", b"2"))
                seen.append(table[b"a"])
                with pytest.raises(DeliveryTimeout, match="signal handler"):
                    table.put(b"a", b"3", expected_offset=1)
                table[b"own"] = b"of the handler"
                assert table[b"own"] == b"of the handler"
            applied(*arguments)

        with mock.patch.object(table._store, "apply", apply):
            send(log, (b"a", b"1"))
            table.refresh()
        assert seen[1] in (b"0", b"1")
        assert table[b"a"] == b"2"
        assert dict(table.items()) == scan(log)


def test_another_process_that_holds_up_a_write_does_not_hold_up_lookups(log: Log, tmp_path: Path) -> None:
    log.create_topic("t", partitions=2)
    with (
        Log(log.path) as other,
        pylog.table(log, "t", changelog=True, acks=1, delivery_timeout_ms=60_000) as table,
    ):
        key = next(key for key in map(b"%d".__mod__, count()) if table.put(key, b"0").partition == 0)
        writer = other.partition("t", 0).log.writable()
        entered, leave = threading.Event(), threading.Event()

        def hold(_grant: Any, state: Any) -> Any:
            entered.set()
            leave.wait(30)
            return state

        holder = threading.Thread(target=lambda: writer.change_segments(hold, 30_000))
        holder.start()
        entered.wait(30)
        waiting = threading.Thread(target=lambda: table.update({key: b"1"}))
        waiting.start()
        waiting.join(0.05)
        other.partition("t", 1).append([ProducerRecord(b"1", b"new")], acks=1)
        looking = threading.Thread(target=lambda: [len(table), list(table), table.get(b"new")])
        looking.start()
        looking.join(20)
        was_held_up = looking.is_alive()
        leave.set()
        for thread in (holder, waiting, looking):
            thread.join()
        assert not was_held_up
        assert table[key] == table[b"new"] == b"1"
