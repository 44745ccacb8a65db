"""Opening what must be a regular file. What stands there instead is refused, and never waited for as a FIFO would be."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from pylog.errors import StorageError
from pylog.storage import modes
from pylog.storage.descriptor_pool import with_descriptor
from pylog.storage.descriptors import give_back
from pylog.storage.directories import parent_of
from pylog.storage.reaching import link_refused

FOR_WRITING = os.O_RDWR | os.O_NOFOLLOW
_NEVER_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(name: str, flags: int, path: str, directory: int | None = None) -> int:
    """A descriptor of the file ``name`` in ``directory``, which is at ``path``; never made here.

    ``StorageError`` where it is no regular file, or is to be written and has other names; else the system's own error.
    """
    try:
        descriptor = with_descriptor(os.open, name, flags | _NEVER_WAIT, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise link_refused(path) from error
        raise
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and (found.st_nlink < 2 or not flags & os.O_RDWR):
            return descriptor
        raise _refused(path, found)
    except BaseException:
        give_back(descriptor)
        raise


def open_or_make(name: str, flags: int, path: str, directory: int | None, mode_of: Callable[[int], int]) -> int:
    """The same, and where there is none, a new file with the mode that ``mode_of`` finds for its directory's."""
    while True:
        try:
            return open_regular(name, flags, path, directory)
        except FileNotFoundError:
            mode = mode_of(mode_around(directory, path))
        try:
            made = flags | os.O_CREAT | os.O_EXCL | _NEVER_WAIT
            descriptor = with_descriptor(os.open, name, made, mode, dir_fd=directory)
        except FileExistsError:
            continue  # another process made it meanwhile
        try:
            modes.give(descriptor, mode)
        except BaseException:
            give_back(descriptor)
            raise
        return descriptor


def mode_around(directory: int | None, path: str) -> int:
    """The permissions of the directory that ``path`` is in, by its descriptor if there is one."""
    return stat.S_IMODE(os.stat(parent_of(path) if directory is None else directory).st_mode)


def _refused(path: str, found: os.stat_result) -> StorageError:
    if stat.S_ISREG(found.st_mode):
        return StorageError(
            f"{path!r} has {found.st_nlink} names (hard links), and a write would change what is under the others too, as in a "
            "backup made of links; put a copy of the file in its place",
            path=path,
            links=found.st_nlink,
            expected=1,
        )
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
    return StorageError(
        f"{path!r} is {kind}, expected a regular file; move it away, and put the file back from a copy if there was one",
        path=path,
        kind=kind,
        expected="a regular file",
    )
