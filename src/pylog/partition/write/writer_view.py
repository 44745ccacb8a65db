"""What one process knows of a partition it writes to: the published state, the open active segment, the producers.

Others append too, and may die in the middle. ``_catch_up``, under the lock, reads what they published, adopts or cuts what
they left unpublished, and recovers where nothing valid is published.
"""

from __future__ import annotations

import logging

from pylog.codec.batch import BatchHeader
from pylog.codec.format import INT64_MIN
from pylog.errors import CorruptSegment, PylogError, StorageError
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitState, next_sequence
from pylog.partition.directory import Place
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.repair.failed_syncs import Distrust
from pylog.partition.repair.recovery import recover
from pylog.partition.segments import Segments
from pylog.partition.write.lock import WriteLock
from pylog.segment import SegmentScan, SegmentWriter
from pylog.segment.naming import LOG
from pylog.storage import after_fork_in_child

logger = logging.getLogger("pylog.partition")

RECOVERY_TIMEOUT_MS = 120_000
_INNER_SNAPSHOTS = 2


class WriterView:
    """Follows one partition. Safe to share among threads; every process has its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = WriteLock(place)
        self._segment: SegmentWriter | None = None
        self._state: CommitState | None = None
        self._producers = ProducerStates()
        self._snapshot_position = 0
        self._inner_snapshots: list[int] = []  # inside of the active segment, rising: of this process, or found
        self.distrust = Distrust(place)
        after_fork_in_child(self._forget_parent)

    def state(self, timeout_ms: int) -> CommitState:
        """What is published, after recovery if that was needed."""
        return self._lock.holding(timeout_ms, self._caught_up)

    def _caught_up(self) -> CommitState:
        self._catch_up()
        return self._current()[0]

    def published(self) -> CommitState:
        """What is published now, without the lock; through recovery where nothing valid is."""
        state = self._lock.published()
        return state if state is not None and state.boot == self._place.boot else self.state(RECOVERY_TIMEOUT_MS)

    # Following others, and repairing after them

    def _current(self) -> tuple[CommitState, SegmentWriter]:
        if self._state is None or self._segment is None:
            self._lock.check_held()
            raise AssertionError(
                "nothing is known of the partition"
            )  # pragma: no cover - whoever comes here has caught up
        return self._state, self._segment

    def _catch_up(self) -> None:
        """Bring this process's view up to what is published, and the file's end to what is published."""
        state = self._lock.slots.read()
        if state is None:
            self._drop_segment()  # of a directory that may stand here no more
            self._lock.reopen(RECOVERY_TIMEOUT_MS)
            state = self._lock.slots.read()
        if state is None or state.boot != self._place.boot:
            self._recover(state)
            return
        known = self._state
        if (
            known is None
            or self._segment is None
            or (
                state.active_base != known.active_base
                or state.segments_version != known.segments_version
                or state.written_end < known.written_end
            )
        ):
            self._attach(state)
        elif state.sequence != known.sequence:
            if self._segment.file.size() >= state.written_end:
                self._adopt_up_to(self._segment, state.written_end, check_crc=False)
            self._state = state
        state, segment = self._current()
        if segment.next_offset != state.log_end_offset or segment.size_bytes != state.written_end:
            logger.warning(
                "%r ends at offset %d, position %d, published were %d and %d; recovering",
                segment.file.path, segment.next_offset, segment.size_bytes, state.log_end_offset, state.written_end,
            )  # fmt: skip
            self._recover(state)
            return
        size = segment.file.size()
        if size > state.written_end:
            self._repair_tail(state, segment)
        elif size < state.written_end:
            logger.warning(
                "%r has %d bytes, %d were published: it was cut from outside; recovering",
                segment.file.path,
                size,
                state.written_end,
            )
            self._recover(state)

    def _attach(self, state: CommitState) -> None:
        """Open the published active segment and learn the producers' state."""
        self._drop_segment()
        if state.written_end and not self._place.filesystem.exists(self._place.path(state.active_base, LOG)):
            self._recover(state)
            return
        segment = self._segment = self._place.segment_writer(state.active_base)
        self._lock.check_held()  # a fork before this line has not closed the segment in the child, which must not write
        if segment.file.size() >= state.written_end:
            segment.attach(state.written_end, state.log_end_offset)
            names = self._place.names()
            snapshots.remove_unfinished(self._place.filesystem, self._place.directory, names)
            segments = Segments.among(names).up_to(state.active_base)
            self._producers = snapshots.load(
                self._place.filesystem,
                self._place.directory,
                segments,
                state.log_end_offset,
                self._place.clock.now_ms(),
            )
            self._inner_snapshots = [at for at in segments.snapshots if state.active_base < at <= state.log_end_offset]
        self._snapshot_position = state.written_end
        self._state = state

    def _adopt_up_to(self, segment: SegmentWriter, end: int, *, check_crc: bool) -> SegmentScan:
        """Count in the whole batches between this view's end and position ``end``."""
        scan = SegmentScan(
            segment.file, segment.size_bytes, end, next_offset=segment.next_offset, dense=True, check_crc=check_crc
        )
        known, self._state = self._state, None  # an exception that leaves half of a batch taken in leaves nothing known
        for position, header in scan:
            segment.adopt(position, header)
            self._fold(segment, position, header)
        self._state = known
        if not check_crc and scan.problem is not None:
            raise CorruptSegment(
                f"{segment.file.path} is damaged at position {scan.position}, offset {scan.next_offset}, below the published "
                f"end: {scan.problem}",
                path=segment.file.path,
                position=scan.position,
                offset=scan.next_offset,
                problem=scan.problem,
            )
        return scan

    def _repair_tail(self, state: CommitState, segment: SegmentWriter) -> None:
        """The last holder of the lock died in mid-append: adopt whole batches behind the published end, cut the rest."""
        size = segment.file.size()
        scan = self._adopt_up_to(segment, size, check_crc=True)
        logger.info(
            "%r: a writer died here; %d bytes adopted, %d cut",
            segment.file.path,
            scan.position - state.written_end,
            size - scan.position,
        )
        self._lock.check_held()
        self._state = None  # the segment is ahead of it: after an error here, the next use begins again
        segment.cut(scan.position, scan.next_offset)
        is_adopted = scan.position > state.written_end  # and nobody has told the times of it
        self._publish_end(state, segment, INT64_MIN if is_adopted else state.least_timestamp_ms)

    def _recover(self, state: CommitState | None) -> None:
        """Nothing valid of this boot is published: keep what is whole in the segments, and publish that."""
        self._drop_segment()
        slots = self._lock.slots
        segment, producers, recovered = recover(self._place, state, self.distrust, self._lock.check_held, slots.publish)
        self._producers, self._segment = producers, segment
        self._snapshot_position, self._inner_snapshots = segment.size_bytes, []
        self._state = slots.publish(recovered.successor())

    def _drop_segment(self) -> None:
        segment, self._segment, self._state = self._segment, None, None
        if segment is not None:
            segment.close()

    # Publishing

    def _fold(self, segment: SegmentWriter, position: int, header: BatchHeader) -> None:
        aborted = snapshots.fold(self._producers, header, position, segment.file)
        if aborted is not None:
            segment.add_aborted(aborted)

    def _publish_end(self, state: CommitState, segment: SegmentWriter, least_timestamp_ms: int) -> None:
        """Make everything up to the segment's end visible. No record in it is before ``least_timestamp_ms``."""
        end, start = segment.next_offset, state.log_start_offset
        open_offset = self._producers.first_open_offset
        stable = end if open_offset is None else max(open_offset, start)
        self._state = self._lock.slots.publish(
            CommitState(
                sequence=next_sequence(state.sequence),
                boot=self._place.boot,
                leader_epoch=state.leader_epoch,
                active_base=segment.base_offset,
                written_end=segment.size_bytes,
                log_end_offset=end,
                durable_offset=state.durable_offset,
                last_stable_offset=stable,
                log_start_offset=start,
                high_watermark=end,
                segments_version=state.segments_version,
                least_timestamp_ms=least_timestamp_ms,
            )
        )
        since_bytes = segment.size_bytes - self._snapshot_position
        if (
            self._producers.batches_since_snapshot >= snapshots.INTERVAL_BATCHES
            or since_bytes >= snapshots.INTERVAL_BYTES
        ) and snapshots.is_due(self._producers, since_bytes):
            self._snapshot(segment)

    def _snapshot(self, segment: SegmentWriter) -> None:
        """Spare the next opener a long replay. What was appended stands whether this succeeds or not.

        Two are kept inside of the active segment: where the newest cannot be read, the one before it can.
        """
        place, offset, inner = self._place, segment.next_offset, self._inner_snapshots
        self._snapshot_position = segment.size_bytes
        self._producers.batches_since_snapshot = 0
        try:
            snapshots.save(place.filesystem, place.directory, self._producers, offset)
            inner.append(offset)
            snapshots.remove(place.filesystem, place.directory, inner[:-_INNER_SNAPSHOTS])
            del inner[:-_INNER_SNAPSHOTS]
        except own(StorageError) as error:
            logger.warning("%r: no producer snapshot at offset %d: %s", place.directory, offset, error)

    def close(self) -> None:
        """Give the files back. Waits for an append under way."""
        is_done = True
        try:
            is_done = self._lock.close(self._finish_active)
        except own(PylogError, FileNotFoundError) as error:
            logger.warning("%r: no closing entry in a time index: %s", self._place.directory, error)
        if is_done:
            self._drop_segment()

    def _finish_active(self) -> None:
        """Give the active segment's time index its closing entry, as Kafka does: after a clean shutdown Kafka relies on it.

        The next writer takes it away again, as long as the segment is active. If another process has appended meanwhile, it
        is that one's to write.
        """
        known, segment, now = self._state, self._segment, self._lock.slots.read()
        if known is None or segment is None or now is None:
            return
        if now._replace(sequence=known.sequence, durable_offset=known.durable_offset) == known:
            segment.finish()

    def _forget_parent(self) -> None:
        """In a forked child: another thread of the parent may have been in the middle of anything."""
        self._lock.forget_parent()
        self._drop_segment()  # what the handler of a signal interrupted must not write any more
