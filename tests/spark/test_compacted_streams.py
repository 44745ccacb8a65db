"""Streams, splits, times and transactions of compacted topics: gaps inside a range, at its ends,
and after the last record."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord
from pylog.errors import OffsetOutOfRange
from pylog.model import TopicPartition
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.read.cursor import Fetched
from pylog.partition.read.reader import PartitionReader
from tests.spark.reading import offsets, planned, read, read_ranges
from tests.spark.streaming import Query

TP = TopicPartition("t", 0)
KEYS, RECORDS, T0 = 10, 300, 1_000
LEFT = [*range(RECORDS - KEYS, RECORDS)]
"""The offsets that a compaction leaves of ``filled``."""

STRICT_AND_LENIENT = pytest.mark.parametrize("fail_on_data_loss", [True, False])


def filled(path: Path) -> Log:
    """Records whose values are their offsets, one a millisecond, in closed segments and an active
    one."""
    log = Log(path)
    log.create_topic("t", segment_bytes=4096, index_interval_bytes=128)
    append(log, 0, RECORDS)
    return log


def append(log: Log, start: int, end: int) -> None:
    partition = log.partition(*TP)
    for offset in range(start, end):
        record = ProducerRecord(b"%d" % offset, key=b"%d" % (offset % KEYS), timestamp_ms=T0 + offset)
        partition.append([record], acks=1)
    partition.log.sync(partition.latest_offset)


def compacted(log: Log) -> int:
    """How many records were dropped, tombstones included."""
    partition = log.partition(*TP)
    dropped = 0
    for _ in range(2):  # the first one gives tombstones and markers their time to go
        partition.log.roll()
        partition.log.sync(partition.latest_offset)
        dropped += compact(partition.log, CompactionOptions(delete_retention_ms=0)).records_dropped
    return dropped


# Streams


def test_a_batch_counts_offsets_and_has_the_rows_that_are_there(tmp_log_dir: Path) -> None:
    """As in Spark's Kafka source: it may have fewer rows than ``maxOffsetsPerTrigger``, or none."""
    with filled(tmp_log_dir) as log:
        assert compacted(log)
        query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=120)
        batches = []
        while (found := query.batch()) is not None:
            batches.append(offsets(found))
    assert batches == [[], [], LEFT]


@STRICT_AND_LENIENT
def test_a_stream_goes_on_over_what_is_compacted_while_it_runs(tmp_log_dir: Path, fail_on_data_loss: bool) -> None:
    """Records that newer ones have replaced are no loss."""
    with filled(tmp_log_dir) as log:
        query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=100, failOnDataLoss=fail_on_data_loss)
        assert offsets(query.batch()) == [*range(100)]
        query.plan()
        assert compacted(log)
        assert query.batch() == []  # it was planned before
        query.restart()
        assert offsets(query.batch()) == LEFT
        append(log, RECORDS, RECORDS + 5)
        assert offsets(query.batch()) == [*range(RECORDS, RECORDS + 5)]
        assert compacted(log)
        assert query.batch() is None


@STRICT_AND_LENIENT
def test_a_compaction_after_the_tasks_of_a_batch_are_planned_is_no_loss(
    tmp_log_dir: Path, fail_on_data_loss: bool
) -> None:
    with filled(tmp_log_dir) as log:
        query = Query(log.path, startingOffsets="earliest", minPartitions=4, failOnDataLoss=fail_on_data_loss)
        query.plan()
        tasks = query.tasks()
        assert len(tasks) == 4
        assert compacted(log)
        assert offsets(query.read(tasks)) == LEFT


def test_retention_after_the_tasks_of_a_batch_are_planned_is_loss(
    tmp_log_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch fails, also after a restart; or it has what is left, and a warning names what was
    lost."""
    with filled(tmp_log_dir) as log:
        strict = Query(log.path, startingOffsets="earliest")
        lenient = Query(log.path, startingOffsets="earliest", failOnDataLoss=False)
        both = {}
        for query in (strict, lenient):
            query.plan()
            both[query] = query.tasks()
        log.delete_records(TP, RECORDS - 1)
        with pytest.raises(OffsetOutOfRange, match=r"offset 0 of t-0 was lost: retention has .* before offset 299 "):
            strict.read(both[strict])
        found = offsets(lenient.read(both[lenient]))
        assert found == [*range(found[0], RECORDS)]
        assert found[0] > 0
        assert "offset 0 of t-0 was lost" in caplog.text
        assert "continuing with what is there" in caplog.text
        strict.restart()
        with pytest.raises(
            OffsetOutOfRange,
            match=r"offsets 0 to 300 of t-0 .* can read 299 to 300: .*; failOnDataLoss=false continues",
        ):
            strict.batch()
        assert offsets(lenient.batch()) == [RECORDS - 1]


def test_the_earliest_offset_is_the_first_that_retention_left(tmp_log_dir: Path) -> None:
    with filled(tmp_log_dir) as log:
        log.delete_records(TP, 123)
        assert offsets(read(log.path, startingOffsets="earliest")) == [*range(123, RECORDS)]
        assert offsets(Query(log.path, startingOffsets="earliest").batch()) == [*range(123, RECORDS)]


# Splits and times


@pytest.mark.parametrize("how", [{"minPartitions": 5}, {"maxRecordsPerPartition": 7}, {"splitBytes": 300}])
def test_pieces_of_a_compacted_range_have_each_record_once(tmp_log_dir: Path, how: dict[str, int]) -> None:
    with filled(tmp_log_dir) as log:
        assert compacted(log)
        append(log, RECORDS, RECORDS + 30)
        ranges = planned(log.path, **how)
        assert len(ranges) > 1
        assert [piece.start for piece in ranges[1:]] == [piece.end for piece in ranges[:-1]]
        assert offsets(list(read_ranges(ranges))) == [*LEFT, *range(RECORDS, RECORDS + 30)]


@pytest.mark.parametrize("start", [0, 1, 150, RECORDS - KEYS, RECORDS - 3])
def test_a_time_in_a_gap_is_the_first_record_after_it(tmp_log_dir: Path, start: int) -> None:
    with filled(tmp_log_dir) as log:
        before = planned(log.path, startingTimestamp=T0 + start, endingTimestamp=T0 + RECORDS - 2)
        assert [(piece.start, piece.end) for piece in before] == [(start, RECORDS - 2)]
        assert compacted(log)
        expected = [offset for offset in LEFT if start <= offset < RECORDS - 2]
        assert offsets(list(read_ranges(before))) == expected
        assert offsets(read(log.path, startingTimestamp=T0 + start, endingTimestamp=T0 + RECORDS - 2)) == expected
        query = Query(log.path, startingTimestamp=T0 + start)
        assert offsets(query.batch()) == [offset for offset in LEFT if start <= offset]


def test_offsets_in_a_gap_are_no_loss(tmp_log_dir: Path) -> None:
    with filled(tmp_log_dir) as log:
        assert compacted(log)
        assert offsets(read(log.path, startingOffsets={"t": {"0": 17}}, endingOffsets={"t": {"0": 295}})) == LEFT[:5]
        assert read(log.path, startingOffsets={"t": {"0": 17}}, endingOffsets={"t": {"0": 18}}) == []


# A tail without records


def emptied(log: Log) -> int:
    """Compaction leaves no record: each key was deleted, and the tombstones' time is over. Returns
    the end."""
    partition = log.partition(*TP)
    partition.append([ProducerRecord(None, key=b"%d" % key, timestamp_ms=T0) for key in range(KEYS)], acks=1)
    assert compacted(log)
    partition.append([ProducerRecord(b"without a key", timestamp_ms=T0)], acks=1)
    assert compacted(log)
    assert [*partition.scan()] == []
    return partition.latest_offset


def test_an_emptied_topic_is_read_to_its_end_and_is_no_loss(tmp_log_dir: Path) -> None:
    with filled(tmp_log_dir) as log:
        before, query = planned(log.path), Query(log.path, startingOffsets="earliest")
        query.plan()
        tasks = query.tasks()
        end = emptied(log)
        assert list(read_ranges(before)) == query.read(tasks) == read(log.path) == []
        assert query.batch() == []
        assert query.batch() == []  # the tombstones
        assert query.batch() is None
        append(log, end, end + 3)
        assert offsets(query.batch()) == offsets(read(log.path)) == [end, end + 1, end + 2]


# Transactions


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_transactions_that_were_compacted_are_read_as_before(tmp_log_dir: Path, isolation_level: str) -> None:
    """A compaction drops aborted records and old markers; the last offsets may be a marker's."""
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=4096, index_interval_bytes=128)
        with Producer(log, transactional_id="writer") as producer:
            producer.init_transactions()
            for number in range(60):
                producer.begin_transaction()
                for key in range(3):
                    producer.send("t", b"%d" % number, key=b"%d" % (key if number % 3 else key + 100))
                producer.flush()
                (producer.commit_transaction if number % 3 else producer.abort_transaction)()
        query = Query(log.path, startingOffsets="earliest", isolationLevel=isolation_level, maxOffsetsPerTrigger=50)
        first = query.batch() or []
        assert {int(row["value"]) % 3 == 0 for row in first} == (
            {False} if isolation_level == "read_committed" else {False, True}
        )
        query.plan()
        whole = planned(log.path, isolationLevel=isolation_level, minPartitions=3)
        assert compacted(log)
        newest = [(b"%d" % key, b"59") for key in range(3)]
        for found in (list(read_ranges(whole)), read(log.path, isolationLevel=isolation_level)):
            assert [(row["key"], row["value"]) for row in found] == newest
        rows = []
        while (batch := query.batch()) is not None:
            rows += batch
        assert [(row["key"], row["value"]) for row in rows] == newest


# While a task reads


@STRICT_AND_LENIENT
def test_a_task_goes_on_however_often_segments_are_replaced(
    tmp_log_dir: Path, fail_on_data_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two fetches: records that nobody has replaced come once, and in order."""
    fetch, rounds = PartitionReader.fetch, 0

    def fetch_after_a_compaction(self: PartitionReader, cursor: object, **how: object) -> Fetched:
        nonlocal rounds
        if rounds < 8:
            rounds += 1
            start = log.partition(*TP).latest_offset
            with monkeypatch.context() as patch:
                patch.setattr(PartitionReader, "fetch", fetch)
                append(log, start, start + KEYS)
                compacted(log)
        return fetch(self, cursor, **{**how, "max_bytes": 1})

    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=4096, index_interval_bytes=128)
        for offset in range(RECORDS):  # every tenth has a key of its own
            key = b"%d" % (offset % 10 or 1000 + offset)
            log.partition(*TP).append([ProducerRecord(b"%d" % offset, key=key, timestamp_ms=T0)], acks=1)
        reading = read_ranges(planned(log.path, failOnDataLoss=fail_on_data_loss))
        monkeypatch.setattr(PartitionReader, "fetch", fetch_after_a_compaction)
        found = offsets(list(reading))
    assert rounds == 8
    assert found == sorted(set(found))
    assert [offset for offset in found if offset % 10 == 0] == [*range(0, RECORDS, 10)]
