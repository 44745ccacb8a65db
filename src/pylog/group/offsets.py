"""Committed offsets: appended to ``__consumer_offsets``, and cached in memory.

The log is the truth. A process caches the last commit of each group and partition. It continues to
read where it stopped, or at a checkpoint if it is far behind. A process that has appended enough
since the last checkpoint writes the next one, so that loading does not take longer with more
commits.
"""

from __future__ import annotations

import logging
import threading  # consumers of several threads share the cache
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from pylog.catalog import TopicDescription
from pylog.catalog.topic import OWN_TOPICS_OPTIONS
from pylog.checks import OFFSETS_TOPIC
from pylog.codec.format import INT64_MAX
from pylog.errors import (
    CorruptSegment,
    DeliveryTimeout,
    LogLocked,
    OffsetOutOfRange,
    OutcomeUnknown,
    RecordTooLarge,
    StorageError,
)
from pylog.group.lock import GroupGrant
from pylog.group.offset_records import Committed, decode_key, encode_key, encode_value, partition_of_group
from pylog.group.offsets_checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from pylog.group.offsets_partition import Appended, EncodedOffsets, Look, Offsets, OffsetsPartition
from pylog.group.ownership import require_unchanged
from pylog.group.pending_offsets import PendingOffsets, Transaction
from pylog.interrupts import own
from pylog.model import ProducerRecord, TopicPartition
from pylog.partition.read.undecided import Outcome
from pylog.partition.read.visibility import WITH_MARKERS
from pylog.partition.write.batch_input import encoded_batch
from pylog.storage import LOCK_TIMEOUT_MS, LOCK_TIMEOUT_S, after_fork_in_child, while_holding

if TYPE_CHECKING:
    from pylog.manager.manager import LogManager
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.group")

CHECKPOINT_RECORDS = 10_000
_FAR_RECORDS = 4 * CHECKPOINT_RECORDS
_WRITTEN_AT_ONCE = 100  # with metadata of 4 KB each, less than a batch


class OffsetStore:
    """The committed offsets of one log. Safe to share among threads."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._filesystem = manager.filesystem
        self._layout = manager.layout
        self._partitions: dict[int, OffsetsPartition] = {}
        self._later: dict[PartitionLog, Callable[[PartitionLog], object]] = {}
        self._lock = threading.RLock()
        after_fork_in_child(self._forget_parent)

    def _forget_parent(self) -> None:
        self._lock = threading.RLock()
        self._partitions, self._later = {}, {}  # a thread of the parent may have been changing them

    # Reading

    def committed(self, group: str) -> Offsets:
        """Return what the group has committed, by partition; {} if nothing."""
        return self.look(group).offsets

    def look(self, group: str) -> Look:
        """Return what the group has committed, and what is not decided yet."""
        partition = self.partition_of(group)
        if partition is None:
            return Look({}, frozenset())
        undecided = self._decide(partition, group)
        with self._lock:
            pending = partition.pending.partitions(group, undecided)
            return Look(dict(partition.groups.get(group, {})), frozenset(pending))

    def partitions(self, group: str, *, only_pending: bool = False) -> set[TopicPartition]:
        """Return every partition of which the log has a pending commit of the group, and unless
        ``only_pending`` those with another one."""
        partition = self.partition_of(group)
        if partition is None:
            return set()
        with self._lock:
            self._catch_up(partition)
            pending = partition.pending.partitions(group)
            return pending if only_pending else partition.groups.get(group, {}).keys() | pending

    def groups(self) -> set[str]:
        """Return every group that has committed offsets."""
        found: set[str] = set()
        for partition in self._all():
            self._decide(partition)
            with self._lock:
                found.update(partition.groups)
        return found

    def groups_in(self, topic: str) -> set[str]:
        """Return every group that has committed offsets in a topic of this name."""
        return {group for group in self.groups() if any(name.topic == topic for name in self.committed(group))}

    def settled_in(self, topic: str) -> dict[str, Offsets]:
        """What each group has committed in a topic of this name, without offsets in transactions
        that have no marker; {} for a group with such offsets alone. Takes no process's lock."""
        found: dict[str, Offsets] = {}
        for partition in self._all():
            with self._lock:
                self._catch_up(partition)
                found.update(partition.in_topic(topic))
        return found

    def _decide(self, partition: OffsetsPartition, group: str | None = None) -> list[Transaction]:
        """Catch up. Returns the transactions under way, with offsets of this group or of any.

        First the records are read, then it is asked how their transactions ended: see
        ``transaction/outcomes.py``. No lock of this process is held meanwhile, since an answer may
        take the time of a sync. After an answer that a transaction is aborted, the log is read
        again: if it was committed and has all its markers, others may have forgotten it.
        """
        with self._lock:
            self._catch_up(partition)
            unmarked = partition.pending.transactions(group)
        outcomes = {transaction: partition.log.outcome(*transaction) for transaction in unmarked}
        if outcomes:
            with self._lock:
                self._end_decided(partition, outcomes)
        return [transaction for transaction, outcome in outcomes.items() if outcome is Outcome.UNDECIDED]

    def _end_decided(self, partition: OffsetsPartition, outcomes: Mapping[Transaction, Outcome]) -> None:
        self._catch_up(partition)
        for transaction, outcome in outcomes.items():
            if outcome is Outcome.COMMITTED:  # and an aborted one waits for its marker
                partition.end(transaction, committed=True)

    def _all(self) -> list[OffsetsPartition]:
        topic = self._topic()
        return [] if topic is None else [self._partition(number, topic) for number in topic.numbers]

    def _topic(self) -> TopicDescription | None:
        return self._manager.existing_topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC)

    def partition_of(self, group: str) -> OffsetsPartition | None:
        """Return the partition that contains the group's commits; None if the topic is missing."""
        topic = self._topic()
        return None if topic is None else self._partition(partition_of_group(group, topic.partitions), topic)

    def _partition(self, number: int, topic: TopicDescription) -> OffsetsPartition:
        partition = self._partitions.get(number)
        if partition is None or partition.log.topic_id != topic.id:
            partition = self._partitions[number] = OffsetsPartition(self._manager.partition(OFFSETS_TOPIC, number))
        return partition

    def _catch_up(self, partition: OffsetsPartition) -> None:
        """Read the commits since the last call."""
        log = partition.log
        token = log.change_token()
        if token == partition.token:
            return
        is_far = log.latest_offset - max(partition.next_offset, partition.known_offset) > _FAR_RECORDS
        if partition.is_new or is_far:
            self._start_from_checkpoint(partition)
        try:
            for fetched in log.reader.fetches(partition.next_offset, INT64_MAX, isolation_level=WITH_MARKERS):
                if partition.has_lost(fetched.batches, fetched.cursor.offset):
                    self._start_again(partition)
                    return
                for view in fetched.batches:
                    partition.take(view)
                partition.next_offset = fetched.cursor.offset
        except own(OffsetOutOfRange) as error:
            if partition.next_offset == error.earliest:
                raise
            partition.next_offset = error.earliest  # earlier commits were deleted
            self._catch_up(partition)
        partition.token = token

    def _start_from_checkpoint(self, partition: OffsetsPartition) -> None:
        path = self._layout.offsets_checkpoint(partition.log.number)
        checkpoint = None
        try:
            checkpoint = read_checkpoint(self._filesystem, path)
        except own(CorruptSegment, StorageError) as damage:
            logger.warning("%s; reading all of %s instead", damage, OFFSETS_TOPIC)
        if partition.is_new:
            partition.known_offset = partition.log.latest_offset
        partition.is_new = False
        if (
            checkpoint is not None
            and checkpoint.topic_id == partition.log.topic_id
            and partition.next_offset < checkpoint.next_offset <= partition.log.latest_offset
        ):
            partition.groups, partition.pending = {}, PendingOffsets()  # what was pending before it is decided
            for key, value in checkpoint.entries:
                partition.apply(key, value)
            partition.next_offset = partition.checkpoint_offset = checkpoint.next_offset
            partition.known_offset = checkpoint.next_offset

    def _start_again(self, partition: OffsetsPartition) -> None:
        """Read all of the log. Tombstones of what is deleted meanwhile stay for
        ``delete_retention_ms``."""
        partition.groups, partition.pending = {}, PendingOffsets()
        partition.next_offset = partition.log.earliest_offset
        partition.known_offset = partition.log.latest_offset
        self._catch_up(partition)

    # Writing

    def create_topic(self, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        """Create the topic if it is missing, before the group's lock is taken: a deleter of a topic
        holds the catalog's lock, which creation needs, while it waits for groups' locks.
        ``LogLocked`` after ``timeout_s``."""
        if self._topic() is None:
            self._manager.create_topic(
                OFFSETS_TOPIC, 1, OWN_TOPICS_OPTIONS, if_not_exists=True, internal=True, timeout_s=timeout_s
            )

    def append(
        self,
        group: str,
        offsets: Mapping[TopicPartition, Committed | None],
        grant: GroupGrant | None,
        left_s: Callable[[], float] = lambda: LOCK_TIMEOUT_S,
        missing: Collection[TopicPartition] = (),
    ) -> Appended | None:
        """Commit these offsets, None to remove one: all or none. Visible on return, not durable.

        Commits in a deleted topic are left out, since its deleter has appended tombstones, or waits
        for the group's lock to do so; None if nothing is left. The caller has checked that the
        commit is allowed. ``grant`` is None for a group that only Kafka can have. ``missing`` and
        ``CommitFailed``: see ``encoded``. ``LogLocked`` after ``left_s()`` seconds; else raises as
        ``PartitionLog.append_batch``.
        """
        encoded = self.encoded(group, offsets, missing)
        if encoded is None:
            return None
        partition, batch, least_ms, _ = encoded
        process_id = self._filesystem.process_id()  # a child forked before it fails the check, later in the append
        if grant is not None:
            grant.check()
        try:
            result = partition.log.append_batch(
                batch, timeout_ms=int(left_s() * 1000), min_timestamp_ms=least_ms, process_id=process_id
            )
        except own(DeliveryTimeout) as error:
            raise _locked(error) from error
        partition.end_offset = result.last_offset + 1
        return Appended(partition, partition.end_offset)

    def remove(
        self, group: str, partitions: Iterable[TopicPartition], grant: GroupGrant | None, left_s: Callable[[], float]
    ) -> Appended | None:
        """Append the tombstones of these commits; None if there are none. Raises as ``append``.

        They are one batch if it takes them: all or none. Else a kill, or an error, between two
        batches leaves the others, which a repeat removes.
        """
        names = list(partitions)
        try:
            return self.append(group, dict.fromkeys(names), grant, left_s)
        except own(RecordTooLarge):
            if len(names) == 1:
                raise
        half = len(names) // 2
        first = self.remove(group, names[:half], grant, left_s)
        return self.remove(group, names[half:], grant, left_s) or first

    def encoded(
        self, group: str, offsets: Mapping[TopicPartition, Committed | None], missing: Collection[TopicPartition] = ()
    ) -> EncodedOffsets | None:
        """The batch to append for a commit, without deleted topics; None if it is empty.
        ``CommitFailed`` if a topic was renamed or repartitioned. ``missing``: those without a topic
        before the lock was taken; ``CommitFailed`` unless it was deleted, since another member may
        own them under another name."""
        if not offsets:
            return None
        topics = self._manager.existing_topics({OFFSETS_TOPIC, *map(attrgetter("topic"), offsets)})
        records, gone = [], {}
        for name, committed in offsets.items():
            topic = topics.get(name.topic)
            if committed is None:
                records.append(ProducerRecord(None, encode_key(group, name)))
            elif topic is not None and committed.topic_id in ("", topic.id) and name not in missing:
                records.append(ProducerRecord(encode_value(committed), encode_key(group, name)))
            else:
                gone[name] = committed.topic_id
        if gone:
            require_unchanged(self._manager, group, gone)
        if not records:
            return None
        topic = topics.get(OFFSETS_TOPIC)
        if topic is None:
            self.create_topic()
            return self.encoded(group, offsets, missing)
        partition = self._partition(partition_of_group(group, topic.partitions), topic)
        batch, least_ms = encoded_batch(records, topic.config.max_message_bytes, self._manager.clock.now_ms())
        return EncodedOffsets(partition, batch, least_ms, len(records))

    def write_as_they_are(self, commits: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records of a topic that cannot be found yet, whose members' commits are refused.
        Durable on return. ``LogLocked`` after 30 s."""
        topic = self._topic() if commits else None
        if topic is None:
            return
        found: dict[int, list[ProducerRecord]] = {}
        for key, value in commits:
            name = decode_key(key)
            if name is not None:
                found.setdefault(partition_of_group(name[0], topic.partitions), []).append(ProducerRecord(value, key))
        for number, records in found.items():
            log = self._partition(number, topic).log
            for start in range(0, len(records), _WRITTEN_AT_ONCE):
                some = records[start : start + _WRITTEN_AT_ONCE]
                batch, least_ms = encoded_batch(some, topic.config.max_message_bytes, self._manager.clock.now_ms())
                try:
                    appended = log.append_batch(batch, min_timestamp_ms=least_ms, timeout_ms=LOCK_TIMEOUT_MS)
                except own(DeliveryTimeout) as error:
                    raise _locked(error) from error
                log.sync(appended.last_offset + 1, LOCK_TIMEOUT_MS)

    def recover_last_commit(self, group: str, timeout_s: float) -> None:
        """Decide finally whether a commit cut off by its process's death counts. ``LogLocked``.
        Else the next commit, of a member that continued from the one before, would bring it
        back."""
        partition = self.partition_of(group)
        if partition is not None:
            try:
                partition.log.settle(int(timeout_s * 1000))
            except own(DeliveryTimeout) as error:
                raise _locked(error) from error

    def settle(self, group: str) -> None:
        """Decide transactions whose producers are dead, or late; not too often."""
        partition = self.partition_of(group)
        if partition is not None:
            partition.log.settle_transactions()

    def all_commits(self, group: str) -> Appended | None:
        """Return the group's commits so far, to be synced; None if the topic is missing."""
        partition = self.partition_of(group)
        return None if partition is None else Appended(partition, partition.log.latest_offset)

    def make_durable(self) -> None:
        """Sync every commit so far. ``OutcomeUnknown``, ``StorageError``."""
        for partition in self._all():
            partition.log.sync(partition.log.latest_offset)

    def after_commit(self, log: PartitionLog, work: Callable[[PartitionLog], object]) -> None:
        """Do this with a partition after the commit that is under way here, which holds locks of
        groups and transactions."""
        self._later[log] = work

    def maintain_if_due(self, partition: OffsetsPartition, left_s: Callable[[], float]) -> None:
        """After a commit, with no group's lock: what was to follow it, and a checkpoint."""
        work = self._later.pop(partition.log, None) if self._later else None
        if work is not None:
            work(partition.log)
        self.checkpoint_if_due(partition, left_s)

    def checkpoint_if_due(self, partition: OffsetsPartition, left_s: Callable[[], float]) -> None:
        """Write a checkpoint, if many commits came since the last one. No group's lock is held."""
        records = partition.end_offset - partition.checkpoint_offset
        if records < CHECKPOINT_RECORDS or records < sum(map(len, partition.groups.values())):
            return
        with self._lock:
            self._catch_up(partition)
            entries, read_offset = partition.entries(), partition.next_offset
            pending_offset = partition.pending.first_offset
        # A checkpoint contains decided offsets only: its readers read the pending ones again, and
        # what is after them.
        next_offset = read_offset if pending_offset is None else min(read_offset, pending_offset)
        path = self._layout.offsets_checkpoint(partition.log.number)
        checkpoint = Checkpoint(partition.log.topic_id, next_offset, entries)
        try:
            partition.log.sync(read_offset, int(left_s() * 1000))
            while_holding(
                self._filesystem,
                self._manager.clock,
                f"{path}.lock",
                partial(write_checkpoint, self._filesystem, path, checkpoint),
                timeout_s=0,
            )
        except own(LogLocked):
            pass  # another process writes one
        except own(StorageError, OutcomeUnknown) as error:
            logger.warning("no checkpoint of committed offsets: %s", error)
        partition.checkpoint_offset = read_offset


def _locked(error: DeliveryTimeout) -> LogLocked:
    return LogLocked(f"{error}; a process of another group may be stopped", **error.facts)
