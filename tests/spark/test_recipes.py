"""The recipe that merges a compacted topic into a table: each key's newest value, also after a
repeated batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog import Log, ProducerRecord
from tests.test_documentation import PROJECT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECIPES = blocks(PROJECT / "docs" / "recipes.md")


def run(place: Path) -> dict[str, Any]:
    """The recipe in this directory, in the tests' session; its names."""
    [block] = [block for block in RECIPES if block.language == "python" and "def merge" in block.code]
    code = block.code.replace('"var/', f'"{place}/').replace("spark.stop()", "")
    names: dict[str, Any] = {}
    exec(compile(code, "recipes.md", "exec"), names)
    return names


def newest(log: Log) -> dict[bytes | None, bytes]:
    found: dict[bytes | None, bytes | None] = {}
    for number in range(log.describe_topic("prices").partitions):
        for record in log.partition("prices", number).scan():
            found[record.key] = record.value
    return {key: value for key, value in found.items() if value is not None}


def merged(spark: SparkSession, names: dict[str, Any]) -> dict[bytes, bytes]:
    rows = spark.read.parquet(str(names["TABLE"] / str(names["versions"]()[-1]))).collect()
    assert len({bytes(row.key) for row in rows}) == len(rows)
    return {bytes(row.key): bytes(row.value) for row in rows}


@pytest.mark.one_in(8)
@pytest.mark.timeout(300)  # two streaming queries
def test_the_table_has_the_newest_value_of_each_key(spark: SparkSession, tmpfs_dir: Path, seed: int) -> None:
    choose = random.Random(seed)
    names = run(tmpfs_dir)
    assert merged(spark, names) == {b"chair": b"45", b"desk": b"90"}
    with Log(tmpfs_dir / "prices") as log:
        log.add_partitions("prices", 2)
        for number in range(2):
            keys = [b"%d-%d" % (number, choose.randrange(9)) for _ in range(30)]
            values = [choose.choice([None, b"%d" % choose.randrange(99)]) for _ in keys]
            records = [ProducerRecord(value, key=key) for key, value in zip(keys, values, strict=True)]
            log.partition("prices", number).append(records, acks=1)
        log.maintain()
        names = run(tmpfs_dir)
        assert merged(spark, names) == newest(log)
        assert names["versions"]() == [0, 1]
        last = spark.read.format("pylog").option("startingOffsets", '{"prices": {"0": 5, "1": 0}}').load(str(log.path))
        names["merge"](last, 1)  # Spark repeats a batch that it had not committed
        assert merged(spark, names) == newest(log)


def test_spark_understands_the_statement_for_tables_with_merge(spark: SparkSession) -> None:
    [statement] = [block.code for block in RECIPES if block.language == "sql"]
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert "MergeIntoTable" in parser.parsePlan(statement).toString()
