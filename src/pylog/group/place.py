"""Where the files of a group are."""

from __future__ import annotations

from typing import NamedTuple

from pylog.clock import Clock
from pylog.storage import FileSystem


class GroupPlace(NamedTuple):
    """The directory of one group. ``boot`` is ``boot_of`` its filesystem."""

    filesystem: FileSystem
    clock: Clock
    group: str
    directory: str
    boot: int

    @property
    def lock(self) -> str:
        return f"{self.directory}/lock"

    @property
    def state(self) -> str:
        return f"{self.directory}/state"

    @property
    def heartbeats(self) -> str:
        return f"{self.directory}/heartbeats"

    @property
    def members(self) -> str:
        return f"{self.directory}/members"

    def member(self, id_: str) -> str:
        return f"{self.members}/{id_}.lock"

    def make(self) -> None:
        """Make the directories. Nothing in them outlives a boot, so nothing is synced."""
        for directory in (self.directory.rpartition("/")[0], self.directory, self.members):
            self.filesystem.make_directory(directory)
