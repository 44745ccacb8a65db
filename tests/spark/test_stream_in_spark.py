"""The streaming source inside Spark: triggers, checkpoints, what comes while a query runs, and what
it says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog import Log, ProducerRecord
from pylog.spark import offsets_behind
from tests.spark.reading import as_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("orders", partitions=2)
        yield log


def append(log: Log, count: int, topic: str = "orders", partition: int = 0) -> None:
    log.partition(topic, partition).append([ProducerRecord(b"v")] * count, acks=1)


def started(spark: SparkSession, log: Log, options: dict[str, Any], **trigger: Any) -> StreamingQuery:
    """A query that copies to Parquet beside the log."""
    stream = spark.readStream.format("pylog").options(**as_texts(options)).load(str(log.path))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(log.path.parent / "checkpoint"))
    return writer.trigger(**trigger).start(str(log.path.parent / "copied"))


def copied(spark: SparkSession, log: Log) -> list[tuple[str, int, int]]:
    frame = spark.read.schema("topic string, partition int, offset long").parquet(str(log.path.parent / "copied"))
    return sorted((row.topic, row.partition, row.offset) for row in frame.collect())


def all_of(log: Log) -> list[tuple[str, int, int]]:
    return [
        (topic, number, offset)
        for topic in log.topics()
        for number in range(log.describe_topic(topic).partitions)
        for offset in range(log.partition(topic, number).latest_offset)
    ]


@pytest.mark.slow
def test_a_query_goes_on_from_its_checkpoint_with_every_trigger(spark: SparkSession, log: Log) -> None:
    append(log, 5)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 3}
    query = started(spark, log, options, availableNow=True)
    query.awaitTermination()
    assert [progress["numInputRows"] for progress in query.recentProgress] == [3, 2]
    [source] = query.recentProgress[0]["sources"]
    end = json.loads(source["endOffset"])
    assert (end["orders"], end["$from"]) == ({"0": 3, "1": 0}, {"orders": {"0": 0, "1": 0}})
    assert json.loads(source["latestOffset"])["orders"] == {"0": 5, "1": 0}
    assert offsets_behind(query.recentProgress[0]) == {("orders", 0): 2, ("orders", 1): 0}
    append(log, 6, partition=1)
    started(spark, log, options, once=True).awaitTermination()
    assert copied(spark, log) == all_of(log)
    query = started(spark, log, options, processingTime="0 seconds")
    try:
        log.create_topic("later")
        append(log, 4, "later")
        query.processAllAvailable()
        assert copied(spark, log) == all_of(log)
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "ConfigError: option 'endingOffsets' is for batch queries, and this is a stream"),
        ({"startingOffsets": {"orders": {"0": 9, "1": 0}}}, "OffsetOutOfRange: offsets 9 to 9 of orders-0 were asked"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    spark: SparkSession, log: Log, options: dict[str, Any], said: str
) -> None:
    query = started(spark, log, options, availableNow=True)
    with pytest.raises(Exception, match=said) as caught:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(caught.value)


def test_a_limit_of_streams_is_refused_by_a_batch_query(spark: SparkSession, log: Log) -> None:
    frame = spark.read.format("pylog").option("maxOffsetsPerTrigger", 5).load(str(log.path))
    with pytest.raises(Exception, match="ConfigError: option 'maxOffsetsPerTrigger' is for streams"):
        frame.collect()
