"""Spark over a log, and what else could give it the same rows: Parquet, a source of tuples, and one that has nothing to do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, percentile, seconds
from benchmarks.workload import Contender, Figure, Measure, MissingError, Sample, Value, Workload, no_package
from benchmarks.workloads.pylog_log import NAME
from pylog import Log, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
KEYS = [b"key-%07d" % number for number in range(10_000)]
SENT_AT_ONCE = 100_000
TUPLES_SHARE = 20  # of the rows: it would take minutes
PREPARED_ROWS = 9_000  # as many as a batch of the source has
BATCHES = 40  # micro-batches whose times are taken
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def _session() -> Iterator[SparkSession]:
    """On two cores. The first that asks starts it, and stops it."""
    try:
        import pyarrow as pa  # noqa: F401
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise no_package(error.name or "pyspark") from None
    was_there = SparkContext._active_spark_context is not None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()  # type: ignore[arg-type]
    except PySparkException as error:
        raise MissingError(f"Spark does not start ({error}); it needs Java 17 or newer") from None
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        if not was_there:
            session.stop()


def _fill(place: Path, count: int) -> str:
    path = place / "log"
    with Log(path) as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
        with Producer(log, acks=1) as producer:
            for first in range(0, count, SENT_AT_ONCE):
                size = min(SENT_AT_ONCE, count - first)
                chosen = [KEYS[number % len(KEYS)] for number in range(first, first + size)]
                producer.send_many(TOPIC, [VALUE] * size, keys=chosen)
    return str(path)


def _queries(frame: Callable[[], DataFrame], count: int) -> Sample:
    """How long each takes."""
    from pyspark.sql import functions as f

    def total() -> None:
        [row] = frame().agg(f.sum(f.length("value"))).collect()
        check_count(row[0], count * len(VALUE))

    sum_s = seconds(total)
    return {
        "sum_s": sum_s,
        "count_s": seconds(lambda: check_count(frame().count(), count)),
        "group_s": seconds(lambda: check_count(frame().groupBy("key").count().count(), min(count, len(KEYS)))),
        "records_per_s": count / sum_s,
    }


def _processor_s() -> dict[int, float]:
    """Of this process and those that descend from it, so far (proc(5): ``stat`` and ``task/*/children``)."""
    spent: dict[int, float] = {}
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        spent[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return spent


def _spent_s(before: dict[int, float]) -> float:
    """Since then, by those that are there still."""
    return sum(now - before.get(pid, 0.0) for pid, now in _processor_s().items())


# Contenders


@contextmanager
def _pylog(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(20_000_000, 10_000)
    with _session() as spark:
        path = _fill(place, count)

        def measure() -> Sample:
            found = _queries(lambda: spark.read.format("pylog").load(path), count)
            before = _processor_s()
            spark.read.format("pylog").load(path).selectExpr("sum(length(value))").collect()
            spent_s = _spent_s(before)
            return {**found, "reader_share": _reader_processor_s(path) / spent_s}

        yield measure


def _reader_processor_s(path: str) -> float:
    """What the source itself costs: the same plan, read without Spark."""
    from pylog import arrow
    from pylog.spark.batch import plan
    from pylog.spark.options import SourceOptions
    from pylog.spark.ranges import record_batches

    began = time.process_time()
    for planned in plan(SourceOptions.parse({"path": path})):
        for piece in getattr(planned, "ranges", [planned]):
            for _ in record_batches(piece, arrow.schema()):
                pass
    return time.process_time() - began


@contextmanager
def _parquet(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(20_000_000, 10_000)
    with _session() as spark:
        frame = spark.read.format("pylog").load(_fill(place, count))
        frame.write.option("compression", "none").parquet(str(place / "parquet"))
        yield lambda: _queries(lambda: spark.read.parquet(str(place / "parquet")), count)


@contextmanager
def _prepared(place: Path, scale: Scale) -> Iterator[Measure]:
    """What Spark's way from Python to its rows allows."""
    count = scale.of(20_000_000, 10_000) // (PARTITIONS * PREPARED_ROWS) * PARTITIONS * PREPARED_ROWS or PREPARED_ROWS
    with _session() as spark:
        path = _fill(place, 2 * PARTITIONS * PREPARED_ROWS)
        spark.dataSource.register(_source("prepared", partial(_prepared_batches, path)))
        yield lambda: _queries(lambda: spark.read.format("prepared").option("rows", count).load(), count)


@contextmanager
def _tuples(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(20_000_000 // TUPLES_SHARE, 10_000)
    with _session() as spark:
        path = _fill(place, count)
        spark.dataSource.register(_source("tuples", partial(_rows, path)))
        yield lambda: _queries(lambda: spark.read.format("tuples").option("rows", count).load(), count)


def _source(called: str, rows: Callable[[int, int], Iterator[Any]]) -> Any:
    """A data source with pylog's columns. ``rows`` takes the number of a partition and how many rows there are in all."""
    from pyspark import cloudpickle
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from pylog.spark.schema import spark_schema

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not have the benchmarks

    class Reader(DataSourceReader):
        def __init__(self, count: int) -> None:
            self.count = count

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTITIONS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return rows(partition.value, self.count)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return called

        def schema(self) -> Any:
            return spark_schema(include_headers=False)

        def reader(self, schema: Any) -> Reader:
            return Reader(int(self.options["rows"]))

    return Source


def _prepared_batches(path: str, partition: int, count: int) -> Iterator[Any]:
    with Log(path, read_only=True) as log:
        table = log.partition(TOPIC, partition).to_arrow().slice(0, PREPARED_ROWS)
    batch = table.combine_chunks().to_batches()[0]
    left = count // PARTITIONS
    while left > 0:
        yield batch.slice(0, min(left, batch.num_rows))
        left -= batch.num_rows


def _rows(path: str, partition: int, _: int) -> Iterator[Any]:
    from datetime import datetime, timezone

    with Log(path, read_only=True) as log:
        for r in log.partition(TOPIC, partition).scan():
            at = datetime.fromtimestamp(r.timestamp_ms / 1e3, timezone.utc)
            yield r.key, r.value, r.topic, r.partition, r.offset, at, 0


# Streams


@contextmanager
def _stream(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(10_000_000, 10_000)
    with _session() as spark:
        path = _fill(place, count)

        def measure() -> Sample:
            with fresh(place) as directory:
                stream = spark.readStream.format("pylog").option("startingOffsets", "earliest")
                stream = stream.option("maxOffsetsPerTrigger", max(1, count // 5))
                lengths = stream.load(path).selectExpr("sum(length(value)) AS bytes")
                writer = lengths.writeStream.format("noop").outputMode("complete").trigger(availableNow=True)
                query = writer.option("checkpointLocation", str(directory)).start()
                query.awaitTermination()
                taken = query.recentProgress
                check_count(sum(progress["numInputRows"] for progress in taken), count)
                took = sum(progress["durationMs"]["triggerExecution"] for progress in taken[1:]) / 1e3
                return {"records_per_s": sum(progress["numInputRows"] for progress in taken[1:]) / took}

        yield measure


def _micro_batches_ms(spark: SparkSession, stream: DataFrame, place: Path, batches: int) -> Sample:
    with fresh(place) as directory:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(directory))
        query = writer.trigger(processingTime="0 seconds").start()
        with closing(_Stopping(query)):
            while sum(progress["numInputRows"] > 0 for progress in query.recentProgress) < batches:
                if query.exception() is not None:
                    raise RuntimeError(query.exception())
                time.sleep(0.01)
        times = sorted(p["durationMs"]["triggerExecution"] for p in query.recentProgress[1:] if p["numInputRows"])
        return {"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}


class _Stopping:
    def __init__(self, query: Any) -> None:
        self.close = query.stop


@contextmanager
def _small_batches(place: Path, scale: Scale) -> Iterator[Measure]:
    """One task each, of some records."""
    batches = scale.of(BATCHES, 2)
    with _session() as spark:

        def measure() -> Sample:
            with fresh(place) as directory, Log(directory / "log") as log:
                log.create_topic(TOPIC)
                with Producer(log, acks=1) as producer:
                    producer.send_many(TOPIC, [VALUE] * 100 * (batches + 2))
                stream = spark.readStream.format("pylog").option("startingOffsets", "earliest")
                stream = stream.option("maxOffsetsPerTrigger", 100).load(str(directory / "log"))
                return _micro_batches_ms(spark, stream, place, batches)

        yield measure


@contextmanager
def _rate(place: Path, scale: Scale) -> Iterator[Measure]:
    batches = scale.of(BATCHES, 2)
    with _session() as spark:
        stream = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).option("numPartitions", 1).load()
        )
        yield lambda: _micro_batches_ms(spark, stream, place, batches)


_QUERIES = (("count()", "count_s"), ("sum(length(value))", "sum_s"), ("groupBy(key).count()", "group_s"))

WORKLOADS = [
    Workload(
        "spark",
        f"Spark in local[2] over 2 GB: records of 100 bytes, {PARTITIONS} partitions, {len(KEYS):,} keys",
        (
            Contender(NAME, 'spark.read.format("pylog"), all columns', _pylog),
            Contender("Parquet", "the same rows, uncompressed; columns and counts that a query needs alone", _parquet),
            Contender("prepared", f"a Python source: one Arrow batch of {PREPARED_ROWS:,} rows again and again", _prepared),
            Contender("tuples", f"a Python source that yields tuples, of 1/{TUPLES_SHARE} of the rows", _tuples),
        ),
        (
            *(
                Figure(f"{query}: time over Parquet's", Value(NAME, metric), Value("Parquet", metric), at_most=2)
                for query, metric in _QUERIES
            ),
            *(
                Figure(f"{query}: time over Spark's own transport", Value(NAME, metric), Value("prepared", metric),
                       at_most=1.2)
                for query, metric in _QUERIES
            ),
            Figure("records a second over tuples'", Value(NAME, "records_per_s"), Value("tuples", "records_per_s"),
                   at_least=10),
            Figure("processor time that is the reader's", Value(NAME, "reader_share"), at_most=0.25, unit=""),
        ),
    ),
    Workload(
        "spark_stream",
        "micro-batches in local[2]: a backlog in five, and small ones",
        (
            Contender(NAME, 'readStream.format("pylog"), sum(length(value)), noop; behind the first of five', _stream),
            Contender("small", f"100 records of one partition in each of {BATCHES}, noop", _small_batches),
            Contender("rate", "the same from Spark's rate-micro-batch, which makes its rows in the JVM", _rate),
        ),
        (
            Figure("records", Value(NAME, "records_per_s"), at_least=500_000, unit="rec/s"),
            Figure("a small batch over one of the rate source's", Value("small", "p50_ms"), Value("rate", "p50_ms"),
                   at_most=2),
        ),
    ),
]  # fmt: skip
