"""A topic as a lake of Parquet files, partitioned by day: each run adds what is new, once.

    python lake.py LOG TOPIC LAKE [--files-of-mb 128] [--group NAME] [--accept-loss]

The checkpoint in LAKE/_checkpoint knows how far it has come; kill it whenever you like and start it
again. Readers of the lake see whole files only, those of Spark each record once
(LAKE/_spark_metadata names the files that count).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pylog import Log
from pylog.errors import PylogError
from pylog.spark import commit_progress, offsets_behind

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


def started(
    spark: SparkSession, log: Path, topic: str, lake: Path, file_bytes: int = 128 * MB, *, accept_loss: bool = False
) -> StreamingQuery:
    """Copies what the topic has and the lake has not. A micro-batch makes one file of each day that
    it has records of."""
    records = spark.readStream.format("pylog").options(
        subscribe=topic, startingOffsets="earliest", includeHeaders="true", maxBytesPerTrigger=str(file_bytes),
        failOnDataLoss=str(not accept_loss).lower(),
    )  # fmt: skip
    days = records.load(str(log)).withColumn("day", _day()).repartition("day")
    writer = days.writeStream.format("parquet").partitionBy("day").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(lake / "_checkpoint")).option("path", str(lake)).start()


def _day() -> object:
    from pyspark.sql import functions as f

    return f.to_date("timestamp")


def register(log: Log, topic: str, group: str) -> None:
    """From now on ``retention="consumed"`` keeps what the lake does not have."""
    if group not in log.groups():
        log.reset_offsets(group, [topic], to="earliest")


def finish(query: StreamingQuery, log: Log | None, group: str) -> int:
    """Wait for the end; returns how many records were added. Meanwhile the group commits what the
    lake has."""
    added: dict[int, int] = {}  # by batch: Spark remembers the last hundred
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(1))
        added |= {progress["batchId"]: progress["numInputRows"] for progress in query.recentProgress}
        if log is not None:
            commit_progress(log, group, query.lastProgress)
    return sum(added.values())


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
    parser.add_argument("--group", help='commit what the lake has as this group: retention="consumed" keeps the rest')
    parser.add_argument(
        "--accept-loss", action="store_true", help="continue if records are gone that the lake does not have"
    )
    arguments = parser.parse_args()
    log, group = None, arguments.group or ""
    spark = start_spark()
    try:
        if group:
            log = Log(arguments.log, create=False)
            register(log, arguments.topic, group)
        query = started(
            spark, arguments.log, arguments.topic, arguments.lake, arguments.files_of_mb * MB,
            accept_loss=arguments.accept_loss,
        )  # fmt: skip
        added = finish(query, log, group)
        behind = sum(offsets_behind(query.lastProgress).values()) if query.lastProgress else 0
        print(f"added {added:,} records of {arguments.topic} to {arguments.lake}, {behind:,} behind")
    except (PySparkException, PylogError) as error:
        said = str(error) if isinstance(error, PylogError) else cause(error)
        print(f"failed: {said.replace('failOnDataLoss=false', '--accept-loss')}", file=sys.stderr)
        return 1
    finally:
        if log is not None:
            log.close()
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
