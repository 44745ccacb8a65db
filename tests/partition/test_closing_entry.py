"""The closing entry of an active segment's time index: the last writer to close the log leaves it,
and the next one goes on.

Kafka writes it when it closes a log, and relies on it after a clean shutdown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.index import TimeIndexReader, TimestampOffset
from pylog.partition import Partition
from pylog.partition.verify import verify_partition
from pylog.segment.naming import TIME_INDEX, file_path
from pylog.storage import OsFileSystem
from pylog.testing.machine import Machine, Process, Step
from tests.partition.logs import (
    START_MS,
    TP,
    assert_indexes_follow_from_the_log,
    batch,
    open_partition,
)


def append(partition: Partition, *numbers: int, size: int = 10) -> None:
    for number in numbers:
        partition.log.append_batch(batch(b"%d" % number + b"." * size, timestamp_ms=START_MS + number))


def last_entry(directory: Path, base: int = 0) -> TimestampOffset | None:
    filesystem = OsFileSystem()
    index = TimeIndexReader(filesystem.open_readable(file_path(str(directory), base, TIME_INDEX)), base)
    try:
        return index.last()
    finally:
        index.close()


def assert_good(directory: Path) -> None:
    assert list(verify_partition(OsFileSystem(), str(directory), TP)) == []


def test_closing_writes_the_greatest_timestamp_of_the_active_segment(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, 0, 7, 3)
    assert last_entry(tmp_path) is None
    partition.close()
    assert last_entry(tmp_path) == (START_MS + 7, 1)
    assert_good(tmp_path)


def test_closing_writes_it_after_a_roll_too(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, 0, 1)
    partition.log.roll()
    append(partition, 2)
    partition.close()
    assert last_entry(tmp_path, 2) == (START_MS + 2, 2)
    assert_good(tmp_path)


def test_an_empty_segment_gets_none(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, 0)
    partition.log.roll()
    partition.close()
    assert last_entry(tmp_path, 1) is None
    assert_good(tmp_path)


def test_the_next_writer_takes_it_away_and_leaves_another(tmp_path: Path) -> None:
    for number in range(30):
        partition = open_partition(tmp_path)
        append(partition, number, size=1_000)
        assert_good(tmp_path)
        partition.close()
        assert last_entry(tmp_path) == (START_MS + number, number)
        assert_good(tmp_path)
    partition = open_partition(tmp_path)
    append(partition, 30)
    assert_indexes_follow_from_the_log(tmp_path, 4096)


def test_older_records_leave_it_as_it_is(tmp_path: Path) -> None:
    for number in (9, 1, 5):
        partition = open_partition(tmp_path)
        append(partition, number)
        partition.close()
        assert last_entry(tmp_path) == (START_MS + 9, 0)
        assert_good(tmp_path)


@pytest.mark.parametrize("size", [10, 3_000])
def test_a_writer_that_has_the_partition_open_goes_on_after_another_has_closed_it(tmp_path: Path, size: int) -> None:
    first, second = open_partition(tmp_path), open_partition(tmp_path)
    for number in range(0, 20, 2):
        append(first, number, size=size)
        append(second, number + 1, size=size)
        second.close()
        assert last_entry(tmp_path) == (START_MS + number + 1, number + 1)
        assert_good(tmp_path)
        second = open_partition(tmp_path)
    append(first, 20, size=size)
    assert_good(tmp_path)
    second.close()
    first.close()
    assert last_entry(tmp_path) == (START_MS + 20, 20)
    assert_good(tmp_path)


def test_only_the_writer_that_knows_the_end_writes_it(tmp_path: Path) -> None:
    first, second = open_partition(tmp_path), open_partition(tmp_path)
    append(first, 0)
    append(second, 1)
    first.close()
    assert last_entry(tmp_path) is None
    second.close()
    assert last_entry(tmp_path) == (START_MS + 1, 1)


def test_closing_does_not_wait_for_a_writer_that_holds_the_lock(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    append(partition, 0)
    lock = OsFileSystem().lock(str(tmp_path / ".lock"))
    assert lock.try_acquire()
    partition.close()
    lock.close()
    assert last_entry(tmp_path) is None
    assert_good(tmp_path)


def refusing(name: str, suffix: str) -> Callable[[Process, Step], None]:
    def before(_process: Process, step: Step) -> None:
        if step.name == name and step.path.endswith(suffix):
            raise StorageError("cannot", path=step.path)

    return before


@pytest.mark.parametrize(("name", "suffix"), [("pwrite", TIME_INDEX), ("lock", "t-0/.lock"), ("pread", ".commit")])
def test_a_log_is_closed_although_the_entry_is_refused(
    name: str, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    log = machine.process().open_log("/log")
    log.create_topic("t")
    log.partition("t", 0).log.append_batch(batch(b"value"))
    machine.before_step.append(refusing(name, suffix))
    log.close()
    machine.before_step.clear()
    assert "no closing entry" in caplog.text
    assert machine.locks == {}
    with machine.process().open_log("/log") as log:
        log.partition("t", 0).log.append_batch(batch(b"another"))
        assert log.verify().problems == []
