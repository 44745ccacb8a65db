"""The same rows written by Spark into a log, and into a Kafka broker with Spark's own sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from benchmarks.workloads.spark_broker import BROKER, CONNECTOR, address_of, broker_for, session_with_jars
from benchmarks.workloads.spark_session import KEYS, PARTITIONS, shared
from pylog import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 2_000_000
TIMES, KAFKA, TUNED = "pylog, distinct timestamps", "Kafka's sink", "Kafka's sink, tuned"
TUNING = {"kafka.batch.size": 1 << 20, "kafka.linger.ms": 5, "kafka.buffer.memory": 64 << 20}
FIRST_S = 1_700_000_000


@contextmanager
def _rows(place: Path, scale: Scale) -> Iterator[tuple[SparkSession, DataFrame, int]]:
    """The session, the rows as a Parquet file has them, and their number."""
    count = scale.of(RECORDS, 10_000)
    with session_with_jars() as spark:

        @contextmanager
        def written(directory: Path) -> Iterator[str]:
            rows = spark.range(count).selectExpr(
                f"encode(format_string('key-%07d', id % {len(KEYS)}), 'utf-8') AS key",
                f"encode(format_string('%010d{VALUE[10:].decode()}', id), 'utf-8') AS value",
                f"timestamp_millis({FIRST_S * 1_000} + id) AS timestamp",
            )
            rows.write.option("compression", "none").parquet(str(directory / "rows"))
            yield str(directory / "rows")

        with shared(place.parent / "rows", written) as path:
            yield spark, spark.read.parquet(path), count


@contextmanager
def _pylog(columns: tuple[str, ...], place: Path, scale: Scale) -> Iterator[Measure]:
    with _rows(place, scale) as (spark, rows, count):

        def measure() -> Sample:
            with fresh(place) as directory:
                path = str(directory / "log")
                with Log(path) as log:
                    log.create_topic(TOPIC, partitions=PARTITIONS)
                writer = rows.select(*columns).write.format("pylog").option("topic", TOPIC).mode("append")
                took = seconds(lambda: writer.save(path))
                check_count(spark.read.format("pylog").load(path).count(), count)
            return {"records_per_s": count / took}

        yield measure


@contextmanager
def _kafka(options: dict[str, Any], place: Path, scale: Scale) -> Iterator[Measure]:
    topics = numbers()
    with _rows(place, scale) as (spark, rows, count), broker_for(place, spark) as broker:

        def measure() -> Sample:
            topic = f"{place.name}-{next(topics)}"
            broker.create(topic, PARTITIONS)
            writer = rows.select("key", "value").write.format("kafka").option("topic", topic)
            took = seconds(writer.options(**address_of(broker), **{"kafka.acks": "all"}, **options).save)
            check_count(spark.read.format("kafka").options(**address_of(broker), subscribe=topic).load().count(), count)
            broker.delete(topic)
            return {"records_per_s": count / took}

        yield measure


def _rate(contender: str) -> Value:
    return Value(contender, "records_per_s")


WORKLOADS = [
    Workload(
        "spark_write",
        f"Spark in local[2] writes records of 100 bytes into {PARTITIONS} partitions, from Parquet",
        (
            Contender(NAME, 'df.write.format("pylog"): all rows or none, synced', partial(_pylog, ("key", "value"))),
            Contender(TIMES, "the same with a column timestamp, each row a millisecond after the row before it",
                      partial(_pylog, ("key", "value", "timestamp"))),
            Contender(KAFKA, f"{CONNECTOR}, acks=all and the sink's defaults; {BROKER}", partial(_kafka, {})),
            Contender(TUNED, "the same and " + ", ".join(f"{name}={value}" for name, value in TUNING.items()),
                      partial(_kafka, TUNING)),
        ),
        (
            Figure("Kafka's sink with acks=all", _rate(NAME), _rate(KAFKA), at_least=1),
            Figure("Kafka's sink, this with distinct timestamps", _rate(TIMES), _rate(KAFKA), at_least=0.8),
        ),
    ),
]  # fmt: skip
