"""What stands under a name. As ``os.path`` tells it, which takes a signal handler's exception for the answer no."""

from __future__ import annotations

import os
import stat

from pylog.interrupts import own


def status_of(path: str, *, follow: bool = True) -> os.stat_result | None:
    """The status of the file, or of the link itself; None where there is none, or nothing can be reached."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except own(OSError, ValueError):
        return None


def exists(path: str) -> bool:
    """Whether the name is there, be it a link that leads nowhere."""
    return status_of(path, follow=False) is not None


def is_directory(path: str) -> bool:
    """Whether a directory stands there, or a link leads to one."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_link(path: str) -> bool:
    """Whether the name is a symbolic link."""
    status = status_of(path, follow=False)
    return status is not None and stat.S_ISLNK(status.st_mode)


def resolved(path: str) -> str:
    """The path without links, as far as it can be followed."""
    try:
        return os.path.realpath(path, strict=True)
    except own(OSError):
        return os.path.realpath(path)
