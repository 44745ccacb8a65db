"""Which partitions a query reads, and which offsets its options mean there.

Lost offsets are data loss: the query fails, or continues with ``failOnDataLoss=false``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pylog.errors import ConfigError, OffsetOutOfRange
from pylog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.reader import PartitionReader
from pylog.partition.read.visibility import WRITTEN, visible_end
from pylog.spark.source.directory import LogDirectory, PartitionSource
from pylog.spark.source.offset_options import OffsetOption
from pylog.spark.source.options import Selection, SourceOptions

T = TypeVar("T")

logger = logging.getLogger("pylog.spark")

_NAMES_MAX = 8


def select_partitions(directory: LogDirectory, selection: Selection) -> list[PartitionSource]:
    """The partitions; internal topics only by name. ``TopicNotFound``, ``InvalidPartition``.

    A pattern may match any part of a name (``SubscribePatternStrategy`` of Spark's Kafka source).
    """
    if selection.partitions is not None:
        return [directory.partition(topic_partition) for topic_partition in selection.partitions]
    topics: Sequence[str]
    if selection.topics is not None:
        topics = selection.topics
    else:
        from pylog.catalog.topic import INTERNAL_TOPICS

        pattern = re.compile(selection.pattern or ".*")
        topics = [topic for topic in directory.topics() if topic not in INTERNAL_TOPICS and pattern.search(topic)]
    return [source for topic in topics for source in directory.partitions(topic)]


def warn_of_no_match(directory: LogDirectory, options: SourceOptions) -> None:
    """Warn that ``subscribePattern`` selects no topic, which is no error: one may be created
    yet."""
    topics = directory.topics()
    there = ", ".join(topics[:_NAMES_MAX]) + ", …" * (len(topics) > _NAMES_MAX) or "none"
    logger.warning(
        "subscribePattern %r finds no topic in %r, so nothing is read; its topics: %s",
        options.selection.pattern, options.path, there,
    )  # fmt: skip


def check_complete(asked: OffsetOption, partitions: list[TopicPartition]) -> None:
    """By-partition options must name exactly the query's partitions, as in Spark's Kafka source."""
    if asked.each is None:
        return
    for problem, wrong in (("lacks", set(partitions) - set(asked.each)), ("has", set(asked.each) - set(partitions))):
        if wrong:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(wrong))
            words = "" if asked.is_time else " (-2 earliest, -1 latest)"
            raise ConfigError(
                f"{asked.option} {problem} {names}; it must name exactly the partitions that are read{words}",
                option=asked.option, partitions=sorted(wrong),
            )  # fmt: skip


def readable_offsets(published: CommitState, isolation_level: str) -> OffsetRange:
    first = published.log_start_offset
    return OffsetRange(first, max(first, visible_end(published, isolation_level, WRITTEN)))


def existing(wanted: OffsetRange, there: OffsetRange) -> OffsetRange:
    """The part of ``wanted`` that exists."""
    start = min(max(wanted.start, there.start), there.end)
    return OffsetRange(start, min(max(wanted.end, start), there.end))


def start_offset(
    reader: PartitionReader, topic_partition: TopicPartition, there: OffsetRange, options: SourceOptions
) -> int:
    start = resolve_offset(reader, topic_partition, there, options.starting, None)
    if start is not None:
        return start
    if options.late_start == "latest":
        return there.end
    topic, partition = topic_partition
    wanted = options.starting.of(topic_partition)
    raise OffsetOutOfRange(
        f"no record of {topic}-{partition} is as late as {options.starting.option} {wanted}; "
        "startingOffsetsByTimestampStrategy=latest starts at the end",
        topic=topic, partition=partition, timestamp_ms=wanted, earliest=there.start, latest=there.end,
    )  # fmt: skip


def resolve_offset(
    reader: PartitionReader, topic_partition: TopicPartition, there: OffsetRange, asked: OffsetOption, otherwise: T
) -> int | T:
    """The offset asked for. A time means the first record as late, or ``otherwise``."""
    value = asked.of(topic_partition)
    if not asked.is_time:
        return {EARLIEST: there.start, LATEST: there.end}.get(value, value)
    found = reader.offset_for_time(value)
    return otherwise if found is None else min(found.offset, there.end)


def report_missing_offsets(
    topic_partition: TopicPartition, wanted: OffsetRange, there: OffsetRange, visible_end: int, options: SourceOptions
) -> None:
    """Report, as ``report_loss`` does, that ``wanted`` exceeds ``there``, and the cause."""
    if min(wanted) < there.start:
        cause = "retention has removed the first of them"
    elif max(wanted) <= visible_end:
        cause = "a transaction among the last of them is not decided yet"
    else:
        cause = "the last of them were never written, or were before the topic was created again"
    topic, partition = topic_partition
    report_loss(
        f"offsets {wanted.start} to {wanted.end} of {topic}-{partition} were asked for, "
        f"{options.isolation_level} can read {there.start} to {there.end}: {cause}",
        topic_partition,
        fails=options.fail_on_data_loss, wanted=wanted, earliest=there.start, latest=there.end, cause=cause,
    )  # fmt: skip


def report_loss(what: str, topic_partition: TopicPartition, *, fails: bool, **facts: Any) -> None:
    """Raise or log ``OffsetOutOfRange``. Its text is printable, whatever a checkpoint contains."""
    advice = "failOnDataLoss=false continues with what is there" if fails else "continuing with what is there"
    error = OffsetOutOfRange(f"{what}; {advice}", **topic_partition._asdict(), **facts)
    if fails:
        raise error
    logger.warning("%s", error)
