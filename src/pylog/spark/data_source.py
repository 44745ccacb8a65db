"""The data source for ``format("pylog")``, with the columns of Spark's Kafka source."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pylog.errors import ConfigError
from pylog.spark.source.batch import batch_reader
from pylog.spark.source.directory import LogDirectory
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.schema import arrow_schema, spark_schema


class PylogDataSource(DataSource):
    """Reads a log: ``spark.read.format("pylog").option("subscribe", "orders").load(path)``.

    ``path`` is a log, the log directory of a Kafka broker, or the directory of one partition. The
    columns and options are those of Spark's Kafka source (``pylog.spark.source.options``). Without
    ``subscribe``, ``subscribePattern`` or ``assign`` it reads all topics. ``isolationLevel`` is
    ``read_committed`` by default. ``.schema("value binary")`` reads fewer columns.
    """

    @classmethod
    def name(cls) -> str:
        """``pylog``"""
        return "pylog"

    def schema(self) -> StructType:
        """The columns, ``headers`` if asked for. ``load`` raises errors of options and path."""
        options = SourceOptions.parse_any(self.options)
        LogDirectory(options.path)
        return spark_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the columns of ``schema``: all columns, or those given to the query."""
        options = SourceOptions.parse(self.options)
        return batch_reader(options, arrow_schema(schema, include_headers=options.include_headers))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name, as those below
        """Reads the same columns as a stream. Its methods check the options. Needs pyspark 4.2."""
        try:
            from pylog.spark.source.stream import StreamReader
        except ModuleNotFoundError as error:
            raise ConfigError("streams need pyspark 4.2 or newer", module=error.name) from error
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Appends all rows or none. ``ConfigError`` for columns and options that the sink lacks."""
        from pylog.spark.sink.sink import BatchSink, Sink

        return BatchSink(Sink.on_the_driver(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Appends the rows of each micro-batch once, all of them or none."""
        from pylog.spark.sink.sink import Sink, StreamSink

        return StreamSink(Sink.on_the_driver(self.options, schema, overwrite))
