"""Creates directories durably."""

from __future__ import annotations

import errno

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage.filesystem import FileSystem

_ALWAYS_THERE = (".", "/")


def parent_of(path: str) -> str:
    """The directory that contains ``path``: ``/`` for ``/x``, ``.`` for ``x``."""
    above, slash, _ = path.rstrip("/").rpartition("/")
    return above or slash or "."


def make_directory_durably(filesystem: FileSystem, path: str, mode: int | None = None) -> None:
    """Create a directory and its parents, top down; each name is on the disk before the next one.

    The name of the deepest existing parent is synced as well: another process may have made it and
    died before it synced the name. All get ``mode``; for None see ``FileSystem.make_directory``.
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
    """Put the name of a directory on the disk, by syncing its parent. ``StorageError``.

    The parent may not support a sync (for example, a filesystem that only contains mounts), or this
    process may not read or write it. Then pylog did not make the name, and it counts as durable.
    """
    above = parent_of(directory)
    try:
        filesystem.sync_directory(above)
    except own(StorageError) as error:
        refusal = error.facts.get("errno")
        is_closed = refusal in (errno.EACCES, errno.EPERM) and not filesystem.writable(above)
        if not is_closed and refusal not in (errno.EINVAL, errno.ENOTSUP):
            raise
