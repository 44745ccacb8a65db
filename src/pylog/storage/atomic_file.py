"""Replace a small file whole: readers see the old content or the new, after a power loss too.

A temporary file in the same directory, synced, renamed over the target, and the directory synced. A failure removes the
temporary file. What a crash leaves is a ``.tmp`` file, which the next replacement of the target overwrites.
"""

from __future__ import annotations

from pylog.errors import StorageError
from pylog.interrupts import suppress
from pylog.storage.filesystem import Buffer, FileSystem

TEMPORARY = ".tmp"
_NAME_BYTES_MAX = 255  # of one name, on every filesystem in use; ours are ASCII


def write_atomically(filesystem: FileSystem, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Make ``path`` hold exactly ``data``. Durable on return unless ``durable=False``, which survives processes only.

    The caller holds a lock that excludes other writers of ``path``, and of names that share its first 251 characters.
    """
    directory, _, name = path.rpartition("/")
    temporary = f"{directory or '.'}/{name[: _NAME_BYTES_MAX - len(TEMPORARY)]}{TEMPORARY}"
    try:
        _write(filesystem, temporary, data, durable=durable)
    except BaseException:
        with suppress(StorageError):
            filesystem.remove(temporary)  # its bytes may be what fills the disk
        raise
    filesystem.replace(temporary, path)
    if durable:
        filesystem.sync_directory(directory or ".")


def _write(filesystem: FileSystem, path: str, data: Buffer, *, durable: bool) -> None:
    file = filesystem.open_appendable(path)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        if durable:
            file.sync()
    finally:
        file.close()


def read_whole(filesystem: FileSystem, path: str, limit_bytes: int) -> bytes:
    """All of a small file, at most ``limit_bytes`` of it. ``FileNotFoundError`` where there is none."""
    file = filesystem.open_readable(path)
    try:
        return file.pread(limit_bytes, 0)
    finally:
        file.close()
