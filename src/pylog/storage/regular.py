"""Opening what must be a regular file. What stands there instead is refused, and never waited for as a FIFO would be."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage import modes, owners
from pylog.storage.descriptor_pool import with_descriptor
from pylog.storage.descriptors import Descriptor, give_back, open_descriptor
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


def open_regular(name: str, flags: int, path: str, directory: int | None = None) -> Descriptor:
    """A descriptor of the file ``name`` in ``directory``, which is at ``path``; never made here.

    ``StorageError`` where it is no regular file, or is to be written and has other names; else the system's own error.
    """
    try:
        descriptor = with_descriptor(open_descriptor, name, flags | _NEVER_WAIT, directory=directory)
    except own(OSError) as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise link_refused(path) from error
        if error.errno == errno.ENXIO:
            raise _kind_refused(path, "a socket, or a device that is not there") from error
        raise
    try:
        found = os.fstat(descriptor.fileno())
        if stat.S_ISREG(found.st_mode) and (found.st_nlink < 2 or not flags & os.O_RDWR):
            return descriptor
        raise _refused(path, found)
    except BaseException:
        give_back(descriptor)
        raise


def open_or_make(name: str, flags: int, path: str, directory: int | None, mode_of: Callable[[int], int]) -> Descriptor:
    """The same, and if there is none, a new file with the mode that ``mode_of`` finds for its directory's.

    The new file belongs to the owner of its directory, if this process may give it to that one.
    """
    while True:
        try:
            return open_regular(name, flags, path, directory)
        except own(FileNotFoundError):
            above = status_around(directory, path)
            mode = mode_of(stat.S_IMODE(above.st_mode))
        try:
            made = flags | os.O_CREAT | os.O_EXCL | _NEVER_WAIT
            descriptor = with_descriptor(open_descriptor, name, made, mode, directory)
        except own(FileExistsError):
            continue  # another process made it meanwhile
        try:
            owners.give_to_owner(descriptor.fileno(), above, path)
            modes.give(descriptor.fileno(), mode)
        except BaseException:
            give_back(descriptor)
            raise
        return descriptor


def status_around(directory: int | None, path: str) -> os.stat_result:
    """The owner and the mode of the directory that ``path`` is in, by its descriptor if there is one."""
    return os.stat(parent_of(path) if directory is None else directory)


def _refused(path: str, found: os.stat_result) -> StorageError:
    if stat.S_ISREG(found.st_mode):
        return StorageError(
            f"{path!r} has {found.st_nlink} names (hard links), and a write would change what is under the others too, as in a "
            "backup made of links; put a copy of the file in its place",
            path=path,
            links=found.st_nlink,
            expected=1,
        )
    return _kind_refused(path, _KINDS.get(stat.S_IFMT(found.st_mode), "something else"))


def _kind_refused(path: str, kind: str) -> StorageError:
    return StorageError(
        f"{path!r} is {kind}, expected a regular file; move it away, and put the file back from a copy if there was one",
        path=path,
        kind=kind,
        expected="a regular file",
    )
