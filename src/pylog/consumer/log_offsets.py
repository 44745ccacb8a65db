"""What a consumer tells of the log it reads: beginnings, ends, offsets by time, and its own lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pylog.checks import partition_of, partitions_of, require_count
from pylog.consumer.parts import Parts, of_consumer
from pylog.errors import ConfigError
from pylog.model import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pylog.partition.partition_log import PartitionLog


@of_consumer
class LogOffsets(Parts):
    """A part of ``Consumer``."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record kept of each partition, assigned or not."""
        return {name: self._lookup.beginning(partition) for name, partition in self._opened(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last offset this consumer may read now (its isolation and visibility count), of each."""
        return {name: self._lookup.end(partition) for name, partition in self._opened(partitions)}

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record with its timestamp or a later one; None where there is none."""
        if not isinstance(timestamps_ms, Mapping):
            raise ConfigError(f"expected a mapping of TopicPartition to timestamp, not {timestamps_ms!r}")
        times = {partition_of(name): require_count("timestamp_ms", ms, 0) for name, ms in timestamps_ms.items()}
        return {name: self._lookup.at_time(partition, times[name]) for name, partition in self._opened(times)}

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is behind its end; partitions without a position are left out."""
        with self._begin():
            return self._lag()

    def _lag(self) -> dict[TopicPartition, int]:
        positions = {name: self._position(lane) for name, lane in self._fetcher.lanes.items()}
        return {
            name: max(0, self._lookup.end(self._lookup.partition(name)) - position)
            for name, position in positions.items()
            if position is not None
        }

    def _opened(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, PartitionLog]]:
        with self._begin():
            return [(name, self._lookup.partition(name)) for name in partitions_of(partitions)]
