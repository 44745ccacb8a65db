"""Spark over a log, and what else could give it the same rows: Parquet, a source of tuples, and one
that has nothing to do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.settings import TOPIC, Scale
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload, no_package
from benchmarks.workloads.pylog_log import NAME
from benchmarks.workloads.spark_session import KEYS, PARTITIONS, QUERIES, fill, queries, session
from pylog import Log

TUPLES_SHARE = 20  # of the rows: it would take minutes
NAIVE_SHARE = 50
PREPARED_ROWS = 9_000  # as many as a batch of the source has


def _processor_s() -> dict[int, float]:
    """Of this process and those that descend from it, so far (proc(5): ``stat`` and
    ``task/*/children``)."""
    spent: dict[int, float] = {}
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            spent[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # Java's threads come and go
                    waiting += map(int, (task / "children").read_text().split())
    return spent


def _spent_s(before: dict[int, float]) -> float:
    """Since then, by those that are there still."""
    return sum(now - before.get(pid, 0.0) for pid, now in _processor_s().items())


# Contenders


@contextmanager
def _pylog(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(20_000_000, 10_000)
    with session() as spark:
        path = fill(place, count)

        def measure() -> Sample:
            found = queries(lambda: spark.read.format("pylog").load(path), count)
            before = _processor_s()
            spark.read.format("pylog").load(path).selectExpr("sum(length(value))").collect()
            spent_s = _spent_s(before)
            return {**found, "reader_share": _reader_processor_s(path) / spent_s}

        yield measure


def _reader_processor_s(path: str) -> float:
    """What the source itself costs: the same plan, read without Spark."""
    from pylog import arrow
    from pylog.spark.source.options import SourceOptions
    from pylog.spark.source.plan import plan
    from pylog.spark.source.ranges import record_batches

    began = time.process_time()
    for planned in plan(SourceOptions.parse({"path": path})):
        for piece in getattr(planned, "ranges", [planned]):
            for _ in record_batches(piece, arrow.schema()):
                pass
    return time.process_time() - began


@contextmanager
def _parquet(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(20_000_000, 10_000)
    with session() as spark:
        frame = spark.read.format("pylog").load(fill(place, count))
        frame.write.option("compression", "none").parquet(str(place / "parquet"))
        yield lambda: queries(lambda: spark.read.parquet(str(place / "parquet")), count)


@contextmanager
def _prepared(place: Path, scale: Scale) -> Iterator[Measure]:
    """What Spark's way from Python to its rows allows."""
    count = scale.of(20_000_000, 10_000) // (PARTITIONS * PREPARED_ROWS) * PARTITIONS * PREPARED_ROWS or PREPARED_ROWS
    with session() as spark:
        path = fill(place, 2 * PARTITIONS * PREPARED_ROWS)
        spark.dataSource.register(_source("prepared", partial(_prepared_batches, path)))
        yield lambda: queries(lambda: spark.read.format("prepared").option("rows", count).load(), count)


@contextmanager
def _tuples(place: Path, scale: Scale) -> Iterator[Measure]:
    with _rows_of(_rows, "tuples", place, scale.of(20_000_000 // TUPLES_SHARE, 10_000)) as measure:
        yield measure


@contextmanager
def _naive(place: Path, scale: Scale) -> Iterator[Measure]:
    try:
        import kafka.record  # noqa: F401
    except ImportError:
        raise no_package("kafka-python") from None
    with _rows_of(_naive_rows, "naive", place, scale.of(20_000_000 // NAIVE_SHARE, 10_000)) as measure:
        yield measure


@contextmanager
def _rows_of(rows: Callable[[str, int, int], Iterator[Any]], called: str, place: Path, count: int) -> Iterator[Measure]:
    with session() as spark:
        spark.dataSource.register(_source(called, partial(rows, fill(place, count))))
        yield lambda: queries(lambda: spark.read.format(called).option("rows", count).load(), count)


def _source(called: str, rows: Callable[[int, int], Iterator[Any]]) -> Any:
    """A data source with pylog's columns. ``rows`` takes the number of a partition and how many
    rows there are in all."""
    from pyspark import cloudpickle
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from pylog.spark.source.schema import spark_schema

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


def _naive_rows(path: str, partition: int, _: int) -> Iterator[Any]:
    """As one would write it without pylog."""
    from datetime import datetime, timezone

    from kafka.record.memory_records import MemoryRecords

    for segment in sorted(Path(path, f"{TOPIC}-{partition}").glob("*.log")):
        batches = MemoryRecords(segment.read_bytes())
        while (batch := batches.next_batch()) is not None:
            for r in batch:
                at = datetime.fromtimestamp(r.timestamp / 1e3, timezone.utc)
                yield r.key, r.value, TOPIC, partition, r.offset, at, r.timestamp_type


WORKLOADS = [
    Workload(
        "spark",
        f"Spark in local[2] over 2 GB: records of 100 bytes, {PARTITIONS} partitions, {len(KEYS):,} keys",
        (
            Contender(NAME, 'spark.read.format("pylog"), all columns', _pylog),
            Contender("Parquet", "the same rows, uncompressed; columns and counts that a query needs alone", _parquet),
            Contender("prepared", f"a Python source: one Arrow batch of {PREPARED_ROWS:,} rows again and again", _prepared),
            Contender("tuples", f"a source that yields tuples of pylog's scan, 1/{TUPLES_SHARE} of the rows", _tuples),
            Contender("naive", f"the same of kafka-python's MemoryRecords, 1/{NAIVE_SHARE} of the rows", _naive),
        ),
        (
            *(
                Figure(f"{query}: time over Parquet's", Value(NAME, metric), Value("Parquet", metric), at_most=2)
                for query, metric in QUERIES
            ),
            *(
                Figure(f"{query}: time over Spark's own transport", Value(NAME, metric), Value("prepared", metric),
                       at_most=1.2)
                for query, metric in QUERIES
            ),
            Figure("records a second over tuples of pylog's", Value(NAME, "records_per_s"),
                   Value("tuples", "records_per_s"), at_least=10),
            Figure("records a second over tuples of kafka-python's", Value(NAME, "records_per_s"),
                   Value("naive", "records_per_s"), at_least=10),
            Figure("processor time that is the reader's", Value(NAME, "reader_share"), at_most=0.25, unit=""),
        ),
    ),
]  # fmt: skip
