"""The streaming job: the delays of every hour, as flights leave, from one topic into another, and a
plot of the year.

    python stream.py --directory var/stream --output var/stream.png [--limit N]

Flights are sent in the order in which they left; their time is the one they were scheduled for. So
an event comes as late as its flight left, up to a day, and an hour's figures are final when the
stream has gone a day beyond it: the watermark. Each of them is written once, whenever this is
killed and started again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from events import AIRPORTS, encode
from flights import load_flights
from plot import draw_year
from producer import departures
from report import start_spark

from pylog import Consumer, Log, Producer
from pylog.errors import PylogError, TopicExists
from pylog.spark import offsets_behind

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

LEFT, DELAYS = "left", "delays"
LATENESS = "1 day"  # how late an event may be; the latest of 2013 left 21.7 hours late
DAY_MS = 86_400_000
BATCH = 40_000  # events of a micro-batch


def send(log: Log, flights: pd.DataFrame) -> int:
    """All that left, in that order; then one event of two days later, of no airport, behind which
    the last hours are final."""
    left = flights.dropna(subset="dep_delay")
    at_ms = left["scheduled_ms"] + left["dep_delay"] * 60_000
    ordered = left.iloc[at_ms.argsort(kind="stable")]
    with Producer(log, linger_ms=50, compression="zstd") as producer:
        for departure in departures(ordered):
            producer.send(LEFT, **encode(departure))
        producer.send(LEFT, None, timestamp_ms=int(flights["scheduled_ms"].max()) + 2 * DAY_MS)
    return len(ordered)


def started(spark: SparkSession, directory: Path, batch: int = BATCH) -> StreamingQuery:
    """From ``left`` to ``delays``, until all that is there is read. A checkpoint beside the log
    knows how far it has come."""
    from pyspark.sql import functions as f

    records = spark.readStream.format("pylog").options(
        subscribe=LEFT, startingOffsets="earliest", includeHeaders="true", maxOffsetsPerTrigger=str(batch)
    )
    header = f.map_from_entries("headers")
    left = (
        records.load(str(directory / "log"))
        .withWatermark("timestamp", LATENESS)
        .select(
            "timestamp",
            header["origin"].cast("string").alias("origin"),
            f.get_json_object(f.col("value").cast("string"), "$.delay_min").cast("int").alias("delay_min"),
        )
    )
    hours = left.groupBy(f.window("timestamp", "1 hour"), "origin").agg(
        f.count("*").alias("flights"), f.sum("delay_min").alias("delay_min")
    )
    delays = hours.select(
        f.col("origin").alias("key"),
        f.to_json(f.struct("flights", "delay_min")).alias("value"),
        f.col("window.start").alias("timestamp"),
    )
    writer = delays.writeStream.format("pylog").option("topic", DELAYS).outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start(str(directory / "log"))


def follow(query: StreamingQuery) -> None:
    """A line for each micro-batch, while it runs."""
    told = -1
    is_over = False
    while not is_over:
        is_over = query.awaitTermination(0.5)
        for progress in query.recentProgress:
            if progress["batchId"] > told:
                told = progress["batchId"]
                _tell(progress)


def _tell(progress: Any) -> None:
    final = progress["eventTime"].get("watermark", "")[:10]
    waiting = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
    print(
        f"batch {progress['batchId']:3}: {progress['numInputRows']:7,} events, "
        f"{sum(offsets_behind(progress).values()):8,} behind, {waiting:5,} hours open"
        + (f", final before {final}" if final > "1970-01-01" else ""),
        flush=True,
    )


def read_delays(log: Log) -> Iterator[tuple[str, int, int, int]]:
    """Airport, hour (ms since 1970), flights, the sum of their delays."""
    with Consumer(log, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.subscribe(DELAYS)
        for record in consumer:
            figures = json.loads(record.value or b"")
            yield (record.key or b"").decode(), record.timestamp_ms, figures["flights"], figures["delay_min"]


def differences(found: list[tuple[str, int, int, int]], flights: pd.DataFrame) -> int:
    """How many hours are not as pandas counts them, or are there twice, or not at all."""
    left = flights.dropna(subset="dep_delay")
    hour_ms = left["scheduled_ms"] // 3_600_000 * 3_600_000
    counted = left.groupby([left["origin"], hour_ms])["dep_delay"].agg(["size", "sum"])
    expected = {(origin, at, int(size), int(delay)) for (origin, at), size, delay in counted.itertuples()}
    return len(expected.symmetric_difference(found)) + len(found) - len(set(found))


def cause(error: Exception) -> str:
    """What pylog has said, out of all that Spark says about it."""
    said = [line for line in str(error).splitlines() if line.startswith("pylog.errors.")]
    return said[-1].partition(": ")[2] if said else str(error)


def main() -> int:
    from pyspark.errors import PySparkException

    arguments = parse_arguments()
    flights = load_flights(list(AIRPORTS), arguments.limit)
    try:
        with Log(arguments.directory / "log") as log:
            if DELAYS not in log.topics():  # else all was sent before, and the query continues
                prepare(log, flights)
            spark = start_spark()
            try:
                follow(started(spark, arguments.directory))
            finally:
                spark.stop()
            found = list(read_delays(log))
    except TopicExists:
        print(f"a run was ended before it had sent all: remove {arguments.directory}, and begin again", file=sys.stderr)
        return 1
    except (PylogError, PySparkException) as error:
        print(f"failed: {cause(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return 130
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    draw_year(found, arguments.output)
    print(f"{len(found):,} hours of {len(AIRPORTS)} airports: {arguments.output}")
    different = differences(found, flights)
    print(f"{different:,} hours differ from pandas' count" if different else "all are as pandas counts them, each once")
    return 1 if different else 0


def prepare(log: Log, flights: pd.DataFrame) -> None:
    """The topics and all events; the second topic is there when these are."""
    # One partition: how far the batches of several are apart in time would be lateness, too.
    log.create_topic(LEFT)
    print(f"sent {send(log, flights):,} departures", flush=True)
    log.create_topic(DELAYS)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Delays by hour, as a stream.")
    parser.add_argument("--directory", type=Path, default=Path("var/stream"), help="for log and checkpoint; both stay")
    parser.add_argument("--output", type=Path, default=Path("var/stream.png"), metavar="PNG")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights of each airport")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
