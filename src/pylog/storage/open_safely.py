"""Opening what a path names and nothing else: below a root through no symbolic link, and as a file only a regular one.

A user who may write in a log's directory can replace any name in it with a link at any moment. A path that the kernel resolves
at once would follow it; here each directory on the way is opened as itself, and the last step is taken from that descriptor.
The root itself may be reached through links: that is its user's choice. Nothing is kept open. What stands in a file's place
and is not a regular file is refused, and never waited for as a FIFO would be.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from types import TracebackType

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage import permissions
from pylog.storage.descriptor_pool import with_descriptor
from pylog.storage.descriptors import Descriptor, give_back, open_descriptor
from pylog.storage.directories import parent_of
from pylog.storage.os_errors import translated

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INTO = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)  # to pass, not to list

FOR_WRITING = os.O_RDWR | os.O_NOFOLLOW
_NEVER_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class reached:  # noqa: N801  (reads as a phrase: with reached(root, "remove", path) as (directory, name, no_follow))
    """Where ``path`` is: the descriptor of a directory (None: the process's own), the name there, and ``O_NOFOLLOW``.

    Without a root, or outside of it, the path as it stands, and 0. An ``OSError`` of the block is translated as by
    ``translated``.
    """

    __slots__ = ("_action", "_descriptor", "_path", "_root")

    def __init__(self, root: str | None, action: str, path: str) -> None:
        self._root = root
        self._action = action
        self._path = path
        self._descriptor: Descriptor | None = None

    def __enter__(self) -> tuple[int | None, str, int]:
        root, path = self._root, self._path
        if root is None or not path.startswith(f"{root}/"):
            return None, path, 0
        end = path.find("/", len(root) + 1)
        if end < 0:
            return None, path, os.O_NOFOLLOW
        name = path[:end]
        try:
            while True:
                above = None if self._descriptor is None else self._descriptor.fileno()
                self._descriptor = with_descriptor(open_descriptor, name, _INTO, directory=above)
                start, end = end + 1, path.find("/", end + 1)
                if end < 0:
                    return self._descriptor.fileno(), path[start:], os.O_NOFOLLOW
                name = path[start:end]
        except own(OSError) as error:
            self._close()
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and is_link(path[:end]):
                raise link_refused(path[:end]) from error
            with translated(self._action, path):
                raise
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            give_back(descriptor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            self._close()
        if isinstance(error, OSError):
            translated(self._action, self._path).__exit__(kind, error, trace)


def link_refused(path: str) -> StorageError:
    """What is said of a symbolic link where none is followed."""
    return StorageError(
        f"{path!r} is a symbolic link, and inside a log none is followed; put what it leads to in its place (a bind "
        "mount will do)",
        path=path,
        kind="a symbolic link",
    )


def is_link(path: str) -> bool:
    """Whether the name is a symbolic link. As ``os.path`` tells it, which takes a signal handler's exception for a no."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except own(OSError, ValueError):
        return False


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
            permissions.give_to_owner(descriptor.fileno(), above, path)
            permissions.set_mode(descriptor.fileno(), mode)
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
