"""The calls that pylog makes to an operating system, and the durability that each call promises.

All other packages reach the disk only through these protocols, so tests can simulate a machine.

Durability, in the terms of POSIX and of ext4, xfs and tmpfs as measured:

* When ``pwrite`` has returned, the bytes are in the page cache: they survive the death of the
  process, but not a power failure.
* When ``sync`` has returned, the file's bytes and size are on the disk. If it failed, unsynced
  bytes may be lost from the disk for good although reads still show them: never retry it in the
  hope of success.
* A new, renamed or removed name is on the disk only after ``sync_directory`` of its directory.
* ``replace`` is atomic: for other processes at once, for power failures after ``sync_directory``.

If the system refuses a call, it raises ``StorageError`` (``StorageFull`` if space ran out) with the
path in its facts. A missing name is ``FileNotFoundError``, the one answer that callers check for.
A FIFO, a device or a directory in place of a file is a ``StorageError`` too: no call waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class ReadableFile(Protocol):
    """An open file, read at positions. It has no shared offset: forks and threads may share it."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, position: int) -> bytes:
        """Read up to ``size`` bytes from ``position``; fewer only at the end of the file."""

    def size(self) -> int:
        """Return the number of bytes in the file now."""

    def sync(self) -> None:
        """Force bytes and size to the disk (fdatasync; F_FULLFSYNC if fsync stops before it).

        Those who only read a file can sync it, too: also what others have written.
        """

    def close_when_idle(self) -> None:
        """Allow closing the descriptor while it is idle, because descriptors are limited.

        The next use reopens the file: ``FileNotFoundError`` if it was removed or replaced. If
        opening fails, ``StorageError`` has the fact ``reopening``, and the use has done nothing
        else.
        """

    def close(self) -> None:
        """Close the descriptor. Closing twice is allowed."""


class AppendableFile(ReadableFile, Protocol):
    """A file that is also written, at positions that the caller chooses."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``; continue after a short write until the system reports an error."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""


class FileLock(Protocol):
    """An exclusive lock between descriptors, which the kernel frees when its holder dies.

    It does not exclude threads: they share the descriptor and need a mutex in addition.
    """

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Return whether this handle holds it."""

    size: int
    """Of the file, in bytes, when ``is_in_place`` last found it. A process that changes what the
    lock's holders know makes it grow."""

    def is_in_place(self) -> bool:
        """Whether the file is still at its path. If not, others may hold another such lock."""

    @property
    def release(self) -> Callable[[], object]:
        """Frees the lock, if held. A C callable, which no signal handler can interrupt."""

    def close_when_idle(self) -> None:
        """After ``release``, allow the descriptor to be closed until the lock is taken again.

        If the lock file was removed or replaced, the lock can still be taken, but is not in place.
        """

    def abandon(self) -> None:
        """Close without unlocking, as a forked child must: an unlock frees the parent's lock."""

    def close(self) -> None:
        """Free the lock, if held, and close the descriptor."""


class Watch(Protocol):
    """Waits in one thread for changes by any process. Any thread or signal handler may ``wake``."""

    @property
    def is_open(self) -> bool:
        """False after ``close``, and in a forked child."""

    def wait(self, seconds: float) -> None:
        """Wait for a change since the last wait or the creation, for ``wake`` or the timeout."""

    def wake(self) -> None:
        """End the current wait, or the next one if none is running."""

    def close(self) -> None:
        """Close the descriptors. Closing twice is allowed."""


class FileSystem(Protocol):
    """Files and directories by path.

    Users who can read or write a directory can do so with its new files, which are never writable
    by all users.
    """

    def within(self, root: str) -> FileSystem:
        """The same filesystem, but below ``root`` no call opens, lists or changes via a link."""

    def absolute(self, path: str) -> str:
        """The path, valid also after the process changes its working directory. Links are kept."""

    def open_readable(self, path: str) -> ReadableFile: ...

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        """Open for reading and writing; ``create`` makes a missing file, empty. Never truncates.

        ``StorageError`` if the file has more than one name (hard links).
        """

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        """A lock on ``path``, not acquired. Creates a missing file, readable by writers only.

        ``readable``: users who can read the directory can also ask ``is_locked``.
        """

    def is_locked(self, path: str) -> bool:
        """Whether any process, also this one, holds it; False without a file. Takes no lock.

        Needs no write permission. A shared lock, which readers can take, does not count.
        """

    def locks_exclude(self, path: str) -> bool:
        """Whether a lock taken through one descriptor of ``path`` is refused through another."""

    def exists(self, path: str) -> bool:
        """Whether the name exists, even as a dangling link.

        This and the next two raise ``StorageError`` if the system does not answer, as without
        permission.
        """

    def is_directory(self, path: str) -> bool:
        """Whether the path leads to a directory, directly or through a link."""

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a symbolic link, also a dangling one."""

    def names(self, directory: str) -> list[str]:
        """The sorted names in a directory."""

    def size(self, path: str) -> int: ...

    def modified_ns(self, path: str) -> int:
        """When the path last changed, in nanoseconds; compare it only with earlier values."""

    def set_modified_ns(self, path: str, time_ns: int) -> None:
        """Give a file another such time. A power failure may bring a later one back; so does a
        process that may not set it."""

    def make_directory(self, path: str, mode: int | None = None) -> None:
        """Create a directory in an existing one. An existing directory of this name stays as it is.

        If ``mode`` is None, the users who can read or write the parent can do the same here.
        """

    def replace(self, source: str, target: str) -> None:
        """Rename, replacing the target."""

    def exchange(self, first: str, second: str) -> None:
        """Let two existing names lead to each other's file or directory, in one step as
        ``replace``.

        ``StorageError`` if the filesystem can't (errno ``EINVAL``, ``ENOSYS`` or ``ENOTSUP``).
        """

    def link(self, source: str, target: str) -> None:
        """Give a file another, new name. From then on ``open_appendable`` refuses both names.

        ``StorageError`` if the filesystem can't, or the name exists.
        """

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, if it exists."""

    def sync_directory(self, path: str) -> None: ...

    def is_open_to_all(self, path: str) -> bool:
        """Whether any user may replace files here: all may write, and the sticky bit is not set."""

    def writable(self, path: str) -> bool:
        """Whether this process may create and write files in the directory ``path``."""

    def is_mounted_read_only(self, path: str) -> bool:
        """Whether the filesystem that ``path`` is on is mounted read-only, for all users."""

    def kind(self, path: str) -> str:
        """The filesystem type by its system name (``ext4``, ``tmpfs``, ``nfs4``), or ``""``."""

    def watch(self, paths: Collection[str]) -> Watch | None:
        """A watch of these files and directories. None if impossible: the caller must poll."""

    def boot_id(self) -> str:
        """An id of this boot of the machine: page cache contents outlive processes, but not boots.

        It never changes during a boot. If it cannot be read now: ``StorageError``, not another id.
        """

    def process_id(self) -> int: ...

    def host_name(self) -> str: ...

    def random_bytes(self, size: int) -> bytes: ...
