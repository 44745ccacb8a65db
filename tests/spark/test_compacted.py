"""A query reads a topic that is compacted: before its plan, after its plan, and while its tasks
read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from tests.spark.reading import planned, read, read_ranges

KEYS, RECORDS = 10, 300


def filled(path: Path) -> Log:
    """Records whose values are their offsets, in closed segments and an active one."""
    log = Log(path)
    log.create_topic("t", segment_bytes=4096, index_interval_bytes=128)
    partition = log.partition("t", 0)
    for offset in range(RECORDS):
        partition.append([ProducerRecord(b"%d" % offset, key=b"%d" % (offset % KEYS), timestamp_ms=1000)], acks=1)
    partition.log.sync(RECORDS)
    return log


def compacted(log: Log) -> None:
    partition = log.partition("t", 0)
    partition.log.roll()
    partition.log.sync(RECORDS)
    assert compact(partition.log, CompactionOptions()).records_dropped


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_compacted_topic_is_read_whole(tmp_log_dir: Path, pieces: int) -> None:
    with filled(tmp_log_dir) as log:
        compacted(log)
        found = read(tmp_log_dir, subscribe="t", minPartitions=pieces)
    assert [row["offset"] for row in found] == [*range(RECORDS - KEYS, RECORDS)]


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("read_before", [0, 1, 100, 250])
def test_a_compaction_after_the_plan_takes_only_superseded_records(
    tmp_log_dir: Path, pieces: int, read_before: int
) -> None:
    with filled(tmp_log_dir) as log:
        rows = read_ranges(planned(tmp_log_dir, subscribe="t", minPartitions=pieces))
        found = list(islice(rows, read_before))
        compacted(log)
        found += rows
    offsets = [row["offset"] for row in found]
    assert offsets == sorted(set(offsets))
    assert offsets[:read_before] == [*range(read_before)]
    assert set(range(RECORDS - KEYS, RECORDS)) <= set(offsets)
    assert all(row["value"] == b"%d" % row["offset"] for row in found)
