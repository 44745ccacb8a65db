"""Which segments must not be synced again, because a sync of them has failed. Every process that
syncs checks this.

The system reports a failed write-back once to each open file, so a file that another process opens
afterwards syncs without an error, and without the bytes that were lost. A marker file tells that
process. It needs no sync: after a power failure nothing of the page cache is left.

Source: Linux, "Reporting writeback errors" (Documentation/filesystems/vfs.rst).
"""

from __future__ import annotations

import logging

from pylog.errors import StorageError
from pylog.interrupts import own, was_raised_meanwhile
from pylog.partition.directory import PartitionDirectory
from pylog.segment.naming import UNSYNCED
from pylog.storage import AppendableFile

logger = logging.getLogger("pylog.partition")


class FailedSyncs:
    """The segments of one partition whose sync has failed, by base offset."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._path_of = -1, ""  # of the marker that was checked last
        self._unmarked: set[int] = set()  # known to this process alone: the disk refused the marker, too

    def try_to_sync(self, file: AppendableFile, base: int) -> StorageError | None:
        """Sync a file of the segment. If the system refuses, mark the segment and return the error.

        It is marked, too, if a signal handler raises before that. An error before the sync (no
        descriptor was left) is raised: no sync has failed.
        """
        try:
            try:
                file.sync()
            except own(StorageError) as error:
                if error.facts.get("reopening"):
                    raise
                self.mark(base)
                return error
        except BaseException as error:
            if was_raised_meanwhile(error, OSError):
                self.mark(base)
            raise
        return None

    def mark(self, base: int) -> None:
        """The segment's sync has failed."""
        self._unmarked.add(base)
        try:
            self._directory.filesystem.open_appendable(self._directory.file_path(base, UNSYNCED)).close()
        except own(StorageError) as error:
            logger.warning("%s; only this process knows that the segment's sync failed", error)
        else:
            self._unmarked.discard(base)

    def is_marked(self, base: int) -> bool:
        """Whether a sync of the segment has failed, in whatever process."""
        path_of = self._path_of
        if path_of[0] != base:
            self._path_of = path_of = base, self._directory.file_path(base, UNSYNCED)
        return base in self._unmarked or self._directory.filesystem.exists(path_of[1])

    def clear(self, base: int) -> None:
        """The segment was replaced by a copy that is durable."""
        self._directory.filesystem.remove(self._directory.file_path(base, UNSYNCED))
        self._unmarked.discard(base)
