"""Where a group goes on in a partition, now that others may have its offsets: records are lost with the power.

A commit says under which leader epoch its offset was reached. A recovery that may have cut the log begins another epoch; an
offset beyond the end of its own epoch is that of records that were lost, and the group goes on at that end, as Kafka's
clients do (KIP-320).
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
    """The committed offset, or the end of what is left of the log that it was reached in."""
    end = partition.latest_offset  # before the epoch: what a recovery changes in between is then seen
    if NO_LEADER_EPOCH < committed.leader_epoch < partition.leader_epoch:
        try:
            end = partition.end_of_leader_epoch(committed.leader_epoch)
        except own(CorruptSegment, FormatVersionError) as damage:
            logger.warning("%s; offsets committed before a loss of power can't be told from later ones", damage)
    return min(committed.offset, end)


def make_records_durable(partition: PartitionLog, offset: int, timeout_s: float | None = None) -> None:
    """Everything before the offset: a durable commit would else outlive the records it speaks of.

    ``timeout_s``: as of ``PartitionLog.sync``. A writer that is stopped keeps no commit waiting for longer.
    """
    durable_offset = partition.durable_offset
    if durable_offset >= offset:
        return
    end = min(offset, partition.latest_offset)
    if durable_offset < end:
        partition.sync(end, None if timeout_s is None else int(timeout_s * 1000))
