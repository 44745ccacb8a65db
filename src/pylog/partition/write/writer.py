"""The one place that changes a partition: append, roll, delete.

Every change happens under the partition's lock, held from reading the commit slots to publishing the next one. Other
processes may have appended in between: ``_catch_up`` reads what they did. A crash at any point leaves the published state
as it was and perhaps bytes behind it; the next holder of the lock adopts whole batches among them and cuts the rest. An
exception takes the same path as a crash.

Nothing is synced on the way of an append; ``durability.py`` does that, outside the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from pylog.codec import COMPILED
from pylog.codec.batch import BatchHeader, BatchView, read_header, stamp
from pylog.codec.format import CONTROL_BIT, INT64_MAX, INT64_MIN, LOG_APPEND_TIME_BIT
from pylog.errors import (
    Closed,
    CorruptSegment,
    DeliveryTimeout,
    NotAppended,
    OffsetConflict,
    OffsetOutOfRange,
    OutcomeUnknown,
    PylogError,
    RecordTooLarge,
    StorageError,
    StorageFull,
    TopicNotFound,
)
from pylog.interrupts import is_foreign, own
from pylog.model import AppendResult
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import Place
from pylog.partition.producers import snapshots
from pylog.partition.repair.recovery import remake_side_files
from pylog.partition.repair.rewrite import rewrite
from pylog.partition.segments import Segments
from pylog.partition.settings import PartitionSettings
from pylog.partition.write import deletion
from pylog.partition.write.sealing import Sealer
from pylog.partition.write.writer_view import WriterView
from pylog.segment import SegmentWriter
from pylog.segment.naming import LOG, SEAL
from pylog.segment.writer import MAX_RELATIVE_OFFSET

logger = logging.getLogger("pylog.partition")

LOG_APPEND_TIME = "LogAppendTime"
_LAST_OFFSET = 2**63 - 1
_OTHER_TIMES = CONTROL_BIT | LOG_APPEND_TIME_BIT


class PartitionWriter(WriterView):
    """Appends to one partition directory. Safe to share among threads; every process has its own."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._sealer = Sealer(place)

    # Appending

    def append(
        self,
        batch: bytearray,
        *,
        expected_offset: int | None,
        timeout_ms: int,
        min_timestamp_ms: int | None = None,
    ) -> AppendResult:
        """Append one encoded batch, stamped in place. On return it is in the page cache and visible.

        ``min_timestamp_ms`` is the least timestamp of its records, as they were encoded, if the caller knows it.
        Raises a kind of ``NotAppended``, or ``OutcomeUnknown`` where the system failed and could not be asked.
        """
        try:
            result = self._lock.holding(timeout_ms, partial(self._append, batch, expected_offset, min_timestamp_ms))
        except own(CorruptSegment, StorageError) as error:  # nothing was written, or it is gone again
            raise self._not_appended(error) from error
        if not self._sealer.is_idle:
            self._sealer.go_on()
        return result

    def _not_appended(self, error: PylogError) -> NotAppended:
        """The error for an append that failed before it wrote anything, or whose bytes are gone again."""
        return error if isinstance(error, NotAppended) else NotAppended(f"nothing was appended: {error}", **error.facts)

    def _append(self, batch: bytearray, expected_offset: int | None, min_timestamp_ms: int | None) -> AppendResult:
        self._catch_up()
        state, segment = self._current()
        settings = self._place.settings()
        append_time = self._place.clock.now_ms() if settings.message_timestamp_type == LOG_APPEND_TIME else None
        stamp(batch, state.log_end_offset, state.leader_epoch, append_time)
        header = read_header(batch)
        self._check(header, state, settings, expected_offset)
        if header.producer_id >= 0 and not header.is_control:
            earlier = self._producers.duplicate_of(header)
            if earlier is not None:
                timestamp_ms = -1 if append_time is None else earlier.timestamp_ms
                return AppendResult(earlier.first_offset, earlier.last_offset, timestamp_ms, True)
            self._producers.check(header)
        is_due = self._is_due_to_roll(segment, header, settings)
        if is_due:
            self._check_before_roll()
        try:
            if is_due:
                state, segment = self._roll(state, segment)
            position = segment.size_bytes
            least_ms = min_timestamp_ms
            if least_ms is None or header.attributes & _OTHER_TIMES:
                least_ms = _least_timestamp_ms(header, batch)
            segment.append(batch, header)
            if header.producer_id >= 0:
                self._fold(segment, position, header)
            else:
                self._producers.batches_since_snapshot += 1  # what ``fold`` does, without two calls
            self._publish_end(state, segment, min(state.least_timestamp_ms, least_ms))
        except BaseException as error:
            self._undo(error)
            raise
        return AppendResult(header.base_offset, header.last_offset, -1 if append_time is None else append_time, False)

    def _check(
        self, header: BatchHeader, state: CommitState, settings: PartitionSettings, expected_offset: int | None
    ) -> None:
        if expected_offset is not None and state.log_end_offset != expected_offset:
            raise OffsetConflict(
                f"{self._place.directory} ends at offset {state.log_end_offset}, expected {expected_offset}",
                log_end_offset=state.log_end_offset,
                expected_offset=expected_offset,
            )
        if state.log_end_offset > _LAST_OFFSET - MAX_RELATIVE_OFFSET:
            raise NotAppended(
                f"{self._place.directory} ends at offset {state.log_end_offset}: no offsets are left, they end at {_LAST_OFFSET}",
                log_end_offset=state.log_end_offset,
            )
        if header.size_bytes > settings.max_message_bytes:
            raise RecordTooLarge(
                f"a batch of {header.size_bytes} bytes for {self._place.topic_partition.topic!r}, whose max_message_bytes is "
                f"{settings.max_message_bytes}",
                size_bytes=header.size_bytes,
                limit_bytes=settings.max_message_bytes,
            )

    def _is_due_to_roll(self, segment: SegmentWriter, header: BatchHeader, settings: PartitionSettings) -> bool:
        return segment.is_due_to_roll(
            header,
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            now_ms=self._place.clock.now_ms,
        )

    def _undo(self, error: BaseException) -> None:
        """After a failed append: take back what was written, and say which of the two outcomes it is.

        Returns normally where the bytes are gone (the failure stands as it is); raises ``NotAppended`` or
        ``OutcomeUnknown`` in its place where the caller could not tell otherwise.
        """
        directory = self._place.directory
        before, segment = self._state, self._segment
        self._state = self._segment = None  # the next use reads everything anew
        if not isinstance(error, Exception) or is_foreign(error):
            return  # what a signal handler raised goes on as it is, and leaves what a kill would leave
        try:
            if before is None or self._lock.slots.read() != before:
                raise OutcomeUnknown(f"{directory}: the append failed while it was being published: {error}") from error
            if segment is not None:
                segment.cut(before.written_end, before.log_end_offset)
                segment.close()
        except own(StorageError) as second:
            raise OutcomeUnknown(
                f"{directory}: the append failed ({error}) and could not be taken back ({second})"
            ) from error
        if isinstance(error, StorageError) and not isinstance(error, NotAppended):
            raise self._not_appended(error) from error

    def next_sequence(self, producer_id: int, timeout_ms: int) -> int | None:
        """The sequence that must come next of a producer, None where any may."""
        return self._lock.holding(timeout_ms, partial(self._next_sequence, producer_id))

    def _next_sequence(self, producer_id: int) -> int | None:
        self._catch_up()
        return self._producers.next_sequence(producer_id)

    # Segments come and go

    def _check_before_roll(self) -> None:
        """Before anything is made by path: it must be the place whose slots this process publishes to. ``StorageError``."""
        try:
            self._lock.check_slots_in_place()
        except own(StorageError):
            self._drop_segment()  # the next use looks at everything anew
            raise

    def _roll(self, state: CommitState, segment: SegmentWriter) -> tuple[CommitState, SegmentWriter]:
        """Close the active segment and begin the next at the log's end.

        The new base is published before its file exists, so that whoever comes after a crash here finishes the roll. A seal
        that stands here already is of an earlier segment of this name: no active one has any.
        """
        base, end = segment.base_offset, segment.next_offset
        if self._place.filesystem.exists(self._place.path(base, SEAL)):
            self._place.filesystem.remove(self._place.path(base, SEAL))
            self._place.filesystem.sync_directory(self._place.directory)  # else the power could put it back
        snapshots.save(self._place.filesystem, self._place.directory, self._producers, end)
        segment.finish()
        self._state = state = self._lock.slots.publish(
            state.successor(
                active_base=end,
                written_end=0,
                log_end_offset=end,
                segments_version=next_version(state.segments_version),
                least_timestamp_ms=INT64_MAX,
            )
        )
        self._sealer.segment_closed(base, end, written_alone=segment.written_alone)
        self._segment = None
        segment.close()
        fresh = self._place.segment_writer(end)
        self._lock.check_held()
        fresh.cut(0, end)
        self._snapshot_position = self._producers.batches_since_snapshot = 0
        self._segment = fresh
        inner = [at for at in self._inner_snapshots if base < at < end]
        self._inner_snapshots.clear()
        snapshots.remove(self._place.filesystem, self._place.directory, inner)  # others' are the sealer's to remove
        return state, fresh

    def roll(self, timeout_ms: int) -> None:
        """Close the active segment now, unless it is empty."""
        self._lock.holding(timeout_ms, self._roll_now)
        self._sealer.go_on(float("inf"))

    def _roll_now(self) -> None:
        self._catch_up()
        state, segment = self._current()
        if segment.size_bytes:
            self._check_before_roll()
            try:
                self._roll(state, segment)
            except BaseException as error:
                self._undo(error)
                raise

    def delete_before(self, offset: int, timeout_ms: int) -> int:
        """Advance the log start to ``offset`` and remove the segments wholly before it; the new log start offset.

        Durable on return: the new log start is synced before any file goes.
        """
        try:
            names = self._place.names()
        except own(FileNotFoundError) as error:
            raise self._place.missing(error) from error
        first = Segments.among(names).floor(offset) or 0
        log_start = self._lock.holding(timeout_ms, partial(self._advance_log_start, offset, first))
        if log_start == offset:  # also where this was begun before, and could not be finished
            self._remove_before(offset, names, timeout_ms)
        return log_start

    def _advance_log_start(self, offset: int, first: int) -> int:
        """``first`` is the oldest segment that will be left."""
        self._catch_up()
        state, _ = self._current()
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
            self._state = self._lock.slots.publish(
                state.successor(
                    log_start_offset=offset,
                    last_stable_offset=max(state.last_stable_offset, offset),
                    segments_version=next_version(state.segments_version),
                )
            )
        self._lock.slots.sync()  # a log start that was there already, too: its own sync may have failed
        return max(offset, state.log_start_offset)

    def _make_snapshot_durable(self, offset: int, state: CommitState) -> None:
        """All that will be left of the producers before. On a full disk, one that was synced with its segment will do."""
        try:
            snapshots.make_durable(self._place.filesystem, self._place.directory, offset)
        except own(StorageFull) as error:
            if offset >= state.durable_offset:
                raise
            logger.warning("%s; deleting records all the same, to make room", error)

    def _remove_before(self, offset: int, names: list[str], timeout_ms: int) -> None:
        """Remove files that hold no records any more. Others append in between."""
        try:
            for number, some in enumerate(deletion.at_once(deletion.files_before(names, offset))):
                if number:
                    self._lock.give_way()
                if not self._lock.holding(timeout_ms, partial(self._take_away, some, offset)):
                    return
                deletion.free(self._place, some)
            deletion.free_leftovers(self._place, names)
        except own(DeliveryTimeout, TopicNotFound, Closed) as error:
            logger.warning("files of deleted records stay until the next deletion: %s", error)

    def _take_away(self, names: list[str], offset: int) -> bool:
        """False where the log that these are of is no more, or is to be recovered, which removes them too."""
        state = self._lock.slots.read()
        if state is None or state.boot != self._place.boot or state.log_start_offset < offset:
            return False
        deletion.take_away(self._place, names)
        return True

    # For durability.py and partition.py

    def publish_durable(self, end_offset: int, synced: Collection[int], timeout_ms: int) -> bool:
        """Publish that everything below ``end_offset`` is on the medium, for which the segments ``synced`` were synced.

        False where a sync of one of them has failed in another process, or the log was cut: then nothing is known of what was
        synced.
        """
        return self._lock.holding(timeout_ms, partial(self._publish_durable, end_offset, synced))

    def _publish_durable(self, end_offset: int, synced: Collection[int]) -> bool:
        if any(self.distrust.holds(base) for base in synced):
            return False
        state = self._lock.slots.read()
        if state is not None and (state.log_end_offset < end_offset or state.boot != self._place.boot):
            return False
        if state is not None and state.durable_offset < end_offset:
            published = self._lock.slots.publish(state.successor(durable_offset=end_offset))
            if self._state is not None and self._state.sequence == state.sequence:
                self._state = published
        return True

    def rewrite_segment(self, base: int, timeout_ms: int) -> None:
        """Copy a segment to new synced files after a failed sync. Other writers notice by the version of the list."""
        self._lock.holding(timeout_ms, partial(self._rewrite_segment, base))

    def _rewrite_segment(self, base: int) -> None:
        self._catch_up()
        state, _ = self._current()
        if not self.distrust.holds(base):
            return  # another process was faster
        path = self._place.path(base, LOG)
        # Published before and after: other writers must not write to the file that goes, nor readers stay with it.
        state = self._lock.slots.publish(state.successor(segments_version=next_version(state.segments_version)))
        if base == state.active_base:
            rewrite(self._place, base, state.written_end, state.log_end_offset, self._lock.check_held)
        else:
            following = self._place.segments().after(base) or state.active_base
            rewrite(self._place, base, self._place.filesystem.size(path), following, self._lock.check_held)
            remake_side_files(self._place, base, self._lock.check_held)
        self._drop_segment()
        self._lock.slots.publish(state.successor(segments_version=next_version(state.segments_version)))
        self.distrust.lift(base)

    def close(self) -> None:
        """Give the files back, then seal what is due. Waits for an append under way."""
        super().close()
        self._sealer.finish()

    def _forget_parent(self) -> None:
        super()._forget_parent()
        self._sealer.forget_parent()


def _least_timestamp_ms(header: BatchHeader, batch: bytearray) -> int:
    """A time that no record of a batch is before, if its producer has not said it, or if its times are not its producer's.

    The readable codec is too slow to look into it.
    """
    if COMPILED or header.attributes & _OTHER_TIMES:
        return BatchView(batch, header).least_timestamp_ms()
    return INT64_MIN
