"""Locks between descriptors that die with their process.

Open-file-description locks where the system has them, else flock. Neither is the POSIX ``lockf``, which vanishes when
any other descriptor of the file is closed in the process. A shared lock, which keeps writers out as well, takes a
descriptor open for reading only; so a lock file can't be read by those who may not write (``modes.py``).

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
from pylog.storage.descriptors import Descriptor, give_back
from pylog.storage.fork import after_fork_in_child
from pylog.storage.os_errors import storage_error, translated

HAS_OFD = hasattr(fcntl, "F_OFD_SETLK")
LOCK_KIND = "ofd" if HAS_OFD else "flock"

_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
# struct flock {short l_type, l_whence; off_t l_start, l_len; pid_t l_pid;} over the whole file, l_pid 0 as OFD demands
_ACQUIRE = struct.pack("@hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0)
_RELEASE = struct.pack("@hhqqi0q", fcntl.F_UNLCK, 0, 0, 0, 0)


class OsFileLock:
    """An exclusive lock on a file of its own; the file never holds data."""

    __slots__ = ("__weakref__", "_descriptor", "_identity", "_owner", "path", "release")

    def __init__(self, path: str, owner: Descriptor) -> None:
        """Of a file that is open for writing. A lock that is dropped is free."""
        self.path = path
        self._owner = owner
        self._descriptor = owner.fileno()
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino  # no other file's while this one is open
        self.release: Callable[[], object] = (
            partial(fcntl.fcntl, self._descriptor, fcntl.F_OFD_SETLK, _RELEASE)
            if HAS_OFD
            else partial(fcntl.flock, self._descriptor, fcntl.LOCK_UN)
        )
        after_fork_in_child(self.abandon)

    def try_acquire(self) -> bool:
        if self._descriptor < 0:
            raise StorageError(
                f"cannot lock {self.path!r}: it was closed, or given up in a forked child", path=self.path
            )
        try:
            if HAS_OFD:
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _ACQUIRE)
            else:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except own(OSError) as error:
            if error.errno in _BUSY:
                return False
            with translated("lock", self.path):
                raise
        return True

    def is_in_place(self) -> bool:
        try:
            status = os.stat(self.path)
        except own(FileNotFoundError):
            return False
        except own(OSError) as error:
            raise storage_error("inspect", self.path, error) from error
        return (status.st_dev, status.st_ino) == self._identity

    def abandon(self) -> None:
        """Only give the descriptor back: unlocking in a child would free the parent's lock, which shares it."""
        self._descriptor, self.release = -1, bool
        give_back(self._owner)

    def close(self) -> None:
        """Unlock, then give the descriptor back: a child that inherited it must not keep the lock alive."""
        if self._descriptor >= 0:
            try:
                with translated("unlock", self.path):
                    self.release()
            finally:
                self.abandon()


def is_held(path: str, descriptor: int) -> bool:
    """Whether the lock on this file, which is open for reading, is held through another descriptor."""
    with translated("inspect the lock of", path):
        if HAS_OFD:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _ACQUIRE)
            kind: int = struct.unpack_from("@h", answer)[0]
            return kind != fcntl.F_UNLCK
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except own(BlockingIOError):
            return True
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return False
