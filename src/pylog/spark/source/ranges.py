"""A range of offsets of one partition: planned on the driver, read on an executor.

The plan fixes the published state: every executor sees the same log, despite appends, and none has
to find its end. Data that is gone at reading is data loss, with a cause: retention, or a deleted or
recreated topic. Anything else missing or wrong is damage. Gaps in the offsets (compaction,
transaction markers, aborted records) are neither.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pylog import arrow
from pylog.codec.batch import BatchView
from pylog.errors import CorruptRecord, CorruptSegment, OffsetOutOfRange, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.cursor import Cursor, Fetched
from pylog.partition.read.reader import PartitionReader
from pylog.segment.naming import LOG
from pylog.spark.source.directory import identity_of
from pylog.spark.source.partition_range import PartitionRange
from pylog.spark.source.planning import report_loss

logger = logging.getLogger("pylog.spark")

_SPARE_BYTES = 64 << 10  # the size of a range is approximate


@dataclass(frozen=True)
class PartitionRanges(InputPartition):
    """What one task reads: ranges of one or several partitions, in order."""

    ranges: tuple[PartitionRange, ...]


def read_task(task: InputPartition, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges. If a plan has none, Spark makes a task of its own."""
    ranges = task.ranges if isinstance(task, PartitionRanges) else ()
    return chain.from_iterable(record_batches(planned, columns) for planned in ranges)


def record_batches(planned: PartitionRange, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records. ``OffsetOutOfRange`` for loss, ``CorruptSegment`` for damage; with offset."""
    reader = _RangeReader(planned)
    try:
        yield from arrow.record_batches(
            reader.views(), planned.source.topic_partition, planned.start, planned.end, wanted
        )
    except own(CorruptRecord) as damage:
        raise reader.located(damage) from damage
    finally:
        reader.close()


class _RangeReader:
    def __init__(self, planned: PartitionRange) -> None:
        self._planned = planned
        self._source = planned.source
        self._directory = planned.source.partition_directory()
        self._reader = self._reader_of(planned.published)

    def _reader_of(self, published: CommitState) -> PartitionReader:
        if self._planned.skip_damage:  # after damage it may resume in the batch that holds the log start
            published = published._replace(log_start_offset=0)
        return self._source.reader(published, self._planned.aborted)

    def close(self) -> None:
        self._reader.close()

    def views(self) -> Iterator[BatchView]:
        """The batches of the range, in order."""
        if not self._check_identity(self._planned.start):
            return
        for offset, fetched in self._fetches():
            if self._source.is_kafka and (not fetched.batches or fetched.batches[0].base_offset > offset):
                self._check_gap(offset)
            yield from filter(self._is_readable, fetched.batches) if self._planned.skip_damage else fetched.batches
        self._check_identity(self._planned.end)

    def _fetches(self) -> Iterator[tuple[int, Fetched]]:
        """The reader's fetches, each with its start. They continue after tolerated loss and
        damage."""
        cursor, end = Cursor(self._planned.start), self._planned.end
        while cursor.offset < end:
            try:
                for fetched in self._reader.fetches(
                    cursor, end, max_bytes=self._fetch_bytes(), isolation_level=self._planned.isolation_level
                ):
                    if fetched.cursor.offset <= cursor.offset:
                        raise CorruptSegment(
                            f"the log ends there, but when the query was planned it reached offset {end}",
                            offset=cursor.offset,
                        )
                    yield cursor.offset, fetched
                    cursor = fetched.cursor
            except own(CorruptSegment, OffsetOutOfRange, TopicNotFound) as error:
                cursor = self._after_loss(cursor.offset, error)

    def _fetch_bytes(self) -> int:
        """As much as elsewhere: a smaller fetch would read a batch of a producer's ``batch_bytes``
        twice. A small range is read in one, which hardly reaches past it."""
        if not self._planned.size_bytes:
            return FETCH_BYTES
        return min(FETCH_BYTES, self._planned.size_bytes + _SPARE_BYTES)

    # Loss

    def _check_identity(self, offset: int) -> bool:
        """Whether this is the partition that was planned."""
        now = identity_of(self._directory.filesystem, self._source.directory)
        is_same = self._source.identity in (b"", now)
        if not is_same:
            self._report_loss(offset, self._why_another())
        return is_same

    def _why_another(self) -> str:
        if not self._directory.filesystem.is_directory(self._source.directory):
            error = self._directory.gone()
            if not isinstance(error, TopicNotFound):
                return str(error)
        return "the topic was deleted, or deleted and created again, since the query was planned"

    def _check_gap(self, offset: int) -> None:
        """Report what retention removed before Kafka's first segment. Later gaps are normal."""
        try:
            first = min(self._directory.segments().bases, default=offset)
        except own(FileNotFoundError):
            return  # everything is gone: _check_identity reports why
        if first > offset:
            self._report_loss(offset, f"retention has removed what is before offset {first}")

    def _after_loss(self, offset: int, error: PylogError) -> Cursor:
        """Where to continue after ``error`` if the query tolerates that loss; else raise."""
        if not self._check_identity(offset):
            return Cursor(self._planned.end)
        try:
            now = self._source.published()
        except own(CorruptSegment, TopicNotFound):
            return self._after_damage(offset, error)
        first = now.log_start_offset
        if first <= offset:
            return Cursor(offset) if self._goes_on_with(now) else self._after_damage(offset, error)
        self._report_loss(offset, f"retention has removed what is before offset {first}")
        return Cursor(first)

    def _goes_on_with(self, now: CommitState) -> bool:
        """Whether segments may have been compacted or merged since: Kafka has rolled, or the list
        has another version."""
        known = self._reader.published.current()
        if now.active_base == known.active_base and (
            self._source.is_kafka or now.segments_version == known.segments_version
        ):
            return False
        self._reader.close()
        self._reader = self._reader_of(now)
        return True

    def _report_loss(self, offset: int, cause: str) -> None:
        topic, partition = self._source.topic_partition
        report_loss(
            f"offset {offset} of {topic}-{partition} was lost: {cause} "
            f"(planned were offsets {self._planned.start} to {self._planned.end} of {self._source.directory!r})",
            self._source.topic_partition,
            fails=self._planned.fail_on_data_loss, offset=offset, cause=cause, path=self._source.directory,
        )  # fmt: skip

    # Damage

    def _after_damage(self, offset: int, error: PylogError) -> Cursor:
        """Where to continue after damage that the query tolerates; else raise."""
        if not self._planned.skip_damage or not isinstance(error, CorruptSegment):
            raise error
        cursor = self._reader.after_damage(error, offset)
        if cursor.offset > offset:  # else the damage is before the range
            self._report_damage(offset, min(cursor.offset, self._planned.end), error)
        return cursor

    def _is_readable(self, view: BatchView) -> bool:
        """Whether the records decode: a valid checksum only shows that the bytes are unaltered.

        So each batch is decoded twice: a bad record is found before others are handed out.
        """
        try:
            view.columns()
        except own(CorruptRecord) as error:
            error.facts["offset"] = view.base_offset
            self._report_damage(view.base_offset, view.last_offset + 1, error)
            return False
        return True

    def _report_damage(self, offset: int, following: int, error: CorruptRecord) -> None:
        skipped = (offset, following - 1, *self._source.topic_partition)
        logger.warning("%s; offsets %d to %d of %s-%d are skipped", self.located(error), *skipped)

    def located(self, damage: CorruptRecord) -> CorruptSegment:
        """The same damage with topic, partition, offset and file."""
        topic, partition = self._source.topic_partition
        offset = damage.facts.get("offset", self._planned.start)
        path = damage.facts.get("path")
        if path is None:
            base = self._reader.segments(self._reader.published.current()).floor(offset)
            path = self._source.directory if base is None else self._directory.file_path(base, LOG)
        facts = {**damage.facts, "topic": topic, "partition": partition, "offset": offset, "path": path}
        return CorruptSegment(f"{topic}-{partition} is damaged at offset {offset}, file {path}: {damage}", **facts)
