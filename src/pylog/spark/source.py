"""The data source that ``format("pylog")`` names, with the columns of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pylog import arrow
from pylog.errors import ConfigError
from pylog.spark.batch import BatchReader
from pylog.spark.directory import LogDirectory
from pylog.spark.options import SourceOptions

_MAY_BE_NULL = ("key", "value", "headers")


class PylogDataSource(DataSource):
    """Reads a log directory: ``spark.read.format("pylog").option("subscribe", "orders").load(path)``.

    ``path`` is a log, the log directory of a Kafka broker, or the directory of one partition. The columns and the options are
    those of Spark's Kafka source (``pylog.spark.options``); without ``subscribe``, ``subscribePattern`` or ``assign`` all
    topics are read. ``.schema("value binary")`` reads fewer columns. ``isolationLevel`` is ``read_committed`` by default.
    """

    @classmethod
    def name(cls) -> str:
        """``pylog``"""
        return "pylog"

    def schema(self) -> StructType:
        """The columns, with ``headers`` if ``includeHeaders`` is true. Says what is wrong with options or path at ``load``."""
        options = SourceOptions.parse(self.options)
        LogDirectory(options.path)
        return spark_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the columns of ``schema``: all there are, or those the query was given."""
        options = SourceOptions.parse(self.options)
        return BatchReader(options, arrow_schema(schema, include_headers=options.include_headers))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name, as those below
        """A reader that says there is none: an error here would end in another one, of Spark's own."""
        return NoStreamReader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Appends the rows: all of them or none. ``ConfigError`` for columns and options that are none of the sink's."""
        from pylog.spark.sink import BatchSink, Sink

        return BatchSink(Sink.on_the_driver(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The same for each micro-batch, and each once."""
        from pylog.spark.sink import Sink, StreamSink

        return StreamSink(Sink.on_the_driver(self.options, schema, overwrite))


class NoStreamReader(DataSourceStreamReader):
    """``ConfigError`` from what a stream asks first."""

    def initialOffset(self) -> NoReturn:  # noqa: N802
        raise _no_stream()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise _no_stream()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        raise _no_stream()


def _no_stream() -> ConfigError:
    return ConfigError("pylog has no streaming source for Spark yet: spark.read.format('pylog') reads what there is")


def spark_schema(*, include_headers: bool) -> StructType:
    """Spark's ``KafkaRecordToRowConverter.kafkaSchema``."""
    columns: list[tuple[str, DataType]] = [
        ("key", BinaryType()),
        ("value", BinaryType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        columns.append(("headers", ArrayType(header)))
    return StructType([StructField(name, kind) for name, kind in columns])


def arrow_schema(wanted: StructType, *, include_headers: bool) -> pa.Schema:
    """What Spark expects record batches of ``wanted`` to be. ``ConfigError`` for columns there are not."""
    there = spark_schema(include_headers=include_headers)
    arrow_fields = arrow.schema(headers=True)
    fields = []
    for field in wanted.fields:
        if field.name not in there.names or there[field.name].dataType != field.dataType:
            raise ConfigError(
                f"no column {field.name} {field.dataType.simpleString()}; there are {there.simpleString()}"
                + ("" if include_headers else " (and headers with includeHeaders=true)"),
                option="schema",
            )
        if field.name in _MAY_BE_NULL and not field.nullable:
            raise ConfigError(f"column {field.name} may be null; declare it without NOT NULL", option="schema")
        fields.append(arrow_fields.field(field.name).with_nullable(field.nullable))
    return pa.schema(fields)
