"""The columns of Spark's Kafka sink and the record's time. Both sinks ignore other columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from pylog.errors import ConfigError

_BYTES = (StringType, BinaryType)
_COLUMNS: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_BYTES, "a string or binary"),
    "key": (_BYTES, "a string or binary"),
    "topic": ((StringType,), "a string"),
    "partition": ((IntegerType,), "an int"),
    "timestamp": ((TimestampType,), "a timestamp"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ``ConfigError`` if such rows can't be records. The option ``topic`` overrides the
    column."""
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(
            f"required column 'value' not found; there are {schema.simpleString()}", option="schema", column="value"
        )
    if topic is None and "topic" not in names:
        raise ConfigError(
            "the topic option is required where there is no column 'topic': .option('topic', 'orders')", option="topic"
        )
    for name, (kinds, expected) in _COLUMNS.items():
        if name not in names or (name == "topic" and topic is not None):
            continue
        if names.count(name) > 1:
            raise ConfigError(f"there are {names.count(name)} columns {name!r}", option="schema", column=name)
        kind = schema[name].dataType
        if not isinstance(kind, kinds) or (name == "headers" and not _is_headers(kind)):
            raise ConfigError(
                f"column {name!r} is {kind.simpleString()}, expected {expected}",
                option="schema", column=name, type=kind.simpleString(), expected=expected,
            )  # fmt: skip


def _is_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    return isinstance(element, StructType) and [(field.name, field.dataType) for field in element.fields] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]


def tables(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by topic, in order, for ``Producer.send_arrow``. ``ConfigError`` if a topic is null."""
    names = batch.schema.names
    rows = batch.select([name for name in names if name in _COLUMNS and name != "topic"])
    if topic is not None:
        yield topic, rows
        return
    topics = batch.column(names.index("topic"))
    if topics.null_count:
        raise ConfigError(
            "a row has no topic: its column 'topic' is null. The option topic sets one for all rows", column="topic"
        )
    distinct = pc.unique(topics).to_pylist()
    for name in distinct:
        yield name, rows if len(distinct) == 1 else rows.filter(pc.equal(topics, name))
