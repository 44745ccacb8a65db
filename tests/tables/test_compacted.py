"""A table of a compacted topic: a key whose tombstone was compacted away does not stay, and none is
read again without need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Log, ProducerRecord
from pylog.errors import CorruptRecord, OffsetOutOfRange
from pylog.partition.compact import engine
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.compact.swap import swap_in
from pylog.tables.memory_store import MemoryStore
from pylog.testing import ManualClock
from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss
from tests.partition.logs import flip
from tests.tables.scans import STORES_AND_VALUES, needs_rocksdict, options, scan

KEPT_MS = 10_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_log_dir: Path, clock: ManualClock) -> Iterator[Log]:
    with Log(tmp_log_dir, clock=clock) as log:
        log.create_topic("t", partitions=2, cleanup_policy="compact", delete_retention_ms=KEPT_MS)
        yield log


def put(log: Log, *pairs: tuple[bytes, bytes | None], partition: int = 0) -> None:
    for key, value in pairs:
        log.partition("t", partition).append([ProducerRecord(value, key)], acks=1)


def compacted(log: Log, clock: Any, times: int = 2, seconds: float = 2 * KEPT_MS / 1000) -> None:
    """Compact all that there is, and let time pass. The second time tombstones go."""
    partition = log.partition("t", 0).log
    for number in range(times):
        put(log, (b"other", b"%d" % number))
        partition.roll()
        partition.sync(partition.latest_offset)
        assert compact(partition, CompactionOptions(delete_retention_ms=KEPT_MS)).records_kept
        clock.sleep(seconds)


def with_a_key_whose_tombstone_was_dropped(log: Log, clock: ManualClock, tmp_path: Path) -> None:
    """A table was saved with key a, which the log does not have any more."""
    put(log, (b"a", b"1"))
    with pylog.table(log, "t", directory=tmp_path / "table"):
        pass
    put(log, (b"a", None))
    compacted(log, clock)


@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_key_whose_tombstone_is_gone_is_gone(
    log: Log, clock: ManualClock, tmp_path: Path, store: str, values: str, is_open: bool
) -> None:
    opened = options(store, values, tmp_path / "table")
    put(log, (b"a", b"1"), (b"b", b"1"))
    table = pylog.table(log, "t", **opened, auto_refresh=False)
    if not is_open:
        table.close()
    put(log, (b"a", None))
    compacted(log, clock)
    if is_open:
        table.refresh()
    else:
        table = pylog.table(log, "t", **opened)
    assert dict(table.items()) == scan(log)
    assert b"a" not in table
    assert table.metrics()["resets"] == 1
    put(log, (b"c", b"1"))
    table.refresh()
    assert dict(table.items()) == scan(log)
    assert table.metrics()["resets"] == 1
    table.close()


@pytest.mark.parametrize(
    "changes", [{}, {"cleanup_policy": "delete"}, {"delete_retention_ms": 1000 * KEPT_MS}], ids=["", "policy", "longer"]
)
@pytest.mark.parametrize("set_back_s", [0, 3600])
def test_so_it_is_if_the_clock_was_set_back_or_the_options_changed_since(
    log: Log, clock: ManualClock, tmp_path: Path, changes: dict[str, Any], set_back_s: int
) -> None:
    with_a_key_whose_tombstone_was_dropped(log, clock, tmp_path)
    if changes:
        log.alter_topic("t", **changes)
    clock.advance(-set_back_s)
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log) == {b"other": b"1"}


def test_what_is_still_in_the_active_segment_was_never_compacted_however_long_ago_it_was_read(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    put(log, (b"a", b"1"))
    compacted(log, clock)
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        clock.advance(100 * KEPT_MS)
        put(log, (b"b", b"1"))
        assert table[b"b"] == b"1"
        assert table.metrics()["resets"] == 0
    clock.advance(100 * KEPT_MS)
    put(log, (b"a", None))
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log)
        assert (table.metrics()["records"], table.metrics()["resets"]) == (1, 0)


def test_a_quiet_partition_is_not_read_again_because_another_one_is_busy(log: Log, clock: ManualClock) -> None:
    put(log, (b"quiet", b"1"))
    with pylog.table(log, "t") as table:
        for number in range(20):
            clock.advance(KEPT_MS / 5000)
            put(log, (b"busy", b"%d" % number), partition=1)
            table.get(b"busy")
        put(log, (b"quiet", b"2"))
        log.partition("t", 0).log.roll()
        put(log, (b"quiet", b"3"))
        assert table[b"quiet"] == b"3"
        assert table.metrics()["resets"] == 0


def test_so_it_is_if_the_table_read_the_key_while_it_was_compacted(
    log: Log, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone's time has begun, and the record before it is still there."""
    put(log, (b"a", b"1"))
    log.partition("t", 0).log.roll()
    put(log, (b"a", None))

    def read_before(*arguments: Any) -> None:
        monkeypatch.setattr(engine, "swap_in", swap_in)
        clock.advance(0.9 * KEPT_MS / 1000)
        with killed_after_the_first_read(log, 0, monkeypatch):
            pylog.table(log, "t", directory=tmp_path / "table")
        swap_in(*arguments)

    monkeypatch.setattr(engine, "swap_in", read_before)
    compacted(log, clock, 1, seconds=0.2 * KEPT_MS / 1000)
    compacted(log, clock, 1)
    clock.advance(-2 * KEPT_MS / 1000)
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log) == {b"other": b"0"}


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("step", ["change_token", "current", "fetch"])
def test_so_it_is_if_the_process_was_stopped_before_or_after_any_look(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, step: str, is_before: bool
) -> None:
    put(log, (b"a", b"1"))
    with pylog.table(log, "t") as table:
        followed: Any = table
        partition = followed._follower.partitions[0].partition
        look = getattr(partition, step)

        def stopped(*args: object, **options: object) -> object:
            monkeypatch.setattr(partition, step, look)
            found = None if is_before else look(*args, **options)
            put(log, (b"a", None))
            compacted(log, clock)
            return look(*args, **options) if is_before else found

        put(log, (b"b", b"1"))
        monkeypatch.setattr(partition, step, stopped)
        table.get(b"a")
        assert dict(table.items()) == scan(log) == {b"b": b"1", b"other": b"1"}


@contextmanager
def killed_after_the_first_read(log: Log, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A table that is opened here ends when it has read and saved one record of this partition."""

    class KilledHere(BaseException):
        pass

    def apply(store: MemoryStore, partition: int, newest: Any, position: Any) -> None:
        applied(store, partition, newest, position)
        if partition == number:
            store.save()
            raise KilledHere

    applied = MemoryStore.apply
    with monkeypatch.context() as patch, suppress(KilledHere):
        patch.setattr("pylog.tables.follower._FETCH_BYTES", 1)
        patch.setattr(MemoryStore, "apply", apply)
        yield
        raise AssertionError("it was not killed")


def test_a_table_that_was_away_for_long_reads_on_if_no_tombstone_was_dropped(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    with pylog.table(log, "t", directory=tmp_path / "table"):
        pass
    put(log, (b"a", b"2"))
    compacted(log, clock)
    put(log, (b"b", None))
    compacted(log, clock, 1)
    clock.advance(1000 * KEPT_MS)
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log) == {b"a": b"2", b"other": b"0"}
        assert table.metrics()["resets"] == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_table_that_began_after_a_compaction_needs_no_tombstone_of_it(
    log: Log, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """However slowly it reads: the tombstone goes while it is between the start and it."""
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", None))
    compacted(log, clock, 1)
    if is_killed:
        with killed_after_the_first_read(log, 0, monkeypatch):
            pylog.table(log, "t", directory=tmp_path / "table")
        compacted(log, clock, 1)
    else:
        reads_slowly(monkeypatch, [partial(compacted, log, clock, 1)])
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert b"a" not in {record.key for record in log.partition("t", 0).scan()}
        assert dict(table.items()) == scan(log)
        assert table.metrics()["resets"] == is_killed  # the log might have been cut since


def reads_slowly(monkeypatch: pytest.MonkeyPatch, meanwhile: list[Callable[[], object]]) -> None:
    """A table that is opened after this reads one batch at a time; after each one of partition 0,
    the next of these happens."""

    def apply(store: MemoryStore, partition: int, newest: Any, position: Any) -> None:
        applied(store, partition, newest, position)
        if partition == 0 and meanwhile:
            meanwhile.pop(0)()

    applied = MemoryStore.apply
    monkeypatch.setattr("pylog.tables.follower._FETCH_BYTES", 1)
    monkeypatch.setattr(MemoryStore, "apply", apply)


@pytest.mark.parametrize("times", [1, 20])
def test_a_partition_of_which_tombstones_are_dropped_while_it_is_read_is_read_again(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    def drop() -> None:
        put(log, (b"a", None), (b"b", b"1"))
        compacted(log, clock)
        put(log, (b"a", b"1"))

    put(log, (b"a", b"1"), (b"b", b"1"))
    reads_slowly(monkeypatch, [drop] * times)
    if times > 1:
        with pytest.raises(OffsetOutOfRange, match="was compacted"):
            pylog.table(log, "t")
        monkeypatch.undo()
    with pylog.table(log, "t") as table:
        assert dict(table.items()) == scan(log)
        assert table.metrics()["resets"] == (times == 1)


def test_so_it_is_if_they_were_in_closed_segments_when_the_table_began(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was compacted by then is as a scan would find it."""
    for value in (b"1", None):
        put(log, (b"a", value))
        log.partition("t", 0).log.roll()
    reads_slowly(monkeypatch, [partial(compacted, log, clock)])
    with pylog.table(log, "t") as table:
        assert dict(table.items()) == scan(log) == {b"other": b"1"}
        assert table.metrics()["resets"] == 1


@pytest.mark.parametrize("left", [b"", b"0\n1\n", b"0\n0\n", b"0\n2\nt 0 9 00000000\nt 0 9 00000000\n"])
def test_a_table_begins_again_if_it_cannot_be_told_which_tombstones_are_gone(
    log: Log, clock: ManualClock, tmp_path: Path, left: bytes
) -> None:
    """``left`` of the cleaner's checkpoint; nothing: as an earlier build wrote it."""
    with_a_key_whose_tombstone_was_dropped(log, clock, tmp_path)
    path = Path(log.partition("t", 0).log.directory.path) / ".cleaner-checkpoint"
    lines = path.read_bytes().splitlines()
    path.write_bytes(left or b"\n".join([lines[0], b"1", lines[2], b""]))
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log) == {b"other": b"1"}
        assert table.metrics()["resets"] == 1
        compacted(log, clock)
        assert dict(table.items()) == scan(log)
        assert table.metrics()["resets"] <= 2  # the next checkpoint says that all which was closed may be dropped
    log.partition("t", 0).log.roll()
    with pylog.table(log, "t", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log)
        assert table.metrics()["resets"] == 0


def test_what_an_earlier_build_has_compacted_is_not_read_again_at_each_roll(log: Log, clock: ManualClock) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    compacted(log, clock, times=1)
    partition = log.partition("t", 0).log
    path = Path(partition.directory.path) / ".cleaner-checkpoint"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], b"1", lines[2], b""]))
    with pylog.table(log, "t", auto_refresh=False) as table:
        for number in range(4):
            put(log, (b"a", b"%d" % number))
            partition.roll()
            table.refresh()
        assert table.metrics()["resets"] == 0
        put(log, (b"a", None))
        partition.roll()
        table.refresh()
        put(log, (b"b", None))
        compacted(log, clock)
        table.refresh()
        assert dict(table.items()) == scan(log) == {b"other": b"1"}


@needs_rocksdict
def test_a_table_that_had_not_read_what_a_recovery_cut_away_needs_the_tombstones_of_what_came_then(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    """The disk has lost the slots and segments that were compacted. The table had stopped before
    them, at damage."""
    log.create_topic("u", cleanup_policy="compact", delete_retention_ms=KEPT_MS, segment_bytes=1024)
    partition = log.partition("u", 0)
    partition.append([ProducerRecord(b"to be deleted", b"b")], acks="all")
    for number in range(9):
        partition.append([ProducerRecord(b"x" * 400, b"%d" % number)], acks="all")
    assert compact(partition.log, CompactionOptions()).cleaned_to == 9
    directory = Path(partition.log.directory.path)
    bases = sorted(directory.glob("*.log"))
    flip(bases[2], 80)
    log.close()
    opened: dict[str, Any] = {"store": "rocksdict", "directory": tmp_path / "table"}
    with Log(log.path, clock=clock) as again, pytest.raises(CorruptRecord):
        pylog.table(again, "u", **opened)
    (directory / ".commit").unlink()
    for base in bases[2:]:
        for path in directory.glob(f"{base.stem}.*"):
            path.unlink()
    with Log(log.path, clock=clock) as again:
        partition = again.partition("u", 0)
        partition.append([ProducerRecord(None, b"b")], acks="all")
        for number in range(3):
            for key in (b"new %d" % number, b"other"):
                partition.append([ProducerRecord(b"x" * 400, key)], acks="all")
            partition.log.roll()
            partition.log.sync(partition.latest_offset)
            compact(partition.log, CompactionOptions(delete_retention_ms=KEPT_MS))
            clock.sleep(2 * KEPT_MS / 1000)
        with pylog.table(again, "u", **opened) as table, pylog.table(again, "u") as fresh:
            assert dict(table.items()) == dict(fresh.items())
            assert b"b" not in table


def test_a_renamed_topic_still_tells_which_tombstones_are_gone(log: Log, clock: ManualClock, tmp_path: Path) -> None:
    with_a_key_whose_tombstone_was_dropped(log, clock, tmp_path)
    log.rename_topic("t", "u")
    with pylog.table(log, "u", directory=tmp_path / "table") as table:
        assert dict(table.items()) == scan(log, "u") == {b"other": b"1"}


@pytest.mark.slow
@pytest.mark.parametrize("for_every", [for_every_kill, for_every_power_loss], ids=["kill", "power"])
def test_a_crash_at_any_step_of_a_compaction_leaves_no_deleted_key_in_a_table(
    for_every: Callable[..., int], seed: int
) -> None:
    machine = Machine(seed)
    with machine.process().open_log("/log") as log:
        log.create_topic("t", cleanup_policy="compact", delete_retention_ms=0)
        put(log, (b"a", b"1"))
        with pylog.table(log, "t", directory="/table"):
            pass
        put(log, (b"a", None))
        compacted(log, log.manager.clock, 1)

        def check(crashed: Machine) -> None:
            with crashed.process().open_log("/log") as after, pylog.table(after, "t", directory="/table") as table:
                assert dict(table.items()) == scan(after)

        most: dict[str, Any] = {} if for_every is for_every_kill else {"at_most": 3}
        assert for_every(machine, partial(compacted, log, log.manager.clock, 1), check, **most) > 20
        assert b"a" not in {record.key for record in log.partition("t", 0).scan()}


@pytest.mark.parametrize("values", ["stored", "positions"])
def test_compaction_and_lookups_meet(log: Log, clock: ManualClock, values: str) -> None:
    with pylog.table(log, "t", values=values) as table:
        for number in range(6):
            put(log, *((b"%d" % key, b"%d" % number) for key in range(5)), (b"%d" % number, None))
            if number % 2:
                compacted(log, clock, 1)
            assert dict(table.items()) == scan(log)
            assert {key: table[key] for key in table} == scan(log)
