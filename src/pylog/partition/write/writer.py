"""Changes a partition: append, roll, delete.

Every change happens under the partition's lock, held from reading the commit slots to publishing
the next one. ``LogEnd`` follows what other processes did before. An exception takes the same path
as a crash. An append syncs nothing; ``durability.py`` does that, outside the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from pylog.codec.batch import BatchView, stamp
from pylog.codec.control import ControlType, build_marker
from pylog.codec.format import CONTROL_BIT, INT64_MAX, LOG_APPEND_TIME_BIT
from pylog.errors import (
    CorruptSegment,
    NotAppended,
    OffsetConflict,
    OffsetOutOfRange,
    PylogError,
    ReadOnlyTopic,
    RecordTooLarge,
    StorageError,
    StorageFull,
)
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.model import AppendResult
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import PartitionDirectory, PartitionSettings
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import BatchTrace
from pylog.partition.repair.failed_syncs import FailedSyncs
from pylog.partition.repair.recovery import remake_derived
from pylog.partition.segments import Segments
from pylog.partition.write import deletion
from pylog.partition.write.lock import WriteLock
from pylog.partition.write.log_end import LogEnd, not_appended
from pylog.partition.write.sealing import Sealer
from pylog.segment.naming import LOG
from pylog.segment.writer import MAX_RELATIVE_OFFSET
from pylog.storage import after_fork_in_child

logger = logging.getLogger("pylog.partition")

T = TypeVar("T")

_STAMPED = "LogAppendTime"  # of ``message_timestamp_type``
_COORDINATOR_EPOCH = 0  # there is no coordinator
_LAST_END_OFFSET = INT64_MAX - MAX_RELATIVE_OFFSET
_OTHER_TIMES = CONTROL_BIT | LOG_APPEND_TIME_BIT  # the records do not have the producer's times


class PartitionWriter:
    """Appends to one partition directory. Safe to share among threads; every process has its
    own."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._now_ms = directory.clock.now_ms
        self._lock = WriteLock(directory)
        self._sealer = Sealer(directory, self._lock)
        self.has_rolled = False  # an append has closed a segment, since its user has set this to false
        self.failed_syncs = FailedSyncs(directory)
        self._end = LogEnd(directory, self._lock, self.failed_syncs, self._sealer)
        after_fork_in_child(self._forget_parent)

    # Appending

    def append(
        self,
        batch: bytearray,
        expected_offset: int | None,
        timeout_ms: int,
        min_timestamp_ms: int | None = None,
        process_id: int | None = None,
        require_ongoing: Callable[[], object] | None = None,
    ) -> AppendResult:
        """Append one encoded batch, stamped in place. On return it is in the page cache and
        visible.

        ``min_timestamp_ms`` is the least timestamp of its records; if None, it is read from the
        batch. ``process_id`` is of the process that began the call: a child forked since is
        refused. ``require_ongoing`` is called with the lock, and raises if the batch's transaction
        is over. Raises a kind of ``NotAppended``, or ``OutcomeUnknown`` if the bytes may still be
        there.
        """
        append = partial(self._append, batch, expected_offset, min_timestamp_ms, process_id, require_ongoing)
        try:
            result = self._lock.holding(timeout_ms, append)
        except own(CorruptSegment, StorageError) as error:  # nothing was written, or it was cut again
            raise not_appended(error) from error
        if self._sealer.due:
            self.has_rolled |= self._sealer.has_news()
            self._sealer.go_on()
        return result

    def _append(
        self,
        batch: bytearray,
        expected_offset: int | None,
        min_timestamp_ms: int | None,
        process_id: int | None,
        require_ongoing: Callable[[], object] | None,
        grant: Grant,
    ) -> AppendResult:
        if process_id is not None and process_id != self._directory.filesystem.process_id():
            raise grant.forked()
        state, segment = self._end.current(grant)
        settings = grant.settings or grant.read_settings()
        append_time = self._now_ms() if settings.message_timestamp_type == _STAMPED else None
        header = stamp(batch, state.log_end_offset, state.leader_epoch, append_time)
        attributes = header.attributes
        is_control = attributes & CONTROL_BIT
        self._check(0 if is_control else len(batch), state, settings, expected_offset)
        if require_ongoing is not None:
            require_ongoing()
        producers = self._end.producers
        if header.producer_id >= 0 and not is_control:
            earlier = producers.duplicate_of(header)
            if earlier is not None:
                timestamp_ms = -1 if append_time is None else earlier.timestamp_ms
                return AppendResult(earlier.first_offset, earlier.last_offset, timestamp_ms, True)
        if not settings.writable and not is_control:  # a transaction still ends
            raise ReadOnlyTopic.of(self._directory.topic_partition.topic)
        is_due = segment.is_due_to_roll(header, settings.segment_bytes, settings.segment_ms, self._now_ms)
        try:
            if is_due:
                state, segment = self._end.roll(grant, state, segment)
            position = segment.size_bytes
            least_ms = min_timestamp_ms
            if least_ms is None or attributes & _OTHER_TIMES:
                least_ms = BatchView(batch, header).least_timestamp_ms()
            segment.append(batch, header)
            if is_control:
                self._end.fold(segment, position, header)
            else:
                producers.add(header)
            self._end.publish_end(grant, state, segment, min(state.least_timestamp_ms, least_ms))
        except BaseException as error:
            self._end.take_back(grant, error)
            raise
        timestamp_ms = -1 if append_time is None else append_time
        # half as long as AppendResult(...)
        return tuple.__new__(AppendResult, (header.base_offset, segment.next_offset - 1, timestamp_ms, False))

    def _check(
        self, size_bytes: int, state: CommitState, settings: PartitionSettings, expected_offset: int | None
    ) -> None:
        if expected_offset is not None and state.log_end_offset != expected_offset:
            raise OffsetConflict(
                f"{self._directory.path} ends at offset {state.log_end_offset}, expected {expected_offset}",
                log_end_offset=state.log_end_offset,
                expected_offset=expected_offset,
            )
        if state.log_end_offset > _LAST_END_OFFSET:
            raise NotAppended(
                f"{self._directory.path} ends at offset {state.log_end_offset}: no offsets are left, they end at {INT64_MAX}",
                log_end_offset=state.log_end_offset,
            )
        if size_bytes > settings.max_message_bytes:
            raise RecordTooLarge(
                f"a batch of {size_bytes} bytes for {self._directory.topic_partition.topic!r}, whose max_message_bytes is "
                f"{settings.max_message_bytes}",
                size_bytes=size_bytes,
                limit_bytes=settings.max_message_bytes,
            )

    def next_sequence(self, producer_id: int, timeout_ms: int) -> int | None:
        """The producer's next sequence number; None if any is accepted."""
        return self._lock.holding(timeout_ms, partial(self._next_sequence, producer_id))

    def _next_sequence(self, producer_id: int, grant: Grant) -> int | None:
        self._end.current(grant)
        return self._end.producers.next_sequence(producer_id)

    def last_batches(self, producer_id: int, timeout_ms: int) -> tuple[BatchTrace, ...]:
        """What is remembered of the producer's last batches, oldest first."""
        return self._lock.holding(timeout_ms, partial(self._last_batches, producer_id))

    def _last_batches(self, producer_id: int, grant: Grant) -> tuple[BatchTrace, ...]:
        self._end.current(grant)
        return self._end.producers.last_batches(producer_id)

    # Transactions

    def has_open_transactions(self) -> bool:
        """Whether a transaction was open after the last append here. Takes no lock."""
        return self._end.has_open_transactions

    def open_transactions(self, timeout_ms: int) -> list[tuple[int, int, int]]:
        """Producer id, epoch and first offset of every transaction without a marker."""
        return self._lock.holding(timeout_ms, self._open_transactions)

    def _open_transactions(self, grant: Grant) -> list[tuple[int, int, int]]:
        self._end.current(grant)
        return self._end.producers.open_transactions()

    def append_marker(self, producer_id: int, epoch: int, timeout_ms: int, *, committed: bool) -> int | None:
        """End this transaction, if it is open here. Returns the offset after the marker, or None.

        Raises as ``append``.
        """
        mark = partial(self._append_marker, producer_id, epoch, committed)
        try:
            return self._lock.holding(timeout_ms, mark)
        except own(CorruptSegment, StorageError) as error:
            raise not_appended(error) from error

    def _append_marker(self, producer_id: int, epoch: int, committed: bool, grant: Grant) -> int | None:
        self._end.current(grant)
        if not any(found[:2] == (producer_id, epoch) for found in self._end.producers.open_transactions()):
            return None
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        marker = build_marker(kind, producer_id, epoch, _COORDINATOR_EPOCH, self._directory.clock.now_ms())
        return self._append(marker, None, None, None, None, grant).last_offset + 1

    # What is published

    def recovered(self, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> CommitState:
        """What is published, after a repair if one is needed."""
        return self._lock.holding(timeout_ms, self._recovered)

    def _recovered(self, grant: Grant) -> CommitState:
        return self._end.current(grant)[0]

    def published(self) -> CommitState:
        """What is published now, without the lock; if nothing valid is, after a repair."""
        slots = self._lock.slots
        state = None if slots is None else slots.read()
        return state if state is not None and state.boot == self._directory.boot else self.recovered()

    # Segments

    def roll(self, timeout_ms: int) -> None:
        """Close the active segment now, unless it is empty."""
        self._lock.holding(timeout_ms, self._roll_now)
        self._sealer.go_on(float("inf"))

    def _roll_now(self, grant: Grant) -> None:
        state, segment = self._end.current(grant)
        if segment.size_bytes:
            try:
                self._end.roll(grant, state, segment)
            except BaseException as error:
                self._end.take_back(grant, error)
                raise

    def delete_before(self, offset: int, timeout_ms: int, allowed: Callable[[CommitState], bool] | None = None) -> int:
        """Advance the log start to ``offset`` and remove the segments wholly before it.

        Returns the new log start offset, which is synced before any file is removed. ``allowed`` is
        called with the lock; if it is false, nothing is done.
        """
        version = self.published().segments_version
        try:
            listed = self._directory.segments()  # without the lock: there may be thousands
        except own(FileNotFoundError) as error:
            raise self._directory.missing(error) from error
        log_start = self._lock.holding(timeout_ms, partial(self._advance_log_start, offset, listed, version, allowed))
        if log_start == offset:  # also to finish an earlier deletion
            deletion.remove_before(self._directory, self._lock, offset, timeout_ms)
        return log_start

    def _advance_log_start(
        self, offset: int, listed: Segments, version: int, allowed: Callable[[CommitState], bool] | None, grant: Grant
    ) -> int:
        """``listed`` are the segments of this version of their list."""
        state, _ = self._end.current(grant)
        if allowed is not None and not allowed(state):
            return state.log_start_offset
        if not 0 <= offset <= state.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete records before offset {offset}: the log holds {state.log_start_offset} "
                f"to {state.high_watermark}",
                offset=offset,
                earliest=state.log_start_offset,
                latest=state.high_watermark,
            )
        if offset >= state.log_start_offset:  # also for a deletion that was cut short
            segments = listed if state.segments_version == version else self._directory.segments()
            oldest_left = segments.ending_with(state.active_base).floor(offset)
            self._make_snapshot_durable(oldest_left or 0, state)
        if offset > state.log_start_offset:
            self._end.publish(
                grant,
                state.successor(
                    log_start_offset=offset,
                    last_stable_offset=max(state.last_stable_offset, offset),
                    segments_version=next_version(state.segments_version),
                ),
            )
        grant.sync_slots()  # also an unchanged log start: its own sync may have failed
        return max(offset, state.log_start_offset)

    def _make_snapshot_durable(self, offset: int, state: CommitState) -> None:
        """Only it keeps the earlier producers. If the disk is full, one synced with its segment is
        enough."""
        try:
            snapshots.make_durable(self._directory.filesystem, self._directory.path, offset)
        except own(StorageFull) as error:
            if offset >= state.durable_offset:
                raise
            logger.warning("%s; deleting records all the same, to make room", error)

    # For durability.py, compact/ and backups

    def change_segments(self, work: Callable[[Grant, CommitState], T], timeout_ms: int) -> T:
        """Call ``work``, which changes closed segments, with the lock and the published state;
        returns its result."""

        def change(grant: Grant) -> T:
            state, _ = self._end.current(grant)
            try:
                return work(grant, state)
            finally:
                self._end.forget()  # the next use reads what is published

        return self._lock.holding(timeout_ms, change)

    def publish_durable(self, end_offset: int, synced: Collection[int], timeout_ms: int) -> bool:
        """Publish that all below ``end_offset`` is on the disk, after syncs of the segments
        ``synced``.

        False if these syncs prove nothing: another process saw one fail, or the log was cut since.
        """
        return self._lock.holding(timeout_ms, partial(self._end.publish_durable, end_offset, synced))

    def copy_if_sync_failed(self, base: int, timeout_ms: int) -> None:
        """Copy a closed segment whose sync has failed in a process that died before it could.

        Another process may have published by then that the segment is durable; so no later sync
        looks at it. ``StorageError`` if its bytes are lost.
        """
        if self.failed_syncs.is_marked(base):
            self.rewrite_segment(base, timeout_ms)

    def rewrite_segment(self, base: int, timeout_ms: int) -> None:
        """Copy a segment to new, synced files. The list gets another version, which other writers
        see."""
        self._lock.holding(timeout_ms, partial(self._rewrite_segment, base))

    def _rewrite_segment(self, base: int, grant: Grant) -> None:
        state, _ = self._end.current(grant)
        if not self.failed_syncs.is_marked(base):
            return  # another process was faster
        files = grant.segment_files(base)
        # Published before and after: other writers must not write to the file that goes, nor
        # readers stay with it.
        state = grant.publish(state.successor(segments_version=next_version(state.segments_version)))
        if base == state.active_base:
            files.replace_log(state.written_end, state.log_end_offset, grant.check)
        else:
            following = self._directory.segments().after(base) or state.active_base
            files.replace_log(files.filesystem.size(files.path(LOG)), following, grant.check)
            directory, now_ms = grant.directory, grant.directory.clock.now_ms()
            remake_derived(
                grant, base, snapshots.load(directory.filesystem, directory.path, directory.segments(), base, now_ms)
            )
        self._end.forget()
        grant.publish(state.successor(segments_version=next_version(state.segments_version)))
        self.failed_syncs.clear(base)

    def close(self) -> None:
        """Seal what is due, which needs the lock, then close the files. Waits for a running append.
        Takes no producer snapshot: a hundred short-lived writers would write a hundred files."""
        is_done = True
        try:
            self._sealer.finish()
        finally:
            try:
                is_done = self._lock.close(self._end.finish)
            except own(PylogError, FileNotFoundError) as error:
                logger.warning("%r: no closing entry in a time index: %s", self._directory.path, error)
            if is_done:
                self._end.forget()

    def _forget_parent(self) -> None:
        """In a forked child: a thread of the parent may have been in any step."""
        self._lock.forget_parent()
        self._end.forget()  # if a signal handler forked, what it interrupted must not write in the child
        self._sealer.forget_parent()
