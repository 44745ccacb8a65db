"""Replaces a small file: readers see the old content or the new, also after a power failure.

A temporary file in the same directory is written, synced and renamed over the target; then the
directory is synced. A failure removes the temporary file. After a crash a ``.tmp`` file may remain,
which the next replacement of the target overwrites.
"""

from __future__ import annotations

from pylog.errors import ForkedHandle, StorageError
from pylog.interrupts import suppress
from pylog.storage.filesystem import Buffer, FileSystem
from pylog.storage.same_process import same_process

TEMPORARY = ".tmp"
_NAME_BYTES_MAX = 255  # the limit of every filesystem in use; names here are ASCII


def write_atomically(filesystem: FileSystem, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Replace the content of ``path``. Durable on return, unless ``durable=False``: then it
    survives only the death of processes.

    The caller's lock excludes other writers of ``path`` and of names with the same 251 first
    characters.
    """
    directory, _, name = path.rpartition("/")
    temporary = f"{directory or '.'}/{name[: _NAME_BYTES_MAX - len(TEMPORARY)]}{TEMPORARY}"
    check_process = same_process(filesystem, f"{path!r} was being replaced", path=path)
    try:
        _write(filesystem, temporary, data, durable=durable)
        check_process()
    except BaseException:
        with suppress(StorageError, ForkedHandle):  # a child leaves the file to its parent
            check_process()
            filesystem.remove(temporary)  # its bytes may fill the disk
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
    """Read a small file, at most ``limit_bytes``. ``FileNotFoundError`` if it does not exist."""
    file = filesystem.open_readable(path)
    try:
        return file.pread(limit_bytes, 0)
    finally:
        file.close()
