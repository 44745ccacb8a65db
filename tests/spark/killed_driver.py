"""A streaming query from a directory of text files into a log, until all are read. Whoever starts
it may kill it at any time."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

OPTIONS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # a kill in the midst of Spark's first note leaves a temporary file, with which it would not
    # start again
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def main(log: str, source: str, checkpoint: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map=OPTIONS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    files = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(source)
    sink = files.writeStream.format("pylog").option("topic", "copies").option("checkpointLocation", checkpoint)
    query = sink.option("batchBytes", 2000).trigger(availableNow=True).start(log)
    print("started", flush=True)
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
