"""Paths of the files of a group."""

from __future__ import annotations

from pylog.catalog.layout import encoded_group
from pylog.clock import Clock
from pylog.errors import ConfigError
from pylog.storage import FileSystem

NAME_BYTES_MAX = 200  # of the directory's name
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


def check_group(group: object) -> None:
    """``ConfigError`` if a group cannot have this name."""
    try:
        if isinstance(group, str) and group and len(encoded_group(group)) <= NAME_BYTES_MAX:
            return
    except UnicodeEncodeError:
        pass
    raise ConfigError(
        f"a group's name is text of 1 to {NAME_BYTES_MAX} bytes (a character that no topic's name can have counts three for each "
        f"of its bytes), got {group!r:.80}",
        option="group_id", value=group,
    )  # fmt: skip
