"""The same records read by Spark: from a log, from Parquet, and from a Kafka broker with Spark's own connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rivals.kafka import Broker, running_broker
from benchmarks.settings import TOPIC, Scale
from benchmarks.workload import Contender, Figure, Measure, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from benchmarks.workloads.spark_broker import (
    BROKER,
    CONNECTOR,
    address_of,
    check_has,
    connector,
    reader,
    session_with_jars,
)
from benchmarks.workloads.spark_session import KEYS, PARTITIONS, QUERIES, filled, queries, shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 10_000_000
JVM, PARQUET, KAFKA, TUNED = "pylog-jvm", "Parquet", "Kafka's connector", "Kafka's connector, tuned"
BATCHES = {"kafka.batch.size": 262_144, "kafka.linger.ms": 20}
TUNING = {
    "kafka.max.poll.records": 20_000,
    "kafka.fetch.max.wait.ms": 10,  # a cached consumer first waits for the answer to its last fetch
    "kafka.max.partition.fetch.bytes": 4 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.receive.buffer.bytes": 1 << 20,
}


@contextmanager
def _log(place: Path, scale: Scale) -> Iterator[tuple[SparkSession, str, int]]:
    """The session, and a log with how many records it has."""
    count = scale.of(RECORDS, 10_000)
    with session_with_jars() as spark, shared(place.parent / "log", partial(filled, count=count)) as path:
        yield spark, path, count


@contextmanager
def _python(place: Path, scale: Scale) -> Iterator[Measure]:
    with _log(place, scale) as (spark, path, count):
        yield lambda: queries(lambda: spark.read.format("pylog").load(path), count)


@contextmanager
def _jvm(place: Path, scale: Scale) -> Iterator[Measure]:
    jar = reader()
    with _log(place, scale) as (spark, path, count):
        check_has(spark, jar)
        yield lambda: queries(lambda: spark.read.format("pylog-jvm").load(path), count)


@contextmanager
def _parquet(place: Path, scale: Scale) -> Iterator[Measure]:
    with _log(place, scale) as (spark, path, count):
        spark.read.format("pylog").load(path).write.option("compression", "none").parquet(str(place / "parquet"))
        yield lambda: queries(lambda: spark.read.parquet(str(place / "parquet")), count)


@contextmanager
def _kafka(options: dict[str, Any], place: Path, scale: Scale) -> Iterator[Measure]:
    with _log(place, scale) as (spark, path, count), _topic(place, spark, path) as broker:
        source = {**address_of(broker), "subscribe": TOPIC, **options}
        yield lambda: queries(lambda: spark.read.format("kafka").options(**source).load(), count)


def _topic(place: Path, spark: SparkSession, path: str) -> AbstractContextManager[Broker]:
    """A broker with the log's records in a topic."""
    check_has(spark, connector())

    @contextmanager
    def filled_broker(directory: Path) -> Iterator[Broker]:
        with running_broker(directory) as broker:
            broker.create(TOPIC, PARTITIONS)
            rows = spark.read.format("pylog").load(path).select("key", "value")
            rows.write.format("kafka").options(**address_of(broker), topic=TOPIC, **BATCHES).save()
            yield broker

    return shared(place.parent / "broker", filled_broker)


def _over(of: str, over: str, bounds: tuple[float, ...]) -> Iterator[Figure]:
    """The time of one contender over another's, query by query."""
    for (query, metric), at_most in zip(QUERIES, bounds, strict=True):
        yield Figure(f"{query}: {of}'s time over {over}'s", Value(of, metric), Value(over, metric), at_most=at_most)


def _beside_kafka(of: str, at_least: float) -> Iterator[Figure]:
    for query, metric in QUERIES:
        title = f"{query}: the connector's time over {of}'s"
        yield Figure(title, Value(KAFKA, metric), Value(of, metric), at_least=at_least)


WORKLOADS = [
    Workload(
        "spark_kafka",
        f"Spark in local[2] over 1 GB beside a broker: records of 100 bytes, {PARTITIONS} partitions, {len(KEYS):,} keys",
        (
            Contender(NAME, 'spark.read.format("pylog"), all columns', _python),
            Contender(JVM, 'spark.read.format("pylog-jvm")', _jvm),
            Contender(PARQUET, "the same rows, uncompressed; columns and counts that a query needs alone", _parquet),
            Contender(KAFKA, f"{CONNECTOR}, its defaults; {BROKER}; batches of {BATCHES['kafka.batch.size'] >> 10} KiB",
                      partial(_kafka, {})),
            Contender(TUNED, "the same broker and " + ", ".join(f"{name}={value}" for name, value in TUNING.items()),
                      partial(_kafka, TUNING)),
        ),
        (*_over(JVM, PARQUET, (1, 1, 1.2)), *_beside_kafka(JVM, 10)),
    ),
]  # fmt: skip
