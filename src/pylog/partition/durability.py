"""Makes what was published durable: one fdatasync serves every thread that waits for it (group commit).

Outside the partition's lock, so that appends go on meanwhile. A sync covers what was published before it began, by
whichever process: the page cache is one. After a sync that failed, its file is never synced again, since the system may
have dropped the bytes and report success the next time: the segment is copied from the page cache, each batch checked, to
a new file, which is synced and takes the old one's place.
"""

from __future__ import annotations

import logging
import threading  # threads wait here for one another's sync

from pylog.errors import CorruptSegment, NotAppended, OffsetOutOfRange, OutcomeUnknown, PylogError, StorageError
from pylog.partition.closed_files import closed_since, sync_indexes
from pylog.partition.commit_slots import CommitState
from pylog.partition.place import Place
from pylog.partition.writer import PartitionWriter
from pylog.segment.naming import LOG, file_path
from pylog.storage import AppendableFile, after_fork_in_child

logger = logging.getLogger("pylog.partition")

_LOCK_TIMEOUT_MS = 120_000


class Durability:
    """The durable end of one partition, as this process knows it, and the way to advance it."""

    def __init__(self, place: Place, writer: PartitionWriter) -> None:
        self._place = place
        self._filesystem = place.filesystem
        self._directory = place.directory
        self._writer = writer
        self._condition = threading.Condition()
        self._syncing = False
        self._durable_offset = 0
        self._directory_synced_for = -1
        self._file: AppendableFile | None = None
        self._file_of = (-1, -1)
        self._failed_base = -1
        after_fork_in_child(self._forget_parent)

    def sync(self, end_offset: int) -> None:
        """Return when everything below ``end_offset``, which is published already, survives a loss of power.

        ``OutcomeUnknown`` if the disk refused: the records are in the log and visible, but may be lost with the power.
        """
        while self._durable_offset < end_offset:
            with self._condition:
                if self._durable_offset >= end_offset:
                    return
                if self._syncing:
                    self._condition.wait()
                    continue
                self._syncing = True
            try:
                self._sync_published(end_offset)
            except (StorageError, CorruptSegment, NotAppended) as error:
                raise OutcomeUnknown(
                    f"{self._directory}: offsets below {end_offset} are in the log, but could not be synced: {error}",
                    path=self._directory,
                    end_offset=end_offset,
                ) from error
            finally:
                with self._condition:
                    self._syncing = False
                    self._condition.notify_all()

    def _sync_published(self, end_offset: int) -> None:
        state = self._writer.published()
        if end_offset > state.log_end_offset:
            raise OffsetOutOfRange(
                f"{self._directory} ends at offset {state.log_end_offset}, so nothing up to {end_offset} can be synced",
                path=self._directory,
                offset=end_offset,
                latest=state.log_end_offset,
            )
        if state.durable_offset < state.log_end_offset or self._directory_synced_for != state.active_base:
            if state.durable_offset <= state.active_base:  # the first sync since the active segment was begun
                self._sync_closed_segments(state)
            if state.written_end:  # else its file may not be there yet: a roll publishes it first
                self._sync_active(state)
            if self._directory_synced_for != state.active_base:
                self._filesystem.sync_directory(self._directory)
                self._directory_synced_for = state.active_base if state.written_end else -1
            try:
                self._writer.publish_durable(state.log_end_offset, _LOCK_TIMEOUT_MS)
            except PylogError as error:  # the records are durable all the same; the next sync publishes it
                logger.warning("%s: durable end %d not published: %s", self._directory, state.log_end_offset, error)
        self._durable_offset = max(self._durable_offset, state.log_end_offset)

    def _sync_closed_segments(self, state: CommitState) -> None:
        """Sync what was closed since the last time, with its indexes: a loss of power then leaves them as they are."""
        segments = self._place.segments()
        for base in closed_since(segments, state.durable_offset, state.active_base):
            following = segments.after(base)
            if following is None or following > state.durable_offset:
                try:
                    file = self._filesystem.open_appendable(file_path(self._directory, base, LOG), create=False)
                except FileNotFoundError:
                    continue  # its records were deleted meanwhile
                try:
                    self._sync_file(file, base)
                finally:
                    file.close()
            sync_indexes(self._filesystem, self._directory, base)

    def _sync_active(self, state: CommitState) -> None:
        wanted = state.active_base, state.segments_version
        if self._file is None or self._file_of != wanted:  # another version: it may have been replaced by a copy
            if self._file is not None:
                self._file.close()
            path = file_path(self._directory, state.active_base, LOG)
            self._file = self._filesystem.open_appendable(path, create=False)
            self._file_of = wanted
        self._sync_file(self._file, state.active_base)

    def _sync_file(self, file: AppendableFile, base: int) -> None:
        if self._failed_base != base:
            try:
                file.sync()
                return
            except StorageError as error:
                logger.warning("%s: %s; copying the segment to a new file", file.path, error)
                self._failed_base = base
        self._writer.rewrite_segment(base, _LOCK_TIMEOUT_MS)
        self._failed_base = -1
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        with self._condition:
            while self._syncing:
                self._condition.wait()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _forget_parent(self) -> None:
        self._condition = threading.Condition()
        self._syncing = False
