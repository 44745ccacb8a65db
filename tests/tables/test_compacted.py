"""A table of a compacted topic: a key whose tombstone was compacted away does not stay, and none is read again without need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Log, ProducerRecord
from pylog.errors import OffsetOutOfRange
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.testing import ManualClock
from tests.tables.scans import STORES_AND_VALUES, options, scan

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


def compacted(log: Log, clock: ManualClock, times: int = 2) -> None:
    """Compact all that there is. The second time tombstones go."""
    partition = log.partition("t", 0).log
    for number in range(times):
        put(log, (b"other", b"%d" % number))
        partition.roll()
        partition.sync(partition.latest_offset)
        assert compact(partition, CompactionOptions(delete_retention_ms=KEPT_MS)).records_kept
        clock.advance(2 * KEPT_MS / 1000)


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


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("set_back_s", [0, 3600])
def test_so_it_is_if_the_clock_was_set_back_or_the_policy_changed_since(
    log: Log, clock: ManualClock, tmp_path: Path, policy: str, set_back_s: int
) -> None:
    put(log, (b"a", b"1"))
    with pylog.table(log, "t", directory=tmp_path / "table"):
        pass
    put(log, (b"a", None))
    compacted(log, clock)
    log.alter_topic("t", cleanup_policy=policy)
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


@pytest.mark.parametrize("is_compacted_again", [False, True])
def test_a_partition_that_is_compacted_while_it_is_read_for_too_long_is_read_again(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_compacted_again: bool
) -> None:
    """The table has read the value, and reads so slowly that it does not meet the tombstone."""
    monkeypatch.setattr("pylog.tables.follower._FETCH_BYTES", 1)
    put(log, (b"a", b"1"))
    partition = log.partition("t", 0).log
    partition.roll()
    put(log, (b"a", None), (b"b", b"1"))
    table: Any = pylog.table(log, "t")
    table.close()
    applied = type(table._store).apply
    slow = [True]

    def apply(store: Any, number: int, newest: Any, position: Any) -> None:
        applied(store, number, newest, position)
        if slow and number == 0:
            if not is_compacted_again:
                slow.clear()
            compacted(log, clock)

    monkeypatch.setattr(type(table._store), "apply", apply)
    if is_compacted_again:
        with pytest.raises(OffsetOutOfRange, match="was compacted"):
            pylog.table(log, "t")
    else:
        with pylog.table(log, "t") as table:
            assert dict(table.items()) == scan(log)
            assert b"a" not in table
            assert table.metrics()["resets"] > 0


@pytest.mark.parametrize("values", ["stored", "positions"])
def test_compaction_and_lookups_meet(log: Log, clock: ManualClock, values: str) -> None:
    with pylog.table(log, "t", values=values) as table:
        for number in range(6):
            put(log, *((b"%d" % key, b"%d" % number) for key in range(5)), (b"%d" % number, None))
            if number % 2:
                compacted(log, clock, 1)
            assert dict(table.items()) == scan(log)
            assert {key: table[key] for key in table} == scan(log)
