"""Micro-batches of Spark over a log: how many records a second, whether they keep up, and what a
small one costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, percentile
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from benchmarks.workloads.spark_session import KEYS, fill, session
from pylog import Log, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 40  # small micro-batches whose times are taken
RATE_PER_S = 500_000
SENT_PER_S = 100  # times a second
LIVE_S = 20
WARMING = 100_000
PATIENCE_S = 120.0
_SPAWN = get_context("spawn")


# A backlog


@contextmanager
def _backlog(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(10_000_000, 10_000)
    with session() as spark:
        path = fill(place, count)

        def measure() -> Sample:
            with fresh(place) as directory:
                stream = _lengths(spark, path, maxOffsetsPerTrigger=max(1, count // 5))
                query = _writer(stream, directory).trigger(availableNow=True).start()
                query.awaitTermination()
                taken = query.recentProgress
                check_count(sum(progress["numInputRows"] for progress in taken), count)
                took = sum(progress["durationMs"]["triggerExecution"] for progress in taken[1:]) / 1e3
                return {"records_per_s": sum(progress["numInputRows"] for progress in taken[1:]) / took}

        yield measure


def _lengths(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    stream = spark.readStream.format("pylog").options(startingOffsets="earliest", **options).load(path)
    return stream.selectExpr("sum(length(value)) AS bytes")


def _writer(stream: DataFrame, checkpoint: Path) -> Any:
    return stream.writeStream.format("noop").outputMode("complete").option("checkpointLocation", str(checkpoint))


# Beside a producer


@contextmanager
def _live(place: Path, scale: Scale) -> Iterator[Measure]:
    live_s = scale.of(LIVE_S)
    with session() as spark:

        def measure() -> Sample:
            with fresh(place) as directory:
                path = Path(fill(directory, WARMING))
                gate = _SPAWN.Event()
                producing = _SPAWN.Process(target=_produce, args=(path, live_s, gate))
                producing.start()
                query = _writer(_lengths(spark, str(path)), directory / "checkpoint").start()
                try:
                    query.processAllAvailable()  # Spark and its workers have started
                    gate.set()
                    producing.join(PATIENCE_S)
                    if producing.exitcode:
                        raise RuntimeError(f"the producing process ended with {producing.exitcode}")
                    query.processAllAvailable()
                finally:
                    query.stop()
                return _kept_up(query.recentProgress, live_s)

        yield measure


def _produce(path: Path, live_s: int, gate: Event) -> None:
    """So many records a second, whatever else runs: after a pause it sends what it owes."""
    values = [VALUE] * (RATE_PER_S // SENT_PER_S)
    chosen = [KEYS[number % len(KEYS)] for number in range(len(values))]
    with Log(path, create=False) as log, Producer(log, acks=1) as producer:
        gate.wait(PATIENCE_S)
        began = time.monotonic()
        for turn in range(live_s * SENT_PER_S):
            time.sleep(max(0.0, began + turn / SENT_PER_S - time.monotonic()))
            producer.send_many(TOPIC, values, keys=chosen)


def _kept_up(taken: list[Any], live_s: int) -> Sample:
    """How late the query was at worst: how old the oldest record of a micro-batch was when that was
    done."""
    check_count(sum(progress["numInputRows"] for progress in taken), WARMING + live_s * RATE_PER_S)
    late_s = [p["numInputRows"] / RATE_PER_S + p["durationMs"]["triggerExecution"] / 1e3 for p in taken[1:]]
    return {"late_s": max(late_s)}


# Small ones


@contextmanager
def _small_batches(place: Path, scale: Scale) -> Iterator[Measure]:
    """One task each, of some records."""
    batches = scale.of(BATCHES, 2)
    with session() as spark:

        def measure() -> Sample:
            with fresh(place) as directory, Log(directory / "log") as log:
                log.create_topic(TOPIC)
                with Producer(log, acks=1) as producer:
                    producer.send_many(TOPIC, [VALUE] * 100 * (batches + 2))
                reader = spark.readStream.format("pylog").option("startingOffsets", "earliest")
                stream = reader.option("maxOffsetsPerTrigger", 100).load(str(directory / "log"))
                return micro_batches_ms(stream, place, batches)

        yield measure


@contextmanager
def _rate(place: Path, scale: Scale) -> Iterator[Measure]:
    batches = scale.of(BATCHES, 2)
    with session() as spark:
        stream = (
            spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).option("numPartitions", 1).load()
        )
        yield lambda: micro_batches_ms(stream, place, batches)


def micro_batches_ms(stream: DataFrame, place: Path, batches: int) -> Sample:
    with fresh(place) as directory:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(directory))
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            while sum(progress["numInputRows"] > 0 for progress in query.recentProgress) < batches:
                if query.exception() is not None:
                    raise RuntimeError(query.exception())
                time.sleep(0.01)
        finally:
            query.stop()
        times = sorted(p["durationMs"]["triggerExecution"] for p in query.recentProgress[1:] if p["numInputRows"])
        return {"p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99)}


WORKLOADS = [
    Workload(
        "spark_stream",
        "micro-batches in local[2]: a backlog in five, beside a producer, and small ones",
        (
            Contender(NAME, 'readStream.format("pylog"), sum(length(value)), noop; behind the first of five', _backlog),
            Contender("live", f"the same, beside a process that sends {RATE_PER_S:,} records a second for {LIVE_S} s",
                      _live),
            Contender("small", f"100 records of one partition in each of {BATCHES}, noop", _small_batches),
            Contender("rate", "the same from Spark's rate-micro-batch, which makes its rows in the JVM", _rate),
        ),
        (
            Figure("records", Value(NAME, "records_per_s"), at_least=500_000, unit="rec/s"),
            Figure(f"beside {RATE_PER_S:,} records a second: how late a record at worst", Value("live", "late_s"),
                   at_most=5, unit="s"),
            Figure("a small batch over one of the rate source's", Value("small", "p50_ms"), Value("rate", "p50_ms"),
                   at_most=2),
        ),
    ),
]  # fmt: skip
