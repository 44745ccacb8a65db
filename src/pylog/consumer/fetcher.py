"""Reads ahead and hands records out, turn by turn, so that no partition waits for another to be emptied.

A lane is read from the log when it is drained and its turn comes, never earlier: reading takes no network, so there is
nothing to gain. What is held of a fetch beyond the records handed out is bounded per partition
(``max_partition_fetch_bytes``) and over all (``fetch_max_bytes``). A lane that finds no room waits for its next turn,
and gets room, since the lanes that hold it are the ones being emptied.

An error belongs to the lane it came from and is raised at that lane's turn, behind the records that came before it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pylog.consumer.assigned_partition import Budget, Lane
from pylog.consumer.config import ConsumerConfig
from pylog.consumer.decoding import Form, RecordForm, Taken
from pylog.consumer.offset_lookup import OffsetLookup
from pylog.consumer.reset import OffsetReset, no_position
from pylog.consumer.subscription import TopicId, name_of
from pylog.errors import Closed, CorruptSegment, OffsetOutOfRange, PylogError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.model import Record, TopicPartition

if TYPE_CHECKING:
    from pylog.clock import Clock
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.consumer")


class Fetcher:
    """The lanes of one consumer. Not safe to share between threads."""

    def __init__(self, lookup: OffsetLookup, config: ConsumerConfig, clock: Clock) -> None:
        self.lanes: dict[TopicPartition, Lane] = {}
        self.caught_up = False
        self.fetches = 0
        self.records_taken = 0
        self.fetched_bytes = 0
        self.resets = 0
        self._lookup = lookup
        self._config = config
        self._clock = clock
        self._reset = OffsetReset.parse(config.auto_offset_reset)
        self._budget = Budget(config.fetch_max_bytes)
        self._fetch_bytes = min(config.max_partition_fetch_bytes, config.fetch_max_bytes)
        # Every lane is in one of the three; which one only says how soon it is asked again.
        self._busy: deque[Lane] = deque()  # the next one first
        self._quiet: deque[Lane] = deque()  # gave nothing when they were asked; the one asked first comes first
        self._blocked: deque[Lane] = deque()  # found no room for what they may have; the one that waits longest first
        self._turn = 0  # counts up
        self._round = 0  # counts the calls; no lane is asked again in the same one once it had nothing more
        self._undo: list[tuple[Lane, int | None]] = []
        self._records_committed = 0
        self._as_records = RecordForm(config)

    # Lanes

    def add(self, topic_partition: TopicPartition, topic_id: TopicId, position: int | None) -> None:
        """Read this partition too, from ``position``; it replaces a lane of the same name."""
        lane = Lane(topic_partition, topic_id, self._budget)
        lane.position = position
        self.remove(topic_partition)
        self.lanes[topic_partition] = lane
        self._busy.append(lane)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Read this partition no longer."""
        lane = self.lanes.pop(topic_partition, None)
        if lane is not None:
            lane.drop_read_ahead()
            for line in (self._busy, self._quiet, self._blocked):
                with suppress(ValueError):
                    line.remove(lane)

    def start_position(self, partition: PartitionLog) -> int | None:
        """Where ``auto_offset_reset`` puts a consumer without a position; None where it says ``none``."""
        if self._reset.raises:
            return None
        return self._lookup.locate(partition, self._reset.target(self._clock.now_ms()))

    @property
    def read_ahead_bytes(self) -> int:
        """What is held of fetched records that were not handed out."""
        return self._budget.held_bytes

    # Handing out

    def next_chunk(self, max_records: int) -> tuple[Lane, list[Record]] | None:
        """Up to ``max_records`` of the lane whose turn it is, or None where no lane has any (see ``caught_up``)."""
        self._round += 1
        lane, records = self._next_turn(self._as_records, max_records)
        if lane is not None and not records:
            raise lane.take_failure()
        self.records_taken += len(records)
        return None if lane is None else (lane, records)

    def collect(self, max_records: int) -> list[Record]:
        """Up to ``max_records``, lane after lane; [] where no lane has any (see ``caught_up``)."""
        return self.collect_as(self._as_records, max_records)

    def collect_as(self, form: Form[Taken], max_records: int) -> Taken:
        """The same in another form."""
        self._round += 1
        collected = form.nothing()
        while len(collected) < max_records and not form.is_full(collected):
            lane, chunk = self._next_turn(form, max_records - len(collected))
            if lane is None:
                break
            if not chunk and collected:
                self._busy.rotate(1)  # it raises first thing in the next call
                break
            if not chunk:
                raise lane.take_failure()
            if collected:
                collected.extend(chunk)
            else:
                collected = chunk
        self.records_taken += len(collected)
        return collected

    def commit(self) -> None:
        """The application has what was handed out until now: ``undo`` will not reach behind this."""
        self._undo.clear()
        self._records_committed = self.records_taken

    def undo(self) -> None:
        """Put every position back to where it was at the last ``commit``."""
        while self._undo:
            lane, position = self._undo[-1]
            lane.move_to(position)
            self._undo.pop()
        self.records_taken = self._records_committed
        self._budget.count_again()
        self._busy, self._quiet, self._blocked = deque(self.lanes.values()), deque(), deque()

    def changed(self) -> bool:
        """True where a partition that had nothing more to read may have something now."""
        try:
            for lane in self.lanes.values():
                if not lane.paused and (lane.partition is None or lane.partition.change_token() != lane.quiet_token):
                    return True
        except own(Closed, TopicNotFound, CorruptSegment):  # the directory is missing: the next read says so
            return True
        return False

    def _next_turn(self, form: Form[Taken], max_records: int) -> tuple[Lane | None, Taken]:
        """The next lane with records, or with a failure and no records; None after a round without either.

        With each turn one of the quiet lanes is asked as well, and all of them if no other lane has anything: to ask a thousand
        lanes takes longer than to decode what one of them has.
        """
        self.caught_up = True
        self._turn += 1
        busy, quiet = self._busy, self._quiet
        while True:
            admitted = self._admit()
            for _ in range(len(busy)):
                lane = busy[0]
                busy.rotate(-1)
                if lane.paused or lane.idle_round == self._round:
                    continue
                if self._blocked and lane is not admitted and lane.is_waiting:
                    self.caught_up = False
                    self._leave(self._blocked, lane)
                    continue
                chunk = self._serve(lane, form, max_records)
                if lane.quiet_token is not None and lane.is_drained:
                    lane.idle_round = self._round
                else:
                    self.caught_up = False
                if chunk or lane.failure is not None:
                    return lane, chunk
                self._put_off(lane)
            if self._blocked and self._has_room():
                continue
            if not quiet or quiet[0].quiet_turn == self._turn:
                break
            while quiet and quiet[0].quiet_turn != self._turn:
                busy.append(quiet.popleft())
        if not self.caught_up:  # for want of room
            self._budget.count_again()
        return None, form.nothing()

    def _admit(self) -> Lane | None:
        """If there is room now, take the first of the blocked lanes to the front, and the first of the quiet ones to the end."""
        admitted = None
        if self._blocked and self._has_room():
            admitted = self._blocked.popleft()
            self._busy.appendleft(admitted)
        if self._quiet and self._quiet[0].quiet_turn != self._turn and self._has_room():
            self._busy.append(self._quiet.popleft())
        return admitted

    def _put_off(self, lane: Lane) -> None:
        """The lane gave nothing: is there nothing more, or no room?"""
        if lane.idle_round == self._round:
            lane.quiet_turn = self._turn
            self._leave(self._quiet, lane)
        elif lane.is_waiting and not self._has_room():
            self._leave(self._blocked, lane)

    def _leave(self, line: deque[Lane], lane: Lane) -> None:
        """The lane, which stands last among the busy, goes to the end of this line."""
        line.append(lane)
        self._busy.pop()

    def _has_room(self) -> bool:
        return self._budget.allows_fetch(self._fetch_bytes)

    def _serve(self, lane: Lane, form: Form[Taken], max_records: int) -> Taken:
        """What the lane has buffered, else what one fetch brings."""
        if lane.form is not form:
            self._undo.append((lane, lane.position))
            lane.change_form(form)
        try:
            if lane.is_drained and lane.failure is None and not self._fetch(lane):
                return form.nothing()
        except own(Closed):
            lane.forget_partition()  # with its topic, or the whole log: whoever opens it again will be told
        except own(PylogError) as error:
            lane.failure = self._located(error, lane)
        self._undo.append((lane, lane.position))
        return lane.take(form, max_records)

    # Reading the log

    def _fetch(self, lane: Lane) -> bool:
        """Read ahead; True if that brought something to take."""
        if lane.position is None:
            raise no_position(lane.topic_partition)
        if lane.partition is None:
            lane.partition = self._lookup.partition(lane.topic_partition)
        partition = lane.partition
        if not self._has_room():
            if lane.quiet_token is not None and partition.change_token() != lane.quiet_token:
                lane.quiet_token = None
            return False
        quiet_token, lane.quiet_token = lane.quiet_token, None
        try:
            fetched = partition.fetch(
                lane.cursor,
                max_bytes=self._fetch_bytes,
                isolation_level=self._config.isolation_level,
                visibility=self._config.visibility,
                quiet_token=quiet_token,
            )
        except own(OffsetOutOfRange) as error:
            self._reset_position(lane, partition, error)
            return False
        if quiet_token is not None and fetched.token == quiet_token:
            lane.quiet_token = quiet_token
            return False
        self.fetches += 1
        self.fetched_bytes += sum(view.header.size_bytes for view in fetched.batches)
        self._undo.append((lane, lane.position))
        moved = lane.fill(fetched)
        if fetched.cursor.offset >= fetched.end_offset or not moved:
            lane.quiet_token = fetched.token
        return bool(fetched.batches)

    def _reset_position(self, lane: Lane, partition: PartitionLog, error: OffsetOutOfRange) -> None:
        """Apply ``auto_offset_reset`` to a position that is not in the log (any more)."""
        position = self.start_position(partition)
        if position is None or position == lane.position:
            raise error
        logger.warning(
            "%s: position %s is out of range (%s); auto_offset_reset=%s moves it to %d",
            name_of(lane.topic_partition), lane.position, error, self._config.auto_offset_reset, position,
        )  # fmt: skip
        self.resets += 1
        lane.move_to(position)

    def _located(self, error: PylogError, lane: Lane) -> PylogError:
        """``error`` with the partition and position it happened at among its facts."""
        error.facts.setdefault("topic", lane.topic_partition.topic)
        error.facts.setdefault("partition", lane.topic_partition.partition)
        error.facts.setdefault("offset", lane.position)
        return error
