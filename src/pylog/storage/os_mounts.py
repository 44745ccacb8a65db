"""What Linux says of its mounts and of itself in ``/proc``."""

from __future__ import annotations

from pylog.interrupts import own
from pylog.storage.descriptor_pool import with_descriptor
from pylog.storage.os_errors import translated

_MOUNTS = "/proc/self/mountinfo"


def read_of_proc(path: str) -> str:
    """Read a file that only Linux has: ``FileNotFoundError`` elsewhere, else ``StorageError``."""
    with translated("read", path), with_descriptor(open, path, encoding="utf-8", errors="surrogateescape") as file:
        content: str = file.read()
    return content


def mount_kind(path: str) -> str:
    """The mount's type, from Linux's ``/proc/self/mountinfo`` (proc(5)); "" on other systems."""
    try:
        lines = read_of_proc(_MOUNTS).splitlines()
    except own(FileNotFoundError):
        return ""
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        mount = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, fields[fields.index("-") + 1]
    return kind
