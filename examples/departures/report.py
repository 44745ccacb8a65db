"""The Spark job over the same directory.

python report.py DIRECTORY --output departures.png
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from events import TIME_ZONE, TOPIC, Cell, Counts, Table
from plot import draw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_spark() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need the packages this process has
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("departures")
    return (
        builder.config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
        .getOrCreate()
    )


def spark_table(spark: SparkSession, directory: str) -> Table:
    from pyspark.sql import functions as f

    records = spark.read.format("pylog").option("subscribe", TOPIC).option("includeHeaders", "true").load(directory)
    header = f.map_from_entries("headers")
    departures = records.select(
        header["origin"].cast("string").alias("origin"),
        f.hour(f.from_utc_timestamp("timestamp", TIME_ZONE)).alias("hour"),
        header["carrier"].cast("string").alias("carrier"),
        f.get_json_object(f.col("value").cast("string"), "$.delay_min").cast("int").alias("delay_min"),
    )
    counts = departures.groupBy("origin", "hour", "carrier").agg(
        f.count("*").alias("flights"),
        f.count_if(f.isnull("delay_min")).alias("cancelled"),
        f.coalesce(f.sum("delay_min"), f.lit(0)).alias("delay_min"),
    )
    return {Cell(*row[:3]): Counts(*row[3:]) for row in counts.collect()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Plot the departures in the log.")
    parser.add_argument("directory")
    parser.add_argument("--output", type=Path, default=Path("departures.png"), metavar="PNG")
    arguments = parser.parse_args()
    draw(spark_table(start_spark(), arguments.directory), arguments.output)
    print(arguments.output)


if __name__ == "__main__":
    main()
