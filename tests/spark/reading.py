"""Reads as Spark does, without Spark: plan, send the plan, read each range."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pylog import Log, arrow
from pylog.codec.batch import BatchView
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.partition_range import PartitionRange
from pylog.spark.source.plan import plan
from pylog.spark.source.ranges import record_batches
from tests.arrow.rows import rows

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"


def options(path: Path | str, **given: Any) -> SourceOptions:
    return SourceOptions.parse({"path": str(path), **as_texts(given)})


def as_texts(given: dict[str, Any]) -> dict[str, str]:
    """Options as Spark hands them over: names in lower case, values as text."""
    return {
        name.lower(): json.dumps(value) if isinstance(value, dict | bool) else str(value)
        for name, value in given.items()
    }


def planned(path: Path | str, **given: Any) -> list[PartitionRange]:
    """The plan, as it comes to an executor."""
    ranges: list[PartitionRange] = pickle.loads(pickle.dumps(plan(options(path, **given))))
    return ranges


def read_ranges(ranges: list[PartitionRange], *, headers: bool = False) -> Iterator[dict[str, Any]]:
    for piece in ranges:
        for batch in record_batches(piece, arrow.schema(headers=headers)):
            yield from rows(batch)


def read(path: Path | str, **given: Any) -> list[dict[str, Any]]:
    """Every row of a query."""
    return list(read_ranges(planned(path, **given), headers=bool(given.get("includeHeaders"))))


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in found]


def append_view(log: Log, view: BatchView, topic: str = "orders", partition: int = 0) -> None:
    log.partition(topic, partition).log.append_batch(bytearray(view.buffer))
