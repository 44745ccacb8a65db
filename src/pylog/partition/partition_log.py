"""One partition as the library uses it: batches in, batches out, durability, segments, offsets.

Wires the writer, the reader and durability together; has no rule of its own. Producers, consumers,
groups and Spark use it; an application holds a ``Partition``. Safe to share among threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import NamedTuple, Protocol

from pylog.checks import require_whole
from pylog.codec.batch import BatchView
from pylog.errors import (
    LogNotFound,
    NotAppended,
    OffsetOutOfRange,
    OutcomeUnknown,
    PylogError,
    ReadOnlyLog,
    StorageError,
    TopicNotFound,
)
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.model import AppendResult, OffsetAndTimestamp, ProducerRecord
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory, PartitionSettings
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.producers.state import BatchTrace
from pylog.partition.read.published import PublishedView
from pylog.partition.read.reader import PartitionReader
from pylog.partition.read.sync_as_reader import sync_as_reader
from pylog.partition.read.undecided import Outcome
from pylog.partition.write.batch_input import checked_batch, encoded_batch
from pylog.partition.write.durability import Durability
from pylog.partition.write.writer import PartitionWriter
from pylog.segment import SegmentScan
from pylog.segment.naming import COMMIT_SLOTS, LOG

logger = logging.getLogger("pylog.partition")

SETTLING_EVERY_S = 0.2
SETTLING_AFTER_FAILURE_S = 5.0  # a stopped process that holds a lock mostly holds it for longer


class Transactions(Protocol):
    """What a partition asks about the transactions in it. See ``transaction/outcomes.py``."""

    def outcome(self, producer_id: int, epoch: int) -> Outcome:
        """How a transaction ended. If its owner has died or is late, it is aborted first, provided
        that the log may write."""

    def settle(self, partition: PartitionLog) -> object:
        """Write the missing markers of the partition's transactions that are over."""


class _Writing(NamedTuple):
    """What a process has of a partition that it writes to."""

    writer: PartitionWriter
    durability: Durability

    def close(self) -> None:
        self.durability.close()
        self.writer.close()


class PartitionLog:
    """The log of one partition directory."""

    # None until the first change: of a log of many partitions, most are only read. Empty after a
    # close without one.
    _writing: _Writing | tuple[()] | None = None

    def __init__(
        self,
        directory: PartitionDirectory,
        *,
        topic_id: str,
        log_start: int,
        notify: Callable[[], object],
        sync_catalog: Callable[[], None],
        why_read_only: str | None,
        transactions: Callable[[], Transactions] | None = None,
        after_roll: Callable[[PartitionLog], object] | None = None,
    ) -> None:
        """``why_read_only`` marks a directory that is not to be written, and says why.

        ``notify`` is called after each append and each sync, ``after_roll`` by an append after
        which a segment was closed. ``sync_catalog`` makes the way to the directory durable.
        """
        self.directory = directory
        self.topic_partition = directory.topic_partition
        self.topic, self.number = directory.topic_partition
        self.topic_id = topic_id
        self.is_closed = False
        self._notify = notify
        self._transactions = transactions
        self._after_roll = after_roll
        self._next_settling_s = 0.0
        self._sync_catalog = sync_catalog
        self._why_read_only = why_read_only
        self.is_read_only = why_read_only is not None
        recover = None if self.is_read_only else self._recovered
        self.view = PublishedView(directory, log_start=log_start, recover=recover)
        ask_outcome = None if transactions is None else self.outcome
        self.reader = PartitionReader(directory, self.view, ask_outcome)
        # These are the same here as there, and are called for each poll: a method would add a call
        # and nothing else.
        self.current = self.view.current
        self.change_token = self.view.token
        self.fetch = self.reader.fetch
        self.batches = self.reader.batches

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.number} in {self.directory.path!r}>"

    # Writing

    def append_records(
        self,
        records: Iterable[ProducerRecord],
        *,
        expected_offset: int | None,
        timeout_ms: int,
        process_id: int | None,
    ) -> AppendResult:
        """Append records as one batch: all of them or none. Visible on return, not yet synced."""
        settings = self._settings()
        keyed_topic = self.topic if settings.is_compacted else None
        batch, least_ms = encoded_batch(records, settings.max_message_bytes, self.directory.clock.now_ms(), keyed_topic)
        return self.append_batch(
            batch,
            expected_offset=expected_offset,
            timeout_ms=timeout_ms,
            min_timestamp_ms=least_ms,
            process_id=process_id,
        )

    def checked_batch(self, data: bytes | bytearray | memoryview) -> tuple[bytearray, int]:
        """See ``batch_input.checked_batch``."""
        return checked_batch(data, self.topic if self._settings().is_compacted else None)

    def _settings(self) -> PartitionSettings:
        try:
            return self.directory.settings()
        except own(StorageError) as error:
            raise NotAppended(f"nothing was appended: {error}", **error.facts) from error

    def append_batch(
        self,
        batch: bytearray,
        *,
        expected_offset: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        min_timestamp_ms: int | None = None,
        process_id: int | None = None,
        require_ongoing: Callable[[], object] | None = None,
    ) -> AppendResult:
        """Append one batch built by ``pylog.codec``, stamping it in place. Visible on return, not
        yet synced.

        ``min_timestamp_ms`` is what its encoder said, if the caller knows it: lookups by time leave
        out more then. ``process_id`` is of the process that began the caller's work: a child that a
        signal handler forked since gets ``ForkedHandle``. ``require_ongoing`` is called with the
        lock, and raises if the batch's transaction is over. Raises a kind of ``NotAppended``, or
        ``OutcomeUnknown``.
        """
        writer = self.writable()
        result = writer.append(batch, expected_offset, timeout_ms, min_timestamp_ms, process_id, require_ongoing)
        self._notify()
        if writer.has_rolled:
            writer.has_rolled = False
            self._call_after_roll()
        if writer.has_open_transactions():
            self.settle_transactions()
        return result

    def _call_after_roll(self) -> None:
        """A failure does not concern the caller, whose records are in."""
        try:
            if self._after_roll is not None:
                self._after_roll(self)
        except own(PylogError, FileNotFoundError) as error:
            logger.warning("%r: what retention does is left to the next roll: %s", self.directory.path, error)

    def next_sequence(self, producer_id: int, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> int | None:
        """The sequence number that must come next of a producer, None if nothing is known of it.

        So a producer that numbers its batches knows after a crash which of them are in.
        ``DeliveryTimeout`` as for an append.
        """
        return self.writable().next_sequence(producer_id, timeout_ms)

    def last_batches(self, producer_id: int, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> tuple[BatchTrace, ...]:
        """The last batches of a producer that are remembered, oldest first; none if it is
        unknown."""
        return self.writable().last_batches(producer_id, timeout_ms)

    def sync(self, end_offset: int, timeout_ms: int | None = None) -> None:
        """Return when everything below ``end_offset`` is on the disk. ``OutcomeUnknown`` if the
        disk refused.

        For ``timeout_ms`` (default: two minutes) it waits for the partition's lock, to tell others.
        """
        (self._writing or self._begin_writing()).durability.sync(end_offset, timeout_ms)
        self._notify()

    def sync_appended(self, result: AppendResult) -> None:
        """Sync what the caller has just appended. ``OutcomeUnknown`` also if it is not here any
        more."""
        try:
            self.sync(result.last_offset + 1)
        except own(OffsetOutOfRange) as error:
            raise OutcomeUnknown(f"appended, and cut again by a failed sync: {error}", **error.facts) from error
        except own(TopicNotFound, LogNotFound) as error:
            raise OutcomeUnknown(
                f"appended, but before it was synced the topic was renamed (the records are in it then) or deleted: {error}",
                **error.facts,
            ) from error

    def settle(self, timeout_ms: int) -> None:
        """Take in what a writer that died in the middle of an append has left, or cut it: as the
        next append would.

        ``DeliveryTimeout`` if the partition's lock is not free in time; ``StorageError``,
        ``CorruptSegment``.
        """
        self.view.check_open()
        self.writable().recovered(timeout_ms)

    def sync_as_reader(self) -> bool:
        """Make durable what the files contain, without permission to write. False if the disk
        refused, or had refused before."""
        return sync_as_reader(self.directory, self.current())

    def unpublished_batches(self) -> list[BatchView]:
        """Whole batches after the published end: a writer died before it published them, and the
        next one will."""
        state = self.current()
        path = self.directory.file_path(state.active_base, LOG)
        if self.directory.filesystem.size(path) <= state.written_end:
            return []
        with closing(self.directory.filesystem.open_readable(path)) as file:
            scan = SegmentScan(file, state.written_end, file.size(), next_offset=state.log_end_offset, dense=True)
            found = list(scan)
            if not found:
                return []
            ends = [*(position for position, _ in found[1:]), scan.position]
            return [
                BatchView(file.pread(end - position, position), header)
                for (position, header), end in zip(found, ends, strict=True)
            ]

    # Transactions

    def outcome(self, producer_id: int, epoch: int) -> Outcome:
        """How the transaction of a batch that was just read ended. Without its marker, Kafka's are
        undecided."""
        return Outcome.UNDECIDED if self._transactions is None else self._transactions().outcome(producer_id, epoch)

    def open_transactions(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> list[tuple[int, int, int]]:
        """Producer id, epoch and first offset of every transaction that has no marker here."""
        return self.writable().open_transactions(timeout_ms)

    def append_marker(
        self, producer_id: int, epoch: int, *, committed: bool, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> int | None:
        """End this transaction, if it is open here. Returns the offset after the marker, or None.

        Visible on return, not durable. Raises as ``append_batch``.
        """
        end_offset = self.writable().append_marker(producer_id, epoch, timeout_ms, committed=committed)
        self._notify()
        return end_offset

    def settle_transactions(self) -> None:
        """Write the markers that dead or late owners of transactions have left out; not too often.

        What it can't do now, the next caller does. A failure does not concern the caller.
        """
        now_s = self.directory.clock.monotonic()
        if self.is_read_only or self._transactions is None or now_s < self._next_settling_s:
            return
        self._next_settling_s = now_s + SETTLING_EVERY_S
        try:
            self._transactions().settle(self)
        except own(PylogError) as error:
            self._next_settling_s = now_s + SETTLING_AFTER_FAILURE_S
            logger.warning("%r: open transactions stay open for now: %s", self.directory.path, error)

    def is_syncing_here(self) -> bool:
        """Whether this thread is in the middle of ``sync``: a signal handler, which has interrupted
        it, can't sync."""
        writing = self._writing
        return writing.durability.turn.is_mine() if writing else False

    def roll(self) -> None:
        """Close the active segment and begin a new one, unless it is empty."""
        self.writable().roll(DEFAULT_TIMEOUT_MS)

    def delete_before(
        self, offset: int, allowed: Callable[[CommitState], bool] | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> int:
        """Advance the log start offset, and remove segments that lie wholly before it. Durable on
        return.

        ``allowed`` is called with the partition's lock; if it is false, nothing is done.
        """
        return self.writable().delete_before(require_whole("offset", offset), timeout_ms, allowed)

    def writable(self) -> PartitionWriter:
        """What changes the partition, made at the first call. ``ReadOnlyLog``, ``Closed``."""
        return (self._writing or self._begin_writing()).writer

    def _begin_writing(self) -> _Writing:
        if self.is_read_only:
            path, why = self.directory.path, self._why_read_only
            raise ReadOnlyLog(f"{path} can only be read: {why}", path=path, reason=why)
        writer = PartitionWriter(self.directory)
        made = _Writing(writer, Durability(self.directory, writer, self._sync_catalog))
        writing: _Writing | tuple[()] = vars(self).setdefault("_writing", made)  # atomic: a thread may have been faster
        if not writing:
            raise self.view.closed()
        return writing

    def _recovered(self) -> CommitState:
        return self.writable().recovered()

    # What is there

    @property
    def earliest_offset(self) -> int:
        """The log start offset: the first one that can be read."""
        return self.current().log_start_offset

    @property
    def latest_offset(self) -> int:
        """The offset after the last visible record."""
        return self.current().high_watermark

    @property
    def durable_offset(self) -> int:
        """The offset below which everything is known to be on the disk."""
        return self.current().durable_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch of appended batches, raised after a power failure that may have removed
        records; -1: unknown yet."""
        return self.current().leader_epoch

    def end_of_leader_epoch(self, leader_epoch: int) -> int:
        """The offset after the last record of this leader epoch, or an earlier one.

        A reader that has read further under that epoch has read records that were lost.
        ``CorruptSegment`` if the checkpoint of epochs is damaged.
        """
        end = self.latest_offset  # before the epochs: a recovery in between is then in both
        epochs = LeaderEpochs.load(self.directory.filesystem, self.directory.path)
        return min(epochs.end_of(leader_epoch, end), end)

    def end_offset(self, isolation_level: str, visibility: str) -> int:
        """The offset after the last record that such a reader may see."""
        return self.reader.end_offset(isolation_level, visibility)

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record at or after a time; None if all are older."""
        return self.reader.offset_for_time(timestamp_ms)

    @property
    def published_path(self) -> str:
        """The file that every publication writes; Kafka's directories have none."""
        return f"{self.directory.path}/{COMMIT_SLOTS}"

    def close_read_files(self) -> None:
        """Close the segments that were read, until they are read again: a deleted one takes space
        as long as it is open."""
        self.reader.close()

    def close(self) -> None:
        """Give the files back, and seal what is due. Appends after this raise ``Closed``; nothing
        appended is lost."""
        self.is_closed = True
        self.view.close()
        self.reader.close()
        writing = vars(self).setdefault("_writing", ())
        if writing:
            writing.close()
