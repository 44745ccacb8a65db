"""The whole example: three producers, a live board, a Spark report, and a check of all totals. See
README.md.

python run.py [--directory DIRECTORY] [--output departures.png]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from check import compare, compare_order, pandas_table
from events import AIRPORTS, PARTITIONS, PLANS, TOPIC, Cell, Counts, Table, total
from plot import draw
from processes import ChildFailed, Children
from report import spark_table, start_spark

from pylog import Log
from pylog.errors import PylogError, TopicExists


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the other processes are ended, too
    try:
        with log_directory(arguments) as directory:
            return run(directory, arguments)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except TopicExists as error:
        print(f"{error}; this example needs a directory of its own", file=sys.stderr)
    except (ChildFailed, PylogError) as error:
        print(f"\nfailed: {error}", file=sys.stderr)
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=os.environ.get("PYLOG_DEMO"),
        allow_abbrev=False,
        description="A year of flight departures through pylog and Spark, to a plot.",
    )
    parser.add_argument("--directory", type=Path, help="where to put the log, and keep it; default: a temporary place")
    parser.add_argument("--keep", action="store_true", help="keep the log in its temporary place")
    parser.add_argument("--airports", nargs="+", choices=AIRPORTS, default=list(AIRPORTS))
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N flights of each airport")
    parser.add_argument("--no-spark", action="store_true", help="plot what the board counted instead (needs no Java)")
    parser.add_argument("--output", type=Path, default=Path("var/departures.png"), metavar="PNG", help="the plot")
    arguments = parser.parse_args()
    arguments.airports = list(dict.fromkeys(arguments.airports))
    if arguments.limit is not None and arguments.limit < 1:
        parser.error("--limit must be at least 1")
    if not arguments.no_spark and not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        parser.error("no Java found: Spark needs Java 17 or newer; --no-spark does without")
    return arguments


@contextmanager
def log_directory(arguments: argparse.Namespace) -> Iterator[Path]:
    if arguments.directory:
        yield arguments.directory
    elif arguments.keep:
        yield Path(mkdtemp(prefix="departures-"))
    else:
        with TemporaryDirectory(prefix="departures-") as directory:
            yield Path(directory)


def run(directory: Path, arguments: argparse.Namespace) -> int:
    with step(f"The log: {directory}"), Log(directory) as log:
        # Retention goes by the records' own times, and these are years ago: keep them forever.
        log.create_topic(TOPIC, partitions=PARTITIONS)
        log.create_topic(PLANS)
        print(f"created the topic {TOPIC} with {PARTITIONS} partitions")

    with step("The replay: one process per airport sends, one process reads and keeps the board"):
        seen = replay(directory, arguments.airports, arguments.limit)
    tables = {"board": table_of(seen)}

    if not arguments.no_spark:
        with step("The report: Spark reads the same directory"):
            tables["Spark"] = with_spark(directory)

    with step("The plot"):
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        draw(tables.get("Spark", tables["board"]), arguments.output)
        print(f"mean departure delay by hour and carrier: {arguments.output}")

    with step("The check: the same totals in pandas, straight from the package's data"):
        expected = pandas_table(arguments.airports, arguments.limit)
        agree = [compare(name, table, expected) for name, table in tables.items()]
        agree.append(compare_order(seen["aircraft"], seen["steps_back"]))

    print("\nAll totals agree." if all(agree) else "\nTHE TOTALS DIFFER, see above.")
    if arguments.directory or arguments.keep:
        print(f"The log stays in {directory}. Look inside: pylog topics list --log {directory}")
    else:
        print("The log is removed; --keep keeps it.")
    return 0 if all(agree) else 1


@contextmanager
def step(title: str) -> Iterator[None]:
    print(f"\n{title}", flush=True)
    began = time.monotonic()
    yield
    print(f"[{time.monotonic() - began:.1f} s]", flush=True)


def replay(directory: Path, airports: list[str], limit: int | None) -> dict[str, Any]:
    """What the board has seen, as it wrote it down."""
    limits = [] if limit is None else ["--limit", str(limit)]
    with TemporaryDirectory() as scratch, Children() as children:
        totals = Path(scratch) / "totals.json"
        children.start("the board", "board.py", str(directory), "--airports", *airports, "--totals", str(totals))
        for airport in airports:
            children.start(
                f"the producer of {airport}", "producer.py", str(directory), airport, *limits, keep_output=True
            )
        children.wait()
        seen: dict[str, Any] = json.loads(totals.read_text())
    return seen


def table_of(seen: dict[str, Any]) -> Table:
    return {Cell(*row[:3]): Counts(*row[3:]) for row in seen["cells"]}


def with_spark(directory: Path) -> Table:
    print("starting Spark; the notices that follow are its own", flush=True)
    spark = start_spark()
    try:
        print(f"Spark {spark.version} counts by airport, hour and carrier", flush=True)
        table = spark_table(spark, str(directory))
    finally:
        spark.stop()
    print(f"it read {total(table.values()).flights:,} departures")
    return table


if __name__ == "__main__":
    sys.exit(main())
