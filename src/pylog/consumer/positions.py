"""Where a consumer reads on: asking, seeking, pausing."""

from __future__ import annotations

from pylog.checks import partition_of, require_count
from pylog.consumer.assigned_partition import Lane
from pylog.consumer.parts import Parts, of_consumer
from pylog.consumer.reset import no_position
from pylog.consumer.subscription import name_of
from pylog.errors import ConfigError
from pylog.model import EARLIEST, LATEST, TopicPartition


@of_consumer
class Positions(Parts):
    """A part of ``Consumer``."""

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned. ``NoOffsetForPartition`` where there is none yet."""
        with self._begin():
            position = self._position(self._lane(partition))
        if position is None:
            raise no_position(partition_of(partition))
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``. One that is not in the log is found out by the next poll."""
        require_count("offset", offset, 0)
        with self._begin():
            self._land()
            self._lane(partition).move_to(offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record kept, in these partitions or in all."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record there is now, in these partitions or in all."""
        self._seek_to(LATEST, partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record with this timestamp or a later one, else at the end, in these partitions or all."""
        self._seek_to(require_count("timestamp_ms", timestamp_ms, 0), partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until ``resume``; they keep their positions."""
        with self._begin():
            self._land()
            for lane in [self._lane(partition) for partition in partitions]:
                lane.paused = True
                lane.drop_read_ahead()

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        with self._begin():
            for lane in [self._lane(partition) for partition in partitions]:
                lane.paused = False

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._begin():
            return {partition for partition, lane in self._fetcher.lanes.items() if lane.paused}

    def _seek_to(self, target: int, partitions: tuple[TopicPartition, ...]) -> None:
        with self._begin():
            self._land()
            lanes = [self._lane(partition) for partition in partitions] or list(self._fetcher.lanes.values())
            offsets = [self._lookup.locate(self._lookup.partition(lane.topic_partition), target) for lane in lanes]
            for lane, offset in zip(lanes, offsets, strict=True):
                lane.move_to(offset)

    def _lane(self, partition: TopicPartition) -> Lane:
        lane = self._fetcher.lanes.get(partition_of(partition))
        if lane is None:
            raise ConfigError(
                f"{name_of(partition_of(partition))} is not assigned to this consumer",
                topic=partition[0], partition=partition[1], assignment=sorted(self._fetcher.lanes),
            )  # fmt: skip
        return lane
