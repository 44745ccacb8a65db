"""The source inside Spark: found by its name, with the columns of the Kafka source and the records
of the log."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from pylog import Log, arrow
from pylog.errors import ConfigError
from pylog.model import ProducerRecord
from pylog.spark.data_source import PylogDataSource
from pylog.spark.source.schema import arrow_schema, spark_schema
from tests.arrow.rows import CORNERS, T0, expected, rows, view_of
from tests.partition.logs import flip, log_file, snapshot_of
from tests.spark.reading import KAFKA, append_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"metadata": {}, "name": name, "nullable": True, "type": kind}


# As Spark's own source says: spark.read.format("kafka").option("includeHeaders",
# True)….load().schema.json()
KAFKA_COLUMNS = [
    field("key", "binary"),
    field("value", "binary"),
    field("topic", "string"),
    field("partition", "integer"),
    field("offset", "long"),
    field("timestamp", "timestamp"),
    field("timestampType", "integer"),
]
KAFKA_HEADER = {"fields": [field("key", "string"), field("value", "binary")], "type": "struct"}
KAFKA_HEADERS = field("headers", {"containsNull": True, "elementType": KAFKA_HEADER, "type": "array"})


@pytest.fixture
def orders(log: Log) -> Log:
    """Three partitions: one in several segments and all codecs, one of append times, one empty; and
    another topic."""
    log.create_topic("orders", partitions=3, segment_bytes=4096)
    for codec in CODECS * 2:
        append_view(log, view_of(CORNERS * 5, codec=codec))
    append_view(log, view_of(CORNERS), partition=1)
    log.create_topic("stamped", message_timestamp_type="LogAppendTime")
    append_view(log, view_of(CORNERS), "stamped")
    return log


def load(spark: SparkSession, path: Path | str, **options: Any) -> DataFrame:
    return spark.read.format("pylog").options(**options).load(str(path))


def sorted_rows(frame: DataFrame) -> list[dict[str, Any]]:
    found = rows(frame.toArrow())
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def scanned(log: Log, *, headers: bool = False) -> list[dict[str, Any]]:
    found = []
    for topic in log.topics():
        kind = int(log.describe_topic(topic).config.message_timestamp_type == "LogAppendTime")
        for number in range(log.describe_topic(topic).partitions):
            found += expected(log.partition(topic, number).scan(), kind, headers=headers)
    return found


# Columns


@pytest.mark.parametrize("headers", [False, True])
def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession, log: Log, headers: bool) -> None:
    frame = load(spark, log.path, includeHeaders=headers)
    columns = [*KAFKA_COLUMNS, KAFKA_HEADERS] if headers else KAFKA_COLUMNS
    assert json.loads(frame.schema.json()) == {"fields": columns, "type": "struct"}


@pytest.mark.parametrize("headers", [False, True])
def test_the_arrow_schema_is_what_spark_wants_for_it(headers: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(spark_schema(include_headers=headers), timezone="UTC")
    for found in (
        arrow.schema(headers=headers),
        arrow_schema(spark_schema(include_headers=headers), include_headers=headers),
    ):
        assert found.equals(wanted)
        assert str(found) == str(wanted)  # the name of what is in a list, too


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("value string", "no column value string; there are struct<key:binary,value:binary,topic:string"),
        ("colour binary", "no column colour binary"),
        ("headers array<struct<key:string,value:binary>>", r"\(and headers with includeHeaders=true\)"),
        ("value binary not null", "column value may be null; declare it without NOT NULL"),
        ("value binary, offset long, value binary", "column value stands twice in the schema"),
        (StructType([]), "a schema without columns; there are struct<key:binary"),
    ],
)
def test_columns_there_are_not_are_refused(spark: SparkSession, log: Log, schema: str | StructType, said: str) -> None:
    frame = spark.read.format("pylog").schema(schema).load(str(log.path))
    with pytest.raises(Exception, match=said):
        frame.count()


# Records


def test_every_record_is_what_the_partitions_give(spark: SparkSession, orders: Log) -> None:
    assert sorted_rows(load(spark, orders.path, includeHeaders=True)) == scanned(orders, headers=True)
    assert sorted_rows(load(spark, orders.path)) == scanned(orders)


def test_rows_come_into_python_as_they_are(spark: SparkSession, log: Log) -> None:
    log.create_topic("orders")
    append_view(log, view_of(CORNERS[:3]))
    found = load(spark, log.path, includeHeaders=True).orderBy("offset").collect()
    assert [(row.key, row.value) for row in found] == [(b"key", b"value"), (b"tombstone", None), (None, None)]
    assert [row.timestamp.timestamp() * 1000 for row in found] == [T0] * 3
    assert found[0].headers[0].asDict() == {"key": "trace", "value": b"7f"}
    assert found[1].headers is None


def test_an_empty_log_is_an_empty_frame(spark: SparkSession, log: Log) -> None:
    log.create_topic("orders", partitions=3)
    frame = load(spark, log.path)
    assert frame.count() == 0
    assert frame.collect() == []


def test_options_choose_topics_and_offsets(spark: SparkSession, orders: Log) -> None:
    frame = load(
        spark,
        orders.path,
        subscribe="orders",
        startingOffsets='{"orders": {"0": 100, "1": -2, "2": 0}}',
        endingOffsets='{"orders": {"0": 120, "1": 3, "2": -1}}',
    )
    found = [(row.partition, row.offset) for row in frame.orderBy("partition", "offset").collect()]
    assert found == [(0, offset) for offset in range(100, 120)] + [(1, 0), (1, 1), (1, 2)]


def test_a_partition_is_read_by_as_many_tasks_as_its_size_asks_for(spark: SparkSession, log: Log) -> None:
    from pyspark.sql.functions import spark_partition_id

    log.create_topic("orders")
    for number in range(60):
        record = ProducerRecord(b"x" * 1_000, timestamp_ms=T0 + number * 1_000)
        log.partition("orders", 0).append([record], acks=1)
    given = {"startingTimestamp": T0 + 10_000, "endingTimestamp": T0 + 50_000}
    for options, tasks in (({}, 1), ({"splitBytes": 12_000}, 4), ({"minPartitions": 3}, 3)):
        frame = load(spark, log.path, **given, **options).select("offset", spark_partition_id().alias("task"))
        found = [(row.task, row.offset) for row in frame.collect()]
        assert sorted(offset for _, offset in found) == [*range(10, 50)]
        assert abs(len({task for task, _ in found}) - tasks) <= 1


def test_sql_filters_and_few_columns(spark: SparkSession, orders: Log) -> None:
    spark.sql(f"create or replace temporary view orders using pylog options (path '{orders.path}', subscribe 'orders')")
    (row,) = spark.sql(
        "select count(*) n, max(offset) last from orders where partition = 0 and value is not null"
    ).collect()
    assert (row.n, row.last) == (250, 349)
    frame = spark.read.format("pylog").schema("offset long not null, value binary").load(f"{orders.path}/orders-1")
    assert [*map(tuple, frame.orderBy("offset").collect())] == [(at, record.value) for at, record in enumerate(CORNERS)]


def test_paths_may_be_relative_or_uris(spark: SparkSession, orders: Log) -> None:
    for path in (os.path.relpath(orders.path), orders.path.as_uri(), f"{orders.path}/"):
        assert load(spark, path, subscribe="stamped").count() == len(CORNERS)


@pytest.mark.skipif(not KAFKA.is_dir(), reason=f"no directories of Kafka's in {KAFKA}")
@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_brokers_directory(spark: SparkSession, isolation_level: str) -> None:
    wanted = {
        path.name.partition(".")[0]: len(path.read_text().splitlines())
        for path in KAFKA.glob(f"expected/*.{isolation_level}.jsonl")
    }
    found = load(spark, KAFKA / "log", isolationLevel=isolation_level).groupBy("topic").count().collect()
    assert Counter(dict(map(tuple, found))) == +Counter(wanted)


# Being found


@pytest.mark.slow
def test_a_source_that_was_registered_is_used_as_well(spark: SparkSession, orders: Log) -> None:
    unregistered = load(spark, orders.path).count()  # found by its package's name, pyspark_pylog
    spark.dataSource.register(PylogDataSource)
    assert load(spark, orders.path).count() == unregistered == len(scanned(orders))


def test_the_package_that_spark_looks_for_has_it() -> None:
    from pyspark_pylog import DefaultSource

    assert DefaultSource is PylogDataSource
    assert DefaultSource.name() == "pylog"


def test_without_pyspark_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    import pylog.spark

    monkeypatch.setattr(pylog, "spark", pylog.spark)  # the import below replaces it, too
    for name in [name for name in sys.modules if name.startswith("pylog.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    package = importlib.import_module("pylog.spark")
    for name in ("PylogDataSource", "session_builder"):
        with pytest.raises(ConfigError, match=r"pip install 'pylog-embedded\[spark\]'") as caught:
            getattr(package, name)
        assert caught.value.extra == "spark"


# What goes wrong


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onCorruption": "repair"}, "ConfigError: onCorruption='repair', expected fail or skip"),
        ({"kafka.bootstrap.servers": "host:9092"}, "ConfigError: option 'kafka.bootstrap.servers' is for a broker"),
        ({"startingOfsets": "earliest"}, "ConfigError: no option 'startingofsets'; did you mean 'startingOffsets'?"),
    ],
)
def test_a_wrong_option_is_refused_when_the_frame_is_made(
    spark: SparkSession, log: Log, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        load(spark, log.path, **options)
    assert said in str(caught.value)


def test_a_wrong_path_is_refused_when_the_frame_is_made(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"LogNotFound: there is no directory '.*/missing'"):
        load(spark, tmp_path / "missing")
    with pytest.raises(Exception, match=r"ConfigError: path=.* expected one path"):
        spark.read.format("pylog").load([str(tmp_path), str(tmp_path)])


def test_a_topic_that_is_not_there_is_refused_when_the_query_runs(spark: SparkSession, log: Log) -> None:
    frame = load(spark, log.path, subscribe="order")
    with pytest.raises(Exception, match="TopicNotFound: no topic 'order'"):
        frame.count()


def test_damage_fails_the_task_and_says_where(spark: SparkSession, orders: Log) -> None:
    path = log_file(orders.path / "orders-0")
    flip(path, path.stat().st_size - 10)
    frame = load(spark, orders.path, subscribe="orders")
    with pytest.raises(Exception, match=f"CorruptSegment: orders-0 is damaged at offset [0-9]+, file {path}: "):
        frame.count()


def test_loss_fails_the_task_unless_told_otherwise(spark: SparkSession, log: Log) -> None:
    log.create_topic("orders", segment_bytes=1024)
    for number in range(20):
        log.partition("orders", 0).append([ProducerRecord(b"%d" % number * 100)], acks=1)
    log.delete_records(("orders", 0), 7)
    given = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 3}}'}
    with pytest.raises(Exception, match="OffsetOutOfRange: offsets 3 to 20 of orders-0 were asked for"):
        load(spark, log.path, **given).count()
    found = load(spark, log.path, **given, failOnDataLoss=False).collect()
    assert [row.offset for row in found] == [*range(7, 20)]


def test_a_directory_nobody_may_write_is_read_and_stays_as_it_is(
    spark: SparkSession, orders: Log, tmp_path: Path
) -> None:
    directory = tmp_path / "copy"
    wanted = scanned(orders)
    shutil.copytree(orders.path, directory)
    before = snapshot_of(directory)
    below = [directory, *directory.rglob("*")]
    for path in below:
        path.chmod(0o555 if path.is_dir() else 0o444)
    times = [path.stat().st_mtime_ns for path in below]
    try:
        assert sorted_rows(load(spark, directory)) == wanted
        assert [path.stat().st_mtime_ns for path in below] == times
        assert snapshot_of(directory) == before
    finally:
        for path in below:
            path.chmod(0o755)
