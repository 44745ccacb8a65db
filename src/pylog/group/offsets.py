"""Committed offsets: appended to ``__consumer_offsets``, and cached in memory.

The log is the truth. A process caches the last commit of each group and partition. It reads on from
where it stopped, or from a checkpoint if it is far behind. A process that has appended enough since
the last checkpoint writes the next: loading does not take longer with more commits.
"""

from __future__ import annotations

import logging
import threading  # consumers of several threads share the cache
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pylog.catalog import TopicConfig, TopicDescription
from pylog.errors import (
    CorruptRecord,
    CorruptSegment,
    DeliveryTimeout,
    LogLocked,
    OffsetOutOfRange,
    OutcomeUnknown,
    StorageError,
    TopicNotFound,
)
from pylog.group.lock import LOCK_TIMEOUT_S
from pylog.group.offset_records import (
    OFFSETS_TOPIC,
    Committed,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from pylog.group.offsets_checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES, RECORDS_AT_ONCE
from pylog.model import ProducerRecord, TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.reader import Cursor
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.storage import after_fork_in_child, while_holding

if TYPE_CHECKING:
    from pylog.manager.manager import LogManager

logger = logging.getLogger("pylog.group")

CHECKPOINT_RECORDS = 10_000
_FAR_RECORDS = 4 * CHECKPOINT_RECORDS

_CONFIG = TopicConfig()._asdict()  # independent of the log's defaults

Offsets = dict[TopicPartition, Committed]


class _Known:
    """The cache of one partition of the offsets topic."""

    def __init__(self, partition: PartitionLog) -> None:
        self.partition = partition
        self.cursor = Cursor(0)
        self.checkpoint_offset = 0
        self.end_offset = 0  # after the last commit of this process
        self.is_new = True
        self.token: object = None
        self.groups: dict[str, Offsets] = {}

    def take_in(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the log. An unreadable record is skipped, with a warning."""
        try:
            name = None if key is None else decode_key(key)
            committed = None if name is None or value is None else decode_value(value)
        except own(CorruptRecord) as damage:
            logger.warning("a record of %s is passed over: %s", OFFSETS_TOPIC, damage)
            return
        if name is None:
            return
        group, partition = name
        if committed is not None:
            self.groups.setdefault(group, {})[partition] = committed
        elif group in self.groups:
            self.groups[group].pop(partition, None)
            if not self.groups[group]:
                del self.groups[group]

    def entries(self) -> list[tuple[bytes, bytes]]:
        return [
            (encode_key(group, partition), encode_value(committed))
            for group, offsets in self.groups.items()
            for partition, committed in offsets.items()
        ]


class OffsetStore:
    """The committed offsets of one log. Safe to share among threads."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._filesystem = manager.filesystem
        self._layout = manager.layout
        self._known: dict[int, _Known] = {}
        self._lock = threading.RLock()
        after_fork_in_child(self._forget_parent)

    def _forget_parent(self) -> None:
        self._lock = threading.RLock()
        self._known = {}  # a thread of the parent may have been changing it

    # Reading

    def committed(self, group: str) -> Offsets:
        """Return what the group has committed, by partition; {} if nothing."""
        known = self._known_of(group)
        if known is None:
            return {}
        with self._lock:
            self._catch_up(known)
            return dict(known.groups.get(group, {}))

    def groups(self) -> set[str]:
        """Return every group that has committed offsets."""
        found: set[str] = set()
        topic = self._topic()
        if topic is not None:
            for number in topic.numbers:
                self._add_groups(self._at(number, topic.id), found)
        return found

    def _add_groups(self, known: _Known, found: set[str]) -> None:
        with self._lock:
            self._catch_up(known)
            found.update(known.groups)

    def groups_in(self, topic: str) -> set[str]:
        """Return every group that has committed offsets in a topic of this name."""
        return {group for group in self.groups() if any(name.topic == topic for name in self.committed(group))}

    def _topic(self) -> TopicDescription | None:
        try:
            return self._manager.describe_topic(OFFSETS_TOPIC)
        except own(TopicNotFound):
            return None

    def _known_of(self, group: str) -> _Known | None:
        topic = self._topic()
        return None if topic is None else self._at(partition_of_group(group, topic.partitions), topic.id)

    def _at(self, number: int, topic_id: str) -> _Known:
        known = self._known.get(number)
        if known is None or known.partition.topic_id != topic_id:
            known = self._known[number] = _Known(self._manager.partition(OFFSETS_TOPIC, number))
        return known

    def _catch_up(self, known: _Known) -> None:
        """Read the commits since the last call."""
        token = known.partition.change_token()
        if token == known.token:
            return
        if known.is_new or known.partition.latest_offset - known.cursor.offset > _FAR_RECORDS:
            self._start_from_checkpoint(known)
        while True:
            try:
                fetched = known.partition.fetch(
                    known.cursor, max_bytes=FETCH_BYTES, isolation_level=READ_COMMITTED, visibility=WRITTEN
                )
            except own(OffsetOutOfRange) as error:
                if known.cursor.offset == error.earliest:
                    raise
                known.cursor = Cursor(error.earliest)
                continue
            for view in fetched.batches:
                decoder = view.decoder(OFFSETS_TOPIC, known.partition.number)
                while records := decoder.take(RECORDS_AT_ONCE):
                    for record in records:
                        if record.offset >= known.cursor.offset:
                            known.take_in(record.key, record.value)
            if fetched.cursor.offset <= known.cursor.offset:
                break
            known.cursor = fetched.cursor
        known.token = token

    def _start_from_checkpoint(self, known: _Known) -> None:
        path = self._layout.offsets_checkpoint(known.partition.number)
        checkpoint = None
        try:
            checkpoint = read_checkpoint(self._filesystem, path)
        except own(CorruptSegment, StorageError) as damage:
            logger.warning("%s; reading all of %s instead", damage, OFFSETS_TOPIC)
        known.is_new = False
        if (
            checkpoint is not None
            and checkpoint.topic_id == known.partition.topic_id
            and known.cursor.offset < checkpoint.next_offset <= known.partition.latest_offset
        ):
            known.groups = {}
            for key, value in checkpoint.entries:
                known.take_in(key, value)
            known.cursor, known.checkpoint_offset = Cursor(checkpoint.next_offset), checkpoint.next_offset

    # Writing

    def make_topic(self) -> None:
        """Create the topic if it is missing, before the group's lock is taken: a deleter of a topic
        holds the catalog's lock, which creation needs, while it waits for groups' locks."""
        if self._topic() is None:
            self._manager.create_topic(OFFSETS_TOPIC, 1, _CONFIG, if_not_exists=True, internal=True)

    def append(
        self,
        group: str,
        offsets: Mapping[TopicPartition, Committed | None],
        check_held: Callable[[], object] = bool,
        timeout_s: float = LOCK_TIMEOUT_S,
    ) -> int:
        """Commit these offsets, None to remove one: all or none. Visible on return; ``sync`` makes
        them durable.

        Returns the end of the log of commits, 0 if nothing was appended: commits in a deleted topic
        are left out, since its deleter has appended tombstones, or waits for the group's lock to do
        so. The caller holds that lock, which ``check_held`` verifies, and has checked that the
        commit is allowed. Raises as ``Partition.append``.
        """
        offsets = self._of_topics_there(offsets)
        if not offsets:
            return 0
        known = self._known_of(group)
        if known is None:
            self.make_topic()
            return self.append(group, offsets, check_held, timeout_s)
        records = [
            ProducerRecord(None if committed is None else encode_value(committed), encode_key(group, name))
            for name, committed in offsets.items()
        ]
        check_held()
        try:
            end = known.partition.append_records(records, timeout_ms=int(timeout_s * 1000)).last_offset + 1
        except own(DeliveryTimeout) as error:
            raise LogLocked(f"{error}; a process of another group may be stopped", **error.facts) from error
        known.end_offset = end
        return end

    def _of_topics_there(
        self, offsets: Mapping[TopicPartition, Committed | None]
    ) -> dict[TopicPartition, Committed | None]:
        """Leave out commits in topics that were deleted, or deleted and created again."""
        ids: dict[str, str] = {}
        for topic in {name.topic for name, committed in offsets.items() if committed is not None}:
            try:
                ids[topic] = self._manager.describe_topic(topic).id
            except own(TopicNotFound):
                continue
        return {
            name: committed
            for name, committed in offsets.items()
            if committed is None or (name.topic in ids and committed.topic_id in ("", ids[name.topic]))
        }

    def settle(self, group: str, timeout_s: float) -> None:
        """Decide finally whether a commit cut off by its process's death counts. ``LogLocked``.

        Else the next commit, of a member that continued from the one before, would bring it back.
        """
        known = self._known_of(group)
        if known is not None:
            try:
                known.partition.settle(int(timeout_s * 1000))
            except own(DeliveryTimeout) as error:
                raise LogLocked(f"{error}; a process of another group may be stopped", **error.facts) from error

    def sync(self, group: str, end_offset: int | None = None, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        """Return when commits of the group before this offset of its log, or all, are on the disk.
        ``timeout_s``: as in ``PartitionLog.sync``."""
        known = self._known_of(group)
        if known is not None:
            end_offset = known.partition.latest_offset if end_offset is None else end_offset
            known.partition.sync(end_offset, int(timeout_s * 1000))

    def tidy(self, group: str, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        """Write a checkpoint, if many commits came since the last one.

        For a process that has committed; it holds no group's lock. ``timeout_s``: as in ``sync``.
        """
        known = self._known_of(group)
        if known is None:
            return
        behind = known.end_offset - known.checkpoint_offset
        if behind < CHECKPOINT_RECORDS or behind < sum(map(len, known.groups.values())):
            return
        with self._lock:
            self._catch_up(known)
            entries, next_offset = known.entries(), known.cursor.offset
        path = self._layout.offsets_checkpoint(known.partition.number)
        checkpoint = Checkpoint(known.partition.topic_id, next_offset, entries)
        try:
            known.partition.sync(next_offset, int(timeout_s * 1000))
            while_holding(
                self._filesystem,
                self._manager.clock,
                f"{path}.lock",
                lambda: self._write(path, checkpoint),
                timeout_s=0,
            )
        except own(LogLocked):
            pass  # another process writes one
        except own(StorageError, OutcomeUnknown) as error:
            logger.warning("no checkpoint of committed offsets: %s", error)
        known.checkpoint_offset = next_offset

    def _write(self, path: str, checkpoint: Checkpoint) -> None:
        try:
            there = read_checkpoint(self._filesystem, path)
        except own(CorruptSegment, StorageError):  # for example a FIFO: it is replaced
            there = None
        if there is None or there.topic_id != checkpoint.topic_id or there.next_offset < checkpoint.next_offset:
            write_checkpoint(self._filesystem, path, checkpoint)
