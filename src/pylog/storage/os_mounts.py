"""What the system says of mounts; what Linux says of itself in ``/proc``."""

from __future__ import annotations

import os

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
    """The type of the mount that ``path`` is on, from Linux's ``/proc/self/mountinfo`` (proc(5));
    "" on other systems."""
    path = _resolved(path)
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


def is_mounted_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _resolved(path: str) -> str:
    """The path with its links resolved, as far as possible."""
    try:
        return os.path.realpath(path, strict=True)
    except own(OSError):
        return os.path.realpath(path)
