"""Plans a batch query: which ranges of which partitions it reads, as the log is now.

Needs neither pyspark nor pyarrow, whose imports take longer than most plans: the Java reader's
planner is a process without them.
"""

from __future__ import annotations

from contextlib import closing

from pylog.model import OffsetRange
from pylog.partition.read.reader import PartitionReader
from pylog.spark.source.decisions import Decided, Decisions
from pylog.spark.source.directory import LogDirectory, PartitionSource
from pylog.spark.source.filters import Wanted
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.partition_range import PartitionRange
from pylog.spark.source.planning import (
    check_complete,
    existing,
    readable_offsets,
    report_missing_offsets,
    resolve_offset,
    select_partitions,
    start_offset,
    warn_of_no_match,
)
from pylog.spark.source.splits import sized, split


def plan(options: SourceOptions, wanted: Wanted = Wanted()) -> list[PartitionRange]:  # noqa: B008 - it is immutable
    """The published ranges to read. Raises errors of the options or the directory.

    Requested offsets that are gone are data loss, even if a filter leaves them out.
    """
    directory = LogDirectory(options.path)
    sources = select_partitions(directory, options.selection)
    if options.selection.pattern and not sources:
        warn_of_no_match(directory, options)
    for asked in (options.starting, options.ending):
        check_complete(asked, [source.topic_partition for source in sources])
    with closing(Decisions(directory.transactions_root, options.isolation_level)) as decisions:
        planned = [piece for source in sources for piece in _plan_partition(source, decisions, options, wanted)]
    return split(planned, options.splitting)


def _plan_partition(
    source: PartitionSource, decisions: Decisions, options: SourceOptions, wanted: Wanted
) -> list[PartitionRange]:
    """The pieces of the requested range that may contain wanted rows."""
    with closing(source.reader()) as reader:
        whole = _range(source, reader, decisions.of(source, reader.published.current()), options)
        return [sized(reader, whole, start, end) for start, end in _narrowed(reader, whole, wanted)]


def _narrowed(reader: PartitionReader, whole: PartitionRange, wanted: Wanted) -> list[tuple[int, int]]:
    if not wanted.has(whole.source.topic_partition):
        return []
    spans = wanted.within(whole.start, whole.end)
    if wanted.any_time:
        return spans
    first_ms, last_ms = wanted.times_ms[0], wanted.times_ms[1] - 1
    return [part for start, end in spans for part in reader.spans_of_times(start, end, first_ms, last_ms)]


def _range(
    source: PartitionSource, reader: PartitionReader, decided: Decided, options: SourceOptions
) -> PartitionRange:
    published, partition = decided.published, source.topic_partition
    there = readable_offsets(published, options.isolation_level)
    wanted = OffsetRange(
        start_offset(reader, partition, there, options),
        resolve_offset(reader, partition, there, options.ending, there.end),
    )
    found = existing(wanted, there)
    by_time = options.starting.is_time
    is_start_lost = found.start != wanted.start and not by_time
    is_end_lost = found.end != wanted.end and not options.ending.is_time and not (by_time and wanted.end < found.start)
    if is_start_lost or is_end_lost:
        report_missing_offsets(partition, wanted, there, published.high_watermark, options)
    return PartitionRange.of(source, decided, found, options)
