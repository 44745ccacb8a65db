"""Spark's sink, with the time of the commit and equal ones: beside Spark's Kafka sink, a sink that
drops the rows, and a disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from benchmarks.workloads.spark_broker import BROKER, CONNECTOR, address_of, broker_for, session_with_jars
from benchmarks.workloads.spark_session import KEYS, PARTITIONS
from pylog import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
TASKS = 2
FIRST_MS = 1_700_000_000_000
PIECE_BYTES = 1 << 20
KAFKA, TUNED = "Kafka's sink", "Kafka's sink, tuned"
TUNING = {"kafka.batch.size": 1 << 20, "kafka.linger.ms": 5, "kafka.buffer.memory": 64 << 20}
Write = Callable[["DataFrame", Path], float]
"""Returns how long it took."""


def _rows(spark: SparkSession, count: int, *, timed: bool) -> DataFrame:
    """Made in the JVM. Every row has a time of its own."""
    from pyspark.sql import functions as f

    number = f.lpad((f.col("id") % len(KEYS)).cast("string"), 7, "0")
    columns = [f.concat(f.lit("key-"), number).alias("key"), f.lit(VALUE.decode()).alias("value")]
    if timed:
        columns.append(f.timestamp_millis(f.col("id") + FIRST_MS).alias("timestamp"))
    return spark.range(0, count, 1, TASKS).select(*columns)


@contextmanager
def _written(place: Path, scale: Scale, *, write: Write, timed: bool = False) -> Iterator[Measure]:
    count = scale.of(ROWS, 10_000)
    with session_with_jars() as spark:
        rows = _rows(spark, count, timed=timed)

        def measure() -> Sample:
            with fresh(place) as directory:
                return {"records_per_s": count / write(rows, directory)}

        with fresh(place) as directory:
            write(_rows(spark, 10_000, timed=timed), directory)  # Spark's workers have started
        yield measure


def _to_log(rows: DataFrame, directory: Path) -> float:
    with Log(directory / "log") as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
        writer = rows.write.format("pylog").mode("append").option("topic", TOPIC)
        took_s = seconds(lambda: writer.save(str(directory / "log")))
        found = sum(log.partition(TOPIC, number).latest_offset for number in range(PARTITIONS))
    check_count(found - PARTITIONS, rows.count())  # each partition has a marker
    return took_s


def _to_parquet(rows: DataFrame, directory: Path) -> float:
    return seconds(lambda: rows.write.option("compression", "none").parquet(str(directory / "parquet")))


def _to_nothing(rows: DataFrame, _: Path) -> float:
    rows.sparkSession.dataSource.register(_nothing())
    return seconds(lambda: rows.write.format("nothing").mode("append").save())


def _nothing() -> Any:
    """A sink in Python that takes Arrow batches, as pylog's does, and drops them."""
    from pyspark import cloudpickle
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not have the benchmarks

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Nothing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def writer(self, schema: Any, overwrite: bool) -> Writer:
            return Writer()

    return Nothing


@contextmanager
def _kafka(options: dict[str, Any], place: Path, scale: Scale) -> Iterator[Measure]:
    count, topics = scale.of(ROWS, 10_000), numbers()
    with session_with_jars() as spark, broker_for(place, spark) as broker:
        rows = _rows(spark, count, timed=False)
        to_broker = {**address_of(broker), "kafka.acks": "all", **options}

        def measure() -> Sample:
            topic = f"{place.name}-{next(topics)}"
            broker.create(topic, PARTITIONS)
            took_s = seconds(rows.write.format("kafka").options(**to_broker, topic=topic).save)
            written = spark.read.format("kafka").options(**address_of(broker), subscribe=topic).load()
            check_count(written.count(), count)
            broker.delete(topic)
            return {"records_per_s": count / took_s}

        yield measure


@contextmanager
def _disk(place: Path, scale: Scale) -> Iterator[Measure]:
    """As many bytes as the values have, in a file of their own, synced."""
    count = scale.of(ROWS, 10_000)
    pieces = -(-count * len(VALUE) // PIECE_BYTES)

    def write(path: Path) -> None:
        piece = os.urandom(PIECE_BYTES)
        with path.open("wb", buffering=0) as file:
            for _ in range(pieces):
                file.write(piece)
            os.fdatasync(file.fileno())

    def measure() -> Sample:
        with fresh(place) as directory:
            return {"records_per_s": count / seconds(lambda: write(directory / "file"))}

    yield measure


WORKLOADS = [
    Workload(
        "spark_write",
        f"Spark in local[2] writes {ROWS:,} records of {len(VALUE)} bytes with a key to {PARTITIONS} partitions, synced",
        (
            Contender(NAME, 'write.format("pylog"), the time of the writing', partial(_written, write=_to_log)),
            Contender("timestamps", "the same with a column timestamp, each row its own",
                      partial(_written, write=_to_log, timed=True)),
            Contender(KAFKA, f"{CONNECTOR}, acks=all and the sink's defaults; {BROKER}", partial(_kafka, {})),
            Contender(TUNED, "the same and " + ", ".join(f"{name}={value}" for name, value in TUNING.items()),
                      partial(_kafka, TUNING)),
            Contender("nothing", "a sink in Python that drops the Arrow batches", partial(_written, write=_to_nothing)),
            Contender("Parquet", "the same rows, uncompressed, not synced", partial(_written, write=_to_parquet)),
            Contender("disk", "the bytes of the values in one file, by one process, synced", _disk),
        ),
        (
            Figure("records", Value(NAME, "records_per_s"), at_least=500_000, unit="rec/s"),
            Figure("with timestamps over without", Value("timestamps", "records_per_s"), Value(NAME, "records_per_s"),
                   at_least=0.8),
            Figure("over Kafka's sink with acks=all", Value(NAME, "records_per_s"), Value(KAFKA, "records_per_s"),
                   at_least=1),
            Figure("with timestamps over Kafka's sink", Value("timestamps", "records_per_s"),
                   Value(KAFKA, "records_per_s"), at_least=0.8),
            Figure("over a sink that drops them", Value(NAME, "records_per_s"), Value("nothing", "records_per_s"),
                   at_least=0.3),
            Figure("over Parquet", Value(NAME, "records_per_s"), Value("Parquet", "records_per_s"), at_least=0.5),
            Figure("over the disk alone", Value(NAME, "records_per_s"), Value("disk", "records_per_s"), at_least=0.05),
        ),
    ),
]  # fmt: skip
