"""The same records read by Spark: from a log, from Parquet, and from a Kafka broker with Spark's
own connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.rivals.kafka import Broker, running_broker
from benchmarks.settings import TOPIC, Scale, seconds
from benchmarks.workload import Contender, Figure, Measure, Value, Workload
from benchmarks.workloads import access_log
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
from benchmarks.workloads.spark_session import KEYS, PARTITIONS, QUERIES, different, fill, queries, shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS, LINES = 10_000_000, 4_000_000
TOPICS = (TOPIC, access_log.TOPIC)
JVM, PARQUET, KAFKA, TUNED = "pylog-jvm", "Parquet", "Kafka's connector", "Kafka's connector, tuned"
BATCHES = {"kafka.batch.size": 262_144, "kafka.linger.ms": 20}
TUNING = {
    "kafka.max.poll.records": 20_000,
    "kafka.fetch.max.wait.ms": 10,  # a cached consumer first waits for the answer to its last fetch
    "kafka.max.partition.fetch.bytes": 4 << 20,
    "kafka.fetch.max.bytes": 64 << 20,
    "kafka.receive.buffer.bytes": 1 << 20,
}


class Sources(NamedTuple):
    """What all contenders read: the session, the path of the log, and the records of its topics."""

    spark: SparkSession
    path: str
    records: int
    lines: int

    def of_log(self, called: str, topic: str) -> DataFrame:
        return self.spark.read.format(called).option("subscribe", topic).load(self.path)

    def measure(self, read: Callable[[str], DataFrame]) -> Measure:
        """``read`` gives the rows of a topic."""
        expected = access_log.totals(self.lines)
        return lambda: {
            **queries(lambda: read(TOPIC), self.records),
            "regex_s": seconds(lambda: access_log.check(read(access_log.TOPIC), expected)),
        }


@contextmanager
def _sources(place: Path, scale: Scale) -> Iterator[Sources]:
    records, lines = scale.of(RECORDS, 10_000), scale.of(LINES, 10_000)
    with session_with_jars() as spark:

        @contextmanager
        def filled(directory: Path) -> Iterator[str]:
            path = fill(directory, records, different)
            access_log.fill(spark, path, lines)
            yield path

        with shared(place.parent / "log", filled) as path:
            yield Sources(spark, path, records, lines)


@contextmanager
def _python(place: Path, scale: Scale) -> Iterator[Measure]:
    with _sources(place, scale) as sources:
        yield sources.measure(lambda topic: sources.of_log("pylog", topic))


@contextmanager
def _jvm(place: Path, scale: Scale) -> Iterator[Measure]:
    jar = reader()
    with _sources(place, scale) as sources:
        check_has(sources.spark, jar)
        yield sources.measure(lambda topic: sources.of_log("pylog-jvm", topic))


@contextmanager
def _parquet(place: Path, scale: Scale) -> Iterator[Measure]:
    with _sources(place, scale) as sources:
        for topic in TOPICS:
            sources.of_log("pylog", topic).write.option("compression", "none").parquet(str(place / topic))
        yield sources.measure(lambda topic: sources.spark.read.parquet(str(place / topic)))


@contextmanager
def _kafka(options: dict[str, Any], place: Path, scale: Scale) -> Iterator[Measure]:
    with _sources(place, scale) as sources, _broker(place, sources) as broker:
        source = sources.spark.read.format("kafka").options(**address_of(broker), **options)
        yield sources.measure(lambda topic: source.option("subscribe", topic).load())


def _broker(place: Path, sources: Sources) -> AbstractContextManager[Broker]:
    """Its topics have the records of the log's, in the same partitions."""
    check_has(sources.spark, connector())

    @contextmanager
    def filled(directory: Path) -> Iterator[Broker]:
        with running_broker(directory) as broker:
            for topic in TOPICS:
                broker.create(topic, PARTITIONS)
                rows = sources.of_log("pylog", topic).select("key", "value", "partition")
                rows.write.format("kafka").options(**address_of(broker), topic=topic, **BATCHES).save()
            yield broker

    return shared(place.parent / "broker", filled)


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
        f"Spark in local[2] beside a broker: {RECORDS:,} records of 100 bytes with {len(KEYS):,} keys, {LINES:,} lines",
        (
            Contender(NAME, 'spark.read.format("pylog"), all columns', _python),
            Contender(JVM, 'spark.read.format("pylog-jvm")', _jvm),
            Contender(PARQUET, "the same rows, uncompressed; the values differ, so that they stand in it whole", _parquet),
            Contender(KAFKA, f"{CONNECTOR}, its defaults; {BROKER}; batches of {BATCHES['kafka.batch.size'] >> 10} KiB",
                      partial(_kafka, {})),
            Contender(TUNED, "the same broker and " + ", ".join(f"{name}={value}" for name, value in TUNING.items()),
                      partial(_kafka, TUNING)),
        ),
        (*_over(JVM, PARQUET, (1, 1, 1.2)), *_beside_kafka(JVM, 10)),
    ),
]  # fmt: skip
