"""What both readers do in a worker process of Spark, before Spark sends it the task."""

from __future__ import annotations

from typing import Any

from pylog.storage import acknowledge_at_once


class ReaderInWorker:
    """A reader that Spark sends to its workers, again with each task.

    Spark writes a task in two parts: the reader, then the range to read. Without an acknowledgement
    of the first, the second arrives 40 ms later.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()
