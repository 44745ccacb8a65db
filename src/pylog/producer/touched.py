"""The partitions that a producer's transaction has written to: they are synced before the commit,
and marked after it."""

from __future__ import annotations

from functools import partial

from pylog.errors import TopicNotFound
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import Outcome
from pylog.producer.batch import ProducerBatch
from pylog.producer.sync_threads import SyncThreads
from pylog.storage import LOCK_TIMEOUT_MS, same_process
from pylog.transaction.owner import TransactionOwner

SYNCS_AT_ONCE = 16


class TouchedPartitions:
    """Of one transaction. Threads that append add to it, until the commit has stopped them."""

    def __init__(self, syncs_at_once: int = SYNCS_AT_ONCE) -> None:
        self._threads = SyncThreads(syncs_at_once - 1)
        self.clear()

    def clear(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._marked: list[tuple[PartitionLog, int]] = []  # and where the log ended then

    def add(self, log: PartitionLog) -> None:
        """Records are about to be appended: it will need a marker."""
        self._logs[log.topic_partition] = log

    def appended(self, partition: TopicPartition, end_offset: int) -> None:
        self._ends[partition] = end_offset

    def names(self) -> list[TopicPartition]:
        return list(self._logs)

    def finds(self, batch: ProducerBatch, producer_id: int) -> bool:
        """Whether a batch is in its log after an append whose outcome is unknown. Then it is synced
        like the others."""
        log = self._logs[batch.topic_partition]
        if log.next_sequence(producer_id, LOCK_TIMEOUT_MS) != batch.next_sequence:
            return False
        self.appended(batch.topic_partition, log.latest_offset)
        return True

    def sync(self) -> None:
        """Make the transaction's records durable. ``OutcomeUnknown``."""
        syncs = [
            partial(log.sync, self._ends[name], LOCK_TIMEOUT_MS)
            for name, log in self._logs.items()
            if name in self._ends
        ]
        if syncs:
            filesystem = next(iter(self._logs.values())).directory.filesystem
            self._threads.run(syncs, same_process(filesystem, "a transaction was being committed"))

    def close(self) -> None:
        """Forget them, and end the threads."""
        self.clear()
        self._threads.close()

    def mark(self, owner: TransactionOwner, outcome: Outcome) -> None:
        """Write the markers that are missing, and tell the owner. After an error, call it again."""
        for name, log in list(self._logs.items()):
            try:
                end = log.append_marker(
                    owner.producer_id, owner.epoch, committed=outcome is Outcome.COMMITTED, timeout_ms=LOCK_TIMEOUT_MS
                )
                self._marked.append((log, log.latest_offset if end is None else end))
            except own(TopicNotFound):
                pass  # it was deleted with its records
            del self._logs[name]
        owner.complete(self._marked)
        self.clear()
