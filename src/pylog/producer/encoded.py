"""Sends batches that are encoded already, in transactions: Spark's tasks encode, the driver sends.

Only their headers are written again: producer, epoch, sequence, and that they are transactional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from pylog.codec.batch import read_header, write_header
from pylog.codec.format import MAX_SEQUENCE, TRANSACTIONAL_BIT
from pylog.errors import PylogError
from pylog.interrupts import own
from pylog.manager.manager import LogManager
from pylog.model import Offsets, TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import Outcome
from pylog.producer.batch import NO_IDENTITY, ProducerBatch, ProducerIdentity
from pylog.producer.config import ProducerConfig
from pylog.producer.sync_threads import SyncThreads
from pylog.producer.transactions import ProducerTransactions
from pylog.storage import same_process
from pylog.transaction.outcomes import Outcomes

APPENDS_AT_ONCE = 4
"""Each has a batch in memory. Checksums, reads and writes of several threads use several cores."""

LARGE_BYTES = 4 << 20
"""One thread appends less: a small micro-batch starts no threads."""

Batches = Mapping[PartitionLog, Iterable[tuple[bytearray, int]]]
"""The batches for each partition, in order, with the least timestamp of each."""


@dataclass
class _Batch:
    identity: ProducerIdentity
    topic_partition: TopicPartition
    min_timestamp_ms: int | None


class EncodedProducer:
    """A transactional producer for one thread. After an error only ``close`` can follow, which
    aborts."""

    def __init__(self, manager: LogManager, transactional_id: str, timeout_ms: int) -> None:
        """Take the id over, as ``Producer.init_transactions`` does. An earlier owner is fenced."""
        self.timeout_ms = timeout_ms
        self._manager = manager
        config = ProducerConfig(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        self._transactions = ProducerTransactions(manager, config, _gate)
        self._threads = SyncThreads(APPENDS_AT_ONCE - 1)
        self._sequences: dict[TopicPartition, int] = {}
        self._identity = NO_IDENTITY
        self._transactions.init(_NOTHING_BUFFERED)

    def is_owner(self) -> bool:
        """Whether no other producer has taken the id over. After a commit."""
        try:
            self._transactions.begin(_NOTHING_BUFFERED)
            self._transactions.commit(_NOTHING_BUFFERED)
        except own(PylogError, FileNotFoundError):
            return False
        return True

    def begin(self) -> None:
        self._sequences.clear()
        self._identity = NO_IDENTITY
        self._transactions.begin(_NOTHING_BUFFERED)

    def append(self, batches: Batches, timeout_ms: int, size_bytes: int) -> None:
        """Append batches without a producer, of ``size_bytes`` together. Their headers were
        checked.

        If they are large, several partitions at once; each in order. What a thread has appended it
        syncs, while others append. Raises an error of one of them, as ``PartitionLog.append_batch``
        and ``sync``.
        """
        self._identity = self._transactions.identity()  # first of all: a fenced producer's batches may be gone
        errors: list[Exception] = []
        is_large = size_bytes >= LARGE_BYTES
        calls = [partial(self._append_all, log, some, timeout_ms, errors, is_large) for log, some in batches.items()]
        if is_large and calls:
            filesystem = next(iter(batches)).directory.filesystem
            self._threads.run(calls, same_process(filesystem, "batches were being appended"))
        else:
            for call in calls:
                call()
        if errors:
            raise errors[0]

    def _append_all(
        self,
        log: PartitionLog,
        batches: Iterable[tuple[bytearray, int]],
        timeout_ms: int,
        errors: list[Exception],
        is_synced: bool,
    ) -> None:
        """An error in ``errors`` ends all of these calls: nothing is appended after ``append`` has
        raised it."""
        try:
            end_offset = 0
            for batch, least_ms in batches:
                if errors:
                    return
                end_offset = self._append(log, batch, least_ms, timeout_ms)
            if is_synced:
                log.sync(end_offset)
        except own(Exception) as error:  # of any kind: ``append`` raises it
            errors.append(error)

    def _append(self, partition: PartitionLog, batch: bytearray, min_timestamp_ms: int, timeout_ms: int) -> int:
        """Returns the offset after the batch."""
        name, header = partition.topic_partition, read_header(batch)
        sequence = self._sequences.get(name, 0)
        write_header(
            batch, header.attributes | TRANSACTIONAL_BIT, header.count, header.base_timestamp_ms, header.max_timestamp_ms,
            self._identity.id, self._identity.epoch, sequence,
        )  # fmt: skip
        written = _Batch(self._identity, name, min_timestamp_ms)
        result = self._transactions.append(written, batch, partition, timeout_ms)
        self._sequences[name] = sequence + header.count & MAX_SEQUENCE
        return result.last_offset + 1

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        self._transactions.send_offsets(offsets, group, _NOTHING_BUFFERED)

    def commit(self) -> None:
        """See ``Producer.commit_transaction``."""
        self._transactions.commit(_NOTHING_BUFFERED)

    def close(self) -> None:
        """Abort what is open, and give the id back. Calling it twice is allowed."""
        self._threads.close()
        self._transactions.close(_NOTHING_BUFFERED)

    def outcome(self) -> Outcome:
        """After ``close``: how the transaction ended. UNDECIDED if the disk still refuses the
        decision."""
        if self._identity is NO_IDENTITY:
            return Outcome.ABORTED
        return self._manager.part(Outcomes).outcome(self._identity.id, self._identity.epoch)


def _gate(is_open: bool) -> None:
    """Nothing else sends records."""


class _NothingBuffered:
    """In the place of a producer's sender."""

    def flush(self, timeout_s: float | None) -> bool:
        return True

    def flush_rest(self) -> None:
        pass

    def is_waited_for(self) -> bool:
        return False

    def give_up(self, reason: object = None, wait_s: float = 0.0) -> None:
        pass

    def forget_identity(self) -> None:
        pass

    def unsent_batches(self) -> list[ProducerBatch]:
        return []


_NOTHING_BUFFERED = _NothingBuffered()
