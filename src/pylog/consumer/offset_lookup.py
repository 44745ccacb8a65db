"""Offsets by what they mean: the beginning, the end this consumer may see, the first record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylog.consumer.config import ConsumerConfig
from pylog.model import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.partition_log import PartitionLog


class OffsetLookup:
    """Asks the log, with the isolation and visibility of one consumer."""

    __slots__ = ("_config", "_log")

    def __init__(self, log: Log, config: ConsumerConfig) -> None:
        self._log = log
        self._config = config

    def partition(self, topic_partition: TopicPartition) -> PartitionLog:
        """The open partition; ``TopicNotFound`` or ``InvalidPartition``."""
        return self._log.partition(*topic_partition).log

    def beginning(self, partition: PartitionLog) -> int:
        """The offset of the first record kept."""
        return partition.earliest_offset

    def end(self, partition: PartitionLog) -> int:
        """One past the last offset this consumer may read now."""
        return partition.end_offset(self._config.isolation_level, self._config.visibility)

    def at_time(self, partition: PartitionLog, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record with this timestamp or a later one."""
        return partition.offset_for_time(timestamp_ms)

    def locate(self, partition: PartitionLog, target: int) -> int:
        """The offset of ``target``: ``EARLIEST``, ``LATEST``, or a timestamp (the end where no record is as late)."""
        if target == EARLIEST:
            return self.beginning(partition)
        found = None if target == LATEST else self.at_time(partition, target)
        return self.end(partition) if found is None else found.offset
