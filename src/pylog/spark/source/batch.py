"""A batch query: planned on the driver, where its offsets are fixed, and read on the executors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pylog.spark.source.filters import Wanted
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.plan import plan
from pylog.spark.source.pushed_filters import wanted_by
from pylog.spark.source.ranges import PartitionRanges, read_task
from pylog.spark.source.splits import coalesce
from pylog.spark.source.worker import ReaderInWorker

_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class BatchReader(ReaderInWorker, DataSourceReader):
    """Plans tasks by options and filters, and reads them."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._wanted = Wanted()

    def partitions(self) -> Sequence[InputPartition]:
        tasks = coalesce(plan(self._options, self._wanted), self._options.splitting)
        return [PartitionRanges(task) for task in tasks]

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
