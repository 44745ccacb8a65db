"""The commits of one owner whose markers may not be durable yet. The table must remember them until
they are.

Else the power could take a marker, and the next look at the table would find its transaction
aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from pylog.codec.format import INT64_MAX
from pylog.errors import Closed, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.partition.partition_log import PartitionLog
from pylog.storage import LOCK_TIMEOUT_MS

logger = logging.getLogger("pylog.transaction")

FINISHED_AT_ONCE = 8
"""There is no look for finished ones among fewer commits: each look reads what is durable in their
partitions."""
UNFINISHED_MAX = 32

Transaction = tuple[int, int]
"""Producer id and epoch."""

Marked = Collection[tuple[PartitionLog, int]]
"""The partitions of a transaction, and an offset in each after the marker."""


class UnfinishedCommits:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._marked: dict[Transaction, Marked] = {}  # the oldest first

    def add(self, transaction: Transaction, marked: Marked) -> None:
        """Its markers are written. If there are too many by now, those of the oldest commit are
        synced."""
        self._marked[transaction] = tuple(marked)
        if len(self._marked) > UNFINISHED_MAX:
            (producer_id, epoch), partitions = next(iter(self._marked.items()))
            try:
                for log, end_offset in partitions:
                    log.sync(end_offset, LOCK_TIMEOUT_MS)
            except own(PylogError) as error:  # the next one tries again
                logger.warning("markers of producer %d, epoch %d, are not durable yet: %s", producer_id, epoch, error)

    def finished(self) -> list[Transaction]:
        """Those whose markers are all durable, if it is time to look for them."""
        if len(self._marked) < FINISHED_AT_ONCE:
            return []
        logs = {log for marked in self._marked.values() for log, _ in marked}
        durable = {log: _durable_offset(log) for log in logs}
        return [
            transaction
            for transaction, marked in self._marked.items()
            if all(end_offset <= durable[log] for log, end_offset in marked)
        ]

    def forget(self, finished: Iterable[Transaction]) -> None:
        """The table has recorded that these are complete."""
        for transaction in finished:
            del self._marked[transaction]


def _durable_offset(log: PartitionLog) -> int:
    try:
        return log.durable_offset
    except own(TopicNotFound, Closed):
        return INT64_MAX  # deleted with its records
