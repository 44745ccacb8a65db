"""Opens exactly what a path names: no symbolic links below a root, and only regular files.

A user who may write in a log's directory can replace any name in it with a link at any moment. If
the kernel resolved the whole path, it would follow the link. So each directory below the root is
opened without following links, and the last name relative to it. The root itself may be reached
through links: its user chose it. No directory stays open. No call waits for a FIFO. Reading has
the same rules: a writer in the log could have the reader's own files shown as records.
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
# only to open names in it
_INTO = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)

FOR_WRITING = os.O_RDWR | os.O_NOFOLLOW
_NEVER_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ATTEMPTS_MAX = 1000  # another process may replace a file now and then
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class reached:  # noqa: N801  (reads as a phrase: with reached(root, "remove", path) as (directory, name, no_follow))
    """Where ``path`` is: a directory's descriptor (None: the working one), a name, ``O_NOFOLLOW``.

    Without a root, or outside of it, the name is ``path`` itself and the flag is 0. An ``OSError``
    of the block is translated as by ``translated``.
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
    """The error for a symbolic link inside a log."""
    return StorageError(
        f"{path!r} is a symbolic link, which pylog does not follow inside a log; replace it by what it points to, or by a "
        "bind mount",
        path=path,
        kind="a symbolic link",
    )


def is_link(path: str) -> bool:
    """Like ``os.path.islink``, which takes a signal handler's exception for False."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except own(OSError, ValueError):
        return False


def open_regular(name: str, flags: int, path: str, directory: int | None = None) -> Descriptor:
    """Open the existing file ``name`` in ``directory``; ``path`` is its full path.

    ``StorageError`` if not regular, if to be written and with other names, or if the name is given
    to another file each time; else ``OSError``.
    """
    is_to_be_written = flags & os.O_RDWR
    for _ in range(_ATTEMPTS_MAX):
        try:
            descriptor = with_descriptor(open_descriptor, name, flags | _NEVER_WAIT, directory=directory)
        except own(OSError) as error:
            if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
                raise link_refused(path) from error
            if error.errno == errno.ENXIO:
                raise _kind_refused(path, "a socket, or a missing device") from error
            raise
        try:
            found = os.fstat(descriptor.fileno())
            if not stat.S_ISREG(found.st_mode) or (is_to_be_written and found.st_nlink > 1):
                raise _refused(path, found)
            if not is_to_be_written:
                return descriptor
            # A hard link that was unlinked after the file was opened has left it one name,
            # elsewhere. So the name must still be this file's. While another process unlinks it,
            # the kernel may still say so: see SECURITY.md.
            named = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if os.path.samestat(found, named):
                if named.st_nlink > 1:
                    raise _refused(path, named)
                return descriptor
        except BaseException:
            give_back(descriptor)
            raise
        give_back(descriptor)  # the name is another file's by now
    raise StorageError(
        f"{path!r} is another file each time that it is looked at, {_ATTEMPTS_MAX} times, expected the one that was opened: "
        "find what replaces it, or use a filesystem whose inode numbers are stable",
        path=path,
        attempts=_ATTEMPTS_MAX,
    )


def open_or_make(name: str, flags: int, path: str, directory: int | None, mode_of: Callable[[int], int]) -> Descriptor:
    """Like ``open_regular``, but create a missing file; ``mode_of`` maps its directory's mode.

    The new file belongs to the owner of its directory, if this process may change the owner.
    """
    # Most files are new here, and a failed attempt to open one takes longer than this look.
    may_be_there = os.access(name, os.F_OK, dir_fd=directory, follow_symlinks=False)
    while True:
        if may_be_there:
            try:
                return open_regular(name, flags, path, directory)
            except own(FileNotFoundError):
                pass
        above = status_around(directory, path)
        mode = mode_of(stat.S_IMODE(above.st_mode))
        may_be_there = True
        try:
            made = flags | os.O_CREAT | os.O_EXCL | _NEVER_WAIT
            descriptor = with_descriptor(open_descriptor, name, made, mode, directory)
        except own(FileExistsError):
            continue  # another process has just made it
        try:
            permissions.give_to_owner(descriptor.fileno(), above, path)
            permissions.set_mode(descriptor.fileno(), mode)
        except BaseException:
            give_back(descriptor)
            raise
        return descriptor


def status_around(directory: int | None, path: str) -> os.stat_result:
    """The status of the directory that contains ``path``, by its descriptor if there is one."""
    return os.stat(parent_of(path) if directory is None else directory)


def _refused(path: str, found: os.stat_result) -> StorageError:
    if stat.S_ISREG(found.st_mode):
        return StorageError(
            f"{path!r} has {found.st_nlink} names (hard links), expected 1: a write would also change the other files, such as "
            "a backup made of links; replace it by a copy",
            path=path,
            links=found.st_nlink,
            expected=1,
        )
    return _kind_refused(path, _KINDS.get(stat.S_IFMT(found.st_mode), "something else"))


def _kind_refused(path: str, kind: str) -> StorageError:
    return StorageError(
        f"{path!r} is {kind}, expected a regular file; move it away, and restore the file from a copy if it existed",
        path=path,
        kind=kind,
        expected="a regular file",
    )
