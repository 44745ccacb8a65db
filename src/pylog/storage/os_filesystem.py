"""The real filesystem: thin wrappers of system calls that translate errors and keep no state.

It never maps a file (a mapping dies with SIGBUS when the file is truncated) and never follows a
link to a file that it writes. Below a root, calls that open, list or change something follow no
links at all (``open_safely.py``). Calls that only inspect a name use the path as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Collection

from pylog.errors import StorageError
from pylog.interrupts import own, suppress
from pylog.storage import permissions
from pylog.storage.descriptor_pool import POOL, Identity, OpenDescriptor, identity_of, with_descriptor
from pylog.storage.descriptors import Descriptor, give_back, open_descriptor
from pylog.storage.filesystem import AppendableFile, Buffer, FileLock, ReadableFile, Watch
from pylog.storage.open_safely import (
    DIRECTORY,
    FOR_WRITING,
    is_link,
    link_refused,
    open_or_make,
    open_regular,
    reached,
    status_around,
)
from pylog.storage.os_errors import storage_error, translated
from pylog.storage.os_exchange import exchange
from pylog.storage.os_lock import OsFileLock, is_held
from pylog.storage.os_mounts import is_mounted_read_only, mount_kind, read_of_proc
from pylog.storage.os_watch import watch_files

NETWORK_FILESYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "ncpfs", "davfs",
    "fuse.davfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse",
})  # fmt: skip
"""The system's names of filesystem types whose locks between hosts are not reliable."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LARGE_BYTES = 64 << 10  # for longer reads, ask for the file's size first
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache


class OsReadableFile:
    """A file open for reading. A running call refers to the descriptor: ``descriptor_pool.py``."""

    __slots__ = ("__weakref__", "_is_closed", "_known_as", "_open", "_root", "is_used", "path")
    _flags = os.O_RDONLY

    def __init__(self, path: str, owner: Descriptor, root: str | None = None) -> None:
        """When the file is reopened, no link below the directory ``root`` is followed."""
        self._open: OpenDescriptor | None = OpenDescriptor(owner)
        self._known_as: Identity | None = None  # set once the file was closed because it was idle
        self._root = root
        self._is_closed, self.is_used = False, True
        self.path = path

    def pread(self, size: int, position: int) -> bytes:
        if size > _LARGE_BYTES:  # Python allocates the whole size, which may be only a bound
            size = min(size, max(self.size() - position, 0))
        opened = self._open or self._open_again("read")
        self.is_used = True
        try:
            data = os.pread(opened.number, size, position)
            if len(data) == size or not data:
                return data
            parts, got = [data], len(data)
            while got < size and data:  # Linux stops at 2 GiB, and a signal may stop it anywhere
                data = os.pread(opened.number, size - got, position + got)
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except own(OSError) as error:
            raise storage_error("read", self.path, error) from error

    def size(self) -> int:
        opened = self._open or self._open_again("inspect")
        self.is_used = True
        try:
            return os.lseek(opened.number, 0, os.SEEK_END)  # costs half of fstat; no read uses the offset
        except own(OSError) as error:
            raise storage_error("inspect", self.path, error) from error

    def sync(self) -> None:
        opened = self._open or self._open_again("sync")
        self.is_used = True
        try:
            if _FULL_SYNC is not None:
                fcntl.fcntl(opened.number, _FULL_SYNC)
            else:
                os.fdatasync(opened.number)
        except own(OSError) as error:
            raise storage_error("sync", self.path, error) from error

    def close_when_idle(self) -> None:
        POOL.add(self)

    def close_idle(self) -> bool:
        opened = self._open
        if opened is None:
            return False
        known_as = opened.identity()
        if known_as is None:
            return False
        self._known_as = known_as
        self._open = None
        return True

    def _open_again(self, action: str) -> OpenDescriptor:
        if self._is_closed:
            raise storage_error(action, self.path, OSError(errno.EBADF, os.strerror(errno.EBADF)))
        try:
            with reached(self._root, "open", self.path) as (directory, name, no_follow):
                opened = OpenDescriptor(open_regular(name, self._flags | no_follow, self.path, directory))
        except own(StorageError) as error:
            error.facts["reopening"] = True
            raise
        if identity_of(opened.number) != self._known_as:
            raise FileNotFoundError(errno.ENOENT, "It was replaced while it was not open", self.path)
        self._open = opened
        POOL.add(self)
        if self._is_closed:  # meanwhile, by another thread
            self.close()
        return opened

    def close(self) -> None:
        self._is_closed = True
        opened, self._open = self._open, None
        if opened is not None:
            POOL.discard(self)
            opened.revoke()


class OsAppendableFile(OsReadableFile):
    __slots__ = ()
    _flags = FOR_WRITING

    def pwrite(self, data: Buffer, position: int) -> None:
        opened = self._open or self._open_again("write")
        self.is_used = True
        try:
            written = os.pwrite(opened.number, data, position)
            if written != len(data):
                rest = memoryview(data)
                while written < len(data):  # after a short write, continue to the end or an error
                    written += os.pwrite(opened.number, rest[written:], position + written)
        except own(OSError) as error:
            raise storage_error("write", self.path, error) from error

    def truncate(self, size: int) -> None:
        opened = self._open or self._open_again("truncate")
        self.is_used = True
        with translated("truncate", self.path):
            os.ftruncate(opened.number, size)


class OsFileSystem:
    _root: str | None = None

    def within(self, root: str) -> OsFileSystem:
        confined = object.__new__(type(self))
        confined.__dict__.update(self.__dict__, _root=root)
        return confined

    def absolute(self, path: str) -> str:
        try:
            here = os.getcwd()
        except own(FileNotFoundError):  # it was removed: nothing exists or can be made in it
            return path
        return here if path == "." else os.path.join(here, path)

    def open_readable(self, path: str) -> ReadableFile:
        with reached(self._root, "open", path) as (directory, name, no_follow):
            return OsReadableFile(path, open_regular(name, os.O_RDONLY | no_follow, path, directory), self._root)

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        with reached(self._root, "open", path) as (directory, name, _):
            if create:
                return OsAppendableFile(
                    path, open_or_make(name, FOR_WRITING, path, directory, permissions.file_mode), self._root
                )
            return OsAppendableFile(path, open_regular(name, FOR_WRITING, path, directory), self._root)

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        return OsFileLock(path, self._root, readable=readable)

    def is_locked(self, path: str) -> bool:
        try:
            with reached(self._root, "open the lock file", path) as (directory, name, no_follow):
                descriptor = open_regular(name, os.O_RDONLY | no_follow, path, directory)
        except own(FileNotFoundError):
            return False
        try:
            return is_held(path, descriptor.fileno())
        finally:
            give_back(descriptor)

    def locks_exclude(self, path: str) -> bool:
        first, second = OsFileLock(path, self._root), OsFileLock(path, self._root)
        try:
            try:
                if not first.try_acquire():
                    return True  # another holder excludes this one
                return not second.try_acquire()
            finally:
                first.release()
        finally:
            second.close()
            first.close()

    def exists(self, path: str) -> bool:
        try:  # as _status_of does, with fewer calls: each sync asks
            os.lstat(path)
        except own(OSError) as error:
            if error.errno in _NOTHING_THERE:
                return False
            raise storage_error("inspect", path, error) from error
        except own(ValueError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        found = _status_of(path, os.stat)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def is_link(self, path: str) -> bool:
        found = _status_of(path, os.lstat)
        return found is not None and stat.S_ISLNK(found.st_mode)

    def names(self, directory: str) -> list[str]:
        with reached(self._root, "list", directory) as (above, name, no_follow):
            if not no_follow:
                return sorted(with_descriptor(os.listdir, name))
            descriptor = _open_directory(name, directory, above, no_follow)
            try:
                return sorted(with_descriptor(os.listdir, descriptor.fileno()))
            finally:
                give_back(descriptor)

    def size(self, path: str) -> int:
        with translated("inspect", path):
            return os.stat(path).st_size

    def modified_ns(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns
        except own(OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise storage_error("inspect", path, error) from error

    def set_modified_ns(self, path: str, time_ns: int) -> None:
        with reached(self._root, "set the time of", path) as (directory, name, no_follow):
            try:
                os.utime(name, ns=(time_ns, time_ns), dir_fd=directory, follow_symlinks=not no_follow)
            except own(OSError) as error:
                permissions.excuse_time(path, error)

    def make_directory(self, path: str, mode: int | None = None) -> None:
        with reached(self._root, "create the directory", path) as (above, name, _):
            try:
                around = status_around(above, path)
                wanted = permissions.directory_mode(stat.S_IMODE(around.st_mode)) if mode is None else mode
                is_new = _make_directory(name, path, wanted, above)
            except own(FileNotFoundError) as error:  # no directory can be made here, as in /proc
                raise storage_error("create the directory", path, error) from error
            if not is_new and (mode is not None or not permissions.works_for_another(around)):
                return
            descriptor = _open_directory(name, path, above, os.O_NOFOLLOW)
            try:
                is_given = mode is None and permissions.give_directory_to_owner(descriptor.fileno(), around, path)
                if is_new or is_given:
                    permissions.set_mode(descriptor.fileno(), wanted)
            finally:
                give_back(descriptor)

    def replace(self, source: str, target: str) -> None:
        with (
            reached(self._root, "rename", target) as (after, new, _),
            reached(self._root, "rename", source) as (before, old, _),
        ):
            os.replace(old, new, src_dir_fd=before, dst_dir_fd=after)

    def exchange(self, first: str, second: str) -> None:
        with (
            reached(self._root, "exchange", first) as (before, one, _),
            reached(self._root, "exchange", second) as (after, other, _),
        ):
            exchange(one, before, other, after)

    def link(self, source: str, target: str) -> None:
        with (
            reached(self._root, "link", target) as (after, new, _),
            reached(self._root, "link", source) as (before, old, _),
        ):
            os.link(old, new, src_dir_fd=before, dst_dir_fd=after, follow_symlinks=False)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError), reached(self._root, "remove", path) as (directory, name, _):
            os.unlink(name, dir_fd=directory)

    def remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError), reached(self._root, "remove the directory", path) as (above, name, _):
            os.rmdir(name, dir_fd=above)

    def sync_directory(self, path: str) -> None:
        with reached(self._root, "sync the directory", path) as (above, name, no_follow):
            descriptor = _open_directory(name, path, above, no_follow)
            try:
                os.fsync(descriptor.fileno())
            finally:
                give_back(descriptor)

    def is_open_to_all(self, path: str) -> bool:
        with translated("inspect", path):
            mode = os.stat(path).st_mode
        return bool(mode & stat.S_IWOTH and not mode & stat.S_ISVTX)

    def writable(self, path: str) -> bool:
        return os.access(path, os.W_OK | os.X_OK) and not self.is_mounted_read_only(path)

    def is_mounted_read_only(self, path: str) -> bool:
        with translated("inspect", path):
            return is_mounted_read_only(path)

    def kind(self, path: str) -> str:
        return mount_kind(path)

    def boot_id(self) -> str:
        """Return the kernel's id. Raises ``StorageError`` if it can't be read: another id would
        wrongly mean another boot."""
        try:
            return read_of_proc(_BOOT_ID).strip()
        except own(FileNotFoundError):
            return sys.platform  # every boot looks the same: only CRCs find a torn tail

    def watch(self, paths: Collection[str]) -> Watch | None:
        try:
            kind = self.kind(next(iter(paths)))
        except own(StorageError):  # as without a free descriptor: a watch is optional
            return None
        return watch_files(paths, kind)

    process_id = staticmethod(os.getpid)

    def host_name(self) -> str:
        return os.uname().nodename

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)


def _status_of(path: str, stat_call: Callable[[str], os.stat_result]) -> os.stat_result | None:
    """The status of ``path``; None if it does not exist; ``StorageError`` if that is unknown."""
    try:
        return stat_call(path)
    except own(OSError) as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise storage_error("inspect", path, error) from error
    except own(ValueError):  # the path contains a null character
        return None


def _make_directory(name: str, path: str, mode: int, above: int | None) -> bool:
    """Make a directory. False if it exists already."""
    try:
        os.mkdir(name, mode, dir_fd=above)
    except own(FileExistsError):
        if not _is_directory(path):
            raise
        return False
    return True


def _is_directory(path: str) -> bool:
    """Like ``os.path.isdir``, which takes a signal handler's exception for False."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except own(OSError, ValueError):
        return False


def _open_directory(name: str, path: str, above: int | None, no_follow: int) -> Descriptor:
    try:
        return with_descriptor(open_descriptor, name, DIRECTORY | no_follow, directory=above)
    except own(NotADirectoryError) as error:
        if no_follow and is_link(path):
            raise link_refused(path) from error
        raise
