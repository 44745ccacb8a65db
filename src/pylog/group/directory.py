"""Paths of the files of a group."""

from __future__ import annotations

from collections.abc import Callable

from pylog.catalog.layout import check_encodable
from pylog.clock import Clock
from pylog.storage import FileSystem

MEMBER_ID_BYTES = 16  # a member's id, and the name of its file, are these bytes in hexadecimal


class GroupDirectory:
    """The directory of one group. ``boot`` is ``boot_of`` its filesystem; ``with_catalog`` calls a
    function with the catalog's lock, or raises ``LogLocked`` after so many seconds."""

    def __init__(
        self,
        filesystem: FileSystem,
        clock: Clock,
        group: str,
        path: str,
        boot: int,
        with_catalog: Callable[[Callable[[], object], float], object],
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
        self._with_catalog = with_catalog

    def member(self, id_: str) -> str:
        return f"{self.members}/{id_}.lock"

    def make(self, timeout_s: float) -> None:
        """Create the directory. It is not synced: nothing in it outlives a boot.

        With the catalog's lock: a process that changes or deletes a topic holds it, and the locks
        of all groups. A group that appeared meanwhile could commit what the change does not see.
        """
        self._with_catalog(self._make, timeout_s)

    def _make(self) -> None:
        for directory in (self.path.rpartition("/")[0], self.path):
            self.filesystem.make_directory(directory)


def check_group(group: object, ignores_case: bool = False) -> str:
    """Return it if a group can have this name; else ``ConfigError``."""
    return check_encodable(group, "group_id", "a group's name", ignores_case)
