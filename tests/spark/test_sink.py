"""The sink inside Spark: rows become records, and a stream that starts again from its checkpoint
adds nothing twice."""

from __future__ import annotations

import gc
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog import Log
from pylog.codec.format import POSITIVE
from pylog.producer.partitioner import NAMED_PARTITIONERS
from tests.spark.writing import names, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0_US = 1_700_000_000_000_000


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("orders", partitions=3)
    return log


@pytest.fixture
def on_its_thread(spark: SparkSession) -> Iterator[None]:
    """Spark finds a sink by its name only where the thread of the JVM has the session for its
    active one.

    py4j gives another thread to a Python thread whose call is interrupted by the collector of
    garbage, which calls the JVM too.
    """
    jvm: Any = spark._jvm
    gc.disable()
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    yield
    gc.enable()


def save(frame: DataFrame, log: Log, mode: str = "append", **options: Any) -> None:
    frame.write.format("pylog").mode(mode).options(**options).save(str(log.path))


@pytest.mark.slow
@pytest.mark.usefixtures("on_its_thread")
def test_every_column_is_in_the_record(spark: SparkSession, log: Log) -> None:
    log.create_topic("bills")
    frame = spark.sql(
        f"""SELECT *, timestamp_micros({T0_US + 1999}) AS timestamp, 1.0 AS ignored FROM VALUES
        (X'61', 'costco', 'orders', CAST(null AS int), array(named_struct('key', 'trace', 'value', X'3766'),
                                                             named_struct('key', 'none', 'value', CAST(null AS binary)))),
        (null, null, 'orders', 2, null),
        (X'63', 'ikea', 'bills', null, array()) AS rows(value, key, topic, partition, headers)"""
    )
    save(frame, log)
    found = [
        (record.topic, record.partition, record.timestamp_ms, record.key, record.value, record.headers)
        for topic in ("bills", "orders")
        for number in log.describe_topic(topic).numbers
        for record in log.partition(topic, number).scan()
    ]
    hashed = NAMED_PARTITIONERS["murmur3"].key_hash
    assert hashed is not None
    keyed, time_ms = (hashed(b"costco") & POSITIVE) % 3, T0_US // 1000 + 1
    assert Counter(found) == Counter(
        [
            ("bills", 0, time_ms, b"ikea", b"c", ()),
            ("orders", 2, time_ms, None, None, ()),
            ("orders", keyed, time_ms, b"costco", b"a", (("trace", b"7f"), ("none", None))),
        ]
    )
    assert names(log.path / ".pylog/spark") == ["save-0.lock"]
    copied = spark.read.format("pylog").load(str(log.path)).drop("partition")
    for options in ({"partitioner": "murmur2"}, {"partitioner": "sticky"}):
        with pytest.raises(Exception, match=r"ConfigError: .*keys of topic 'bills' are placed by murmur3"):
            save(copied, log, topic="bills", **options)
    save(copied, log, topic="bills", partitioner="sticky", partitionerOverride=True, compression="zstd")
    assert sorted(map(str, values(log, "bills")[0])) == ["None", "b'a'", "b'c'", "b'c'"]


@pytest.mark.usefixtures("on_its_thread")
def test_what_cannot_be_written_fails_by_name_and_adds_nothing(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    frame = spark.sql("SELECT * FROM VALUES ('a', 0), ('b', 7) AS rows(value, partition)").coalesce(1)
    for said, options in (
        (
            "InvalidPartition: a row for topic 'orders': topic 'orders' has partitions 0 to 2, got 7",
            {"topic": "orders"},
        ),
        ("TopicNotFound: no topic 'bills'", {"topic": "bills"}),
        ("ConfigError: the topic option is required where there is no column 'topic'", {}),
        ("ConfigError: no option 'acks' of the sink", {"topic": "orders", "acks": "1"}),
    ):
        with pytest.raises(Exception, match=said):
            save(frame, log, **options)
    with pytest.raises(Exception, match="ConfigError: a row has no topic: its column 'topic' is null"):
        save(frame.selectExpr("value", "cast(null AS string) AS topic"), log)
    with pytest.raises(Exception, match="ConfigError: a log is only appended to: use mode"):
        save(frame, log, "overwrite", topic="orders")
    for mode in ("ignore", "errorifexists"):
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            save(frame, log, mode, topic="orders")
    counts = (
        spark.readStream.format("rate").load().groupBy("value").count().selectExpr("cast(value AS string) AS value")
    )
    complete = counts.writeStream.format("pylog").outputMode("complete").option("topic", "orders")
    query = complete.option("checkpointLocation", str(tmp_path)).start(str(log.path))
    with pytest.raises(Exception, match="ConfigError: a log is only appended to: "):
        query.awaitTermination(60)
    assert values(log) == [[], [], []]
    assert names(log.path / ".pylog/spark") == []


@pytest.mark.slow
@pytest.mark.usefixtures("on_its_thread")
def test_a_stream_writes_each_row_once_though_its_last_batch_comes_again(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def run(number: int) -> None:
        (source / f"{number}.txt").write_text(f"a{number}\nb{number}\n")
        stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source)).writeStream
        stream = stream.format("pylog").option("topic", "orders").option("checkpointLocation", str(checkpoint))
        query = stream.queryName("copy").trigger(availableNow=True).start(str(log.path))
        assert query.awaitTermination(60)
        assert query.exception() is None

    run(0)
    run(1)
    before = values(log)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()  # Spark died before it noted the batch down
    run(2)
    found = [value for partition in values(log) for value in partition]
    assert sorted(found) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert sum(map(len, before)) == 4
    assert names(log.path / ".pylog/spark") == []
    assert log.transactions() == log.groups()  # of the query
    shutil.rmtree(checkpoint)  # another checkpoint is another query, to which all is new
    run(3)
    assert len([value for partition in values(log) for value in partition]) == 14
