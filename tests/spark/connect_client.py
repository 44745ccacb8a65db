"""A client of Spark Connect, which has no JVM and needs no pylog. Prints what it saw, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(url: str, source: str, target: str, checkpoint: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    seen = {} if Path(checkpoint).exists() else first(spark, source, target)
    stream = spark.readStream.format("pylog").option("subscribe", "orders").option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", 1_200).load(source).select("key", "value")
    writer = rows.writeStream.format("pylog").option("topic", "streamed").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(target)
    query.awaitTermination()
    seen["batches"] = len(list(Path(checkpoint, "commits").glob("[0-9]*")))
    spark.stop()
    print(json.dumps(seen))


def first(spark: SparkSession, source: str, target: str) -> dict[str, Any]:
    """What is not the stream: queries that are right, queries that are wrong, a save."""
    orders = spark.read.format("pylog").option("subscribe", "orders").load(source)
    save(orders.select("value"), target)
    return {
        "read": orders.count(),
        "no log": problem(lambda: spark.read.format("pylog").load(f"{source}/missing").count()),
        "no topic": problem(lambda: spark.read.format("pylog").option("subscribe", "order").load(source).count()),
        "no value": problem(lambda: save(orders.select("key"), target)),
    }


def save(rows: Any, log: str) -> None:
    rows.write.format("pylog").mode("append").option("topic", "saved").save(log)


def problem(ask: Any) -> str:
    try:
        ask()
    except Exception as error:  # noqa: BLE001 - what it is, the test looks at
        return f"{type(error).__name__}: {error}".partition("JVM stacktrace")[0]
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
