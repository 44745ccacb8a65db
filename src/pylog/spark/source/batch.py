"""A batch query: planned on the driver, where its offsets are fixed, and read on the executors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pylog.model import OffsetRange
from pylog.partition.commit_slots import CommitState
from pylog.spark.source.directory import LogDirectory, PartitionSource
from pylog.spark.source.filters import Wanted, wanted_by
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.planning import check_complete, place, readable, report_loss, select, start_offset
from pylog.spark.source.ranges import PartitionRange, PartitionRanges, record_batches
from pylog.spark.source.splits import coalesce, split

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


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
        check_complete(bound, [source.topic_partition for source in sources])
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


def _range(source: PartitionSource, published: CommitState, options: SourceOptions) -> PartitionRange:
    there = readable(published, options.isolation_level)
    wanted = OffsetRange(
        start_offset(source, published, there, options), place(source, published, there, options.ending, there.end)
    )
    start = min(max(wanted.start, there.start), there.end)
    end = min(max(wanted.end, start), there.end)
    by_time = options.starting.is_time
    is_start_lost = start != wanted.start and not by_time
    is_end_lost = end != wanted.end and not options.ending.is_time and not (by_time and wanted.end < start)
    if is_start_lost or is_end_lost:
        report_loss(source.topic_partition, wanted, there, published.high_watermark, options)
    return PartitionRange(
        source,
        published,
        start,
        end,
        options.isolation_level,
        options.fail_on_data_loss,
        skip_damage=options.skip_damage,
    )
