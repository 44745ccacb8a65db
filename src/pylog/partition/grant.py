"""The right to change a partition's files: what holding its lock yields.

Only a grant publishes, and only a grant opens a segment to append to it. Everything that changes a
partition's records takes one as a parameter, so that none of it can be called without the lock. A
sync needs none; compaction writes files of other names under the cleaner's lock.
"""

from __future__ import annotations

from collections.abc import Callable

from pylog.errors import ForkedHandle, StorageError
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitSlots, CommitState
from pylog.partition.directory import PartitionDirectory, PartitionSettings
from pylog.segment.files import SegmentFiles
from pylog.segment.writer import SegmentWriter


class Grant:
    """Given by ``WriteLock.holding`` for the time of one call. ``slots`` are those of the file that
    is open now.

    A signal handler may fork and return, in the child, into its parent's change. ``check`` raises
    in the child, and so does everything here that opens or writes.
    """

    __slots__ = ("_is_held", "directory", "settings", "slots")

    slots: CommitSlots
    settings: PartitionSettings | None  # None: they are to be read again

    def __init__(self, directory: PartitionDirectory, is_held: Callable[[], bool]) -> None:
        self.directory = directory
        self._is_held = is_held
        self.settings = None

    def check(self) -> None:
        """Raises ``ForkedHandle`` in a child that returned from a signal handler into its parent's
        change."""
        if not self._is_held():
            raise self.forked()

    def forked(self) -> ForkedHandle:
        """The error of a child that does its parent's work."""
        return ForkedHandle(
            f"{self.directory.path} was being changed by this thread when a signal handler forked; the parent continues with "
            "it, the child must not",
            path=self.directory.path,
        )

    def revoke(self) -> None:
        """In a forked child: the parent has the lock."""
        self._is_held = bool

    def read_settings(self) -> PartitionSettings:
        """The topic's settings as they are now; kept until the next ``announce_settings``."""
        self.settings = settings = self.directory.settings()
        return settings

    def publish(self, state: CommitState) -> CommitState:
        """Make ``state`` the published state; returns it."""
        if not self._is_held():
            raise self.forked()
        try:
            return self.slots.publish(state)
        except own(StorageError):
            self.check()  # a child forked just now: its slots were closed
            raise

    def sync_slots(self) -> None:
        """Sync what is published to the disk. ``StorageError``."""
        self.check()
        self.slots.sync()

    def segment_files(self, base: int) -> SegmentFiles:
        """The files of a segment, to be changed."""
        self.check()
        return SegmentFiles(self.directory.filesystem, self.directory.path, base)

    def segment_writer(self, base: int, index_suffix: str = "") -> SegmentWriter:
        """The files of a segment, opened for appending; those that are not there are created.

        Keep it where a forked child closes it, then ``check``: the child must not write to it.
        """
        self.check()
        settings = self.directory.settings()
        return SegmentWriter(
            self.directory.filesystem,
            self.directory.path,
            base,
            index_interval_bytes=settings.index_interval_bytes,
            index_max_bytes=settings.segment_index_bytes,
            index_suffix=index_suffix,
        )
