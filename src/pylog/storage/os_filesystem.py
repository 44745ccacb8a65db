"""The real filesystem: thin calls of the operating system, errors translated, nothing remembered.

Never maps a file (a mapping dies with SIGBUS when its file is cut) and never follows a symbolic link for a file it
writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys

from pylog.storage.filesystem import AppendableFile, Buffer, FileLock, ReadableFile
from pylog.storage.os_errors import storage_error, translated
from pylog.storage.os_lock import OsFileLock
from pylog.storage.regular import open_regular

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MOUNTS = "/proc/self/mountinfo"
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache


class OsReadableFile:
    """A file open for reading."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and data:  # Linux stops at 2 GiB, and a signal may stop it anywhere
                data = os.pread(self._descriptor, size - got, position + got)
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise storage_error("read", self.path, error) from error

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error("inspect", self.path, error) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with translated("close", self.path):
                os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


class OsAppendableFile(OsReadableFile):
    """A file open for reading and writing."""

    __slots__ = ()

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written != len(data):
                rest = memoryview(data)
                while written < len(data):  # a short write: go on until all is written or the system says why not
                    written += os.pwrite(self._descriptor, rest[written:], position + written)
        except OSError as error:
            raise storage_error("write", self.path, error) from error

    def truncate(self, size: int) -> None:
        with translated("truncate", self.path):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with translated("sync", self.path):
            if self._descriptor < 0:  # Python's own answer would be a ValueError
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if _FULL_SYNC is not None:
                fcntl.fcntl(self._descriptor, _FULL_SYNC)
            else:
                os.fdatasync(self._descriptor)


class OsFileSystem:
    """The machine's own filesystem."""

    def open_readable(self, path: str) -> ReadableFile:
        with translated("open", path):
            return OsReadableFile(path, open_regular(path, os.O_RDONLY))

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        with translated("open", path):
            return OsAppendableFile(path, open_regular(path, _WRITE | (os.O_CREAT if create else 0)))

    def lock(self, path: str) -> FileLock:
        return OsFileLock(path)

    def locks_exclude(self, path: str) -> bool:
        first, second = OsFileLock(path), OsFileLock(path)
        try:
            try:
                if not first.try_acquire():
                    return True  # somebody holds it, and we were told so
                return not second.try_acquire()
            finally:
                first.release()
        finally:
            second.close()
            first.close()

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def names(self, directory: str) -> list[str]:
        with translated("list", directory):
            return sorted(os.listdir(directory))

    def size(self, path: str) -> int:
        with translated("inspect", path):
            return os.stat(path).st_size

    def modified_ns(self, path: str) -> int:
        with translated("inspect", path):
            return os.stat(path).st_mtime_ns

    def make_directory(self, path: str) -> None:
        with translated("create the directory", path):
            try:
                os.makedirs(path, exist_ok=True)
            except FileNotFoundError as error:  # where none can be made, as in /proc
                raise storage_error("create the directory", path, error) from error

    def replace(self, source: str, target: str) -> None:
        with translated("rename", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with translated("remove", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return

    def remove_directory(self, path: str) -> None:
        with translated("remove the directory", path):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                return

    def sync_directory(self, path: str) -> None:
        with translated("sync the directory", path):
            descriptor = os.open(path, _DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def writable(self, path: str) -> bool:
        return os.access(path, os.W_OK | os.X_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY

    def kind(self, path: str) -> str:
        return _mount_kind(os.path.realpath(path))

    def boot_id(self) -> str:
        """``StorageError`` where it cannot be read now: another name would make every published state another boot's."""
        try:
            return _read_of_proc(_BOOT_ID).strip()
        except FileNotFoundError:
            return sys.platform  # no such file: every start looks like the same boot, and CRCs alone find a torn tail

    def process_id(self) -> int:
        return os.getpid()

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)


def _read_of_proc(path: str) -> str:
    """A file that Linux has and other systems lack: ``FileNotFoundError`` there, ``StorageError`` for any other refusal."""
    with translated("read", path), open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _mount_kind(path: str) -> str:
    """The type of the mount that holds ``path``, from Linux's ``/proc/self/mountinfo`` (proc(5)); "" elsewhere."""
    try:
        lines = _read_of_proc(_MOUNTS).splitlines()
    except FileNotFoundError:
        return ""
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        mount = fields[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, fields[fields.index("-") + 1]
    return kind
