"""What the workloads of Spark share: the session, and a log to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.settings import TOPIC, VALUE
from benchmarks.workload import MissingError, no_package
from pylog import Log, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
KEYS = [b"key-%07d" % number for number in range(10_000)]
SENT_AT_ONCE = 100_000
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def session() -> Iterator[SparkSession]:
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


def fill(place: Path, count: int) -> str:
    path = place / "log"
    with Log(path) as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
        with Producer(log, acks=1) as producer:
            for first in range(0, count, SENT_AT_ONCE):
                size = min(SENT_AT_ONCE, count - first)
                chosen = [KEYS[number % len(KEYS)] for number in range(first, first + size)]
                producer.send_many(TOPIC, [VALUE] * size, keys=chosen)
    return str(path)
