"""A topic as a lake of Parquet files, partitioned by day: each run adds what is new, once.

    python lake.py LOG TOPIC LAKE [--files-of-mb 128]

The checkpoint in LAKE/_checkpoint knows how far it has come; kill it whenever you like and start it again. Readers of the lake
see whole files only, those of Spark each record once (LAKE/_spark_metadata names the files that count).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pylog.spark import offsets_behind

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

MB = 1 << 20


def start_spark() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need the packages this process has
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[*]").appName("lake")
    return builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false").getOrCreate()


def started(spark: SparkSession, log: Path, topic: str, lake: Path, file_bytes: int = 128 * MB) -> StreamingQuery:
    """Copies what the topic has and the lake has not. A micro-batch makes one file of each day that it has records of."""
    records = spark.readStream.format("pylog").options(
        subscribe=topic, startingOffsets="earliest", includeHeaders="true", maxBytesPerTrigger=str(file_bytes)
    )
    days = records.load(str(log)).withColumn("day", _day()).repartition("day")
    writer = days.writeStream.format("parquet").partitionBy("day").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(lake / "_checkpoint")).option("path", str(lake)).start()


def _day() -> object:
    from pyspark.sql import functions as f

    return f.to_date("timestamp")


def cause(error: PySparkException) -> str:
    """What pylog has said, out of all that Spark says about it."""
    said = [line for line in str(error).splitlines() if line.startswith("pylog.errors.")]
    return said[-1].partition(": ")[2] if said else str(error)


def main() -> int:
    from pyspark.errors import PySparkException

    parser = argparse.ArgumentParser(
        allow_abbrev=False, description="Add what is new in a topic to a lake of Parquet files."
    )
    parser.add_argument("log", type=Path)
    parser.add_argument("topic")
    parser.add_argument("lake", type=Path)
    parser.add_argument(
        "--files-of-mb", type=int, default=128, help="about how much of the log makes one file (default: 128)"
    )
    arguments = parser.parse_args()
    spark = start_spark()
    try:
        query = started(spark, arguments.log, arguments.topic, arguments.lake, arguments.files_of_mb * MB)
        query.awaitTermination()
        added = sum(progress["numInputRows"] for progress in query.recentProgress)
        behind = sum(offsets_behind(query.lastProgress).values()) if query.lastProgress else 0
        print(f"added {added:,} records of {arguments.topic} to {arguments.lake}, {behind:,} behind")
    except PySparkException as error:
        print(f"failed: {cause(error)}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
