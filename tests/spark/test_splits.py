"""A query's offsets as tasks: all of them once, in pieces of about the size that is asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog import Log, Producer, ProducerRecord
from pylog.errors import ConfigError
from pylog.limits import FETCH_BYTES
from pylog.segment.naming import OFFSET_INDEX, file_path
from pylog.spark.source.directory import PartitionSource
from pylog.spark.source.partition_range import PartitionRange
from pylog.storage.os_filesystem import OsReadableFile
from tests.spark.reading import KAFKA, planned, read, read_ranges

BATCHES, RECORDS, VALUE_BYTES = 200, 3, 1_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Some 600 kB in five segments of one partition; another partition has three records."""
    with Log(tmp_path_factory.mktemp("splits") / "log") as opened:
        opened.create_topic("orders", partitions=2, segment_bytes=130_000, index_interval_bytes=4_096)
        for number in range(BATCHES):
            values = [ProducerRecord(b"%d" % number + b"x" * VALUE_BYTES) for _ in range(RECORDS)]
            opened.partition("orders", 0).append(values, acks=1)
        opened.partition("orders", 1).append([ProducerRecord(b"y")] * 3, acks=1)
        yield opened


def ends(ranges: list[PartitionRange], partition: int = 0) -> list[tuple[int, int]]:
    return [(piece.start, piece.end) for piece in ranges if piece.source.topic_partition.partition == partition]


def assert_follow(pieces: list[tuple[int, int]], start: int, end: int) -> None:
    assert pieces[0][0] == start
    assert pieces[-1][1] == end
    assert all(before[1] == after[0] for before, after in pairwise(pieces))
    assert all(first < last for first, last in pieces)


@pytest.mark.parametrize("split_bytes", [1, 10_000, 50_000, 130_000, 200_000, 10**9])
def test_pieces_have_about_the_bytes_asked_for_and_end_between_batches(log: Log, split_bytes: int) -> None:
    pieces = ends(planned(log.path, splitBytes=split_bytes))
    assert_follow(pieces, 0, BATCHES * RECORDS)
    if len(pieces) > 1:
        assert all(start % RECORDS == 0 for start, _ in pieces)
    *sizes, last = (
        (end - start) * log.partition("orders", 0).size_bytes // (BATCHES * RECORDS) for start, end in pieces
    )
    slack = 4_096 + 2 * RECORDS * (VALUE_BYTES + 100)  # an interval of the index, and the batches around it
    assert all(split_bytes - slack <= size <= split_bytes + 2 * slack for size in sizes)
    assert last <= 1.5 * split_bytes + 2 * slack
    assert not sizes or last >= 0.5 * split_bytes - slack
    assert len(ends(planned(log.path, splitBytes=split_bytes), 1)) == 1


@pytest.mark.parametrize(
    ("times", "tasks"), [(0.6, 1), (1.0, 1), (1.4, 1), (1.6, 2), (2.1, 2), (2.4, 2), (2.6, 3), (5.2, 5)]
)
def test_a_small_rest_is_no_task_of_its_own(log: Log, times: float, tasks: int) -> None:
    pieces = ends(planned(log.path, splitBytes=int(log.partition("orders", 0).size_bytes / times)))
    assert_follow(pieces, 0, BATCHES * RECORDS)
    assert len(pieces) == tasks


def test_partitions_that_are_no_more_than_one_task_each_are_cut_where_more_are_asked_for(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders", partitions=3, index_interval_bytes=4_096)
        for partition in range(3):
            for _ in range(BATCHES // 4):
                log.partition("orders", partition).append([ProducerRecord(b"x" * VALUE_BYTES)] * RECORDS, acks=1)
        split_bytes = int(log.partition("orders", 0).size_bytes / 1.4)
        assert len(planned(log.path, splitBytes=split_bytes)) == 3
        assert len(planned(log.path, splitBytes=split_bytes, minPartitions=4)) >= 4


def test_one_task_reads_a_small_partition(log: Log) -> None:
    assert [*map(len, (ends(planned(log.path)), ends(planned(log.path), 1)))] == [1, 1]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, BATCHES * RECORDS), st.integers(0, BATCHES * RECORDS), st.integers(1_000, 300_000))
def test_any_range_in_pieces_gives_the_same_rows(log: Log, one: int, other: int, split_bytes: int) -> None:
    start, end = sorted((one, other))
    given = {
        "assign": {"orders": [0]},
        "startingOffsets": {"orders": {"0": start}},
        "endingOffsets": {"orders": {"0": end}},
    }
    ranges = planned(log.path, splitBytes=split_bytes, **given)
    if start < end:
        assert_follow(ends(ranges), start, end)
    assert [row["offset"] for row in read_ranges(ranges)] == [*range(start, end)]


@pytest.mark.parametrize("tasks", [1, 2, 3, 8, 50])
def test_there_are_as_many_tasks_as_asked_for(log: Log, tasks: int) -> None:
    ranges = planned(log.path, minPartitions=tasks)
    assert len(ranges) >= min(tasks, 40)
    assert len(ranges) <= 2 * tasks + 1
    assert_follow(ends(ranges), 0, BATCHES * RECORDS)


@pytest.mark.parametrize("count", [1, 7, 599, 600, 10**9])
def test_tasks_have_at_most_as_many_offsets_as_asked_for(log: Log, count: int) -> None:
    pieces = ends(planned(log.path, maxRecordsPerPartition=count))
    assert_follow(pieces, 0, BATCHES * RECORDS)
    assert max(end - start for start, end in pieces) <= count
    assert len(pieces) == -(-BATCHES * RECORDS // count)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many bytes were read of files, by suffix."""
    found: Counter[str] = Counter()
    pread = OsReadableFile.pread

    def counted(file: OsReadableFile, size: int, position: int) -> bytes:
        data = pread(file, size, position)
        found[Path(file.path).suffix] += len(data)
        return data

    monkeypatch.setattr(OsReadableFile, "pread", counted)
    return found


def test_planning_reads_indexes_and_no_data(log: Log, read_bytes: Counter[str]) -> None:
    assert len(planned(log.path, splitBytes=20_000)) > 20
    assert read_bytes[".log"] == 0
    assert 0 < read_bytes.total() < 20_000


@pytest.mark.parametrize("split_bytes", [1 << 29, 2_500_000])
def test_a_task_reads_full_batches_of_a_producer_once(
    tmp_path: Path, read_bytes: Counter[str], split_bytes: int
) -> None:
    with Log(tmp_path / "log") as log, Producer(log, acks=1, linger_ms=60_000) as producer:
        log.create_topic("orders", segment_bytes=3 << 20)
        producer.send_many("orders", [b"x" * 10_000] * 1_000)
        producer.flush()
        size_bytes = log.partition("orders", 0).size_bytes
        ranges = planned(log.path, splitBytes=split_bytes)
        read_bytes.clear()
        assert sum(1 for _ in read_ranges(ranges)) == 1_000
        assert read_bytes[".log"] <= size_bytes + len(ranges) * FETCH_BYTES


def test_a_plan_opens_each_partition_once_and_again_only_to_cut_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    directory = PartitionSource.partition_directory
    monkeypatch.setattr(
        PartitionSource,
        "partition_directory",
        lambda self: opened.append(self.topic_partition.partition) or directory(self),
    )
    everywhere = json.dumps({"orders": {"0": 0, "1": 0}})
    planned(log.path, startingOffsetsByTimestamp=everywhere, endingOffsetsByTimestamp=everywhere)
    assert sorted(opened) == [0, 1]
    opened.clear()
    assert len(planned(log.path, splitBytes=50_000)) > 2
    assert sorted(opened) == [0, 0, 1]


def test_without_an_index_a_segment_is_one_piece(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders", segment_bytes=130_000)
        for _ in range(BATCHES):
            log.partition("orders", 0).append([ProducerRecord(b"x" * VALUE_BYTES)] * RECORDS, acks=1)
        directory = str(log.path / "orders-0")
        bases = [segment.base_offset for segment in log.partition("orders", 0).segments]
        for base in bases:
            Path(file_path(directory, base, OFFSET_INDEX)).unlink()
        pieces = ends(planned(log.path, splitBytes=20_000))
        assert_follow(pieces, 0, BATCHES * RECORDS)
        assert [row["offset"] for row in read(log.path, splitBytes=20_000)] == [*range(BATCHES * RECORDS)]


@pytest.mark.parametrize("split_bytes", [1, 1_000])
def test_a_brokers_directory_in_pieces_gives_the_same_rows(split_bytes: int) -> None:
    path = KAFKA / "log"
    assert read(path, splitBytes=split_bytes) == read(path)


@pytest.mark.parametrize("name", ["splitBytes", "minPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", ""])
def test_what_is_no_count_is_refused(log: Log, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{value}', expected a whole number from 1 on"):
        planned(log.path, **{name: value})


def test_a_piece_may_end_where_a_segment_does(log: Log) -> None:
    first, second = log.partition("orders", 0).segments[:2]
    pieces = ends(planned(log.path, splitBytes=first.size_bytes))
    assert_follow(pieces, 0, BATCHES * RECORDS)
    assert pieces[0] == (0, second.base_offset)
