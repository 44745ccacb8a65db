"""``format("pylog-jvm")`` inside Spark: the rows of ``format("pylog")``, whatever is pushed down,
and errors with a way out."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog import Log, Producer
from pylog.codec.format import GZIP
from pylog.model import ProducerRecord
from tests.arrow.rows import CORNERS, T0, rows, view_of
from tests.codec.reference import batch_of
from tests.partition.logs import flip, log_file
from tests.spark.jvm.random_logs import random_log
from tests.spark.reading import KAFKA, append_view, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = sorted(KAFKA.parent.glob("pylog-*/log"))
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 600


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions, the last of them empty, in several segments; and another topic."""
    path = tmp_path_factory.mktemp("jvm") / "log"
    with Log(path) as log, Producer(log, batch_bytes=1_000) as producer:
        log.create_topic("orders", partitions=3, segment_bytes=8192)
        log.create_topic("payments")
        for number in range(RECORDS):
            key, value = b"%d" % (number % 7), b"%064d" % number
            producer.send("orders", value, key=key, partition=number % 2, timestamp_ms=T0 + 1000 * number)
        producer.send("payments", b"paid", timestamp_ms=T0)
    return path


def load(spark: SparkSession, path: Path | str, kind: str = "pylog-jvm", **options: Any) -> DataFrame:
    return spark.read.format(kind).options(**options).load(str(path))


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return in_order(rows(frame.toArrow()))


# Rows


@pytest.mark.parametrize("headers", [False, True])
def test_every_corner_in_every_codec_with_either_kind_of_time(jvm: SparkSession, log: Log, headers: bool) -> None:
    log.create_topic("orders", partitions=2)
    log.create_topic("stamped", message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        append_view(log, view_of(CORNERS, codec=codec))
        append_view(log, view_of(CORNERS, codec=codec), "stamped")
    found = rows_of(load(jvm, log.path, includeHeaders=headers))
    assert found == in_order(read(log.path, includeHeaders=headers))
    assert len(found) == 2 * len(CODECS) * len(CORNERS)


@pytest.mark.parametrize("path", [KAFKA / "log", *GOLDEN], ids=lambda path: path.parent.name)
def test_golden_directories(jvm: SparkSession, path: Path, tmp_path: Path) -> None:
    """Three readers: the Java one, the Python one in Spark, and the Python one alone."""
    copy = shutil.copytree(path, tmp_path / "log")
    alone = in_order(read(copy, includeHeaders=True))
    assert alone
    for kind in ("pylog-jvm", "pylog"):
        frame = load(jvm, copy, kind, includeHeaders=True)
        assert rows_of(frame) == alone
        assert frame.count() == len(alone)


@pytest.mark.parametrize("number", range(4))
def test_random_logs(jvm: SparkSession, tmpfs_dir: Path, seed: int, number: int) -> None:
    """Of 200 more the rows are compared without Spark: test_jvm_rows.py."""
    chance = random.Random(seed)
    random_log(tmpfs_dir / "log", chance)
    level = chance.choice(["read_committed", "read_uncommitted"])
    options = {"includeHeaders": True, "isolationLevel": level, "splitBytes": chance.choice([3_000, 1 << 20])}
    alone = in_order(read(tmpfs_dir / "log", **options))
    frame = load(jvm, tmpfs_dir / "log", **options)
    assert rows_of(frame) == alone
    expressions = ["count(*)", "min(offset)", "max(offset)", "min(timestamp)", "max(timestamp)"]
    (counted,) = rows(frame.selectExpr("count(*) n", "min(offset) a", "max(offset) b").toArrow())
    offsets = [row["offset"] for row in alone]
    assert counted == {"n": len(alone), "a": min(offsets, default=None), "b": max(offsets, default=None)}
    assert frame.selectExpr(*expressions).collect() == unpushed(frame).selectExpr(*expressions).collect()


def unpushed(frame: DataFrame) -> DataFrame:
    """The same rows, of which Spark itself makes what is asked."""
    from pyspark.sql.functions import rand

    return frame.where(rand() >= 0)


def test_an_empty_log_and_partitions_alone(jvm: SparkSession, orders: Path, log: Log) -> None:
    assert load(jvm, log.path).collect() == []
    assert load(jvm, log.path).selectExpr("count(*)", "max(offset)", "min(timestamp)").collect() == [(0, None, None)]
    assert load(jvm, log.path).groupBy("topic").count().collect() == []
    assert rows_of(load(jvm, orders / "orders-1")) == in_order(read(orders / "orders-1"))


def test_a_row_may_be_kept_after_the_next_batch(jvm: SparkSession, orders: Path) -> None:
    """Spark may hold on to keys and values: a cached table, a sort, a join of the log with
    itself."""
    frame = load(jvm, orders, subscribe="orders")
    values = [row.value for row in frame.orderBy("value", ascending=False).collect()]
    assert values == [bytearray(b"%064d" % number) for number in reversed(range(RECORDS))]
    other = frame.selectExpr("value AS v", "partition AS p", "offset AS o")
    joined = frame.join(other, (frame.value == other.v) & (frame.partition == other.p))
    assert joined.where("offset = o").count() == RECORDS
    cached = frame.cache()
    try:
        assert cached.selectExpr("sum(length(value))").collect() == [(64 * RECORDS,)]
        assert rows_of(cached) == in_order(read(orders, subscribe="orders"))
    finally:
        cached.unpersist()


# What is pushed down


FILTERS = [
    "offset >= 100 AND partition = 1",
    "partition <> 1 AND offset IN (1, 2, 3, 299, 5000)",
    "5 < offset AND 9 >= offset",
    "NOT (offset = 7) AND offset < 12",
    "offset <=> 7 OR offset = 9",
    "topic LIKE 'pay%'",
    "topic = 'orders' AND timestamp >= timestamp_millis(1700000100000) AND timestamp < timestamp_millis(1700000130500)",
    "timestamp = timestamp_millis(1700000100000)",
    "key IS NULL",
    "key = X'33' AND offset > 200",
    "offset IS NULL",
    "offset > 2147483648",
    "partition IN (0, 2) AND topic IN ('orders', 'others') AND value IS NOT NULL AND offset % 50 = 0",
    "date(timestamp) = DATE '2023-11-14' AND offset = 3",
    "timestampType = 0 AND offset = 0",
]


@pytest.mark.slow
@pytest.mark.parametrize("condition", FILTERS)
def test_filters(jvm: SparkSession, orders: Path, condition: str) -> None:
    frame = load(jvm, orders)
    expected = rows_of(load(jvm, orders, "pylog").where(condition))
    assert rows_of(frame.where(condition)) == expected
    assert frame.where(condition).count() == len(expected)
    of_offsets = frame.where(condition).selectExpr("min(offset)", "max(offset)", "max(partition)").collect()
    assert (
        of_offsets
        == unpushed(frame.where(condition)).selectExpr("min(offset)", "max(offset)", "max(partition)").collect()
    )


def test_columns_in_any_order_and_of_a_given_schema(jvm: SparkSession, orders: Path) -> None:
    frame = load(jvm, orders, includeHeaders=True, subscribe="orders")
    picked = frame.select("offset", "headers", "key", "partition", "timestampType", "topic")
    expected = in_order(read(orders, includeHeaders=True, subscribe="orders"))
    assert rows_of(picked) == [{name: row[name] for name in picked.columns} for row in expected]
    given = jvm.read.format("pylog-jvm").schema("value binary, offset long").load(str(orders))
    assert given.columns == ["value", "offset"]
    assert given.selectExpr("sum(offset)").collect() == frame.selectExpr("sum(offset)").collect()


def test_aggregates(jvm: SparkSession, orders: Path) -> None:
    frame = load(jvm, orders)
    asked = ["count(*)", "count(offset)", "min(partition)", "max(partition)", "max(timestamp)", "min(offset)"]
    assert "aggregates [count(*), count(*), min(partition)" in plan_of(frame.selectExpr(*asked))
    assert frame.selectExpr(*asked).collect() == unpushed(frame).selectExpr(*asked).collect()
    by = sorted(map(tuple, frame.groupBy("topic", "partition").count().collect()))
    assert by == [("orders", 0, RECORDS // 2), ("orders", 1, RECORDS // 2), ("payments", 0, 1)]
    assert "by topic, partition" in plan_of(frame.groupBy("topic", "partition").count())


@pytest.mark.parametrize("asked", ["count(key)", "count(DISTINCT partition)", "sum(offset)", "min(key)", "max(topic)"])
def test_other_aggregates_are_sparks(jvm: SparkSession, orders: Path, asked: str) -> None:
    frame = load(jvm, orders)
    assert "aggregates" not in plan_of(frame.selectExpr(asked))
    assert frame.selectExpr(asked).collect() == unpushed(frame).selectExpr(asked).collect()


def test_aggregates_of_filtered_times_are_sparks(jvm: SparkSession, orders: Path) -> None:
    frame = load(jvm, orders).where("timestamp >= timestamp_millis(1700000100500)")
    assert "aggregates" not in plan_of(frame.groupBy().count())
    assert frame.count() == sum(row["timestamp"] >= 1_700_000_100_500_000 for row in read(orders))


def test_explain_names_the_log_the_offsets_and_what_was_pushed(jvm: SparkSession, orders: Path) -> None:
    text = plan_of(load(jvm, orders, subscribe="orders").where("partition = 1 AND offset >= 17").select("value"))
    assert f"pylog-jvm {orders} [orders-1: 17 to {RECORDS // 2}], tasks 1, filters [" in text
    assert "partition = 1, offset >= 17" in text
    assert "Filter (" not in text
    assert "[orders-0: 0 to 300, orders-1: 0 to 300, payments-0: 0 to 1], tasks 1" in plan_of(load(jvm, orders))
    assert f"pylog-jvm {orders} [nothing], tasks 0" in plan_of(load(jvm, orders).where("topic = 'nobody'"))


def test_spark_knows_how_many_bytes_a_log_has(jvm: SparkSession, orders: Path) -> None:
    plan = load(jvm, orders)._jdf.queryExecution().optimizedPlan()
    assert int(str(plan.stats().sizeInBytes())) == sum(path.stat().st_size for path in orders.glob("*-?/*.log"))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


# Time


def test_a_query_reads_what_there_is_when_it_starts(jvm: SparkSession, log: Log) -> None:
    log.create_topic("orders")
    frame = load(jvm, log.path)
    assert frame.count() == 0
    log.partition("orders", 0).append([ProducerRecord(b"one")], acks=1)
    assert frame.count() == 1


def test_what_a_frame_has_collected_it_collects_again(jvm: SparkSession, log: Log) -> None:
    """Spark keeps the plan of a frame; ``count`` makes another one."""
    log.create_topic("orders")
    frame = load(jvm, log.path).select("offset")
    assert frame.collect() == []
    log.partition("orders", 0).append([ProducerRecord(b"one")], acks=1)
    assert (frame.collect(), frame.count(), frame.where("true").count()) == ([], 1, 1)
    assert load(jvm, log.path).select("offset").collect() == [(0,)]


# SQL


def test_a_log_is_a_table_of_sparks_catalog_and_stays_when_that_is_dropped(jvm: SparkSession, orders: Path) -> None:
    """Spark gives its table's properties with the options."""
    jvm.sql(f"CREATE TABLE by_path USING `pylog-jvm` OPTIONS (path '{orders}', subscribe 'orders')")
    jvm.sql(f"CREATE TABLE by_location USING `pylog-jvm` LOCATION '{orders}'")
    jvm.catalog.createTable("by_name", path=str(orders), source="pylog-jvm", subscribePattern="pay.*")
    for table, count in (("by_path", RECORDS), ("by_location", RECORDS + 1), ("by_name", 1)):
        assert jvm.sql(f"SELECT count(*) FROM {table}").collect() == [(count,)]
        assert len(jvm.sql(f"SELECT value FROM {table} WHERE partition < 9").collect()) == count
        assert "writes nothing" in message(lambda table=table: jvm.sql(f"INSERT INTO {table} SELECT * FROM {table}"))
        jvm.sql(f"DROP TABLE {table}")
    assert load(jvm, orders).count() == RECORDS + 1
    create = f"CREATE TABLE wrong USING `pylog-jvm` OPTIONS (path '{orders}', subscibe 'orders')"
    assert "no option 'subscibe'; did you mean 'subscribe'?" in message(lambda: jvm.sql(create))


def test_a_table_of_the_other_format_would_have_no_options(jvm: SparkSession, orders: Path) -> None:
    for given in (f"OPTIONS (path '{orders}')", f"LOCATION '{orders}'"):
        assert "CREATE TEMPORARY VIEW" in message(
            lambda given=given: jvm.sql(f"CREATE TABLE wrong USING pylog {given}")
        )
    for kind in ("pylog", "`pylog-jvm`"):
        jvm.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW payments USING {kind} OPTIONS (path '{orders}', subscribe 'payments')"
        )
        assert jvm.sql("SELECT value FROM payments").collect() == [(b"paid",)]


# Errors


def message(act: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - PySpark's own kinds
        act()
    return str(caught.value)


def test_what_the_planner_refuses_is_an_error_of_one_line(jvm: SparkSession, orders: Path) -> None:
    from pyspark.errors import IllegalArgumentException

    def given(schema: str) -> DataFrame:
        return jvm.read.format("pylog-jvm").schema(schema).load(str(orders))

    for act, text in (
        (lambda: load(jvm, orders / "nowhere"), f"LogNotFound: there is no directory '{orders}/nowhere'"),
        (lambda: load(jvm, orders, onCorruption="skip"), 'ConfigError: onCorruption=skip: format("pylog-jvm") cannot do it'),
        (lambda: load(jvm, orders, subscribe="order").count(), "TopicNotFound: no topic 'order'"),
        (lambda: given("value string"), "no column value string"),
        (lambda: given("headers array<struct<key string, value binary>>"), "includeHeaders=true"),
    ):  # fmt: skip
        with pytest.raises(IllegalArgumentException) as caught:
            act()
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)


def test_streams_and_writes_are_for_the_other_format(jvm: SparkSession, orders: Path) -> None:
    assert "does not support streamed reading" in message(lambda: jvm.readStream.format("pylog-jvm").load(str(orders)))
    write = load(jvm, orders).select("value").write.format("pylog-jvm").mode("append")
    assert 'writes nothing: use format("pylog")' in message(lambda: write.save(str(orders)))
    for frame, options in (("SELECT 'a' AS value", {"topic": "orders"}), ("SELECT 'a' AS value", {})):
        for mode in ("append", "overwrite"):
            write = jvm.sql(frame).write.format("pylog-jvm").mode(mode).options(**options)
            assert 'use format("pylog")' in message(lambda write=write: write.save(str(orders)))


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9])
def test_a_flipped_bit_fails_rows_and_counts_with_its_place(jvm: SparkSession, log: Log, at: float) -> None:
    log.create_topic("orders")
    for _ in range(20):
        append_view(log, view_of(CORNERS))
    path = log_file(Path(log.path) / "orders-0")
    flip(path, int(at * path.stat().st_size) + 30)
    for act in (load(jvm, log.path).collect, load(jvm, log.path).count, load(jvm, log.path, "pylog").collect):
        found = message(act)
        assert "orders-0 is damaged at offset" in found
        assert str(path) in found


def test_headers_are_trusted_unless_an_option_forbids_it(jvm: SparkSession, log: Log) -> None:
    log.create_topic("orders")
    log.partition("orders", 0).log.append_batch(batch_of(gzip.compress(b"no records"), 5, attributes=GZIP))
    distrusting = load(jvm, log.path, trustHeaders=" False ")
    assert "aggregates [count(*)]" in plan_of(distrusting.groupBy().count())
    assert load(jvm, log.path).count() == 5
    assert load(jvm, log.path).select("topic").collect() == [("orders",)] * 5
    for act in (distrusting.count, distrusting.select("topic").collect, load(jvm, log.path).select("offset").collect):
        assert "orders-0 is damaged at offset 0" in message(act)


def test_a_topic_that_was_created_again_is_loss(jvm: SparkSession, log: Log) -> None:
    log.create_topic("orders")
    append_view(log, view_of(CORNERS))
    frame = load(jvm, log.path)
    plan = frame._jdf.queryExecution().executedPlan()
    assert "orders-0: 0 to 7" in plan.toString()  # planned
    log.delete_topic("orders")
    log.create_topic("orders")
    append_view(log, view_of(CORNERS))
    found = message(plan.executeCollect)
    assert "created again" in found
    assert "load the frame again" in found


def test_a_planner_that_has_died_is_started_again(jvm: SparkSession, orders: Path) -> None:
    assert load(jvm, orders).count() == RECORDS + 1
    (pid,) = planners()
    os.kill(pid, signal.SIGKILL)
    assert load(jvm, orders).count() == RECORDS + 1
    (other,) = planners()
    assert other != pid


def planners() -> list[int]:
    """The planner processes of this run's JVM."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) if command else 0
            if b"'pylog.spark.jvm'" in command and os.getpid() in ancestors(parent):
                found.append(int(entry.name))
        except (OSError, IndexError, ValueError):
            continue
    return found


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def test_two_threads_plan_at_once(jvm: SparkSession, orders: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def count(start: int) -> int:
        offsets = json.dumps({"orders": {"0": start, "1": -2, "2": -2}})
        return load(jvm, orders, subscribe="orders", startingOffsets=offsets).count()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(count, range(0, 40, 4))) == [RECORDS - start for start in range(0, 40, 4)]
