"""A driver on a cluster, which does what it is asked, a line of JSON each. It imports neither pylog
nor tests.

What its tasks run is defined here: a program's own functions go to the executors by value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that ends before better code would pay off
SETTINGS = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.executor.memory": "512m",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "90s",  # the first task waits for both executors
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def read(spark: SparkSession, log: str, split_bytes: int) -> list[list[Any]]:
    """Each row, and who read it."""
    orders = spark.read.format("pylog").option("subscribe", "orders").option("splitBytes", split_bytes).load(log)
    columns = "directory string, codec string, task int, partition int, offset long, value binary"
    rows = orders.mapInArrow(tell_where, columns).collect()
    return [[*row[:-1], bytes(row.value).decode()] for row in rows]


def read_in_java(spark: SparkSession, log: str, split_bytes: int) -> list[list[Any]]:
    """Each row, and the directory of the executor that read it; at last how many Spark counts."""
    orders = spark.read.format("pylog-jvm").option("subscribe", "orders").option("splitBytes", split_bytes).load(log)
    told = orders.mapInArrow(tell_directory, "directory string, partition int, offset long, value binary").collect()
    return [*([*row[:-1], bytes(row.value).decode()] for row in told), [orders.count()]]


def tell_directory(batches: Iterator[Any]) -> Iterator[Any]:
    """In a Python that need not have pylog."""
    import os

    import pyarrow as pa

    for batch in batches:
        read = [batch.column(name) for name in ("partition", "offset", "value")]
        names = ["directory", "partition", "offset", "value"]
        yield pa.RecordBatch.from_arrays([pa.array([os.getcwd()] * batch.num_rows), *read], names)


def tell_where(batches: Iterator[Any]) -> Iterator[Any]:
    """In the task that reads: its executor's directory, and which codec it has."""
    import os

    import pyarrow as pa
    from pyspark import TaskContext

    from pylog.codec import COMPILED

    context = TaskContext.get()
    assert context is not None
    here = (os.getcwd(), "compiled" if COMPILED else "readable", context.partitionId())
    for batch in batches:
        kinds = (pa.string(), pa.string(), pa.int32())
        told = [pa.array([value] * batch.num_rows, kind) for value, kind in zip(here, kinds, strict=True)]
        read = [batch.column(name) for name in ("partition", "offset", "value")]
        names = ["directory", "codec", "task", "partition", "offset", "value"]
        yield pa.RecordBatch.from_arrays([*told, *read], names)


def write(spark: SparkSession, log: str, rows: int) -> int:
    """A save from tasks on the executors, of the numbers up to ``rows``."""
    numbers = spark.range(0, rows, 1, 4).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format("pylog").mode("append").option("topic", "numbers").option("autoCreateTopics", True).save(log)
    return spark.read.format("pylog").option("subscribe", "numbers").load(log).count()


def copy(spark: SparkSession, source: str, target: str, checkpoint: str, at: str, place: str) -> int:
    """A stream from log to log, until all is copied. How many batches the checkpoint has then."""
    stream = spark.readStream.format("pylog").option("subscribe", "orders").option("startingOffsets", "earliest")
    orders = stream.option("maxOffsetsPerTrigger", 700).option("splitBytes", 20_000).load(source)
    rows = orders.select("key", "value", "timestamp")
    held = rows.mapInArrow(hold_at(at.encode(), Path(place)), rows.schema)
    writer = held.writeStream.format("pylog").option("topic", "copies").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(target).awaitTermination()
    return len(list(Path(checkpoint, "commits").glob("[0-9]*")))


def hold_at(value: bytes, place: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The task that has ``value`` says where it runs, and goes on when the file ``go`` is there.
    Every attempt is noted down."""

    def held(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if value in batch.column("value").to_pylist():
                with (place / "attempts").open("a") as attempts:
                    print(context.attemptNumber(), os.getcwd(), file=attempts, flush=True)
                while not (place / "go").exists():
                    time.sleep(0.01)

    return held


def main(master: str, settings: str) -> None:
    spark = SparkSession.builder.master(master).config(map=SETTINGS | json.loads(settings)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps("started"), flush=True)
    calls: dict[str, Callable[..., object]] = {"read": read, "read_in_java": read_in_java, "write": write, "copy": copy}
    for line in sys.stdin:
        name, given = json.loads(line)
        answer = calls[name](spark, **given)
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
