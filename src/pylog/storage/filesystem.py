"""What pylog asks of an operating system, with the durability each call promises.

Everything above this room reaches the disk through these protocols only, so a test can put a simulated machine here.

Durability, in the terms of POSIX and of ext4, xfs and tmpfs as measured:

* ``pwrite`` that returned is in the page cache: it survives the death of the process, not the loss of power.
* ``sync`` that returned has the file's bytes and size on the medium. After a ``sync`` that failed, the unsynced bytes may
  be gone from the medium for good although reads still show them: it must never be repeated in the hope of success.
* A new, renamed or removed name is on the medium only after ``sync_directory`` of its directory.
* ``replace`` is atomic for other processes at once, and for a power loss after ``sync_directory``.

Every refusal by the system is a ``StorageError`` (``StorageFull`` where space ran out) with the path in its facts;
a name that is not there is ``FileNotFoundError``, the one answer callers ask about. What stands in a file's place and is
none (a FIFO, a device, a directory) is refused the same way, and never waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class ReadableFile(Protocol):
    """An open file to read at positions. Holds no shared offset, so forks and threads may share it."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer only at the end of the file."""

    def size(self) -> int:
        """Bytes in the file now."""

    def close_when_idle(self) -> None:
        """From now on the descriptor may be closed while nothing uses the file: many files stay open, and descriptors are few.

        The next use opens the file again. ``FileNotFoundError`` where it was removed meanwhile, or another one is in its place;
        where the system refuses to open it, a ``StorageError`` with the fact ``reopening``, and nothing else was done.
        """

    def close(self) -> None:
        """Give the descriptor back. Closing twice is allowed."""


class AppendableFile(ReadableFile, Protocol):
    """A file that is also written, at positions its caller chooses."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``. A short write is continued, so an error tells where the system stopped for good."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""

    def sync(self) -> None:
        """Force bytes and size to the medium (fdatasync; F_FULLFSYNC where fsync stops short of it)."""


class FileLock(Protocol):
    """An exclusive lock between descriptors, which the kernel frees when its holder dies.

    Not a lock between threads: those share the descriptor and need a mutex above it.
    """

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""

    def is_in_place(self) -> bool:
        """Whether its file still stands at its path: else others may hold another one by that name."""

    @property
    def release(self) -> Callable[[], object]:
        """Frees the lock, if it is held. A callable of C, which no signal handler can interrupt before its work is done."""

    def close_when_idle(self) -> None:
        """After ``release``: until the lock is taken again, its descriptor may be closed.

        A lock whose file was removed or replaced meanwhile can be taken as before, and is not in place.
        """

    def abandon(self) -> None:
        """Close the descriptor without unlocking: what a forked child must do, since unlocking frees the parent's lock."""

    def close(self) -> None:
        """Free the lock, if held, and the descriptor."""


class Watch(Protocol):
    """Waits until files change, by whichever process. For one thread; ``wake`` is for any, and for signal handlers."""

    @property
    def is_open(self) -> bool:
        """False once it was closed, or in a forked child."""

    def wait(self, seconds: float) -> None:
        """Until something has changed since the watch began, or since the last wait; or ``wake``, or the time is over."""

    def wake(self) -> None:
        """End the wait, or else the next one."""

    def close(self) -> None:
        """Give the descriptors back. Closing twice is allowed."""


class FileSystem(Protocol):
    """Files and directories by path.

    A new file can be read and written by those who can read and write its directory, but by all users never.
    """

    def within(self, root: str) -> FileSystem:
        """The same, but below the directory ``root`` nothing is opened, listed or changed through a symbolic link."""

    def absolute(self, path: str) -> str:
        """The same place, named so that it stays the same when the process goes to another directory. Links are kept."""

    def open_readable(self, path: str) -> ReadableFile: ...

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        """Open for reading and writing, creating an empty file if asked and needed. Never truncates.

        A file with more than one name (hard links) is refused.
        """

    def lock(self, path: str) -> FileLock:
        """A lock on ``path``, which is created if needed. Nothing is acquired yet.

        The file can't be read by those who can't write it.
        """

    def is_locked(self, path: str) -> bool:
        """Whether somebody, this process included, holds the lock on this file. Takes nothing; False where there is no file."""

    def locks_exclude(self, path: str) -> bool:
        """Whether a lock taken through one descriptor of ``path`` is refused through another."""

    def exists(self, path: str) -> bool:
        """Whether there is anything of this name, a link that leads nowhere included.

        This and the next two raise ``StorageError`` if the system refuses to say so, as in a directory without permission.
        """

    def is_directory(self, path: str) -> bool:
        """Whether the path leads to a directory, through a link as well."""

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a symbolic link, wherever that leads."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""

    def size(self, path: str) -> int: ...

    def modified_ns(self, path: str) -> int:
        """When the file or directory last changed, in nanoseconds; only for comparing with itself."""

    def make_directory(self, path: str, mode: int | None = None) -> None:
        """Create a directory in one that is there; one of this name that is there already is fine, and stays as it is.

        ``mode`` None: whoever may read and write the directory it is made in may do so with this one.
        """

    def replace(self, source: str, target: str) -> None:
        """Rename, replacing the target."""

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is fine."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; one that is gone already is fine."""

    def sync_directory(self, path: str) -> None: ...

    def is_open_to_all(self, path: str) -> bool:
        """Whether any user may replace what is in this directory: all may write there, and it has no sticky bit."""

    def writable(self, path: str) -> bool:
        """Whether this process may create and write files in the directory ``path``."""

    def kind(self, path: str) -> str:
        """The filesystem's type as the system names it (``ext4``, ``tmpfs``, ``nfs4``), ``""`` where it gives none."""

    def watch(self, paths: Collection[str]) -> Watch | None:
        """To wait for changes of these files and directories; None where that can't be had, and one has to look instead."""

    def boot_id(self) -> str:
        """A name for this boot of the machine: page cache contents outlive processes, not boots.

        The same whenever it is asked during one boot: what cannot be read now is a ``StorageError``, not another name.
        """

    def process_id(self) -> int: ...

    def host_name(self) -> str: ...

    def random_bytes(self, size: int) -> bytes: ...
