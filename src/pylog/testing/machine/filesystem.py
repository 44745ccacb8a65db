"""The ``FileSystem`` of a simulated process, which answers like the real one.

``tests/storage`` checks both against one table. Not simulated: symbolic links, ``..``, modes,
several mounts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from contextlib import suppress

from pylog.errors import StorageError
from pylog.storage import AppendableFile, FileLock, ReadableFile
from pylog.storage.os_errors import storage_error
from pylog.testing.machine.disk import Directory, File, Rename, check_length, parts_of
from pylog.testing.machine.process import OpenAppendableFile, OpenFile, Process, SimulatedLock


class SimulatedFileSystem:
    """One process's view of the disk. Paths are absolute, or relative to the root directory."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._machine = process.machine

    def within(self, root: str) -> SimulatedFileSystem:
        """Return itself: there are no links."""
        return self

    # Finding

    def _get(self, action: str, path: str) -> File | Directory:
        try:
            node = self._machine.disk.find(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(action, path, error) from error
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _directory(self, action: str, path: str) -> Directory:
        node = self._get(action, path)
        if not isinstance(node, Directory):
            raise storage_error(action, path, OSError(errno.ENOTDIR, "Not a directory"))
        return node

    def _parent(self, action: str, path: str) -> tuple[Directory, str]:
        """The parent directory of ``path``, and the name in it."""
        above, _, name = path.rstrip("/").rpartition("/")
        directory = self._directory(action, above)
        try:
            check_length(name)
        except OSError as error:
            raise storage_error(action, path, error) from error
        return directory, name

    def _change(self, directory: Directory, removed: str | None, added: str | None, node: File | Directory) -> None:
        directory.apply(Rename(self._machine.disk.next_sequence(), removed, added, node))
        directory.modified_ns = self._machine.file_time_ns()

    # Files

    def open_readable(self, path: str) -> ReadableFile:
        self._process.step("open", path)
        node = self._get("open", path)
        if isinstance(node, Directory):
            raise StorageError(
                f"{path!r} is a directory, expected a regular file; "
                "move it away, and put the file back from a copy if there was one",
                path=path, kind="a directory", expected="a regular file",
            )  # fmt: skip
        return OpenFile(self._process, path, node)

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        node = self._open_or_create("open", path, create=create)
        if self._machine.disk.has_links and (links := self._machine.disk.names_of(node)) > 1:
            raise StorageError(
                f"{path!r} has {links} names (hard links), expected 1", path=path, links=links, expected=1
            )
        return OpenAppendableFile(self._process, path, node)

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        return SimulatedLock(self._process, path, self._open_or_create("open the lock file", path, create=True))

    def _open_or_create(self, action: str, path: str, *, create: bool) -> File:
        is_new = create and self._machine.disk.look(path) is None
        self._process.step("create" if is_new else "open", path)
        directory, name = self._parent(action, path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = File(self._machine.disk.next_number())
            node.modified_ns = self._machine.file_time_ns()
            self._change(directory, None, name, node)
        if isinstance(node, Directory):
            raise storage_error(action, path, OSError(errno.EISDIR, "Is a directory"))
        return node

    def is_locked(self, path: str) -> bool:
        self._process.step("is_locked", path)
        file = self._machine.disk.look(path)
        return isinstance(file, File) and file.number in self._machine.locks

    def locks_exclude(self, path: str) -> bool:
        self._open_or_create("open the lock file", path, create=True)
        return True

    # Names

    def exists(self, path: str) -> bool:
        self._process.step("exists", path)
        return self._machine.disk.look(path) is not None

    def is_directory(self, path: str) -> bool:
        self._process.step("is_directory", path)
        return isinstance(self._machine.disk.look(path), Directory)

    def absolute(self, path: str) -> str:
        return path  # processes do not change directories

    def is_link(self, path: str) -> bool:
        return False

    def names(self, directory: str) -> list[str]:
        self._process.step("names", directory)
        return sorted(self._directory("list", directory).entries)

    def size(self, path: str) -> int:
        self._process.step("size", path)
        node = self._get("inspect", path)
        return len(node.content) if isinstance(node, File) else 0

    def modified_ns(self, path: str) -> int:
        self._process.step("modified", path)
        return self._get("inspect", path).modified_ns

    def set_modified_ns(self, path: str, time_ns: int) -> None:
        self._process.step("set_modified", path)
        self._get("set the time of", path).modified_ns = time_ns

    def make_directory(self, path: str, mode: int | None = None) -> None:
        if isinstance(self._machine.disk.look(path), Directory):
            return
        self._process.step("mkdir", path)
        try:
            parent, name = self._parent("create the directory", path)
        except FileNotFoundError as error:
            raise storage_error("create the directory", path, error) from error
        node = parent.entries.get(name)
        if node is None:
            made = Directory(self._machine.disk.next_number())
            made.modified_ns = self._machine.file_time_ns()
            self._change(parent, None, name, made)
        elif not isinstance(node, Directory):
            raise storage_error("create the directory", path, OSError(errno.EEXIST, "File exists"))

    def replace(self, source: str, target: str) -> None:
        self._process.step("replace", source)
        before, old = self._parent("rename", source)
        after, new = self._parent("rename", target)
        node = self._get("rename", source)
        there = after.entries.get(new)
        if isinstance(there, Directory) and not isinstance(node, Directory):
            raise storage_error("rename", source, OSError(errno.EISDIR, "Is a directory"))
        if isinstance(there, File) and isinstance(node, Directory):
            raise storage_error("rename", source, OSError(errno.ENOTDIR, "Not a directory"))
        if isinstance(there, Directory) and there.entries and there is not node:
            raise storage_error("rename", source, OSError(errno.ENOTEMPTY, "Directory not empty"))
        from_parts, to_parts = parts_of(source), parts_of(target)
        if len(to_parts) > len(from_parts) and to_parts[: len(from_parts)] == from_parts:
            raise storage_error("rename", source, OSError(errno.EINVAL, "Invalid argument"))
        if isinstance(there, File) and there is not node:
            self._machine.disk.removed.append(there)
        if before is after:
            self._change(before, old, new, node)
        else:
            self._change(after, None, new, node)
            self._change(before, old, None, node)

    def exchange(self, first: str, second: str) -> None:
        """Names of one directory change in one step, those of two in two: a power failure may keep
        either."""
        self._process.step("exchange", first)
        (before, one), (after, other) = self._parent("exchange", first), self._parent("exchange", second)
        node, other_node = self._get("exchange", first), self._get("exchange", second)
        parts, other_parts = parts_of(first), parts_of(second)
        if len(parts) != len(other_parts) and all(map(str.__eq__, parts, other_parts)):
            raise storage_error("exchange", first, OSError(errno.EINVAL, "Invalid argument"))
        if before is after:
            change = Rename(self._machine.disk.next_sequence(), None, one, other_node, other, node)
            before.apply(change)
            before.modified_ns = self._machine.file_time_ns()
        else:
            self._change(before, None, one, other_node)
            self._change(after, None, other, node)

    def link(self, source: str, target: str) -> None:
        self._process.step("link", source)
        node = self._get("link", source)
        directory, name = self._parent("link", target)
        if isinstance(node, Directory):
            raise storage_error("link", target, OSError(errno.EPERM, "Operation not permitted"))
        if name in directory.entries:
            raise storage_error("link", target, OSError(errno.EEXIST, "File exists"))
        self._machine.disk.has_links = True
        self._change(directory, None, name, node)

    def remove(self, path: str) -> None:
        self._process.step("remove" if self._machine.disk.look(path) is not None else "exists", path)
        with suppress(FileNotFoundError):  # without a parent there is nothing to do
            parent, name = self._parent("remove", path)
            node = parent.entries.get(name)
            if isinstance(node, Directory):
                raise storage_error("remove", path, OSError(errno.EISDIR, "Is a directory"))
            if node is not None:
                self._machine.disk.removed.append(node)
                self._change(parent, name, None, node)

    def remove_directory(self, path: str) -> None:
        self._process.step("rmdir", path)
        with suppress(FileNotFoundError):  # without a parent there is nothing to do
            parent, name = self._parent("remove the directory", path)
            node = parent.entries.get(name)
            if isinstance(node, File):
                raise storage_error("remove the directory", path, OSError(errno.ENOTDIR, "Not a directory"))
            if node is not None and node.entries:
                raise storage_error("remove the directory", path, OSError(errno.ENOTEMPTY, "Directory not empty"))
            if node is not None:
                self._change(parent, name, None, node)

    def sync_directory(self, path: str) -> None:
        self._process.step("sync_directory", path)
        self._directory("sync the directory", path).sync()

    # The machine

    def is_open_to_all(self, path: str) -> bool:
        return False

    def writable(self, path: str) -> bool:
        return isinstance(self._machine.disk.look(path), Directory)

    def is_mounted_read_only(self, path: str) -> bool:
        return False

    def kind(self, path: str) -> str:
        return "simulated"

    def watch(self, paths: Collection[str]) -> None:
        """There is no watch: a waiting process polls, and the schedule decides when."""

    def boot_id(self) -> str:
        return f"boot {self._machine.boot}"

    def process_id(self) -> int:
        return self._process.number

    def host_name(self) -> str:
        return "simulated"

    def random_bytes(self, size: int) -> bytes:
        return self._machine.random.randbytes(size)
