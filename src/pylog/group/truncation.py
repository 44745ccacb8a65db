"""Where a group continues in a partition after a power failure: lost offsets may be used again.

A commit records the leader epoch of its offset. A recovery that may have cut the log begins a new
epoch. An offset after the end of its own epoch belongs to lost records: the group continues at that
end, as Kafka's clients do (KIP-320).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pylog.codec.format import NO_LEADER_EPOCH
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.group.offset_records import Committed
from pylog.interrupts import own

if TYPE_CHECKING:
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.group")


def next_offset(partition: PartitionLog, committed: Committed) -> int:
    """Return the committed offset, or the end of what is left of its leader epoch."""
    end = partition.latest_offset  # before the epoch, to see what a recovery changes in between
    if NO_LEADER_EPOCH < committed.leader_epoch < partition.leader_epoch:
        try:
            end = partition.end_of_leader_epoch(committed.leader_epoch)
        except own(CorruptSegment, FormatVersionError) as damage:
            logger.warning("%s; offsets committed before a power failure can't be told from later ones", damage)
    return min(committed.offset, end)


def make_records_durable(partition: PartitionLog, offset: int, timeout_s: float | None = None) -> int:
    """Sync what is before the offset: a durable commit must not outlive its records.

    Returns the leader epoch to commit with the offset. ``timeout_s``: as in ``PartitionLog.sync``.
    A stopped writer delays a commit no longer.
    """
    state = partition.current()  # before the sync: an older epoch is the safe one
    end = min(offset, state.high_watermark)
    if state.durable_offset < end:
        partition.sync(end, None if timeout_s is None else int(timeout_s * 1000))
    return state.leader_epoch
