"""The end of a partition's log, as one process knows it: published state, active segment,
producers.

Everything here is called under the partition's lock. Other processes append too, and may die during
an append: ``current`` reads what they published, adopts or cuts what they did not publish, and
recovers if nothing valid is published. A crash leaves the published state, and perhaps bytes after
it: the next holder of the lock adopts whole batches of them and cuts the rest. An exception takes
the same path as a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from pylog.codec.batch import BatchHeader
from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, NotAppended, OutcomeUnknown, PylogError, StorageError
from pylog.interrupts import is_foreign, own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.repair import swaps
from pylog.partition.repair.failed_syncs import FailedSyncs
from pylog.partition.repair.recovery import recover
from pylog.partition.segments import Segments
from pylog.partition.write.lock import WriteLock
from pylog.partition.write.sealing import Sealer
from pylog.segment import SegmentScan
from pylog.segment.naming import LOG
from pylog.segment.writer import SegmentWriter

logger = logging.getLogger("pylog.partition")

_INNER_SNAPSHOTS = 2


def not_appended(error: PylogError) -> NotAppended:
    """The error for a failed append that wrote nothing, or whose bytes were cut."""
    return error if isinstance(error, NotAppended) else NotAppended(f"nothing was appended: {error}", **error.facts)


class LogEnd:
    """Follows, advances and repairs the end of one partition's log. Every process has its own."""

    def __init__(
        self, directory: PartitionDirectory, lock: WriteLock, failed_syncs: FailedSyncs, sealer: Sealer
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._failed_syncs = failed_syncs
        self._sealer = sealer
        self._segment: SegmentWriter | None = None
        self._state: CommitState | None = None
        self.producers = ProducerStates()
        self.has_open_transactions = False  # after the last append here
        self._snapshot_position = 0
        self._inner_snapshots: list[int] = []  # in the active segment, rising: of any process

    def current(self, grant: Grant) -> tuple[CommitState, SegmentWriter]:
        """The published state, and the active segment, which ends there. Repairs what is
        necessary."""
        state, segment = grant.slots.read(), self._segment
        if (
            state is None
            or segment is None
            or state is not self._state
            or segment.next_offset != state.log_end_offset
            or not segment.size_bytes == state.written_end == segment.file.size()
        ):
            self._catch_up(grant, state)
            return self._known(grant)
        return state, segment  # as this process has left it

    # Following others, and repairing after them

    def _known(self, grant: Grant) -> tuple[CommitState, SegmentWriter]:
        if self._state is None or self._segment is None:
            grant.check()
            raise AssertionError("nothing is known of the partition")  # pragma: no cover - the caller has caught up
        return self._state, self._segment

    def _catch_up(self, grant: Grant, state: CommitState | None) -> None:
        """Bring this process's view and the file's end to ``state``, which is published."""
        if state is None:
            self.forget()  # the directory may have been replaced
            self._lock.reopen(DEFAULT_TIMEOUT_MS)
            state = grant.slots.read()
        if state is None or state.boot != self._directory.boot:
            self._recover(grant, state)
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
            self._attach(grant, state)
        elif state.sequence != known.sequence:
            if self._segment.file.size() >= state.written_end:
                self._adopt_up_to(self._segment, state.written_end, check_crc=False)
            self._state = state
        state, segment = self._known(grant)
        if segment.next_offset != state.log_end_offset or segment.size_bytes != state.written_end:
            logger.warning(
                "%r ends at offset %d, position %d, published were %d and %d; recovering",
                segment.file.path, segment.next_offset, segment.size_bytes, state.log_end_offset, state.written_end,
            )  # fmt: skip
            self._recover(grant, state)
            return
        size = segment.file.size()
        if size > state.written_end:
            self._repair_tail(grant, state, segment)
        elif size < state.written_end:
            logger.warning(
                "%r has %d bytes, %d were published: it was cut from outside; recovering",
                segment.file.path, size, state.written_end,
            )  # fmt: skip
            self._recover(grant, state)

    def _attach(self, grant: Grant, state: CommitState) -> None:
        """Open the published active segment and learn the producers' state."""
        self.forget()
        if state.written_end and not self._directory.filesystem.exists(
            self._directory.file_path(state.active_base, LOG)
        ):
            self._recover(grant, state)
            return
        segment = self._segment = grant.segment_writer(state.active_base)
        grant.check()  # a child forked just before has the segment open, and must not write
        if segment.file.size() >= state.written_end:
            segment.attach(state.written_end, state.log_end_offset)
            names = self._directory.names()
            if swaps.are_under_way(names):  # a process that compacted the partition has died
                state = swaps.finish_published(grant, state)
                names = self._directory.names()
            snapshots.remove_unfinished(self._directory.filesystem, self._directory.path, names)
            segments = Segments.among(names).up_to(state.active_base)
            self.producers = snapshots.load(
                self._directory.filesystem,
                self._directory.path,
                segments,
                state.log_end_offset,
                self._directory.clock.now_ms(),
            )
            self._inner_snapshots = [at for at in segments.snapshots if state.active_base < at <= state.log_end_offset]
        self._snapshot_position = state.written_end
        self._state = state

    def _adopt_up_to(self, segment: SegmentWriter, end: int, *, check_crc: bool) -> SegmentScan:
        """Take in the whole batches between this view's end and position ``end``."""
        scan = SegmentScan(
            segment.file, segment.size_bytes, end, next_offset=segment.next_offset, dense=True, check_crc=check_crc
        )
        known, self._state = self._state, None  # an exception during a batch makes the next use attach again
        for position, header in scan:
            segment.adopt(position, header)
            self.fold(segment, position, header)
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

    def _repair_tail(self, grant: Grant, state: CommitState, segment: SegmentWriter) -> None:
        """A writer died in an append: adopt whole batches after the published end, cut the rest."""
        size = segment.file.size()
        scan = self._adopt_up_to(segment, size, check_crc=True)
        logger.info(
            "%r: a writer died here; %d bytes adopted, %d cut",
            segment.file.path, scan.position - state.written_end, size - scan.position,
        )  # fmt: skip
        grant.check()
        self._state = None  # the segment is ahead: after an error the next use attaches again
        segment.cut(scan.position, scan.next_offset)
        is_adopted = scan.position > state.written_end  # its times are unknown
        self.publish_end(grant, state, segment, INT64_MIN if is_adopted else state.least_timestamp_ms)

    def _recover(self, grant: Grant, state: CommitState | None) -> None:
        """Nothing valid of this boot is published: keep the whole batches, and publish them."""
        self.forget()
        segment, producers, recovered = recover(grant, state, self._failed_syncs)
        self.producers, self._segment = producers, segment
        self._snapshot_position, self._inner_snapshots = segment.size_bytes, []
        self._state = grant.publish(recovered.successor())

    # Advancing

    def publish(self, grant: Grant, state: CommitState) -> None:
        """Publish a state with the same end of the log."""
        self._state = grant.publish(state)

    def publish_durable(self, end_offset: int, synced: Collection[int], grant: Grant) -> bool:
        """See ``PartitionWriter.publish_durable``."""
        if any(map(self._failed_syncs.is_marked, synced)):
            return False
        state = grant.slots.read()
        if state is None:
            return True  # the next writer recovers what the segments contain
        if state.log_end_offset < end_offset or state.boot != self._directory.boot:
            return False
        if state.durable_offset < end_offset:
            published = grant.publish(state.durable_to(end_offset))
            if self._state is not None and self._state.sequence == state.sequence:
                self._state = published
        return True

    def fold(self, segment: SegmentWriter, position: int, header: BatchHeader) -> None:
        """Update the producers' state with a batch of the active segment."""
        aborted = snapshots.fold(self.producers, header, position, segment.file)
        if aborted is not None:
            segment.add_aborted(aborted)

    def publish_end(self, grant: Grant, state: CommitState, segment: SegmentWriter, least_timestamp_ms: int) -> None:
        """Make everything up to the segment's end visible. No record is before
        ``least_timestamp_ms``."""
        end, open_offset = segment.next_offset, self.producers.first_open_offset()
        stable = end if open_offset is None else max(open_offset, state.log_start_offset)
        self.has_open_transactions = open_offset is not None
        self._state = grant.publish(state.advanced(segment.size_bytes, end, stable, least_timestamp_ms))
        since_bytes = segment.size_bytes - self._snapshot_position
        if (
            self.producers.batches_since_snapshot >= snapshots.INTERVAL_BATCHES
            or since_bytes >= snapshots.INTERVAL_BYTES
        ) and snapshots.is_due(self.producers, since_bytes):
            self._snapshot(segment)

    def _snapshot(self, segment: SegmentWriter) -> None:
        """Save a snapshot, so that opening replays less. A failure does not affect the append.

        The active segment keeps two: if the newest is unreadable, the older one is used.
        """
        directory, offset, inner = self._directory, segment.next_offset, self._inner_snapshots
        self._snapshot_position = segment.size_bytes
        self.producers.batches_since_snapshot = 0
        try:
            snapshots.save(directory.filesystem, directory.path, self.producers, offset)
            inner.append(offset)
            snapshots.remove(directory.filesystem, directory.path, inner[:-_INNER_SNAPSHOTS])
            del inner[:-_INNER_SNAPSHOTS]
        except own(StorageError) as error:
            logger.warning("%r: no producer snapshot at offset %d: %s", directory.path, offset, error)

    def roll(self, grant: Grant, state: CommitState, segment: SegmentWriter) -> tuple[CommitState, SegmentWriter]:
        """Close the active segment and begin the next at the log's end.

        The new base is published before its file exists, so that the next writer completes a roll
        that a crash cut short. An active segment has no seal: one that is found here is of an
        earlier segment with this base.
        """
        base, end = segment.base_offset, segment.next_offset
        grant.segment_files(base).unseal()
        snapshots.save(self._directory.filesystem, self._directory.path, self.producers, end)
        segment.finish()
        self._state = state = grant.publish(
            state.successor(
                active_base=end,
                written_end=0,
                log_end_offset=end,
                segments_version=next_version(state.segments_version),
                least_timestamp_ms=INT64_MAX,
            )
        )
        self._sealer.segment_rolled(base, end, written_alone=segment.written_alone)
        self._segment = None
        segment.close()
        fresh = self._segment = grant.segment_writer(end)
        grant.check()  # a child forked just before must not cut it; of one forked from here on it is closed
        fresh.cut(0, end)
        self._snapshot_position = self.producers.batches_since_snapshot = 0
        inner = [at for at in self._inner_snapshots if base < at < end]
        self._inner_snapshots.clear()
        snapshots.remove(self._directory.filesystem, self._directory.path, inner)  # the sealer removes those of others
        return state, fresh

    def take_back(self, grant: Grant, error: BaseException) -> None:
        """After a failed append: cut what was written.

        Returns if the caller's error tells the outcome. Otherwise raises ``NotAppended`` or
        ``OutcomeUnknown`` instead of it.
        """
        path = self._directory.path
        before, segment = self._state, self._segment
        self._state = self._segment = None  # the next use reads everything again
        if not isinstance(error, Exception) or is_foreign(error):
            return  # a signal handler's exception passes unchanged, and leaves what a kill would leave
        try:
            if before is None or grant.slots.read() != before:
                raise OutcomeUnknown(f"{path}: the append failed while it was being published: {error}") from error
            if segment is not None:
                segment.cut(before.written_end, before.log_end_offset)
                segment.close()
        except own(StorageError) as second:
            raise OutcomeUnknown(
                f"{path}: the append failed ({error}) and could not be taken back ({second})"
            ) from error
        if isinstance(error, StorageError) and not isinstance(error, NotAppended):
            raise not_appended(error) from error

    def finish(self, grant: Grant) -> None:
        """Write the closing entry of the active segment's time index: Kafka relies on it after a
        shutdown.

        The next writer removes it. If another process has appended since, that process writes it.
        """
        known, segment, now = self._state, self._segment, grant.slots.read()
        if known is None or segment is None or now is None:
            return
        if now._replace(sequence=known.sequence, durable_offset=known.durable_offset) == known:
            segment.finish()

    def forget(self) -> None:
        """Close the files. The next use reads everything again."""
        segment, self._segment, self._state = self._segment, None, None
        if segment is not None:
            segment.close()
