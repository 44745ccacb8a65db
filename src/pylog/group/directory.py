"""Paths of the files of a group."""

from __future__ import annotations

from pylog.catalog.layout import check_encodable
from pylog.clock import Clock
from pylog.storage import FileSystem

MEMBER_ID_BYTES = 16  # a member's id, and the name of its file, are these bytes in hexadecimal


class GroupDirectory:
    """The directory of one group. ``boot`` is ``boot_of`` its filesystem."""

    def __init__(self, filesystem: FileSystem, clock: Clock, group: str, path: str, boot: int) -> None:
        self.filesystem = filesystem
        self.clock = clock
        self.group = group
        self.boot = boot
        self.path = path
        self.lock = f"{path}/lock"
        self.state = f"{path}/state"
        self.heartbeats = f"{path}/heartbeats"
        self.members = f"{path}/members"

    def member(self, id_: str) -> str:
        return f"{self.members}/{id_}.lock"

    def make(self) -> None:
        """Create the directory. It is not synced: nothing in it outlives a boot."""
        for directory in (self.path.rpartition("/")[0], self.path):
            self.filesystem.make_directory(directory)


def check_group(group: object, ignores_case: bool = False) -> str:
    """Return it if a group can have this name; else ``ConfigError``."""
    return check_encodable(group, "group_id", "a group's name", ignores_case)
