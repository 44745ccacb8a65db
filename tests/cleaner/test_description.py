"""What ``Log.describe_partitions`` says, compared with the files and with all records."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from pylog import Log, Producer, ProducerRecord
from pylog.cleaner.description import PartitionDescription
from pylog.model import OffsetAndTimestamp
from pylog.storage import ReadableFile
from tests.conftest import TESTS
from tests.partition.logs import append_encoded, batch, flip, log_file, marker, snapshot_of
from tests.storage.filesystems import StandIn


def only(log: Log, topic: str = "t") -> PartitionDescription:
    (found,) = log.describe_partitions(topic)
    return found


def ends(log: Log, topic: str, number: int = 0) -> list[OffsetAndTimestamp]:
    records = list(log.partition(topic, number).scan(isolation_level="read_uncommitted"))
    return [OffsetAndTimestamp(record.offset, record.timestamp_ms) for record in (*records[:1], *records[-1:])]


def test_an_empty_partition(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        found = only(log)
    assert found[2:9] == (0, 0, 0, 0, 1, 0, found.other_bytes)
    assert found[9:] == (None, None, 0, None, None, "")
    assert found.time_span_ms is None


def test_it_agrees_with_files_and_records(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with Log(tmp_path / "log") as log:
        log.create_topic("t", segment_bytes=2048, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
        partition = log.partition("t", 0)
        for step in range(60):
            records = [
                ProducerRecord(b"v" * random.randrange(60), key=b"%d" % random.randrange(9), timestamp_ms=1000 + step)
                for _ in range(random.randrange(1, 5))
            ]
            partition.append(records)
            if random.random() < 0.1:
                log.maintain()
            if random.random() < 0.1 and step > 5:
                log.erase("t", b"%d" % random.randrange(9))
            if random.random() < 0.05:
                partition.log.delete_before(random.randrange(partition.earliest_offset, partition.latest_offset))
            found = only(log)
            assert [found.oldest, found.newest] == ends(log, "t")
            assert found.newest is not None
            assert found.oldest is not None
            assert found.time_span_ms == found.newest.timestamp_ms - found.oldest.timestamp_ms
            files = list((tmp_path / "log" / "t-0").iterdir())
            assert found.segments == sum(path.suffix == ".log" for path in files)
            assert found.size_bytes == sum(path.stat().st_size for path in files if path.suffix == ".log")
            assert found.other_bytes is not None
            assert found.size_bytes + found.other_bytes == sum(path.stat().st_size for path in files)
            assert found.problem == ""
        done = log.maintain().partitions[0]
        assert done.error == ""
        found = only(log)
        first_dirty = max(partition.segments[-1].base_offset, partition.earliest_offset)
        assert (found.first_dirty_offset, found.dirty_bytes) == (first_dirty, 0)
        partition.log.roll()
        dirty = [s for s in partition.segments if s.end_offset > first_dirty]
        assert only(log).dirty_bytes == sum(segment.size_bytes for segment in dirty)


def test_open_transactions_and_what_only_markers_follow(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t", partitions=2)
        with Producer(log, transactional_id="x") as producer:
            producer.init_transactions()
            for _ in range(3):
                with producer.transaction():
                    producer.send("t", b"v", partition=0, timestamp_ms=1000)
            producer.begin_transaction()
            producer.send("t", b"v", partition=1, timestamp_ms=5)
            producer.flush()
            first, second = log.describe_partitions("t")
            assert (first.open_transactions, second.open_transactions) == (0, 1)
            assert first.newest == ends(log, "t")[-1]
            assert (second.last_stable_offset, second.latest_offset) == (0, 1)
            producer.abort_transaction()


def test_only_aborts_are_read_over(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        partition = log.partition("t", 0)
        append_encoded(partition, batch(b"first", timestamp_ms=7))
        for number in range(20):
            append_encoded(partition, batch(b"v", producer_id=number, epoch=0, sequence=0, transactional=True))
            append_encoded(partition, marker(number, 0, commit=True))
            partition.log.roll()
        found = only(log)
        assert found.newest == ends(log, "t")[-1]
        assert found.oldest == OffsetAndTimestamp(0, 7)


@pytest.mark.parametrize("read_only", [False, True])
def test_it_writes_nothing(tmp_path: Path, read_only: bool) -> None:
    root = tmp_path / "log"
    with Log(root) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"v")])
    before = snapshot_of(root)
    with Log(root, read_only=read_only) as log:
        assert only(log).newest is not None
        assert snapshot_of(root) == before


def test_kafkas_directories(tmp_path: Path) -> None:
    shutil.copytree(TESTS / "data" / "kafka-4.3.1" / "log", tmp_path / "log")
    with Log(tmp_path / "log") as log:
        assert log.is_kafka_directory
        for topic in log.topics():
            for found in log.describe_partitions(topic):
                assert found.problem == ""
                expected = ends(log, topic, found.partition)
                assert [end for end in (found.oldest, found.newest) if end] == expected, topic


def test_damage_leaves_what_is_known(tmp_path: Path) -> None:
    root = tmp_path / "log"
    with Log(root) as log:
        log.create_topic("t", partitions=2)
        for number in range(2):
            log.partition("t", number).append([ProducerRecord(b"v" * 100)])
    flip(log_file(root / "t-0"), 100)
    with Log(root) as log:
        first, second = log.describe_partitions("t")
    assert "is damaged" in first.problem
    assert first.size_bytes == second.size_bytes
    assert (first.oldest, second.problem) == (None, "")


class Counting(StandIn):
    """Counts the bytes that are read of log files."""

    read_bytes = 0

    def open_readable(self, path: str) -> ReadableFile:
        return Counted(super().open_readable(path), self) if path.endswith(".log") else super().open_readable(path)


class Counted:
    def __init__(self, file: ReadableFile, total: Counting) -> None:
        self._file = file
        self._total = total

    def pread(self, size: int, position: int) -> bytes:
        self._total.read_bytes += size
        return self._file.pread(size, position)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_a_large_partition_costs_as_little_as_a_small_one(tmp_path: Path) -> None:
    costs = []
    for count in (20, 200):
        root = tmp_path / f"log-{count}"
        with Log(root) as log:
            log.create_topic("t", segment_bytes=1 << 20, index_interval_bytes=4096)
            partition = log.partition("t", 0)
            for number in range(count):
                partition.append([ProducerRecord(b"v" * 50_000, timestamp_ms=number)], acks=1)
        filesystem = Counting()
        with Log(root, filesystem=filesystem) as log:
            only(log)
        costs.append(filesystem.read_bytes)
    assert costs[1] < 1.5 * costs[0], costs
