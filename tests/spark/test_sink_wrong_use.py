"""What the sink is asked for and can't do is said by name, before any task runs."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from pylog import Log
from pylog.errors import ConfigError, InvalidTopicName, LogNotFound, PylogError, TopicNotFound
from pylog.spark.data_source import PylogDataSource
from pylog.spark.sink.columns import check_columns, tables
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.options import KAFKAS, SPARKS_OWN, SUPPORTED, WITHOUT_EFFECT, SinkOptions
from pylog.spark.sink.sink import BatchSink, Sink, StreamSink
from tests.spark.writing import QUERY, Driver, values


def parse(**given: str) -> SinkOptions:
    return SinkOptions.parse({"path": "/log", **given})


HEADER = t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
OTHER_HEADER = t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.StringType())])
KINDS: dict[str, t.DataType] = {
    kind.simpleString(): kind
    for kind in (
        t.StringType(), t.BinaryType(), t.IntegerType(), t.LongType(), t.DoubleType(), t.TimestampType(),
        t.TimestampNTZType(), t.ArrayType(HEADER), t.ArrayType(OTHER_HEADER), t.MapType(t.StringType(), t.BinaryType()),
    )
}  # fmt: skip


def schema_of(columns: str) -> t.StructType:
    """Without a JVM, which alone parses them all."""
    named = [column.split(" ") for column in columns.split(", ")]
    return t.StructType([t.StructField(name, KINDS[kind]) for name, kind in named])


# Options


def test_an_option_has_the_producers_meaning_and_default() -> None:
    assert parse() == SinkOptions("/log", None, False, 120_000, {})
    given = {"TOPIC": " orders ", "autoCreateTopics": "True", "compression": "zstd", "compressionLevel": "-3"}
    given |= {"partitioner": "murmur2", "partitionerOverride": "true"}
    assert parse(**given, batchBytes="1000", deliveryTimeoutMs="5") == SinkOptions(
        "/log",
        "orders",
        True,
        5,
        {
            "compression": "zstd",
            "compression_level": -3,
            "partitioner": "murmur2",
            "partitioner_override": True,
            "batch_bytes": 1000,
        },
    )


def test_what_spark_puts_among_the_options_is_none_of_ours() -> None:
    assert parse(**{name.lower(): "x" for name in SPARKS_OWN}) == parse()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(({name: "1"}, f"option '{name}' has no effect on a sink: ") for name in WITHOUT_EFFECT),
        *(({name: "1"}, f"'{name}' is for a broker, and here is none: here it is '{KAFKAS[name]}'") for name in KAFKAS),
        ({"kafka.bootstrap.servers": "a:1"}, "'kafka.bootstrap.servers' is for a broker, and here is none"),
        ({"groupidprefix": "a"}, "'groupIdPrefix' is for a broker, and here is none"),
        (
            {"kafka.bootstrap.servers": "a:1", "kafka.acks": "1", "kafka.ssl.key": "x"},
            "options 'kafka.bootstrap.servers', 'kafka.ssl.key' are for a broker, and here is none: the log is written",
        ),
        ({"startingoffsets": "earliest"}, "option 'startingOffsets' is the source's, not the sink's; remove it"),
        ({"maxoffsetspertrigger": "1"}, "option 'maxOffsetsPerTrigger' is the source's, not the sink's; remove it"),
        ({"acks": "1"}, f"no option 'acks' of the sink; there are {', '.join(SUPPORTED)}"),
        ({"batchByte": "1"}, "no option 'batchbyte' of the sink; did you mean 'batchBytes'?"),
        ({"paths": '["a","b"]'}, "expected one path"),
        ({"path": "s3://bucket"}, "path='s3://bucket', expected a directory of a mounted filesystem"),
        ({"batchBytes": "1k"}, "batchBytes='1k', expected a whole number"),
        ({"batchBytes": "1"}, "option 'batchBytes': batch_bytes is 1, expected "),
        ({"compression": "brotli"}, "option 'compression': compression is 'brotli', expected one of none, gzip, "),
        (
            {"compression": "zstd", "compressionLevel": "99"},
            "option 'compressionLevel': compression level 99, expected",
        ),
        (
            {"compression": "snappy", "compressionLevel": "1"},
            "option 'compressionLevel': compression level 1, but snappy",
        ),
        ({"compressionLevel": "1"}, "option 'compressionLevel': compression_level is 1, expected None"),
        ({"partitioner": "range"}, "option 'partitioner': partitioner is 'range', expected one of murmur3, "),
        ({"partitioner": "sticky", "partitionerOverride": "1"}, "partitionerOverride='1', expected true or false"),
        ({"partitionerOverride": "true"}, "option 'partitionerOverride': partitioner_override is True, expected False"),
        ({"deliveryTimeoutMs": "0"}, "deliveryTimeoutMs='0', expected a whole number from 1 on"),
        ({"autoCreateTopics": "yes"}, "autoCreateTopics='yes', expected true or false"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_expected(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**given)
    assert said in str(caught.value)


def test_a_topic_has_a_topics_name() -> None:
    with pytest.raises(InvalidTopicName):
        parse(topic="a/b")


# Columns


@pytest.mark.parametrize(
    "columns",
    [
        "value string",
        "value binary, key string, partition int, timestamp timestamp, other double",
        "key binary, value string, headers array<struct<key:string,value:binary>>, offset string",
        "value string, topic int",  # the option goes before it
    ],
)
def test_columns_of_kafkas_sink_are_taken_and_others_ignored(columns: str) -> None:
    check_columns(schema_of(columns), "orders")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("key string, topic string", "required column 'value' not found; there are struct<key:string,topic:string>"),
        ("value string", "the topic option is required where there is no column 'topic'"),
        ("topic string, value int", "column 'value' is int, expected a string or binary"),
        ("topic string, value string, key bigint", "column 'key' is bigint, expected a string or binary"),
        ("topic binary, value string", "column 'topic' is binary, expected a string"),
        ("topic string, value string, partition bigint", "column 'partition' is bigint, expected an int"),
        ("topic string, value string, timestamp string", "column 'timestamp' is string, expected a timestamp"),
        (
            "topic string, value string, timestamp timestamp_ntz",
            "column 'timestamp' is timestamp_ntz, expected a timestamp",
        ),
        (
            "topic string, value string, headers map<string,binary>",
            "column 'headers' is map<string,binary>, expected array<struct<key:string,value:binary>>",
        ),
        (
            "topic string, value string, headers array<struct<key:string,value:string>>",
            "column 'headers' is array<struct<key:string,value:string>>, expected array<struct<key:string,value:binary>>",
        ),
        ("topic string, value string, value binary", "there are 2 columns 'value'"),
    ],
)
def test_a_column_that_is_no_part_of_a_record_is_named(columns: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(schema_of(columns), None)
    assert said in str(caught.value)


def test_rows_are_parted_by_topic_in_their_order() -> None:
    batch = pa.record_batch({"topic": ["a", "b", "a"], "value": ["1", "2", "3"], "offset": [7, 8, 9]})
    assert [(topic, rows.to_pylist()) for topic, rows in tables(batch, None)] == [
        ("a", [{"value": "1"}, {"value": "3"}]),
        ("b", [{"value": "2"}]),
    ]
    (whole,) = tables(batch, "c")
    assert (whole[0], whole[1].num_rows) == ("c", 3)
    with pytest.raises(ConfigError, match="a row has no topic: its column 'topic' is null"):
        list(tables(pa.record_batch({"topic": ["a", None], "value": ["1", "2"]}), None))


# The driver


def source(path: Path, **options: str) -> PylogDataSource:
    return PylogDataSource({"path": str(path), "topic": "orders", **options})


def test_the_driver_makes_the_log_if_asked_and_finds_what_is_wrong_at_once(tmp_log_dir: Path) -> None:
    schema = schema_of("value string")
    for write in ("writer", "streamWriter"):
        with pytest.raises(LogNotFound, match=r"no log at .*; correct the path, .* option autoCreateTopics"):
            getattr(source(tmp_log_dir), write)(schema, overwrite=False)
        assert not tmp_log_dir.exists()
    tmp_log_dir.mkdir()
    with pytest.raises(LogNotFound, match=r"is not a log: .* option autoCreateTopics"):
        source(tmp_log_dir).writer(schema, overwrite=False)
    asked = tmp_log_dir.with_name("asked")
    source(asked, autoCreateTopics="true").writer(schema, overwrite=False)
    with Log(asked, create=False) as log:
        assert log.topics() == ["orders"]
    Log(tmp_log_dir).close()
    with pytest.raises(TopicNotFound, match="no topic 'orders'"):
        source(tmp_log_dir).writer(schema, overwrite=False)
    assert isinstance(source(tmp_log_dir, autoCreateTopics="true").writer(schema, overwrite=False), BatchSink)
    assert isinstance(source(tmp_log_dir).streamWriter(schema, overwrite=False), StreamSink)
    with pytest.raises(ConfigError, match=r"a log is only appended to: use mode\('append'\)"):
        source(tmp_log_dir).writer(schema, overwrite=True)
    with pytest.raises(ConfigError, match="column 'value' is int"):
        source(tmp_log_dir).streamWriter(schema_of("value int"), overwrite=False)
    with pytest.raises(PylogError, match="can only be read: Kafka wrote this directory"):
        source(Path(__file__).parents[1] / "data/kafka-4.3.1/log").writer(schema, overwrite=False)


def test_a_partitioner_that_is_not_the_topics_is_refused_before_any_task_runs(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders", partitioner="murmur2")
    schema = schema_of("value string")
    with pytest.raises(
        ConfigError, match="keys of topic 'orders' are placed by murmur2, and this producer names murmur3"
    ):
        source(tmp_log_dir, partitioner="murmur3").writer(schema, overwrite=False)
    for named in ({}, {"partitioner": "murmur2"}, {"partitioner": "round_robin"}):
        source(tmp_log_dir, **named).writer(schema, overwrite=False)
    source(tmp_log_dir, partitioner="murmur3", partitionerOverride="true").writer(schema, overwrite=False)


def test_an_executor_makes_no_log(tmp_log_dir: Path) -> None:
    with pytest.raises(PylogError, match="no log at"):
        Driver(tmp_log_dir).stage([b"a"])
    assert not tmp_log_dir.exists()


def test_topics_are_created_only_if_asked_for(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    with pytest.raises(TopicNotFound):
        Driver(tmp_log_dir).stage([b"a"])
    Driver(tmp_log_dir, autoCreateTopics="true").write([[b"a"], [b"b"]])
    with Log(tmp_log_dir) as log:
        assert values(log) == [[b"a", b"b"]]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"timestamp": datetime(1969, 12, 31, tzinfo=timezone.utc)}, "timestamp -86400000, expected"),
        ({"partition": 7}, "topic 'orders' has partitions 0 to 0, got 7"),
    ],
)
def test_a_row_that_is_no_record_is_named(tmp_log_dir: Path, row: dict[str, Any], said: str) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders")
    for key, found in (({"key": b"k1"}, " with key b'k1'"), ({}, "")):
        with pytest.raises(PylogError, match=re.escape(f"a row for topic 'orders'{found}: {said}")) as caught:
            Driver(tmp_log_dir).stage([dict.fromkeys(row) | key | {"value": b"v"}, row | key | {"value": b"w"}])
        assert caught.value.topic == "orders"


class Context:
    """What Spark tells a task."""

    def __init__(self, **properties: str) -> None:
        self.properties = properties

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self.properties.get(name)

    def taskAttemptId(self) -> int:  # noqa: N802
        return 7


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "does not tell its tasks which query and batch they belong to"),
        ({"sql.streaming.queryId": "../..", "streaming.sql.batchId": "1"}, "does not tell its tasks"),
        ({"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "x"}, "does not tell its tasks"),
        (
            {
                "sql.streaming.queryId": QUERY,
                "streaming.sql.batchId": "1",
                "__is_continuous_processing": "true",
            },
            "no continuous processing",
        ),
    ],
)
def test_a_stream_that_could_not_know_a_batch_again_is_refused(
    tmp_log_dir: Path, properties: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Log(tmp_log_dir).close()
    context: Any = Context(**properties)
    monkeypatch.setattr("pylog.spark.sink.sink._context", lambda: context)
    with pytest.raises(ConfigError, match=said):
        StreamSink(Sink(SinkOptions.parse({"path": str(tmp_log_dir)}))).write(iter([]))


def test_what_spark_calls_in_turn_writes(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders")
        context: Any = Context(**{"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "4"})
        monkeypatch.setattr("pylog.spark.sink.sink._context", lambda: context)
        for writer, batch in (
            (source(tmp_log_dir).writer(schema_of("value string"), overwrite=False), ()),
            (source(tmp_log_dir).streamWriter(schema_of("value string"), overwrite=False), (4,)),
        ):
            assert isinstance(writer, BatchSink | StreamSink)
            lost, kept = (writer.write(iter([pa.record_batch({"value": [value]})])) for value in ("lost", "kept"))
            writer.abort([lost, None], *batch)
            writer.commit([kept, writer.write(iter([]))], *batch)
        assert [record.value for record in log.partition("orders", 0).scan()] == [b"kept", b"kept"]


def test_a_sinks_id_leads_nowhere_else(tmp_log_dir: Path) -> None:
    for sink_id in ("", "..", "../" + QUERY, QUERY + "/x", "x" * 40):
        with pytest.raises(ConfigError, match="is no id of a sink"):
            SinkDirectory.of(Sink(parse()).filesystem, "/log", sink_id)
