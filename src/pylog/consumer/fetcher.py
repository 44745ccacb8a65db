"""Reads ahead and returns records in turns, so that no partition waits until another is empty.

A partition is read from the log when it is drained and its turn comes. Earlier reads gain nothing,
since there is no network. Bytes fetched but not returned are limited per partition
(``max_partition_fetch_bytes``) and in total (``fetch_max_bytes``). A partition without room waits
for its next turn. It gets room then, since the partitions that hold it are the ones being emptied.

An error is raised at the turn of its partition, after the records before it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pylog.consumer.assigned_partition import AssignedPartition, Budget
from pylog.consumer.config import ConsumerConfig
from pylog.consumer.decoding import RecordFormat, Taken
from pylog.consumer.offset_lookup import OffsetLookup
from pylog.consumer.reset import no_position
from pylog.consumer.subscription import TopicId, name_of
from pylog.errors import Closed, CorruptSegment, OffsetOutOfRange, PylogError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition
from pylog.partition import Cursor

if TYPE_CHECKING:
    from pylog.consumer.stored_offsets import StoredOffsets
    from pylog.manager.access import ConsumerLog
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.consumer")

LOOK_AGAIN_S = 0.25  # for a transaction: its end, or its owner's death, changes no file of the partition
_MARKED_AFTER_S = 0.2  # by others than its owner, which mostly is just about to write the marker
_QUIET_S = 0.0005  # for each quiet partition; asking one takes some 15 µs, so this bounds the share of asking to 3 %


class Fetcher:
    """The assigned partitions of one consumer. Not thread-safe."""

    def __init__(self, log: ConsumerLog, lookup: OffsetLookup, config: ConsumerConfig) -> None:
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self.caught_up = False
        self.fetches = 0
        self.records_taken = 0
        self.fetched_bytes = 0
        self.resets = 0
        self._log = log
        self._lookup = lookup
        self._config = config
        self._budget = Budget(config.fetch_max_bytes, config.max_partition_fetch_bytes)
        # Every partition is in one of these three, which only decides how soon it is asked again.
        self._busy: deque[AssignedPartition] = deque()  # the next one first
        self._quiet: deque[AssignedPartition] = deque()  # have nothing more; asked longest ago first
        self._blocked: deque[AssignedPartition] = deque()  # found no room; waiting longest first
        self._round = 0  # counts the calls; a call does not ask a partition again that had nothing more
        self._now_s = 0.0  # when the round began
        self.stored_offsets: StoredOffsets | None = None  # decides where partitions are read from
        self._undo: list[tuple[AssignedPartition, int | None]] = []
        self._records_delivered = 0

    # What is read

    def add(
        self, topic_partition: TopicPartition, topic_id: TopicId, position: int | None, partition: PartitionLog | None
    ) -> None:
        """Also read this partition, from ``position``. Replaces one of the same name.

        ``partition``: opened already, or None to open it before the first read.
        """
        self.remove(topic_partition)
        if self.stored_offsets is not None:
            position = self.stored_offsets.start(topic_partition, str(topic_id), position)
        assigned = AssignedPartition(topic_partition, topic_id, self._budget)
        assigned.position, assigned.partition = position, partition
        self.assigned[topic_partition] = assigned
        self._busy.append(assigned)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop reading this partition."""
        assigned = self.assigned.pop(topic_partition, None)
        if assigned is not None:
            assigned.drop_read_ahead()
            if assigned.partition is not None:
                assigned.partition.close_read_files()
            if self.stored_offsets is not None and assigned.position is not None:
                self.stored_offsets.leave(topic_partition, str(assigned.topic_id), assigned.position)
            for line in (self._busy, self._quiet, self._blocked):
                with suppress(ValueError):
                    line.remove(assigned)

    def positions(self) -> dict[TopicPartition, int]:
        """The position of each partition that has one."""
        return {name: item.position for name, item in self.assigned.items() if item.position is not None}

    @property
    def read_ahead_bytes(self) -> int:
        """The bytes of fetched records that were not returned."""
        return self._budget.held_bytes

    # Returning records

    def next_chunk(self, format: RecordFormat[Taken], max_records: int) -> tuple[AssignedPartition, Taken] | None:
        """Up to ``max_records`` of the next partition; None if none has any (see ``caught_up``)."""
        self._begin_round()
        turn = self._next_turn(format, max_records)
        if turn is None:
            return None
        assigned, chunk = turn
        if chunk is None:
            raise assigned.take_failure()
        self.records_taken += len(chunk)
        return assigned, chunk

    def collect(self, format: RecordFormat[Taken], max_records: int) -> Taken:
        """Up to ``max_records`` from several partitions; empty if none has any (see
        ``caught_up``)."""
        self._begin_round()
        collected: Taken | None = None
        left = max_records
        while left > 0 and not (collected and format.is_full(collected)):
            turn = self._next_turn(format, left)
            if turn is None:
                break
            assigned, chunk = turn
            if chunk is None:
                if collected is None:
                    raise assigned.take_failure()
                self._busy.rotate(1)  # the next call raises it first
                break
            left -= len(chunk)
            if collected is None:
                collected = chunk
            else:
                collected.extend(chunk)
        if collected is None:
            return format.nothing()
        self.records_taken += len(collected)
        return collected

    def mark_delivered(self) -> None:
        """The application has the records returned so far: ``undo`` will not go back further."""
        self._undo.clear()
        self._records_delivered = self.records_taken

    def undo(self) -> None:
        """Restore every position at the last ``mark_delivered``."""
        while self._undo:
            assigned, position = self._undo[-1]
            assigned.move_to(position)
            self._undo.pop()
        self.records_taken = self._records_delivered
        self._budget.count_again()
        self._busy, self._quiet, self._blocked = deque(self.assigned.values()), deque(), deque()

    def changed(self) -> bool:
        """True if a partition that had nothing more to read may have something now."""
        try:
            for item in self.assigned.values():
                if not item.paused and (item.partition is None or item.partition.change_token() != item.quiet_token):
                    return True
        except own(Closed, TopicNotFound, CorruptSegment):  # the directory is missing: the next read raises it
            return True
        return False

    def must_look_again(self) -> bool:
        """True if a partition that had nothing more to read may have something without a change."""
        return any(item.look_again and not item.paused for item in self.assigned.values())

    def watched_partitions(self) -> tuple[PartitionLog, ...]:
        """The partitions that a wait watches."""
        assigned = self.assigned.values()
        return tuple(item.partition for item in assigned if item.partition is not None and not item.paused)

    def _begin_round(self) -> None:
        self._round += 1
        self._now_s = self._log.clock.monotonic()
        if self._quiet and self._quiet[0].quiet_since_s + len(self._quiet) * _QUIET_S <= self._now_s:
            self._busy.extend(self._quiet)
            self._quiet.clear()

    def _next_turn(
        self, format: RecordFormat[Taken], max_records: int
    ) -> tuple[AssignedPartition, Taken | None] | None:
        """The next partition with records or a failure; None after a round without either.

        The quiet partitions are asked if no other has anything, and otherwise the less often the
        more they are (a thousand twice a second): asking them all takes longer than decoding what
        one of them has.
        """
        self.caught_up = True
        busy, quiet = self._busy, self._quiet
        while True:
            admitted = self._admit() if self._blocked else None
            for _ in range(len(busy)):
                assigned = busy[0]
                busy.rotate(-1)
                if assigned.paused or assigned.idle_round == self._round:
                    continue
                if self._blocked and assigned is not admitted and assigned.is_waiting:
                    self.caught_up = False
                    self._blocked.append(assigned)
                    busy.pop()
                    continue
                chunk = self._serve(assigned, format, max_records)
                if assigned.quiet_token is not None and assigned.is_drained:
                    assigned.idle_round = self._round
                    assigned.quiet_since_s = self._now_s
                    quiet.append(busy.pop())
                else:
                    self.caught_up = False
                if chunk is not None or assigned.failure is not None:
                    return assigned, chunk
                if assigned.is_waiting and not self._budget.allows_fetch():
                    self._blocked.append(busy.pop())
            if self._blocked and self._budget.allows_fetch():
                continue
            if not quiet or quiet[0].idle_round == self._round:
                break
            while quiet and quiet[0].idle_round != self._round:
                busy.append(quiet.popleft())
        if not self.caught_up:  # for lack of room
            self._budget.count_again()
        return None

    def _admit(self) -> AssignedPartition | None:
        """If there is room, queue one blocked partition before the busy ones."""
        if not self._budget.allows_fetch():
            return None
        admitted = self._blocked.popleft()
        self._busy.appendleft(admitted)
        return admitted

    def _serve(self, assigned: AssignedPartition, format: RecordFormat[Taken], max_records: int) -> Taken | None:
        """What the partition has buffered, or what one fetch returns."""
        if assigned.format is not format:
            self._undo.append((assigned, assigned.position))
            assigned.change_format(format)
        try:
            if assigned.is_drained and assigned.failure is None and not self._fetch(assigned):
                return None
        except own(Closed):
            assigned.forget_partition()  # its topic or the log was closed: opening it again raises the reason
        except own(PylogError) as error:
            assigned.failure = self._located(error, assigned)
        self._undo.append((assigned, assigned.position))
        return assigned.take(format, max_records)

    # Reading the log

    def _fetch(self, assigned: AssignedPartition) -> bool:
        """Read ahead; True if there is something to take."""
        position, partition = assigned.position, assigned.partition
        if position is None:
            raise no_position(assigned.topic_partition)
        if partition is None:
            partition = assigned.partition = self._log.partition(*assigned.topic_partition)
        if not self._budget.allows_fetch():
            if assigned.quiet_token is not None and partition.change_token() != assigned.quiet_token:
                assigned.quiet_token = None
            return False
        quiet_token, assigned.quiet_token = None if assigned.look_again else assigned.quiet_token, None
        cursor = assigned.cursor or Cursor(position)
        try:
            fetched = partition.fetch(
                cursor,
                max_bytes=self._budget.fetch_bytes,
                isolation_level=self._config.isolation_level,
                visibility=self._config.visibility,
                quiet_token=quiet_token,
            )
        except own(OffsetOutOfRange) as error:
            self._reset_position(assigned, partition, error)
            return False
        if quiet_token is not None and fetched.token == quiet_token:
            assigned.quiet_token = quiet_token
            return False
        size_bytes = 0
        for view in fetched.batches:
            size_bytes += len(view.buffer)
        self.fetches += 1
        self.fetched_bytes += size_bytes
        self._undo.append((assigned, position))
        assigned.fill(fetched, size_bytes)
        assigned.look_again = fetched.is_blocked
        if fetched.is_unmarked:
            self._mark(assigned, partition)
        else:
            assigned.unmarked_since_s = None
        offset = fetched.cursor.offset
        if offset >= fetched.end_offset or not (fetched.batches or offset > cursor.offset):
            assigned.quiet_token = fetched.token
        return bool(fetched.batches)

    def _mark(self, assigned: AssignedPartition, partition: PartitionLog) -> None:
        """Write markers that are missing: without them every reader must ask about these
        transactions."""
        if partition.is_read_only:
            return
        assigned.look_again = True
        if assigned.unmarked_since_s is None:
            assigned.unmarked_since_s = self._now_s
        elif self._now_s - assigned.unmarked_since_s >= _MARKED_AFTER_S:
            partition.settle_transactions()

    def _reset_position(self, assigned: AssignedPartition, partition: PartitionLog, error: OffsetOutOfRange) -> None:
        """Apply ``auto_offset_reset`` to a position that is not in the log."""
        position = self._lookup.start_position(partition)
        if position is None or position == assigned.position:
            raise error
        logger.warning(
            "%s: position %s is out of range (%s); auto_offset_reset=%s moves it to %d",
            name_of(assigned.topic_partition), assigned.position, error, self._config.auto_offset_reset, position,
        )  # fmt: skip
        self.resets += 1
        assigned.move_to(position)

    def _located(self, error: PylogError, assigned: AssignedPartition) -> PylogError:
        """``error`` with the partition and position among its facts."""
        error.facts.setdefault("topic", assigned.topic_partition.topic)
        error.facts.setdefault("partition", assigned.topic_partition.partition)
        error.facts.setdefault("offset", assigned.position)
        return error
