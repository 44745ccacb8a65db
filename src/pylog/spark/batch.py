"""A batch query: planned on the driver, where its offsets are fixed, and read on the executors."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pylog.errors import ConfigError, OffsetOutOfRange
from pylog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.isolation import WRITTEN, visible_end
from pylog.spark.bounds import Bound
from pylog.spark.directory import LogDirectory, PartitionSource
from pylog.spark.filters import Wanted, wanted_by
from pylog.spark.options import Selection, SourceOptions
from pylog.spark.ranges import PartitionRange, PartitionRanges, record_batches
from pylog.spark.splits import coalesce, split

logger = logging.getLogger("pylog.spark")

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"

T = TypeVar("T")


class BatchReader(DataSourceReader):
    """Plans tasks by options and filters, and reads them."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        return coalesce(plan(self._options, self._wanted), self._options.splitting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, PartitionRanges):
            return chain.from_iterable(record_batches(piece, self._columns) for piece in partition.ranges)
        return iter(())  # Spark makes a partition of its own where the plan has none


class FilteringReader(BatchReader):
    """One that is told the query's filters first."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Narrow the plan by what they say of topic, partition, offset and time; those that Spark is to apply still."""
        self._wanted, left = wanted_by(filters)
        return left


def batch_reader(options: SourceOptions, columns: pa.Schema) -> BatchReader:
    """The reader Spark is asking for.

    Where its filter push-down is off, as it is by default, Spark refuses readers that could take filters, and says nothing that
    tells which one to give, but for the program it asks in: run by itself, or loaded by Spark's daemon.
    """
    program = getattr(sys.modules["__main__"], "__spec__", None)
    is_pushing = _PUSHING in sys.modules or (program is not None and program.name == _PUSHING)
    return FilteringReader(options, columns) if is_pushing else BatchReader(options, columns)


def plan(options: SourceOptions, wanted: Wanted = Wanted()) -> list[PartitionRange]:  # noqa: B008 - it is immutable
    """The ranges to read, by what is published now. Raises what is wrong with the options or the directory.

    What the options ask for and is gone is data loss, wanted or not: filters narrow what there is.
    """
    sources = select(LogDirectory(options.path), options.selection)
    for bound in (options.starting, options.ending):
        _check_complete(bound, [source.topic_partition for source in sources])
    planned = [_range(source, source.published(), options) for source in sources]
    return split([piece for whole in planned for piece in narrowed(whole, wanted)], options.splitting)


def narrowed(whole: PartitionRange, wanted: Wanted) -> Iterator[PartitionRange]:
    """The pieces of a range that may hold rows that are wanted."""
    if not wanted.has(whole.source.topic_partition):
        return
    spans = wanted.within(whole.start, whole.end)
    if spans and not wanted.any_time:
        first_ms, last_ms = wanted.times_ms[0], wanted.times_ms[1] - 1
        with closing(whole.source.reader(whole.published)) as reader:
            spans = [part for start, end in spans for part in reader.spans_of_times(start, end, first_ms, last_ms)]
    for start, end in spans:
        yield replace(whole, start=start, end=end)


def select(directory: LogDirectory, selection: Selection) -> list[PartitionSource]:
    """The partitions meant. Internal topics are read only where they are named. ``TopicNotFound``, ``InvalidPartition``."""
    if selection.partitions is not None:
        return [directory.partition(topic_partition) for topic_partition in selection.partitions]
    topics: Sequence[str]
    if selection.topics is not None:
        topics = selection.topics
    else:
        from pylog.consumer.subscription import INTERNAL_TOPICS

        pattern = re.compile(selection.pattern or ".*")
        topics = [topic for topic in directory.topics() if topic not in INTERNAL_TOPICS and pattern.fullmatch(topic)]
    return [source for topic in topics for source in directory.partitions(topic)]


def _check_complete(bound: Bound, partitions: list[TopicPartition]) -> None:
    """Offsets, or times, by partition must name all partitions of the query and no other, as in Spark's Kafka source."""
    if bound.each is None:
        return
    for problem, wrong in (
        ("lacks", set(partitions) - set(bound.each)),
        ("has", set(bound.each) - set(partitions)),
    ):
        if wrong:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(wrong))
            words = "" if bound.is_time else " (-2 earliest, -1 latest)"
            raise ConfigError(
                f"{bound.option} {problem} {names}; it must name exactly the partitions that are read{words}",
                option=bound.option,
                partitions=sorted(wrong),
            )


def _range(source: PartitionSource, published: CommitState, options: SourceOptions) -> PartitionRange:
    first = published.log_start_offset
    there = OffsetRange(first, max(first, visible_end(published, options.isolation_level, WRITTEN)))
    wanted = OffsetRange(
        _start(source, published, there, options), _place(source, published, there, options.ending, there.end)
    )
    start = min(max(wanted.start, there.start), there.end)
    end = min(max(wanted.end, start), there.end)
    by_time = options.starting.is_time
    is_start_lost = start != wanted.start and not by_time
    is_end_lost = end != wanted.end and not options.ending.is_time and not (by_time and wanted.end < start)
    if is_start_lost or is_end_lost:
        _report_loss(source.topic_partition, wanted, there, published.high_watermark, options)
    return PartitionRange(
        source,
        published,
        start,
        end,
        options.isolation_level,
        options.fail_on_data_loss,
        skip_damage=options.skip_damage,
    )


def _start(source: PartitionSource, published: CommitState, there: OffsetRange, options: SourceOptions) -> int:
    start = _place(source, published, there, options.starting, None)
    if start is not None:
        return start
    if options.late_start == "latest":
        return there.end
    topic, partition = source.topic_partition
    wanted = options.starting.of(source.topic_partition)
    raise OffsetOutOfRange(
        f"no record of {topic}-{partition} is as late as {options.starting.option} {wanted}; "
        "startingOffsetsByTimestampStrategy=latest starts at the end",
        topic=topic,
        partition=partition,
        timestamp_ms=wanted,
        earliest=there.start,
        latest=there.end,
    )


def _place(source: PartitionSource, published: CommitState, there: OffsetRange, bound: Bound, otherwise: T) -> int | T:
    """The offset meant; of a time that of the first record as late, ``otherwise`` where there is none."""
    value = bound.of(source.topic_partition)
    if not bound.is_time:
        return {EARLIEST: there.start, LATEST: there.end}.get(value, value)
    with closing(source.reader(published)) as reader:
        found = reader.offset_for_time(value)
    return otherwise if found is None else min(found.offset, there.end)


def _report_loss(
    topic_partition: TopicPartition, wanted: OffsetRange, there: OffsetRange, visible_end: int, options: SourceOptions
) -> None:
    if min(wanted) < there.start:
        cause = "retention has removed the first of them"
    elif max(wanted) <= visible_end:
        cause = "a transaction among the last of them is not decided yet"
    else:
        cause = "the last of them were never written, or were before the topic was created anew"
    topic, partition = topic_partition
    message = (
        f"offsets {wanted.start} to {wanted.end} of {topic}-{partition} were asked for, "
        f"{options.isolation_level} can read {there.start} to {there.end}: {cause}"
    )
    if options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"{message}; failOnDataLoss=false reads what there is",
            topic=topic,
            partition=partition,
            wanted=wanted,
            earliest=there.start,
            latest=there.end,
            cause=cause,
        )
    logger.warning("%s; reading what there is", message)
