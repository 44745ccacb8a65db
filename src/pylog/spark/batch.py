"""A batch query: planned on the driver, where its offsets are fixed, and read on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pylog.model import OffsetRange
from pylog.partition.commit_slots import CommitState
from pylog.spark.directory import LogDirectory, PartitionSource
from pylog.spark.options import SourceOptions
from pylog.spark.positions import check_complete, place, readable, report_loss, select, start_offset
from pylog.spark.ranges import PartitionRange, record_batches
from pylog.spark.splits import split


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
    for bound in (options.starting, options.ending):
        check_complete(bound, [source.topic_partition for source in sources])
    planned = [_range(source, source.published(), options) for source in sources]
    return split([piece for piece in planned if piece.start < piece.end], options.splitting)


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
    return PartitionRange(source, published, start, end, options.isolation_level, options.fail_on_data_loss)
