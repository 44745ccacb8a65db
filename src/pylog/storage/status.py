"""What stands under a name. As ``os.path`` tells it, which takes a signal handler's exception for the answer no."""

from __future__ import annotations

import os
import stat

from pylog.interrupts import own


def exists(path: str) -> bool:
    """Whether the name is there, be it a link that leads nowhere."""
    try:
        os.lstat(path)
    except own(OSError, ValueError):
        return False
    return True


def is_directory(path: str) -> bool:
    """Whether a directory stands there, or a link leads to one."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except own(OSError, ValueError):
        return False


def is_link(path: str) -> bool:
    """Whether the name is a symbolic link."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except own(OSError, ValueError):
        return False


def resolved(path: str) -> str:
    """The path without links, as far as it can be followed."""
    try:
        return os.path.realpath(path, strict=True)
    except own(OSError):
        return os.path.realpath(path)
