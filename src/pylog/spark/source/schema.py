"""The columns of Spark's Kafka source."""

from __future__ import annotations

import pyarrow as pa
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

_MAY_BE_NULL = ("key", "value", "headers")


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
    """The record batches that Spark expects for ``wanted``. ``ConfigError`` for unknown columns."""
    there = spark_schema(include_headers=include_headers)
    arrow_fields = arrow.schema(headers=True)
    fields = []
    if not wanted.fields:
        raise ConfigError(f"a schema without columns; there are {there.simpleString()}", option="schema")
    for field in wanted.fields:
        if wanted.names.count(field.name) > 1:
            raise ConfigError(f"column {field.name} stands twice in the schema", option="schema")
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
