"""The one place that changes a partition: append, roll, delete.

Every change happens under the partition's lock, held from reading the commit slots to publishing the
next one. Other processes may have appended in between: ``LogEnd`` follows what they did. An exception
takes the same path as a crash.

Nothing is synced on the way of an append; ``durability.py`` does that, outside the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from pylog.codec.batch import BatchHeader, BatchView, read_header, stamp
from pylog.codec.format import CONTROL_BIT, INT64_MAX, LOG_APPEND_TIME_BIT
from pylog.errors import (
    CorruptSegment,
    NotAppended,
    OffsetConflict,
    OffsetOutOfRange,
    PylogError,
    RecordTooLarge,
    StorageError,
    StorageFull,
)
from pylog.interrupts import own
from pylog.model import AppendResult
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import PartitionDirectory, PartitionSettings
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.repair.failed_syncs import FailedSyncs
from pylog.partition.repair.recovery import remake_derived
from pylog.partition.segments import Segments
from pylog.partition.write import deletion
from pylog.partition.write.lock import WriteLock
from pylog.partition.write.log_end import RECOVERY_TIMEOUT_MS, LogEnd, not_appended
from pylog.partition.write.sealing import Sealer
from pylog.segment.naming import LOG
from pylog.segment.writer import MAX_RELATIVE_OFFSET
from pylog.storage import after_fork_in_child

logger = logging.getLogger("pylog.partition")

LOG_APPEND_TIME = "LogAppendTime"
_OTHER_TIMES = CONTROL_BIT | LOG_APPEND_TIME_BIT  # not those that the producer gave


class PartitionWriter:
    """Appends to one partition directory. Safe to share among threads; every process has its own."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._lock = WriteLock(directory)
        self._sealer = Sealer(directory)
        self.failed_syncs = FailedSyncs(directory)
        self._end = LogEnd(directory, self._lock, self.failed_syncs, self._sealer)
        after_fork_in_child(self._forget_parent)

    # Appending

    def append(
        self, batch: bytearray, expected_offset: int | None, timeout_ms: int, min_timestamp_ms: int | None = None
    ) -> AppendResult:
        """Append one encoded batch, stamped in place. On return it is in the page cache and visible.

        ``min_timestamp_ms`` is the least timestamp of its records, as they were encoded. Without it the batch is looked into.
        Raises a kind of ``NotAppended``, or ``OutcomeUnknown`` if the system failed and could not be asked.
        """
        try:
            result = self._lock.holding(timeout_ms, partial(self._append, batch, expected_offset, min_timestamp_ms))
        except own(CorruptSegment, StorageError) as error:  # nothing was written, or it is gone again
            raise not_appended(error) from error
        if self._sealer.due:
            self._sealer.go_on()
        return result

    def _append(
        self, batch: bytearray, expected_offset: int | None, min_timestamp_ms: int | None, grant: Grant
    ) -> AppendResult:
        state, segment = self._end.current(grant)
        settings = self._directory.settings()
        append_time = self._directory.clock.now_ms() if settings.message_timestamp_type == LOG_APPEND_TIME else None
        stamp(batch, state.log_end_offset, state.leader_epoch, append_time)
        header = read_header(batch)
        self._check(header, state, settings, expected_offset)
        if header.producer_id >= 0 and not header.is_control:
            earlier = self._end.producers.duplicate_of(header)
            if earlier is not None:
                timestamp_ms = -1 if append_time is None else earlier.timestamp_ms
                return AppendResult(earlier.first_offset, earlier.last_offset, timestamp_ms, True)
            self._end.producers.check(header)
        is_due = segment.is_due_to_roll(
            header,
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            now_ms=self._directory.clock.now_ms,
        )
        try:
            if is_due:
                state, segment = self._end.roll(grant, state, segment)
            position = segment.size_bytes
            least_ms = min_timestamp_ms
            if least_ms is None or header.attributes & _OTHER_TIMES:
                least_ms = BatchView(batch, header).least_timestamp_ms()
            segment.append(batch, header)
            if header.producer_id >= 0:
                self._end.fold(segment, position, header)
            else:
                self._end.producers.batches_since_snapshot += 1  # what ``fold`` does, without two calls
            self._end.publish_end(grant, state, segment, min(state.least_timestamp_ms, least_ms))
        except BaseException as error:
            self._end.take_back(grant, error)
            raise
        return AppendResult(header.base_offset, header.last_offset, -1 if append_time is None else append_time, False)

    def _check(
        self, header: BatchHeader, state: CommitState, settings: PartitionSettings, expected_offset: int | None
    ) -> None:
        if expected_offset is not None and state.log_end_offset != expected_offset:
            raise OffsetConflict(
                f"{self._directory.path} ends at offset {state.log_end_offset}, expected {expected_offset}",
                log_end_offset=state.log_end_offset,
                expected_offset=expected_offset,
            )
        if state.log_end_offset > INT64_MAX - MAX_RELATIVE_OFFSET:
            raise NotAppended(
                f"{self._directory.path} ends at offset {state.log_end_offset}: no offsets are left, they end at {INT64_MAX}",
                log_end_offset=state.log_end_offset,
            )
        if header.size_bytes > settings.max_message_bytes:
            raise RecordTooLarge(
                f"a batch of {header.size_bytes} bytes for {self._directory.topic_partition.topic!r}, whose max_message_bytes is "
                f"{settings.max_message_bytes}",
                size_bytes=header.size_bytes,
                limit_bytes=settings.max_message_bytes,
            )

    def next_sequence(self, producer_id: int, timeout_ms: int) -> int | None:
        """The sequence that must come next of a producer, None where any may."""
        return self._lock.holding(timeout_ms, partial(self._next_sequence, producer_id))

    def _next_sequence(self, producer_id: int, grant: Grant) -> int | None:
        self._end.current(grant)
        return self._end.producers.next_sequence(producer_id)

    # What is published

    def recovered(self, timeout_ms: int = RECOVERY_TIMEOUT_MS) -> CommitState:
        """What is published, after whatever repair that needed."""
        return self._lock.holding(timeout_ms, self._recovered)

    def _recovered(self, grant: Grant) -> CommitState:
        return self._end.current(grant)[0]

    def published(self) -> CommitState:
        """What is published now, without the lock; after a repair if nothing valid is."""
        slots = self._lock.slots
        state = None if slots is None else slots.read()
        return state if state is not None and state.boot == self._directory.boot else self.recovered()

    # Segments come and go

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

    def delete_before(self, offset: int, timeout_ms: int) -> int:
        """Advance the log start to ``offset`` and remove the segments wholly before it; the new log start offset.

        Durable on return: the new log start is synced before any file goes.
        """
        try:
            names = self._directory.names()
        except own(FileNotFoundError) as error:
            raise self._directory.missing(error) from error
        first = Segments.among(names).floor(offset) or 0
        log_start = self._lock.holding(timeout_ms, partial(self._advance_log_start, offset, first))
        if log_start == offset:  # also where this was begun before, and could not be finished
            deletion.remove_before(self._directory, self._lock, names, offset, timeout_ms)
        return log_start

    def _advance_log_start(self, offset: int, first: int, grant: Grant) -> int:
        """``first`` is the oldest segment that will be left."""
        state, _ = self._end.current(grant)
        if not 0 <= offset <= state.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete records before offset {offset}: the log holds {state.log_start_offset} "
                f"to {state.high_watermark}",
                offset=offset,
                earliest=state.log_start_offset,
                latest=state.high_watermark,
            )
        if offset >= state.log_start_offset:  # others may have rolled since a deletion was begun, and cut off
            self._make_snapshot_durable(first, state)
        if offset > state.log_start_offset:
            self._end.publish(
                grant,
                state.successor(
                    log_start_offset=offset,
                    last_stable_offset=max(state.last_stable_offset, offset),
                    segments_version=next_version(state.segments_version),
                ),
            )
        grant.sync_slots()  # a log start that was there already, too: its own sync may have failed
        return max(offset, state.log_start_offset)

    def _make_snapshot_durable(self, offset: int, state: CommitState) -> None:
        """All that will be left of the producers before. On a full disk, one that was synced with its segment will do."""
        try:
            snapshots.make_durable(self._directory.filesystem, self._directory.path, offset)
        except own(StorageFull) as error:
            if offset >= state.durable_offset:
                raise
            logger.warning("%s; deleting records all the same, to make room", error)

    # For durability.py and partition.py

    def publish_durable(self, end_offset: int, synced: Collection[int], timeout_ms: int) -> bool:
        """Publish that everything below ``end_offset`` is on the disk, for which the segments ``synced`` were synced.

        False where a sync of one of them has failed in another process, or the log was cut: then nothing is known of what was
        synced.
        """
        return self._lock.holding(timeout_ms, partial(self._publish_durable, end_offset, synced))

    def _publish_durable(self, end_offset: int, synced: Collection[int], grant: Grant) -> bool:
        if any(map(self.failed_syncs.is_marked, synced)):
            return False
        state = grant.slots.read()
        if state is not None and (state.log_end_offset < end_offset or state.boot != self._directory.boot):
            return False
        if state is not None and state.durable_offset < end_offset:
            self._end.publish_durable(grant, state, end_offset)
        return True

    def rewrite_segment(self, base: int, timeout_ms: int) -> None:
        """Copy a segment to new synced files after a failed sync. Other writers notice by the version of the list."""
        self._lock.holding(timeout_ms, partial(self._rewrite_segment, base))

    def _rewrite_segment(self, base: int, grant: Grant) -> None:
        state, _ = self._end.current(grant)
        if not self.failed_syncs.is_marked(base):
            return  # another process was faster
        files = grant.segment_files(base)
        # Published before and after: other writers must not write to the file that goes, nor readers stay with it.
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
        """Give the files back, then seal what is due. Waits for an append under way."""
        is_done = True
        try:
            is_done = self._lock.close(self._end.finish)
        except own(PylogError, FileNotFoundError) as error:
            logger.warning("%r: no closing entry in a time index: %s", self._directory.path, error)
        if is_done:
            self._end.forget()
        self._sealer.finish()

    def _forget_parent(self) -> None:
        """In a forked child: another thread of the parent may have been in the middle of anything."""
        self._lock.forget_parent()
        self._end.forget()  # what the handler of a signal interrupted must not write any more
        self._sealer.forget_parent()
