"""What the workloads of Spark share: the session, a log to read, and the queries."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.settings import TOPIC, VALUE, check_count, seconds
from benchmarks.workload import MissingError, Sample, no_package
from pylog import Log, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
KEYS = [b"key-%07d" % number for number in range(10_000)]
SENT_AT_ONCE = 100_000
T = TypeVar("T")
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
QUERIES = (("count()", "count_s"), ("sum(length(value))", "sum_s"), ("groupBy(key).count()", "group_s"))
_shared: dict[Path, Any] = {}


@contextmanager
def session(jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """On two cores. The first that asks starts it, in a JVM of its own with these ``jars``, and
    stops it."""
    try:
        import pyarrow as pa  # noqa: F401
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise no_package(error.name or "pyspark") from None
    was_there = SparkContext._active_spark_context is not None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**SETTINGS, "spark.jars": ",".join(map(str, jars))} if jars else SETTINGS
    try:
        if not was_there:
            _end_jvm()
        session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    except PySparkException as error:
        raise MissingError(f"Spark does not start ({error}); it needs Java 17 or newer") from None
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        if not was_there:
            session.stop()
            _end_jvm()


def _end_jvm() -> None:
    """PySpark keeps the JVM of a session that was stopped, and a JVM keeps the jars and the memory
    it started with."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its input
    gateway.proc.wait()


@contextmanager
def shared(directory: Path, make: Callable[[Path], AbstractContextManager[T]]) -> Iterator[T]:
    """What all contenders of a workload use, in ``directory``. The first that asks makes it, and
    ends it."""
    if directory in _shared:
        yield _shared[directory]
        return
    directory.mkdir()
    try:
        with make(directory) as made:
            _shared[directory] = made
            yield made
    finally:
        _shared.pop(directory, None)
        shutil.rmtree(directory)


def same(first: int, size: int) -> list[bytes]:
    """Values that are all the same."""
    return [VALUE] * size


def different(first: int, size: int) -> list[bytes]:
    """As long, each with its number."""
    rest = VALUE[10:]
    return [b"%010d" % number + rest for number in range(first, first + size)]


def fill(place: Path, count: int, values: Callable[[int, int], list[bytes]] = same) -> str:
    """A log with so many records. Returns its path."""
    path = place / "log"
    with Log(path) as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
        with Producer(log, acks=1) as producer:
            for first in range(0, count, SENT_AT_ONCE):
                size = min(SENT_AT_ONCE, count - first)
                chosen = [KEYS[number % len(KEYS)] for number in range(first, first + size)]
                producer.send_many(TOPIC, values(first, size), keys=chosen)
    return str(path)


def queries(frame: Callable[[], DataFrame], count: int) -> Sample:
    """How long each takes. The totals are checked."""
    from pyspark.sql import functions as f

    def total() -> None:
        [row] = frame().agg(f.sum(f.length("value"))).collect()
        check_count(row[0], count * len(VALUE))

    def groups() -> None:
        [row] = frame().groupBy("key").count().agg(f.count("key"), f.sum("count")).collect()
        check_count(row[0], min(count, len(KEYS)))
        check_count(row[1], count)

    sum_s = seconds(total)
    return {
        "sum_s": sum_s,
        "count_s": seconds(lambda: check_count(frame().count(), count)),
        "group_s": seconds(groups),
        "records_per_s": count / sum_s,
    }
