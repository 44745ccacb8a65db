"""A batch query: planned on the driver, where its offsets are fixed, and read on the executors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pylog.model import OffsetRange
from pylog.partition.read.reader import PartitionReader
from pylog.spark.source.decisions import Decided, Decisions
from pylog.spark.source.directory import LogDirectory, PartitionSource
from pylog.spark.source.filters import Wanted, wanted_by
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.planning import (
    check_complete,
    existing,
    readable_offsets,
    report_missing_offsets,
    resolve_offset,
    select_partitions,
    start_offset,
)
from pylog.spark.source.ranges import PartitionRange, read_task
from pylog.spark.source.splits import coalesce, sized, split
from pylog.spark.source.worker import ReaderInWorker

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class BatchReader(ReaderInWorker, DataSourceReader):
    """Plans tasks by options and filters, and reads them."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        return coalesce(plan(self._options, self._wanted), self._options.splitting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._columns)


class FilteringReader(BatchReader):
    """A batch reader that Spark gives the query's filters first."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Narrow the plan by the filters. Returns those that Spark must apply itself."""
        self._wanted, left = wanted_by(filters)
        return left


def batch_reader(options: SourceOptions, columns: pa.Schema) -> BatchReader:
    """The kind of reader that Spark asks for.

    While filter push-down is off (the default), Spark refuses readers that take filters. Only the
    running program shows which kind it wants: it is ``__main__``, or loaded by Spark's daemon.
    """
    program = getattr(sys.modules["__main__"], "__spec__", None)
    is_pushing = _PUSHING in sys.modules or (program is not None and program.name == _PUSHING)
    return FilteringReader(options, columns) if is_pushing else BatchReader(options, columns)


def plan(options: SourceOptions, wanted: Wanted = Wanted()) -> list[PartitionRange]:  # noqa: B008 - it is immutable
    """The published ranges to read. Raises errors of the options or the directory.

    Requested offsets that are gone are data loss, even if a filter leaves them out.
    """
    directory = LogDirectory(options.path)
    sources = select_partitions(directory, options.selection)
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
