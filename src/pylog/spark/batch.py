"""A batch query: planned on the driver, where its offsets are fixed, and read on the executors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pylog.errors import ConfigError, OffsetOutOfRange
from pylog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.isolation import WRITTEN, visible_end
from pylog.spark.directory import LogDirectory, PartitionSource
from pylog.spark.options import Offsets, Selection, SourceOptions
from pylog.spark.ranges import PartitionRange, record_batches

logger = logging.getLogger("pylog.spark")


class BatchReader(DataSourceReader):
    """One task for each partition that has something to read."""

    def __init__(self, options: SourceOptions, wanted: pa.Schema) -> None:
        self._options = options
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        return plan(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, PartitionRange):
            return record_batches(partition, self._wanted)
        return iter(())  # Spark makes a partition of its own where the plan has none


def plan(options: SourceOptions) -> list[PartitionRange]:
    """The ranges to read, by what is published now. Raises what is wrong with the options or the directory."""
    sources = select(LogDirectory(options.path), options.selection)
    for option, offsets in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        _check_complete(option, offsets, [source.topic_partition for source in sources])
    planned = [_range(source, source.published(), options) for source in sources]
    return [piece for piece in planned if piece.start < piece.end]


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


def _check_complete(option: str, offsets: Offsets, partitions: list[TopicPartition]) -> None:
    """Offsets by partition must name all partitions of the query and no other, as in Spark's Kafka source."""
    if offsets.each is None:
        return
    for problem, wrong in (
        ("lacks", set(partitions) - set(offsets.each)),
        ("has", set(offsets.each) - set(partitions)),
    ):
        if wrong:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(wrong))
            raise ConfigError(
                f"{option} {problem} {names}; it must name exactly the partitions that are read (-2 earliest, -1 latest)",
                option=option,
                partitions=sorted(wrong),
            )


def _range(source: PartitionSource, published: CommitState, options: SourceOptions) -> PartitionRange:
    first = published.log_start_offset
    there = OffsetRange(first, max(first, visible_end(published, options.isolation_level, WRITTEN)))
    wanted = _resolve(source.topic_partition, there, options)
    start = min(max(wanted.start, there.start), there.end)
    end = min(max(wanted.end, start), there.end)
    if (start, end) != wanted:
        _report_loss(source.topic_partition, wanted, there, published.high_watermark, options)
    return PartitionRange(source, published, start, end, options.isolation_level, options.fail_on_data_loss)


def _resolve(topic_partition: TopicPartition, there: OffsetRange, options: SourceOptions) -> OffsetRange:
    places = {EARLIEST: there.start, LATEST: there.end}
    start, end = options.starting.of(topic_partition), options.ending.of(topic_partition)
    return OffsetRange(places.get(start, start), places.get(end, end))


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
