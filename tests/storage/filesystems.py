"""Filesystems for tests: the machine's own, with another boot, an error on demand, one flipped bit,
or another name.

``Faulty`` calls ``hook(operation, path)`` before each operation that changes something, and after a
write ("wrote") or a rename ("replaced"); an exception from it is what the system answered.
``Killed`` stands for a SIGKILL: no code of pylog catches it as an error of the system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from pylog.errors import StorageError, StorageFull
from pylog.storage import AppendableFile, Buffer, FileLock, OsFileSystem, ReadableFile
from tests.system import of_the_system

Hook = Callable[[str, str], None]


class Killed(BaseException):
    """The process died here."""


def nothing(_operation: str, _path: str) -> None:
    """A hook that lets everything pass."""


def full(path: str) -> StorageFull:
    return StorageFull(f"cannot write {path!r}: No space left on device", path=path, errno=errno.ENOSPC)


def io_error(path: str) -> StorageError:
    return StorageError(f"cannot sync {path!r}: Input/output error", path=path, errno=errno.EIO)


class StandIn(OsFileSystem):
    """Stays the same object in a log that was opened with it, so that a test can change it, or look
    at it, later."""

    def within(self, root: str) -> OsFileSystem:
        self._root = root
        return self


class OtherBoot(StandIn):
    """The same disk after ``number`` starts of the machine."""

    def __init__(self, number: int = 1) -> None:
        self.number = number

    def boot_id(self) -> str:
        return f"boot {self.number}"


class Patient(OtherBoot):
    """Another boot whose files allow so many reads and no more: what reads for ever fails instead
    of hanging the run."""

    def __init__(self, number: int = 0, reads: int = 20_000) -> None:
        super().__init__(number)
        self.reads = reads

    def count(self) -> None:
        self.reads -= 1
        if self.reads < 0:
            raise AssertionError("it reads for ever")

    def open_readable(self, path: str) -> ReadableFile:
        return CountedFile(super().open_readable(path), self)


class CountedFile:
    """A file whose reads are counted."""

    def __init__(self, file: ReadableFile, filesystem: Patient) -> None:
        self._file = file
        self._filesystem = filesystem
        self.path = file.path

    def pread(self, size: int, position: int) -> bytes:
        self._filesystem.count()
        return self._file.pread(size, position)

    def size(self) -> int:
        return self._file.size()

    def close_when_idle(self) -> None:
        self._file.close_when_idle()

    def close(self) -> None:
        self._file.close()


class Network(StandIn):
    """A filesystem of another type."""

    def __init__(self, type: str, *, locks: bool = True) -> None:
        self.type = type
        self.locks = locks

    def kind(self, path: str) -> str:
        return self.type

    def locks_exclude(self, path: str) -> bool:
        return self.locks and super().locks_exclude(path)


class FaultyFile:
    """A file whose changes pass the hook."""

    def __init__(self, file: AppendableFile, filesystem: Faulty) -> None:
        self._file = file
        self._filesystem = filesystem
        self.path = file.path

    def pread(self, size: int, position: int) -> bytes:
        self._filesystem.hook("pread", self.path)
        return self._file.pread(size, position)

    def size(self) -> int:
        return self._file.size()

    def pwrite(self, data: Buffer, position: int) -> None:
        self._filesystem.happens("pwrite", self.path)
        self._filesystem.unsynced.setdefault(self.inode(), set()).add(self.path)
        self._file.pwrite(data, position)
        self._filesystem.hook("wrote", self.path)

    def truncate(self, size: int) -> None:
        self._filesystem.happens("truncate", self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        inode = self.inode()
        self._filesystem.synced_inodes.append((self.path, inode))
        self._filesystem.happens("sync", self.path)
        self._file.sync()
        self._filesystem.unsynced.pop(inode, None)

    @of_the_system
    def inode(self) -> int:
        self._file.size()  # opens it again if it was idle
        return os.fstat(self._file._open.number).st_ino  # type: ignore[attr-defined]

    def close_when_idle(self) -> None:
        self._file.close_when_idle()

    def close(self) -> None:
        self._file.close()


class Faulty(StandIn):
    """The machine's filesystem with a hook before every change, and a note of what was synced since
    it was written."""

    def __init__(self, hook: Hook = nothing) -> None:
        self.hook = hook
        self.operations: list[tuple[str, str]] = []
        self.synced_inodes: list[tuple[str, int]] = []
        self.unsynced: dict[int, set[str]] = {}

    def happens(self, operation: str, path: str) -> None:
        self.operations.append((operation, path))
        self.hook(operation, path)

    def count(self, operation: str, suffix: str = "") -> int:
        return sum(done == operation and path.endswith(suffix) for done, path in self.operations)

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        self.happens("open", path)
        return FaultyFile(super().open_appendable(path, create=create), self)

    def set_modified_ns(self, path: str, time_ns: int) -> None:
        self.happens("set_modified", path)
        super().set_modified_ns(path, time_ns)

    def make_directory(self, path: str, mode: int | None = None) -> None:
        self.happens("make_directory", path)
        super().make_directory(path, mode)

    def replace(self, source: str, target: str) -> None:
        self.happens("replace", target)
        super().replace(source, target)
        self.hook("replaced", target)

    def exchange(self, first: str, second: str) -> None:
        self.happens("exchange", second)
        super().exchange(first, second)

    def link(self, source: str, target: str) -> None:
        self.happens("link", target)
        super().link(source, target)

    def remove(self, path: str) -> None:
        self.happens("remove", path)
        super().remove(path)

    def remove_directory(self, path: str) -> None:
        self.happens("remove_directory", path)
        super().remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.happens("sync_directory", path)
        super().sync_directory(path)

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        self.happens("lock", path)
        return super().lock(path, readable=readable)


class Nth:
    """A hook that raises at the n-th change (from 0) of the given operations, and notes whether it
    came to that."""

    def __init__(
        self, n: int, operations: set[str], error: Callable[[str], BaseException], *, suffix: str = ""
    ) -> None:
        self.left = n
        self.operations = operations
        self.error = error
        self.suffix = suffix
        self.raised = ""

    def __call__(self, operation: str, path: str) -> None:
        if operation in self.operations and path.endswith(self.suffix):
            self.left -= 1
            if self.left == -1:
                self.raised = f"{operation} {path}"
                raise self.error(path)


class MemoryFile:
    """Bytes as a file, one bit of which may read wrong."""

    def __init__(self, path: str, filesystem: InMemory) -> None:
        self.path = path
        self._filesystem = filesystem
        self._data = filesystem.contents[path]

    def pread(self, size: int, position: int) -> bytes:
        data = self._data[position : position + size]
        filesystem = self._filesystem
        at = filesystem.flipped_byte - position
        if 0 <= at < len(data) and filesystem.flipped_path == self.path:
            changed = bytearray(data)
            changed[at] ^= filesystem.flipped_mask
            return bytes(changed)
        return data

    def size(self) -> int:
        return len(self._data)

    def close_when_idle(self) -> None:
        return None

    def close(self) -> None:
        return None


class InMemory(StandIn):
    """A directory's files held in memory, to read only. ``flip`` makes one bit of one file read
    wrong."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.contents: dict[str, bytes] = {}
        self.flipped_path, self.flipped_byte, self.flipped_mask = "", -1, 0
        for name in os.listdir(directory):
            with open(f"{directory}/{name}", "rb") as file:
                self.contents[f"{directory}/{name}"] = file.read()

    def flip(self, path: str, bit: int) -> None:
        self.flipped_path, self.flipped_byte, self.flipped_mask = path, bit >> 3, 1 << (bit & 7)

    def open_readable(self, path: str) -> ReadableFile:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return MemoryFile(path, self)

    def names(self, directory: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.contents)

    def size(self, path: str) -> int:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return len(self.contents[path])


class ReadsInTurn:
    """A file that reads differently each time, and at last as the last time."""

    path = "in turn"

    def __init__(self, *reads: bytes) -> None:
        self.reads = list(reads)

    def pread(self, size: int, position: int) -> bytes:
        assert position == 0
        assert size >= len(self.reads[0])
        return self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]

    def size(self) -> int:
        return len(self.reads[0])

    def close(self) -> None:
        return None
