"""Writes as Spark does, without Spark: tasks stage, what they tell goes to the driver, the driver
commits."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pylog import Log
from pylog.spark.sink.options import SinkOptions
from pylog.spark.sink.sink import Sink, TaskMessage

QUERY = "b6405dfa-6965-48da-8e67-77ac7bfaf766"
SAVE = "save-" + 32 * "7"


class Driver:
    """One driver and its executors. ``around`` is a process of a simulated machine, or another
    filesystem."""

    def __init__(self, path: Path | str, sink_id: str = QUERY, around: Any = None, **options: Any) -> None:
        self.sink_id = sink_id
        given = SinkOptions.parse({"path": str(path), "topic": "orders"} | {k: str(v) for k, v in options.items()})
        self.sink = Sink(given, getattr(around, "filesystem", around), getattr(around, "clock", None))
        self.attempts = 0

    def stage(self, rows: Iterable[Any], batch_id: int = 0) -> TaskMessage:
        """What one task attempt tells the driver. Rows are values, or dicts of columns."""
        self.attempts += 1
        rows = [row if isinstance(row, dict) else {"value": row} for row in rows]
        batches = [pa.RecordBatch.from_pylist(rows)] if rows else []
        message = self.sink.stage(batches, self.sink_id, batch_id, self.attempts)
        assert message == pickle.loads(pickle.dumps(message))
        return message

    def commit(self, messages: Sequence[TaskMessage | None], batch_id: int = 0) -> None:
        self.sink.commit(self.sink_id, batch_id, messages)

    def abort(self, messages: Sequence[TaskMessage | None]) -> None:
        self.sink.abort(self.sink_id, messages)

    def write(self, tasks: Sequence[Sequence[Any]], batch_id: int = 0) -> None:
        """A batch whose tasks all succeed."""
        self.commit([self.stage(rows, batch_id) for rows in tasks], batch_id)

    def write_next(self, tasks: Sequence[Sequence[Any]], batch_id: int) -> None:
        """The same as Spark does it for a query: the process keeps what it has opened."""
        self.sink.commit_batch(self.sink_id, batch_id, [self.stage(rows, batch_id) for rows in tasks])

    @property
    def directory(self) -> Path:
        return Path(self.sink.options.path, ".pylog/spark", self.sink_id)


def values(log: Log, topic: str = "orders") -> list[list[bytes]]:
    """The values of each partition, in order."""
    return [
        [record.value for record in log.partition(topic, number).scan()] for number in log.describe_topic(topic).numbers
    ]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []
