"""What a named producer knows of one partition, kept with the partition's buffer."""

from __future__ import annotations

import threading  # threads share a producer

from pylog.partition.producers.state import BatchTrace
from pylog.producer.batch import ProducerBatch


class NamedSequences:
    """``failed`` is added to by any thread."""

    __slots__ = ("failed", "in_log", "last", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.last: int | None = None  # sent, or in the log; None: the log must be asked
        self.in_log: tuple[BatchTrace, ...] = ()  # the last batches, as the log was asked last
        self.failed: list[ProducerBatch] = []  # since the log was asked last
