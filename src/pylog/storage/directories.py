"""Directories made so that they last."""

from __future__ import annotations

import errno

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage.filesystem import FileSystem

_ALWAYS_THERE = (".", "/")


def parent_of(path: str) -> str:
    """The directory that has ``path`` as a name in it: of ``/x`` it is ``/``, of ``x`` it is ``.``."""
    above, slash, _ = path.rstrip("/").rpartition("/")
    return above or slash or "."


def make_directory_durably(filesystem: FileSystem, path: str, mode: int | None = None) -> None:
    """Create a directory and its parents, from the top down; each name is on the medium before the next is made.

    So is that of the last one that was there: another process may have made it, and died before it came to that. All have
    ``mode``; None: as ``FileSystem.make_directory`` has it.
    """
    missing: list[str] = []
    while path not in _ALWAYS_THERE and not filesystem.is_directory(path):
        missing.append(path)
        path = parent_of(path)
    if missing and path not in _ALWAYS_THERE:
        sync_name(filesystem, path)
    for new in reversed(missing):
        filesystem.make_directory(new, mode)
        filesystem.sync_directory(parent_of(new))


def sync_name(filesystem: FileSystem, directory: str) -> None:
    """Put the name of a directory on the medium, which is done by syncing the one it is in. ``StorageError``.

    Where that one can't be synced (some filesystems know no such thing, as those that others are mounted into), or may be
    neither written nor read, pylog has not made the name: then it is taken to be there to stay.
    """
    above = parent_of(directory)
    try:
        filesystem.sync_directory(above)
    except own(StorageError) as error:
        refusal = error.facts.get("errno")
        is_closed = refusal in (errno.EACCES, errno.EPERM) and not filesystem.writable(above)
        if not is_closed and refusal not in (errno.EINVAL, errno.ENOTSUP):
            raise
