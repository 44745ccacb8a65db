"""Makes what was published durable: one fdatasync serves all threads that wait (group commit).

It runs outside the partition's lock, so that appends continue. A sync covers what any process
published before it began, since all share the page cache. After a failed sync the system may have
dropped the bytes and report success the next time. So no process syncs that file again
(``repair/failed_syncs.py``): the segment is copied from the page cache, each batch checked, to a
new file, which is synced and replaces the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pylog.errors import CorruptSegment, NotAppended, OffsetOutOfRange, OutcomeUnknown, PylogError, StorageError
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.write.writer import PartitionWriter
from pylog.segment.files import SegmentFiles
from pylog.segment.naming import LOG
from pylog.storage import AppendableFile, after_fork_in_child
from pylog.turn import NOT_MINE, Turn, Waiters

logger = logging.getLogger("pylog.partition")

_ATTEMPTS = 10  # each fails only if another process deletes or replaces files at that moment


class Durability:
    """Knows and advances the durable end of one partition."""

    def __init__(
        self, directory: PartitionDirectory, writer: PartitionWriter, sync_catalog: Callable[[], None]
    ) -> None:
        """``sync_catalog`` makes the topic and the path to the partition's directory durable."""
        self._directory = directory
        self._sync_catalog = sync_catalog
        self._filesystem = directory.filesystem
        self._path = directory.path
        self._writer = writer
        self.turn = Turn()  # of the thread that syncs
        self._waiters = Waiters()  # threads that this sync serves
        self._durable_offset = 0
        self._catalog_is_durable = False  # the topic's creator may have died before it synced
        self._directory_synced_for = -1
        self._file: AppendableFile | None = None
        self._file_of = (-1, -1)
        after_fork_in_child(self._forget_parent)

    def sync(self, end_offset: int, timeout_ms: int | None = None) -> None:
        """Return when everything below ``end_offset``, which is published, survives a power
        failure.

        The durable end is published under the partition's lock; if that is not free in
        ``timeout_ms``, the next sync publishes it. ``OutcomeUnknown`` if the disk refused: the
        records are in the log and visible, but a power failure may lose them.
        """
        timeout_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        while self._durable_offset < end_offset:
            if self.turn.is_mine():
                raise self._unknown(end_offset, "a signal handler has interrupted the sync that this thread is in")
            if not self._sync_in_turn(end_offset, timeout_ms):
                self._waiters.wait(partial(self._sync_in_turn, end_offset, timeout_ms))

    def _sync_in_turn(self, end_offset: int, timeout_ms: int) -> bool:
        """Sync in this thread. False if another thread is syncing."""
        turn = self.turn
        try:
            if not turn.take(False):
                return False
            if self._durable_offset < end_offset:
                self._sync_published(end_offset, timeout_ms)
        except own(StorageError, CorruptSegment, NotAppended) as error:
            raise self._unknown(end_offset, error) from error
        finally:
            try:
                turn.leave()
            except own(NOT_MINE):  # it was not taken: see turn.py
                pass
            else:
                if self._waiters.locks:
                    self._waiters.wake()
        return True

    def _unknown(self, end_offset: int, reason: object) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._path}: offsets below {end_offset} are in the log, but could not be synced: {reason}",
            path=self._path,
            end_offset=end_offset,
        )

    def _sync_published(self, end_offset: int, timeout_ms: int) -> None:
        missing: PylogError | None = None
        for attempt in range(_ATTEMPTS):
            state = self._writer.published()
            if state.log_end_offset < end_offset:
                raise self._beyond_end(end_offset, state, was_there=attempt > 0)
            is_synced = state.durable_offset >= state.log_end_offset and self._directory_synced_for == state.active_base
            try:
                if is_synced or self._publish(state, self._sync_segments(state), timeout_ms):
                    self._durable_offset = max(self._durable_offset, state.log_end_offset)
                    return
                self._close_file()  # to be looked at again: another process may have marked it
            except own(FileNotFoundError) as error:  # deleted since: read again what is published
                missing = self._directory.missing(error)
        raise missing or StorageError(f"syncs of {self._path} keep failing in other processes", path=self._path)

    def _beyond_end(self, end_offset: int, state: CommitState, *, was_there: bool) -> PylogError:
        if was_there:
            return StorageError(
                f"{self._path} was cut at offset {state.log_end_offset} meanwhile: a failed sync took back what was written",
                path=self._path,
            )
        return OffsetOutOfRange(
            f"{self._path} ends at offset {state.log_end_offset}, so nothing up to {end_offset} can be synced",
            path=self._path,
            offset=end_offset,
            latest=state.log_end_offset,
        )

    def _sync_segments(self, state: CommitState) -> list[int]:
        """Sync everything up to the end of ``state``. Returns the segments that were synced."""
        synced = []
        if not self._catalog_is_durable:  # first: a topic that is lost must not leave segments
            self._sync_catalog()
            self._catalog_is_durable = True
        if state.durable_offset <= state.active_base:  # the first sync since the last roll
            synced += self._sync_closed_segments(state)
        if state.written_end:  # else its file may not be there yet: a roll publishes it first
            self._sync_active(state)
            synced.append(state.active_base)
        if self._directory_synced_for != state.active_base:
            self._filesystem.sync_directory(self._path)
            self._directory_synced_for = state.active_base if state.written_end else -1
        return synced

    def _publish(self, state: CommitState, synced: list[int], timeout_ms: int) -> bool:
        """Publish the durable end. False as for ``PartitionWriter.publish_durable``."""
        try:
            return self._writer.publish_durable(state.log_end_offset, synced, timeout_ms)
        except own(PylogError) as error:  # the records are durable; the next sync publishes that
            logger.warning("%r: durable end %d not published: %s", self._path, state.log_end_offset, error)
            return not any(map(self._writer.failed_syncs.is_marked, synced))

    def _sync_closed_segments(self, state: CommitState) -> list[int]:
        """Sync the segments closed since the last sync, the one before them, and their indexes."""
        synced = []
        segments = self._directory.segments()
        for base in segments.closed_since(state.durable_offset, state.active_base):
            following = segments.after(base) or state.active_base
            try:
                file = self._filesystem.open_appendable(self._directory.file_path(base, LOG), create=False)
            except own(FileNotFoundError):
                continue  # its records were deleted
            try:
                if self._is_replaced(base):
                    synced.append(base)
                else:  # also one that was durable: a writer may have cut it since
                    failure = self._writer.failed_syncs.try_to_sync(file, base)
                    if failure is not None:
                        self._replace(base, failure)
                    synced.append(base)
            finally:
                file.close()
            self._sync_side_files(base, following)
        return synced

    def _sync_side_files(self, base: int, following: int) -> None:
        failure: StorageError | None = None
        for file in SegmentFiles(self._filesystem, self._path, base).derived(following):
            if failure is None:
                failure = self._writer.failed_syncs.try_to_sync(file, base)
        if failure is not None:
            self._replace(base, failure)  # all of them are made again

    def _sync_active(self, state: CommitState) -> None:
        wanted = state.active_base, state.segments_version
        if self._file is None or self._file_of != wanted:  # in another version a copy may have replaced it
            self._close_file()
            path = self._directory.file_path(state.active_base, LOG)
            self._file = self._filesystem.open_appendable(path, create=False)
            self._file.close_when_idle()
            if self._is_replaced(state.active_base):
                return
            self._file_of = wanted
        failure = self._writer.failed_syncs.try_to_sync(self._file, state.active_base)
        if failure is not None:  # publishing looks for the marks of others
            self._replace(state.active_base, failure)

    def _is_replaced(self, base: int) -> bool:
        """Replace a segment that must not be synced again by a durable copy. False for others."""
        if not self._writer.failed_syncs.is_marked(base):
            return False
        self._writer.rewrite_segment(base, DEFAULT_TIMEOUT_MS)
        self._close_file()
        return True

    def _replace(self, base: int, error: StorageError) -> None:
        """Replace a segment, whose sync failed with ``error``, by a durable copy."""
        logger.warning("%s; copying the segment to new files", error)
        self._writer.rewrite_segment(base, DEFAULT_TIMEOUT_MS)
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        turn = self.turn
        if turn.is_mine():  # a signal handler has interrupted a sync
            return
        with turn.lock:
            self._close_file()

    def _forget_parent(self) -> None:
        self.turn = Turn()
        self._waiters = Waiters()
