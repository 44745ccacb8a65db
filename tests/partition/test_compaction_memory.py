"""The memory of a compaction is what its options allow, whatever the number of keys, and a process
that died goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pylog.codec import COMPILED
from pylog.codec.batch import build_batch
from pylog.codec.key_map import ENTRY_BYTES
from pylog.codec.records import RecordEncoder
from pylog.errors import StorageError
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.cleaner_checkpoint import CleanerCheckpoint, read_cleaned, write_cleaned
from pylog.partition.compact import engine
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.directory import PartitionDirectory
from pylog.testing.manual_clock import ManualClock
from tests.partition.logs import START_MS, append_encoded, open_partition

MIB = 1 << 20
MAP_BYTES = 4 * MIB
KEYS = 3 * MAP_BYTES // ENTRY_BYTES  # three and a third maps of them
OTHER_BYTES = 4 * MIB  # less than another map: what is read and written at once, and the indexes

CHILD = """
import json, sys
from pathlib import Path
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from tests.partition.logs import open_partition

def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

partition = open_partition(Path(sys.argv[1]), segment_bytes=8 << 20)
before = peak()
report = compact(partition.log, CompactionOptions(memory_bytes=int(sys.argv[2])))
print(json.dumps([peak() - before, report.passes, report.records_kept, report.records_dropped]))
partition.close()
"""


def append(partition: Partition, numbers: range) -> None:
    encoder = RecordEncoder(MIB)
    for number in numbers:
        encoder.append(START_MS, b"%08d" % number, b"v" * 20, ())
    append_encoded(partition, build_batch(encoder))


def closed(partition: Partition) -> None:
    partition.log.roll()
    partition.log.sync(partition.latest_offset)


@pytest.mark.slow
@pytest.mark.skipif(not COMPILED, reason="too slow")
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figure is Linux's")
def test_memory_is_bounded(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", segment_bytes=8 << 20)
    for start in range(0, KEYS, 1 << 14):
        append(partition, range(start, start + (1 << 14)))
    append(partition, range(100))
    closed(partition)
    partition.close()
    command = [sys.executable, "-c", CHILD, str(tmp_path / "t-0"), str(MAP_BYTES)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    grown_bytes, passes, kept, dropped = json.loads(done.stdout)
    assert (passes, kept, dropped) == (4, KEYS, 100)
    assert MAP_BYTES < grown_bytes < MAP_BYTES + OTHER_BYTES


def test_what_was_done_before_an_error_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the offsets has its own checkpoint."""
    partition = open_partition(tmp_path / "t-0")
    for _ in range(2):
        for number in range(30):
            append(partition, range(number, number + 1))
    closed(partition)
    options, ends = CompactionOptions(memory_bytes=ENTRY_BYTES * 10), list[int]()

    def write_three(directory: PartitionDirectory, cleaned: CleanerCheckpoint) -> None:
        if len(ends) == 3:
            raise StorageError("no more")
        ends.append(cleaned.first_dirty)
        write_cleaned(directory, cleaned)

    monkeypatch.setattr(engine, "write_cleaned", write_three)
    with pytest.raises(StorageError, match="no more"):
        compact(partition.log, options)
    assert ends == [9, 18, 27]
    assert read_cleaned(partition.log.directory) == (27, 0)
    monkeypatch.undo()
    report = compact(partition.log, options)
    assert (report.cleaned_to, report.passes) == (60, 4)
    assert [record.offset for record in partition.scan()] == [*range(30, 60)]


def test_what_is_after_a_part_is_not_touched_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a tombstone begins when the older records of its key go, not before."""
    partition = open_partition(tmp_path / "t-0")
    append(partition, range(1))
    append(partition, range(9))
    encoder = RecordEncoder(MIB)
    encoder.append(START_MS, b"%08d" % 99, None, ())
    append_encoded(partition, build_batch(encoder))
    closed(partition)

    def write(directory: object, cleaned: CleanerCheckpoint) -> None:
        raise StorageError(f"cleaned to {cleaned.first_dirty}")

    def horizons() -> list[bool]:
        fetched = partition.log.reader.fetches(0, 11, max_bytes=MIB)
        return [view.header.delete_horizon_ms is not None for fetch in fetched for view in fetch.batches]

    options = CompactionOptions(memory_bytes=ENTRY_BYTES * 10)
    monkeypatch.setattr(engine, "write_cleaned", write)
    with pytest.raises(StorageError, match="cleaned to 10"):
        compact(partition.log, options)
    assert horizons() == [False, False]
    monkeypatch.undo()
    assert compact(partition.log, options).passes == 2
    assert horizons() == [False, True]


def test_the_time_of_a_tombstone_begins_when_the_keys_have_been_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them takes long, and a reader needs the tombstone for all of its time."""
    clock = ManualClock(START_MS)
    partition = open_partition(tmp_path / "t-0", clock=clock)
    partition.append([ProducerRecord(None, key=b"a")])
    closed(partition)

    def slowly(*arguments: Any) -> Any:
        clock.advance(9)
        return keys(*arguments)

    keys = engine._Compaction._keys
    monkeypatch.setattr(engine._Compaction, "_keys", slowly)
    compact(partition.log, CompactionOptions(delete_retention_ms=10_000))
    (fetched,) = partition.log.reader.fetches(0, 1, max_bytes=MIB)
    assert [view.header.delete_horizon_ms for view in fetched.batches] == [START_MS + 19_000]


def test_a_batch_with_more_keys_than_the_map_is_cleaned_in_parts(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for _ in range(2):
        append(partition, range(50))
    closed(partition)
    report = compact(partition.log, CompactionOptions(memory_bytes=ENTRY_BYTES * 10))
    assert (report.cleaned_to, report.records_kept, report.records_dropped) == (100, 50, 50)
    assert [record.offset for record in partition.scan()] == [*range(50, 100)]


def test_a_segment_without_changes_is_not_written(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    append(partition, range(50))
    closed(partition)
    path = next((tmp_path / "t-0").glob("*.log"))
    before = path.stat()
    report = compact(partition.log)
    assert (report.records_kept, report.records_dropped, report.segments_after) == (50, 0, 1)
    assert report.bytes_after == report.bytes_before
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
