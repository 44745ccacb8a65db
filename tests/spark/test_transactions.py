"""Transactions inside Spark: ``isolationLevel`` and every starting offset, as a batch and as a
stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pylog import Log
from tests.transaction.story import Story, commit_abort_commit, story
from tests.transaction.views import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEVELS = ["read_committed", "read_uncommitted"]


@pytest.fixture
def it(tmpfs_dir: Path) -> Iterator[Story]:
    """Ends with a transaction that is under way."""
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC)
        with story(log) as it:
            commit_abort_commit(it)
            it.begin("two")
            it.send("two", "open")
            it.plain("after")
            yield it


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_every_starting_offset(spark: SparkSession, it: Story, level: str) -> None:
    """All in one job, which costs less. Of ``read_uncommitted`` some: see
    tests/transaction/test_every_start.py."""
    from pyspark.sql.functions import lit

    partition = it.log.partition(TOPIC, 0)
    is_committed = level == "read_committed"
    end = partition.last_stable_offset if is_committed else partition.latest_offset
    starts = range(0, end + 1, 1 if is_committed else 6)

    def frame(start: int) -> DataFrame:
        options = {"startingOffsets": json.dumps({TOPIC: {"0": start}}), "isolationLevel": level, "subscribe": TOPIC}
        read = spark.read.format("pylog").options(**options).load(str(it.log.path))
        return read.select(lit(start).alias("start"), "offset", "value")

    rows = reduce(lambda one, other: one.union(other), map(frame, starts)).collect()
    found = sorted((row.start, row.offset, bytes(row.value).decode()) for row in rows)
    assert found == [(start, *row) for start in starts for row in it.rows(level) if row[0] >= start]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_stream_of_small_batches(spark: SparkSession, it: Story, level: str) -> None:
    """Its batches end inside of transactions."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "isolationLevel": level}
    stream = spark.readStream.format("pylog").options(**options).load(str(it.log.path))
    found: list[tuple[int, str]] = []

    def take(frame: DataFrame, _: int) -> None:
        found.extend((row.offset, bytes(row.value).decode()) for row in frame.collect())

    checkpoint = str(it.log.path.parent / "checkpoint")
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    assert found == it.rows(level)
