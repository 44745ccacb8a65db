"""A generated access log of a web server, as a topic of a log, and a job over its lines with a
regular expression."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.workloads.spark_session import PARTITIONS
from pylog import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "access"
STATUSES = (200, 200, 200, 200, 200, 200, 304, 404, 301, 500)
SIZES = 4_093  # different sizes of an answer
FORMAT = '%d.%d.%d.%d - - [23/Nov/2026:%02d:%02d:%02d +0000] "GET /shop/%d/item?id=%d HTTP/1.1" %d %d'
PATTERN = r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+)$'

Totals = dict[int, tuple[int, int]]
"""Lines and bytes by status."""


def fill(spark: SparkSession, path: str, count: int) -> None:
    """A topic with so many lines, without keys."""
    numbers = "10, id % 251, id % 241, id % 239, id div 3600 % 24, id div 60 % 60, id % 60, id % 97, id % 100003"
    status = f"element_at(array({', '.join(map(str, STATUSES))}), cast(id % {len(STATUSES)} AS int) + 1)"
    rows = spark.range(count).selectExpr(
        f"encode(format_string('{FORMAT}', {numbers}, {status}, id % {SIZES}), 'utf-8') AS value",
        f"cast(id % {PARTITIONS} AS int) AS partition",
    )
    with Log(path) as log:
        log.create_topic(TOPIC, partitions=PARTITIONS)
    rows.write.format("pylog").option("topic", TOPIC).mode("append").save(path)


def check(lines: DataFrame, expected: Totals) -> None:
    """The job: the lines and the bytes of each status. Its totals must be those of the lines that
    were written."""
    from pyspark.sql import functions as f

    text = f.col("value").cast("string")
    parts = lines.select(*(f.regexp_extract(text, PATTERN, group).alias(f"part{group}") for group in (5, 6)))
    rows = parts.groupBy("part5").agg(f.count("*"), f.sum(f.col("part6").cast("long"))).collect()
    found = {int(status): (number, size) for status, number, size in rows}
    if found != expected:
        raise RuntimeError(f"the access log has {expected}, found {found}")


@cache
def totals(count: int) -> Totals:
    """Of so many lines."""
    rows: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for number in range(count):
        status = STATUSES[number % len(STATUSES)]
        rows[status] += 1
        sizes[status] += number % SIZES
    return {status: (rows[status], sizes[status]) for status in rows}
