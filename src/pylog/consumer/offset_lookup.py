"""Offsets by their meaning to a consumer: its visible end, the first record at a time, its
start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylog.consumer.config import ConsumerConfig
from pylog.consumer.reset import OffsetReset
from pylog.model import EARLIEST, LATEST

if TYPE_CHECKING:
    from pylog.clock import Clock
    from pylog.partition.partition_log import PartitionLog


class OffsetLookup:
    """Asks partitions, with one consumer's isolation, visibility and ``auto_offset_reset``."""

    __slots__ = ("_clock", "_config", "_reset")

    def __init__(self, config: ConsumerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._reset = OffsetReset.parse(config.auto_offset_reset)

    def end(self, partition: PartitionLog) -> int:
        """One past the last offset this consumer may read now."""
        return partition.end_offset(self._config.isolation_level, self._config.visibility)

    def locate(self, partition: PartitionLog, target: int) -> int:
        """The offset of ``EARLIEST``, ``LATEST`` or a timestamp (the end if no record is as
        late)."""
        if target == EARLIEST:
            return partition.earliest_offset
        found = None if target == LATEST else partition.offset_for_time(target)
        return self.end(partition) if found is None else found.offset

    def start_position(self, partition: PartitionLog) -> int | None:
        """The start by ``auto_offset_reset`` for a consumer without a position; None for
        ``none``."""
        if self._reset.raises:
            return None
        return self.locate(partition, self._reset.target(self._clock.now_ms()))
