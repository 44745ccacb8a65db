"""Small ranges share a task; what is asked of tasks holds all the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import Log, ProducerRecord, arrow
from pylog.model import TopicPartition
from pylog.spark.source.batch import BatchReader
from pylog.spark.source.directory import PartitionSource
from pylog.spark.source.options import Splitting
from pylog.spark.source.partition_range import PartitionRange
from pylog.spark.source.ranges import PartitionRanges
from pylog.spark.source.splits import TASK_BYTES, coalesce
from tests.arrow.rows import rows
from tests.spark.reading import options, read

PARTITIONS, RECORDS = 12, 10
NO_STATE: Any = None


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with Log(tmp_path_factory.mktemp("coalescing") / "log") as opened:
        opened.create_topic("orders", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            opened.partition("orders", number).append([ProducerRecord(b"x" * 1_000)] * RECORDS, acks=1)
        yield opened


def tasks(path: Path | str, **given: Any) -> list[PartitionRanges]:
    found: list[PartitionRanges] = pickle.loads(
        pickle.dumps(BatchReader(options(path, **given), arrow.schema()).partitions())
    )
    return found


def test_small_partitions_share_a_task_that_reads_them_all_in_order(log: Log) -> None:
    (task,) = tasks(log.path)
    assert [piece.source.topic_partition.partition for piece in task.ranges] == [*range(PARTITIONS)]
    reader = BatchReader(options(log.path), arrow.schema())
    assert [row for batch in reader.read(task) for row in rows(batch)] == read(log.path)


@pytest.mark.parametrize("least", [1, 2, 5, 11, 12])
def test_there_are_no_fewer_tasks_than_asked_for(log: Log, least: int) -> None:
    found = tasks(log.path, minPartitions=least)
    assert len(found) == least
    pieces = [piece.source.topic_partition.partition for task in found for piece in task.ranges]
    assert pieces == [*range(PARTITIONS)]


def test_tasks_that_are_asked_to_have_few_records_are_not_put_together(log: Log) -> None:
    assert len(tasks(log.path, maxRecordsPerPartition=5)) == 2 * PARTITIONS
    assert len(tasks(log.path, maxRecordsPerPartition=1_000_000)) == PARTITIONS


def test_a_task_has_about_the_bytes_of_a_split(log: Log) -> None:
    assert len(tasks(log.path, splitBytes=31_000)) == PARTITIONS // 3
    assert len(tasks(log.path, splitBytes=9_000)) == PARTITIONS


SOURCE = PartitionSource(TopicPartition("t", 0), "", False, 0, b"", "")


def piece(number: int, size_bytes: int) -> PartitionRange:
    return PartitionRange(SOURCE, NO_STATE, number, number + 1, "read_committed", True, size_bytes=size_bytes)


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 2 * TASK_BYTES) | st.integers(0, 1_000), max_size=60),
    st.integers(1, 3 * TASK_BYTES),
    st.integers(0, 70),
    st.sampled_from([0, 0, 5]),
)
def test_any_pieces_are_put_together_in_order(sizes: list[int], piece_bytes: int, least: int, offsets_max: int) -> None:
    pieces = [piece(number, size) for number, size in enumerate(sizes)]
    found = coalesce(pieces, Splitting(piece_bytes, least, offsets_max))
    assert [one for task in found for one in task] == pieces
    assert all(found)
    assert len(found) >= min(least, len(pieces))
    assert all(len(task) == 1 or sum(one.size_bytes for one in task) <= min(piece_bytes, TASK_BYTES) for task in found)
    if offsets_max:
        assert len(found) == len(pieces)
    elif not least:
        bytes_of = [sum(one.size_bytes for one in task) for task in found]
        room = min(piece_bytes, TASK_BYTES)
        assert all(
            one + other[0].size_bytes > room - len(pieces) for one, other in zip(bytes_of, found[1:], strict=False)
        )
