"""Retention takes segments away between plan, pieces and task: all readers say so, whether offsets
are dense or rise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import CorruptSegment, OffsetOutOfRange
from pylog.model import TopicPartition
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.segment.naming import LOG, file_path
from pylog.spark.source.partition_range import PartitionRange
from pylog.storage import OsFileSystem
from tests.spark.jvm.verdicts import JavaReader, pieces_of, verdicts
from tests.spark.reading import offsets, planned, read, read_ranges
from tests.spark.streaming import Query

TP = TopicPartition("t", 0)
RECORDS, KEPT = 600, 450
GONE = r"offset 0 of t-0 was lost: retention has removed what is before offset 450"


@pytest.fixture(params=["dense", "rising"])
def log(request: pytest.FixtureRequest, tmpfs_dir: Path) -> Iterator[Log]:
    """Ten segments; the value of a record is its offset. Compaction leaves nine of ten records."""
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", segment_bytes=4096, index_interval_bytes=128)
        partition = log.partition(*TP)
        for offset in range(RECORDS):
            record = ProducerRecord(b"%d" % offset, key=b"%d" % (offset if offset % 10 else 0), timestamp_ms=1000)
            partition.append([record], acks=1)
        if request.param == "rising":
            partition.log.roll()
            partition.log.sync(RECORDS)
            assert compact(partition.log, CompactionOptions()).records_dropped
        yield log


def after_retention(log: Log, **options: Any) -> list[PartitionRange]:
    """A plan, after which segments are deleted; one with records from before ``KEPT`` stays."""
    ranges = planned(log.path, splitBytes=8_000, **options)
    assert len(ranges) > 3
    log.delete_records(TP, KEPT)
    assert 0 < log.partition(*TP).segments[0].base_offset < KEPT
    return ranges


def test_a_batch_query_fails(log: Log) -> None:
    with pytest.raises(OffsetOutOfRange, match=GONE):
        list(read_ranges(after_retention(log)))


@pytest.mark.parametrize("options", [{}, {"onCorruption": "skip"}])
def test_a_tolerant_batch_query_has_what_is_left(
    log: Log, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    ranges = after_retention(log, failOnDataLoss=False, **options)
    assert offsets(list(read_ranges(ranges))) == offsets(read(log.path))
    assert "offset 0 of t-0 was lost: retention has removed" in caplog.text


def test_a_range_that_begins_in_the_first_remaining_segment_is_whole(log: Log) -> None:
    (whole,) = planned(log.path, startingOffsets={"t": {"0": KEPT}})
    log.delete_records(TP, KEPT)
    assert offsets(list(read_ranges([whole]))) == offsets(read(log.path))


@pytest.mark.parametrize("fails", [True, False])
def test_a_micro_batch(log: Log, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(log.path, startingOffsets="earliest", splitBytes=8_000, failOnDataLoss=fails)
    query.plan()
    tasks = query.tasks()
    log.delete_records(TP, KEPT)
    if fails:
        with pytest.raises(OffsetOutOfRange, match=GONE):
            query.read(tasks)
    else:
        assert offsets(query.read(tasks)) == offsets(read(log.path))
        assert "continuing with what is there" in caplog.text


def test_a_first_segment_that_is_missing_without_retention_is_damage(log: Log) -> None:
    ranges = planned(log.path)
    OsFileSystem().remove(file_path(str(Path(log.path, "t-0")), 0, LOG))
    with pytest.raises(CorruptSegment, match="offsets 0 to 56 are missing"):
        list(read_ranges(ranges))


# The Java reader


def test_pieces_of_what_retention_has_removed_are_refused(log: Log) -> None:
    """Also one that begins before the first remaining segment and ends in it."""
    ranges = after_retention(log)
    first = log.partition(*TP).segments[0].base_offset
    refused = [each for each in ranges if each.start < first]
    assert any(each.end > first for each in refused)
    for each in refused:
        with pytest.raises(OffsetOutOfRange, match=rf"offset {each.start} of t-0 was lost: retention has removed what"):
            pieces_of([each])


@pytest.mark.one_in(4)
def test_files_that_go_before_the_java_reader_opens_them_are_loss(java: JavaReader, log: Log) -> None:
    pieces = [pieces_of([each]) for each in planned(log.path, splitBytes=8_000)]
    before = [java.ask(each) for each in pieces]
    log.delete_records(TP, KEPT)
    first = log.partition(*TP).segments[0].base_offset
    for each, rows in zip(pieces, before, strict=True):
        if each[0]["start"] < first:
            assert java.ask(each).startswith(f"lost offset {each[0]['start']} of t-0 was lost: "), each
        else:
            assert java.ask(each) == rows
    found, expected = verdicts(java, planned(log.path))
    assert found == expected


# What a plan costs


def test_the_pieces_of_a_partition_share_the_sizes_of_its_segments(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked for once for the list, and once when the segment is opened to find a
    position."""
    ranges = planned(log.path, maxRecordsPerPartition=10)
    assert len(ranges) == RECORDS // 10
    asked = Counter[str]()
    size = OsFileSystem.size

    def counted(self: OsFileSystem, path: str) -> int:
        asked[path] += 1
        return size(self, path)

    monkeypatch.setattr(OsFileSystem, "size", counted)
    assert pieces_of(ranges)
    stats = {path: count for path, count in asked.items() if path.endswith(LOG)}
    assert len(stats) > 9
    assert max(stats.values()) == 2
