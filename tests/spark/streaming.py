"""Does what Spark's engine does with a streaming source, without Spark: a checkpoint, batches,
crashes, restarts."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pylog.clock import Clock
from pylog.spark.source.ranges import PartitionRanges
from pylog.spark.source.schema import spark_schema
from pylog.spark.source.stream import StreamReader
from tests.arrow.rows import rows
from tests.spark.reading import as_texts


class Query:
    """``MicroBatchExecution`` in short: the ends of batches are written down before they are read,
    as JSON."""

    def __init__(self, path: Path | str, clock: Clock | None = None, **given: Any) -> None:
        self._given = {"path": str(path), **as_texts(given)}
        self._clock = clock
        self.offsets: list[str] = []  # of the checkpoint: the end of each batch
        self.committed = 0  # batches
        self.rows: list[dict[str, Any]] = []  # of batches that were committed
        self.restart()

    def restart(self, *, available_now: bool = False, **given: Any) -> None:
        """A new process, which knows the checkpoint."""
        self._given |= as_texts(given)
        self.reader = StreamReader(self._given, spark_schema(include_headers=False), self._clock)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def plan(self, *, everything: bool = False) -> bool:
        """Write down where the next batch ends, if there is one."""
        if len(self.offsets) > self.committed:
            return True  # it was planned before a crash
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        start = self._start()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def tasks(self) -> list[PartitionRanges]:
        """Those of the batch that is planned, as they come to executors."""
        planned = self.reader.partitions(json.loads(self._start()), json.loads(self.offsets[self.committed]))
        tasks: list[PartitionRanges] = pickle.loads(pickle.dumps(planned))
        return tasks

    def read(self, tasks: list[PartitionRanges] | None = None) -> list[dict[str, Any]]:
        """The rows of the batch that is planned, or of these tasks."""
        executor = StreamReader(self._given, spark_schema(include_headers=False))
        return [
            row
            for task in (self.tasks() if tasks is None else tasks)
            for batch in executor.read(task)
            for row in rows(batch)
        ]

    def batch(self, **how: Any) -> list[dict[str, Any]] | None:
        """A whole one; None where there is nothing to be read."""
        if not self.plan(**how):
            return None
        found = self.read()
        self.rows += found
        self.committed += 1
        return found

    def _start(self) -> str:
        return self.offsets[self.committed - 1] if self.committed else json.dumps(self.reader.initialOffset())
