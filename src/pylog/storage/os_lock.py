"""Locks between descriptors, which the kernel frees when their process dies.

They are open-file-description locks if the system has them, else flock. POSIX ``lockf`` is lost
when the process closes any other descriptor of the file. A shared lock needs only a readable
descriptor and excludes writers, so only writers may read a lock file (``permissions.py``).

Source: Linux ``fcntl(2)`` ("Open file description locks"), ``flock(2)``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Callable
from functools import partial

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage import permissions
from pylog.storage.descriptor_pool import POOL, Identity, OpenDescriptor, identity_of
from pylog.storage.descriptors import Descriptor, give_back
from pylog.storage.fork import after_fork_in_child, forks
from pylog.storage.open_safely import FOR_WRITING, open_or_make, open_regular, reached
from pylog.storage.os_errors import storage_error, translated

HAS_OFD = hasattr(fcntl, "F_OFD_SETLK")
LOCK_KIND = "ofd" if HAS_OFD else "flock"

_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
# struct flock {short l_type, l_whence; off_t l_start, l_len; pid_t l_pid;}; OFD needs l_pid 0
_ACQUIRE = struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0)
_PROBE = struct.pack("@hhqqi0q", fcntl.F_RDLCK, 0, 0, 0, 0)  # a reader's shared lock is not in its way
_RELEASE = struct.pack("@hhqqi0q", fcntl.F_UNLCK, 0, 0, 0, 0)


class _LockDescriptor(OpenDescriptor):
    """``unlock`` frees the lock of this descriptor. A forked child closes it without unlocking.

    ``unlock`` refers to the owner, so it never frees the lock of another file with this number.
    """

    __slots__ = ("__weakref__", "unlock")

    def __init__(self, owner: Descriptor) -> None:
        super().__init__(owner)
        after_fork_in_child(self.give_back)
        self.unlock: Callable[[], object] = (
            partial(fcntl.fcntl, owner, fcntl.F_OFD_SETLK, _RELEASE)
            if HAS_OFD
            else partial(fcntl.flock, owner, fcntl.LOCK_UN)
        )

    def give_back(self) -> None:
        """Close at once. For one that no running call uses: calls with a lock's descriptor never
        wait."""
        self.revoke()
        give_back(self._owner)


class OsFileLock:
    """An exclusive lock on a separate file that never contains data.

    Its descriptor may be closed when it is idle (``descriptor_pool.py``), but never while the lock
    is held, because ``_held`` then refers to it. Only the holder changes ``_held``.
    """

    __slots__ = (
        "__weakref__", "_held", "_is_closed", "_is_idle", "_is_lost", "_known_as", "_numbers", "_open", "_root",
        "is_used", "path", "release", "size",
    )  # fmt: skip

    def __init__(self, path: str, root: str | None = None, *, readable: bool = False) -> None:
        """Open or create the file. No link below the directory ``root`` is followed.

        ``readable``: users who can read its directory can also read the file, to ask ``is_held``.
        """
        self.path = path
        self._root = root
        self._open: _LockDescriptor | None = None
        self._held: _LockDescriptor | None = None
        self._is_closed = self._is_idle = self._is_lost = False
        self._known_as: Identity | None = None  # set while it is closed because it was idle
        self.is_used = True
        self.size = 0
        self.release: Callable[[], object] = bool
        after_fork_in_child(self.abandon)
        opened = self._opened(permissions.file_mode if readable else permissions.lock_mode)
        self._open = opened
        with translated("open the lock file", path):
            status = os.fstat(opened.number)
            # no other file can have these numbers while this one is open
            self._numbers = status.st_dev, status.st_ino
            if not readable:
                permissions.keep_readers_out(opened.number)

    def _opened(self, mode: Callable[[int], int] | None = None) -> _LockDescriptor:
        """``mode`` makes a missing file."""
        with reached(self._root, "open the lock file", self.path) as (directory, name, _):
            while True:
                before = forks()
                if mode is not None:
                    opened = _LockDescriptor(open_or_make(name, FOR_WRITING, self.path, directory, mode))
                else:
                    opened = _LockDescriptor(open_regular(name, FOR_WRITING, self.path, directory))
                if forks() == before:
                    return opened
                opened.give_back()  # a child forked in between has it and would keep the lock alive

    def try_acquire(self) -> bool:
        if self._is_closed:
            raise self._refused()
        self.is_used = True
        opened = self._open or self._open_again()
        if opened is None:
            return True
        self._held, self.release = opened, opened.unlock
        try:
            if HAS_OFD:
                fcntl.fcntl(opened.number, fcntl.F_OFD_SETLK, _ACQUIRE)
            else:
                fcntl.flock(opened.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except own(OSError) as error:
            if error.errno in _BUSY:
                return False
            with translated("lock", self.path):
                raise
        if self._is_closed:  # meanwhile, by another thread
            self.abandon()
            opened.give_back()  # which frees the lock
            raise self._refused()
        return True

    def _refused(self) -> StorageError:
        return StorageError(f"cannot lock {self.path!r}: it was closed, or given up in a forked child", path=self.path)

    def _open_again(self) -> _LockDescriptor | None:
        """None if the file is gone: no other can reach that lock. It is free, but not in place."""
        try:
            opened = None if self._is_lost else self._opened()
        except own(FileNotFoundError):
            opened = None
        if opened is not None and identity_of(opened.number) == self._known_as:
            self._open, self._is_idle = opened, True
            POOL.add(self)
            return opened
        self._is_lost = True
        return None

    def is_in_place(self) -> bool:
        if self._is_lost:
            return False
        try:
            status = os.stat(self.path)
        except own(FileNotFoundError):
            return False
        except own(OSError) as error:
            raise storage_error("inspect", self.path, error) from error
        self.size = status.st_size
        return (status.st_dev, status.st_ino) == self._numbers

    def close_when_idle(self) -> None:
        self._held, self.release = None, bool
        if not self._is_idle:
            self._is_idle = True
            POOL.add(self)

    def close_idle(self) -> bool:
        opened = self._open
        self._is_idle = False  # the next ``close_when_idle`` lists it again
        if opened is None or self._held is not None:
            return False
        known_as = opened.identity()
        if known_as is None:
            self._is_idle = True  # it is never listed again
            return False
        self._known_as = known_as
        self._open = None
        return True

    def abandon(self) -> None:
        """Close without unlocking: in a child that would free the lock, shared with the parent.

        In a child the descriptor has closed itself, also if an interrupted call refers to it.
        """
        opened, held = self._open, self._held
        self._is_closed, self._open, self._held, self.release = True, None, None, bool
        POOL.discard(self)
        for descriptor in (opened, held):
            if descriptor is not None:
                descriptor.revoke()

    def close(self) -> None:
        """Unlock, then close: a child that inherited the descriptor must not keep the lock."""
        if not self._is_closed:
            try:
                with translated("unlock", self.path):
                    self.release()
            finally:
                self.abandon()


def is_held(path: str, descriptor: int) -> bool:
    """Whether another descriptor holds the lock of this file, which is open for reading."""
    with translated("inspect the lock of", path):
        if HAS_OFD:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _PROBE)
            kind: int = struct.unpack_from("@h", answer)[0]
            return kind != fcntl.F_UNLCK
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except own(BlockingIOError):
            return True
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False
