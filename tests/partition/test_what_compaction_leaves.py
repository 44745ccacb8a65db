"""What compaction leaves of a batch or a segment, case by case: histories drawn at random seldom
come to these."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.codec import KeyMap, RecordEncoder
from pylog.codec.batch import BatchView, build_batch, read_header
from pylog.codec.format import INT64_MIN, Buffer
from pylog.codec.key_map import SECRET_BYTES, memory_for
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.compact import cleaned
from pylog.partition.compact.batches import LastOfProducer, Rules, clean
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions, CompactionReport
from pylog.partition.compact.transactions import Judged
from pylog.segment.naming import CLEANER_CHECKPOINT
from pylog.segment.seal import decode
from pylog.testing.manual_clock import ManualClock
from tests.partition.logs import (
    START_MS,
    append_encoded,
    batch,
    control_batch,
    file_of,
    headers,
    log_file,
    marker,
    open_partition,
    problems,
)
from tests.storage.filesystems import Faulty

RETENTION_MS = 5_000


def compact_closed(partition: Partition, *, after_ms: int = 0, with_another_record: bool = True) -> CompactionReport:
    """Compact all that is there after this time."""
    if with_another_record:
        partition.append([ProducerRecord(b"v", key=b"newest")], acks=1)
    partition.log.roll()
    partition.log.sync(partition.latest_offset)
    assert isinstance(partition.log.directory.clock, ManualClock)
    partition.log.directory.clock.advance(after_ms / 1000)
    return compact(partition.log, CompactionOptions(delete_retention_ms=RETENTION_MS))


@pytest.mark.parametrize(
    ("producers", "stays"),
    [
        ({1: LastOfProducer(-1, 3)}, True),
        ({1: LastOfProducer(-1, 4)}, False),  # a later marker has its epoch
        ({1: LastOfProducer(9, 3)}, False),  # a batch has it
        ({}, False),  # it is forgotten
    ],
)
def test_the_marker_that_alone_has_a_producers_epoch_is_emptied_and_stays(
    producers: dict[int, LastOfProducer], stays: bool
) -> None:
    """As in Kafka: of a producer whose batches are gone, the header of the last marker is its last
    one."""
    rules = Rules(KeyMap(memory_for(1), bytes(SECRET_BYTES), 0), 10, START_MS, RETENTION_MS, producers)
    view, is_unneeded = first_batch(marker(1, 3, commit=False)), Judged(True)
    kept = clean(view, is_unneeded, rules)
    assert kept.kept == 1
    assert kept.batch is not None
    emptied = clean(first_batch(kept.batch), is_unneeded, rules._replace(time_ms=START_MS + RETENTION_MS))
    assert emptied.dropped == 1
    left = None if emptied.batch is None else read_header(emptied.batch)
    assert (left is not None) is stays
    if left is not None:
        assert (left.count, left.is_control, left.producer_id, left.producer_epoch) == (0, True, 1, 3)


def first_batch(data: Buffer) -> BatchView:
    return BatchView(data, read_header(data))


def test_an_emptied_marker_that_is_the_end_of_the_compacted_segments_goes_once_records_follow(directory: Path) -> None:
    partition = open_partition(directory)
    append_encoded(partition, batch(b"v", key=b"a", producer_id=1, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, marker(1, 1, commit=False))
    compact_closed(partition, with_another_record=False)
    for _ in range(2):  # the first one gives the marker its horizon
        (directory / CLEANER_CHECKPOINT).unlink()  # else nothing is dirty
        compact_closed(partition, after_ms=RETENTION_MS, with_another_record=False)
    assert [(header.base_offset, header.count) for _, header in headers(log_file(directory))] == [(1, 0)]
    compact_closed(partition)
    assert [header.base_offset for _, header in headers(log_file(directory))] == [2]
    assert partition.latest_offset == 3
    assert problems(directory) == []


def test_a_control_batch_that_ends_no_transaction_stays(directory: Path) -> None:
    """Kafka writes one when a partition gets another leader, for example."""
    partition = open_partition(directory)
    append_encoded(partition, batch(b"v", key=b"a"))
    append_encoded(partition, control_batch(2))
    for _ in range(3):
        compact_closed(partition, after_ms=RETENTION_MS)
    left = {header.base_offset: header for _, header in headers(log_file(directory))}
    assert (left[1].is_control, left[1].count) == (True, 1)
    assert [record.offset for record in partition.scan()] == [0, 4]


def test_a_deleted_key_keeps_the_time_of_its_append(directory: Path) -> None:
    """With ``LogAppendTime`` the batch has the time of all its records, and the horizon must not
    change it."""
    clock = ManualClock(START_MS)
    partition = open_partition(directory, clock=clock, message_timestamp_type="LogAppendTime")
    partition.append([ProducerRecord(None, key=b"a", timestamp_ms=1), ProducerRecord(b"v", key=b"b")], acks=1)
    before = [(record.offset, record.timestamp_ms) for record in partition.scan()]
    assert before[0][1] >= START_MS
    clock.advance(60)
    compact_closed(partition)
    _, first = headers(log_file(directory))[0]
    assert first.delete_horizon_ms is not None
    assert [(record.offset, record.timestamp_ms) for record in partition.scan(0, 2)] == before
    assert problems(directory) == []


def test_a_segment_that_has_lost_its_index_is_compacted_and_gets_another(directory: Path) -> None:
    partition = open_partition(directory, index_interval_bytes=64)
    for number in range(20):
        partition.append([ProducerRecord(b"%d" % number, key=b"%d" % (number % 15))], acks=1)
    partition.log.roll()
    file_of(directory, 0, ".index").unlink()
    assert compact_closed(partition).records_dropped == 5
    assert file_of(directory, 0, ".index").stat().st_size > 0
    assert [record.offset for record in partition.scan()] == [*range(5, 21)]


def test_a_segment_whose_sync_has_failed_is_copied_before_it_is_compacted(directory: Path) -> None:
    """The process that saw that died, and another one had published that the segment is durable: no
    sync copies it."""
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    for value in (b"1", b"2"):
        partition.append([ProducerRecord(value, key=b"a")], acks=1)
    partition.log.roll()
    partition.append([ProducerRecord(b"3", key=b"b")], acks="all")
    mark = file_of(directory, 0, ".unsynced")
    mark.touch()
    partition.append([ProducerRecord(b"4", key=b"b")], acks="all")
    assert mark.exists()
    filesystem.operations.clear()
    assert compact(partition.log).records_dropped == 1
    assert not mark.exists()
    assert filesystem.count("sync", ".log.rewrite") == 1
    assert [record.offset for record in partition.scan()] == [1, 2, 3]


def test_a_batch_that_is_too_large_to_look_into_hides_no_record_of_its_compacted_segment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal says nothing of the times of its block, and the times of the other blocks."""
    monkeypatch.setattr(cleaned, "COMPILED", True)
    monkeypatch.setattr(cleaned, "_LOOKED_INTO_BYTES", 1000)
    partition = open_partition(directory)
    encoder = RecordEncoder(1 << 20)
    encoder.append(START_MS, b"compressed", bytes(2000), ())
    append_encoded(partition, build_batch(encoder, codec=1))
    for number in range(3):
        partition.append([ProducerRecord(b"x" * 70_000, key=b"%d" % (number % 2), timestamp_ms=START_MS)], acks=1)
    partition.log.roll()
    assert compact_closed(partition).records_dropped == 1
    path = file_of(directory, 0, ".seal")
    assert list(decode(path.read_bytes(), str(path)).least_ms)[:2] == [INT64_MIN, START_MS]
    assert partition.log.reader.spans_of_times(0, 4, START_MS - 5, START_MS) == [(0, 4)]
    assert [record.offset for record in partition.scan(0, 4)] == [0, 2, 3]
