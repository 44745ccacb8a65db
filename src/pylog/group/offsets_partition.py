"""One partition of ``__consumer_offsets``, and what was read of it. No input or output.

All groups share the partitions of the topic. So they are read up to the log's end, and offsets in
open transactions are kept aside (``pending_offsets.py``): a transaction of one group does not hide
the later commits of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pylog.checks import OFFSETS_TOPIC
from pylog.codec.batch import BatchView
from pylog.codec.control import ControlType, read_marker
from pylog.errors import CorruptRecord
from pylog.group.offset_records import Committed, decode_key, decode_value, encode_key, encode_value
from pylog.group.pending_offsets import PendingOffset, PendingOffsets, Transaction
from pylog.interrupts import own
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import TopicPartition
from pylog.storage import LOCK_TIMEOUT_S

if TYPE_CHECKING:
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.group")

Offsets = dict[TopicPartition, Committed]


class OffsetsPartition:
    """One partition of ``__consumer_offsets``, and the cache of its commits."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.next_offset = 0  # the first record that is not in the cache
        self.checkpoint_offset = 0
        self.end_offset = 0  # after the last commit of this process
        self.known_offset = 0  # records before it may be missing: the cache was empty before them
        self.is_new = True
        self.token: object = None
        self.groups: dict[str, Offsets] = {}
        self.pending = PendingOffsets()

    def has_lost(self, batches: Sequence[BatchView], end_offset: int) -> bool:
        """Whether records from ``next_offset`` to here were compacted away before they were read. A
        tombstone may be among them, of an offset that is in the cache."""
        if end_offset <= self.known_offset:
            return False
        expected = self.next_offset
        for view in batches:
            header = view.header
            if header.base_offset > expected or header.count <= header.last_offset - header.base_offset:
                return True
            expected = header.last_offset + 1
        return expected < end_offset

    def take(self, view: BatchView) -> None:
        """Apply one batch of the log, from ``next_offset`` on."""
        header = view.header
        if header.is_control:
            self._end_transactions(view)
            return
        transaction = (header.producer_id, header.producer_epoch) if header.is_transactional else None
        decoder = view.decoder(OFFSETS_TOPIC, self.log.number)
        decoder.skip_to(self.next_offset)
        while records := decoder.take(RECORDS_AT_ONCE):
            for record in records:
                self.apply(record.key, record.value, record.offset, transaction)

    def _end_transactions(self, view: BatchView) -> None:
        header = view.header
        ended = self.pending.of_producer(header.producer_id, header.producer_epoch)
        if not ended or header.count == 0:
            return
        kind = read_marker(view).type  # the reader of the segment has refused what is no marker
        for transaction in ended if kind in (ControlType.COMMIT, ControlType.ABORT) else ():
            self.end(transaction, committed=kind is ControlType.COMMIT)

    def end(self, transaction: Transaction, *, committed: bool) -> None:
        """This transaction is decided: its offsets count now, or never."""
        offsets = self.pending.end(transaction)
        for (group, partition), pending in offsets.items() if committed else ():
            self.pending.supersede((group, partition), pending.at)
            self._put(group, partition, pending.committed)

    def apply(
        self, key: bytes | None, value: bytes | None, at: int = -1, transaction: Transaction | None = None
    ) -> None:
        """Apply one record of the log, at this offset. An unreadable record is skipped, with a
        warning."""
        try:
            name = None if key is None else decode_key(key)
            committed = None if name is None or value is None else decode_value(value)
        except own(CorruptRecord) as damage:
            logger.warning("a record of %s is skipped: %s", OFFSETS_TOPIC, damage)
            return
        if name is None:
            return
        if transaction is not None:
            self.pending.add(transaction, name, PendingOffset(at, committed))
            return
        self.pending.supersede(name, at)
        self._put(*name, committed)

    def _put(self, group: str, partition: TopicPartition, committed: Committed | None) -> None:
        if committed is not None:
            self.groups.setdefault(group, {})[partition] = committed
        elif group in self.groups:
            self.groups[group].pop(partition, None)
            if not self.groups[group]:
                del self.groups[group]

    def in_topic(self, topic: str) -> dict[str, Offsets]:
        """The commits in this topic by group; {} for a group that has only pending ones there."""
        found: dict[str, Offsets] = {group: {} for group, name in self.pending.names() if name.topic == topic}
        for group, offsets in self.groups.items():
            there = {name: committed for name, committed in offsets.items() if name.topic == topic}
            if there:
                found[group] = there
        return found

    def entries(self) -> list[tuple[bytes, bytes]]:
        return [
            (encode_key(group, partition), encode_value(committed))
            for group, offsets in self.groups.items()
            for partition, committed in offsets.items()
        ]


class Appended(NamedTuple):
    """A visible commit: its partition of the offsets topic, and the offset after it there."""

    partition: OffsetsPartition
    end_offset: int

    def sync(self, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        """Return when it is durable. ``timeout_s``: as in ``PartitionLog.sync``."""
        self.partition.log.sync(self.end_offset, int(timeout_s * 1000))


class EncodedOffsets(NamedTuple):
    """Offsets as one batch without a producer, and the partition of the offsets topic for it."""

    partition: OffsetsPartition
    batch: bytearray
    min_timestamp_ms: int
    records: int


class Look(NamedTuple):
    """The committed offsets of a group. Those of ``undecided`` partitions may change with a
    decision about a transaction that is under way."""

    offsets: Offsets
    undecided: frozenset[TopicPartition]
