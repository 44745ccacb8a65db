"""Reads a topic into a store: each partition from its position to its end.

A store is at each position what a scan of the log up to there would give. So it begins again:

- wholly, if the topic was deleted and created again;
- with a partition, if a power failure has removed records that were read (their leader epoch ended
  before the position), or if compaction has dropped tombstones that the store may need;
- without the entries before the log start, if that has moved.

A store needs the tombstones from its position on: it may have older records of their keys. But it
needs none that were compacted before it began with the partition: then their keys had no older
record any more. Compaction says up to which offset it has dropped tombstones, and says so before
readers can miss them. So the follower asks after each read. No clock and no option of the topic
counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from pylog.codec.batch import BatchView
from pylog.codec.format import INT64_MAX
from pylog.errors import Closed, CorruptRecord, CorruptSegment, FormatVersionError, OffsetOutOfRange, TopicNotFound
from pylog.interrupts import own
from pylog.limits import DECODE_RECORDS_MAX
from pylog.model import Record, TopicPartition
from pylog.partition.cleaner_checkpoint import read_cleaned
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.visibility import READ_UNCOMMITTED, WRITTEN
from pylog.tables.own_records import History
from pylog.tables.store import Entry, Position, Store

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.manager.manager import LogManager
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.tables")

_FETCH_BYTES = 4 << 20  # RocksDB takes many changes at once faster, and a hot key costs one change
_DECODED_BYTES = 8 << 20  # of compressed batches, before the store gets them: limits the memory
_VALUE_BYTES = 4_096
_ATTEMPTS_MAX = 5
_KEY = itemgetter(4)


class FollowedPartition:
    """One partition: its handle, where to read next, and the change token of its end."""

    __slots__ = ("cursor", "dropped_to", "partition", "quiet_token", "segments_version")

    def __init__(self, partition: PartitionLog) -> None:
        self.partition = partition
        self.cursor = Cursor(-1)
        self.dropped_to = 0  # as the checkpoint said when the store began with the partition, in this process
        self.quiet_token: object = None  # None: there may be something to read
        self.segments_version = -1  # up to this one, compaction has dropped no tombstone that the store needs


class Follower:
    """Not thread-safe, except ``is_current`` and ``value``."""

    def __init__(self, manager: LogManager, topic: str, store: Store, isolation_level: str, kept: str) -> None:
        self._manager = manager
        self._topic = topic
        self._store = store
        self._isolation_level = isolation_level
        self._kept = kept
        self._described: TopicDescription | None = None
        self.partitions: dict[int, FollowedPartition] = {}
        self.records = 0
        self.records_without_key = 0
        self.resets = 0
        self.refills = 0  # odd while the store, which was emptied, is filled again

    # Following

    def is_current(self) -> bool:
        """Whether nothing was published since ``catch_up`` returned."""
        if self._manager.describe_topic(self._topic) is not self._described:
            return False
        for each in list(self.partitions.values()):
            token = each.quiet_token
            if token is None or each.partition.change_token() != token:
                return False
        return True

    def catch_up(self) -> int:
        """Read all partitions to the ends they have now. Returns the number of records."""
        try:
            return self._catch_up()
        except own(Closed, TopicNotFound):  # a handle of a topic that was deleted, and perhaps created again
            self._described = None
            return self._catch_up()

    def _catch_up(self) -> int:
        described = self._manager.describe_topic(self._topic)
        if described is not self._described:
            self._open(described)
        before = self.records
        for number, each in self.partitions.items():
            self._read(number, each)
        self.refills += self.refills & 1
        return self.records - before

    def _open(self, described: TopicDescription) -> None:
        identity = self._identity(described)
        if self._store.identity != identity:
            if self._store.identity:
                logger.warning(
                    "%s: the table begins again: it was %r, now %r", self._topic, self._store.identity, identity
                )
                self._begin_refill()
            self._store.begin(identity)
        self.partitions = {
            number: FollowedPartition(self._manager.partition(self._topic, number)) for number in described.numbers
        }
        self._described = described

    def _identity(self, described: TopicDescription) -> str:
        return f"{described.id} {self._isolation_level} {self._kept}"

    def _read(self, number: int, each: FollowedPartition) -> None:
        token = each.partition.change_token()  # before the state: it belongs to this state, or an earlier one
        if token == each.quiet_token:
            return
        each.quiet_token = None
        attempts = 0
        while attempts < _ATTEMPTS_MAX:
            before = each.cursor
            try:
                is_at_end = self._read_once(number, each)
            except own(OffsetOutOfRange):  # the log start has moved since
                attempts = attempts + 1 if each.cursor is before else 0
                continue
            if is_at_end is None:
                attempts += 1
                continue
            if is_at_end and each.partition.change_token() == token:
                each.quiet_token = token
            return
        raise _moves_on(self._topic, number)

    def _read_once(self, number: int, each: FollowedPartition) -> bool | None:
        """Read to the end. Returns whether more can come only with a change of the partition; None
        if the store has begun again with it."""
        state = each.partition.current()
        position = self._position(number, each, state)
        cursor = each.cursor if each.cursor.offset == position.offset else Cursor(position.offset)
        end: int | None = None
        while True:
            fetched = each.partition.fetch(
                cursor, max_bytes=_FETCH_BYTES, isolation_level=self._isolation_level, visibility=WRITTEN
            )
            if self._lacks_tombstones(each, position):
                self._begin_again(number, each, "compaction has dropped tombstones that it had not read")
                return None
            end = fetched.end_offset if end is None else end
            position = Position(fetched.cursor.offset, state.leader_epoch, state.log_start_offset, position.clean_to)
            newest = self._newest(number, fetched.batches, cursor.offset, position)
            if newest or fetched.cursor.offset != cursor.offset or number not in self._store.positions:
                self._store.apply(number, newest, position)
            has_moved = fetched.cursor.offset > cursor.offset
            cursor = each.cursor = fetched.cursor
            if cursor.offset >= fetched.end_offset or not has_moved:
                if fetched.is_unmarked:
                    each.partition.settle_transactions()
                return not (fetched.is_blocked or fetched.is_unmarked)
            if cursor.offset >= end:
                return False

    def _newest(self, number: int, views: list[BatchView], start: int, position: Position) -> dict[bytes, Record]:
        """The last record of each key. Records without a key are of no table.

        If the batches have many bytes when decompressed, the store gets those of the first ones
        here.
        """
        newest: dict[bytes | None, Record] = {}
        size_bytes = 0
        for view in views:
            if size_bytes > _DECODED_BYTES:
                self._store.apply(number, newest, position._replace(offset=view.base_offset))  # type: ignore[arg-type]
                newest, size_bytes = {}, 0
            try:
                decoder = view.decoder(self._topic, number)
                size_bytes += decoder.size_bytes
                if view.header.base_offset < start:
                    decoder.skip_to(start)
                while records := decoder.take(DECODE_RECORDS_MAX):
                    keys = [*map(_KEY, records)]
                    newest.update(zip(keys, records, strict=True))
                    self.records += len(records)
                    if None in newest:
                        self.records_without_key += keys.count(None)
                        del newest[None]
            except own(CorruptRecord) as error:
                error.facts.update(topic=self._topic, partition=number, offset=max(start, view.base_offset))
                raise
        return newest  # type: ignore[return-value]  # without None

    # Beginning again

    def _begin_refill(self) -> None:
        """Before the store forgets what it has."""
        self.resets += 1
        self.refills |= 1

    def _position(self, number: int, each: FollowedPartition, state: CommitState) -> Position:
        """Where to read on, after the store has forgotten what a scan of the log would not find."""
        position = self._store.positions.get(number)
        start = state.log_start_offset
        if position is None:
            return self._from_start(each, state, state.leader_epoch)
        reason = self._why_lost(position, each, state)
        if reason is not None:
            return self._begin_again(number, each, reason)
        if each.segments_version == -1:  # of an earlier process: the log may have been cut since
            position = position._replace(clean_to=min(position.clean_to, position.offset))
        if position.log_start < start:
            position = position._replace(offset=max(position.offset, start), log_start=start)
            self._store.forget(number, start, position)
        return position

    def _from_start(self, each: FollowedPartition, state: CommitState, leader_epoch: int) -> Position:
        """Of a store that has nothing of the partition. ``state`` is from before."""
        each.segments_version = state.segments_version
        start = state.log_start_offset
        cleaned = read_cleaned(each.partition.directory)
        each.dropped_to = cleaned.dropped_to
        return Position(start, leader_epoch, start, cleaned.first_dirty)

    def _begin_again(self, number: int, each: FollowedPartition, reason: str) -> Position:
        position = self._from_start(each, each.partition.current(), -1)
        logger.warning(
            "%s-%d: the table reads it again from offset %d: %s", self._topic, number, position.offset, reason
        )
        self._begin_refill()
        self._store.forget(number, INT64_MAX, position)
        return position

    def _why_lost(self, position: Position, each: FollowedPartition, state: CommitState) -> str | None:
        partition, end = each.partition, state.high_watermark
        if position.leader_epoch < state.leader_epoch:
            try:
                end = partition.end_of_leader_epoch(position.leader_epoch)
            except own(CorruptSegment, FormatVersionError) as damage:
                return f"it can't be told what a power failure has left: {damage}"
        if position.offset > end:
            return f"records from offset {end} on, which it had read, were lost"
        return None

    def _lacks_tombstones(self, each: FollowedPartition, position: Position) -> bool:
        """Whether compaction has dropped some that the store, which was read up to ``position``,
        needs.

        To be asked after a read from there: what that has not found, the checkpoint tells.
        """
        state = each.partition.current()
        if position.offset >= state.active_base:
            return False  # the active segment was never compacted
        if each.segments_version == state.segments_version:
            return False
        dropped_to = read_cleaned(each.partition.directory).dropped_to
        is_still_unknown = dropped_to == each.dropped_to == INT64_MAX  # each compaction makes it known
        if dropped_to > max(position.offset, position.clean_to) and not is_still_unknown:
            return True
        each.segments_version = state.segments_version
        return False

    # Looking into the log

    def value(self, key: bytes, entry: Entry, partitions: Mapping[int, FollowedPartition]) -> bytes | None:
        """The value of an entry of these partitions, from the log; None if its record, or the
        partition, is not there any more."""
        offset, number, _ = entry
        each = partitions.get(number)
        if each is None:
            return None
        try:
            for fetched in each.partition.reader.fetches(
                offset, offset + 1, max_bytes=_VALUE_BYTES, isolation_level=READ_UNCOMMITTED
            ):
                for view in fetched.batches:
                    decoder = view.decoder(self._topic, number)
                    decoder.skip_to(offset)
                    for record in decoder.take(1):
                        return record[5] if record[2] == offset and record[4] == key else None
        except own(OffsetOutOfRange, Closed, TopicNotFound):  # the latter two: the topic was changed
            pass
        return None

    def history(self, number: int) -> History | None:
        """Of a partition now; None if the topic does not have it."""
        each = self.partitions.get(number)
        return None if each is None else (each.partition.topic_id, each.partition.leader_epoch)

    def follows(self, partition: PartitionLog) -> bool:
        """Whether this partition is one of those that the store was read from."""
        each = self.partitions.get(partition.number)
        return each is not None and each.partition.topic_id == partition.topic_id

    def tokens(self) -> list[object]:
        """A value that differs after something was published. Not of partitions added since."""
        try:
            return [each.partition.change_token() for each in list(self.partitions.values())]
        except own(Closed, TopicNotFound):  # handles of the topic as it was: ``catch_up`` opens it as it is
            return [object()]

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition, of the topic as it is now, has after what the store
        has."""
        described = self._manager.describe_topic(self._topic)
        positions = self._store.positions if self._store.identity == self._identity(described) else {}
        lag = {}
        for number in described.numbers:
            end = self._manager.partition(self._topic, number).end_offset(self._isolation_level, WRITTEN)
            position = positions.get(number)
            lag[TopicPartition(self._topic, number)] = max(0, end - (0 if position is None else position.offset))
        return lag


def _moves_on(topic: str, number: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"{topic}-{number} was compacted, or its log start moved, {_ATTEMPTS_MAX} times while a table read it; read it again",
        topic=topic, partition=number,
    )  # fmt: skip
