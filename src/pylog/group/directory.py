"""Paths of the files of a group."""

from __future__ import annotations

from pylog.catalog.layout import check_encodable
from pylog.clock import Clock
from pylog.storage import FileSystem, while_holding

MEMBER_ID_BYTES = 16  # a member's id, and the name of its file, are these bytes in hexadecimal


class GroupDirectory:
    """The directory of one group. ``boot`` is ``boot_of`` its filesystem; ``groups_lock`` is the
    path of the lock that is held while a group appears."""

    def __init__(
        self, filesystem: FileSystem, clock: Clock, group: str, path: str, boot: int, groups_lock: str
    ) -> None:
        self.filesystem = filesystem
        self.clock = clock
        self.group = group
        self.boot = boot
        self.path = path
        self.lock = f"{path}/lock"
        self.state = f"{path}/state"
        self.heartbeats = f"{path}/heartbeats"
        self.members = f"{path}/members"
        self._groups_lock = groups_lock

    def member(self, id_: str) -> str:
        return f"{self.members}/{id_}.lock"

    def make(self, timeout_s: float) -> None:
        """Create the directory. It is not synced: nothing in it outlives a boot. ``LogLocked``.

        A process that changes a topic holds the locks of all groups, and this one, until its
        decision. A group that appeared before it could commit what the change does not see.
        """
        while_holding(self.filesystem, self.clock, self._groups_lock, self._make, timeout_s)

    def _make(self) -> None:
        for directory in (self.path.rpartition("/")[0], self.path):
            self.filesystem.make_directory(directory)


def check_group(group: object, ignores_case: bool = False) -> str:
    """Return it if a group can have this name; else ``ConfigError``."""
    return check_encodable(group, "group_id", "a group's name", ignores_case)
