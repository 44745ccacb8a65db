"""How many files of this process are open at once: those not used for longest are closed, and opened again with their next use.

A partition that is written to and read has seven files open, and a process may have 1,024. So files that stay open for long
(``close_when_idle``) are listed here. When more of them are open than three quarters of the limit, or when the system refuses a
descriptor, some that were not used lately are closed.

A file refers to its open descriptor (``OpenDescriptor``), and so does every call that uses it, for as long as the call takes.
The pool only takes away the file's reference: a number that another thread uses in a system call is not closed before that
call has returned. Nothing here waits, and each step on what threads share is one call into C: a signal handler, or a child
that was forked in between, may open files as well.
"""

from __future__ import annotations

import errno
import os
import resource
import weakref
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeVar

from pylog.interrupts import own
from pylog.storage.descriptors import Descriptor, give_back

T = TypeVar("T")

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_LEAST = 16  # as many stay open, however low the limit is
_KEPT = 32  # and so many also when no descriptor is left: what is open still works; before that, what closing needs is loaded
_AT_ONCE = 8  # the part of the open files that is closed together, so that the list is not gone through for each


class OpenDescriptor:
    """An open file's number, and its owner, which closes it when nothing refers to this object any more."""

    __slots__ = ("_owner", "number")

    def __init__(self, owner: Descriptor) -> None:
        self._owner = owner
        self.number = owner.fileno()

    def close(self) -> None:
        """``OSError``. Closing twice is allowed."""
        self.number = -1
        self._owner.close()

    def give_back(self) -> None:
        """The same, for descriptors through which nothing was written: whatever the system answers, it is closed."""
        self.number = -1
        give_back(self._owner)


class Identity(NamedTuple):
    """Of a file that is not open. A new file may get the number of a removed one, but it is born later."""

    device: int
    number: int
    born_ns: int


class Idle(Protocol):
    """What the pool may close: a file, or a lock."""

    is_used: bool
    """Set with every use; cleared by the pool when it passes by."""

    def close_idle(self) -> bool:
        """Let go of the descriptor, to be opened again with the next use. False if that can't be now."""


class DescriptorPool:
    """The files of this process that may be closed while they are not used, in the order in which they are looked at."""

    def __init__(self) -> None:
        self._files: dict[int, weakref.ref[Idle]] = {}
        self._most = 0
        self.limit: int | None = None  # for tests: in place of three quarters of the process's limit

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: Idle) -> None:
        """The file has just been opened, and may be closed from now on."""
        if len(self._files) >= self._most:
            self._most = self._allowed()
            surplus = len(self._files) + 1 - self._most
            if surplus > 0:
                self.close_some(surplus + self._most // _AT_ONCE)
        if len(self._files) == _KEPT:
            _statx()
        key = id(file)
        self._files[key] = weakref.ref(file, partial(self._files.pop, key))  # a callback in C: see descriptors.py

    def discard(self, file: Idle) -> None:
        """The file was closed for good."""
        self._files.pop(id(file), None)

    def close_some(self, wanted: int) -> bool:
        """Close so many files, if there are as many, first those that were not used since the last time.

        False if none was closed, as where less than one is wanted.
        Every file is looked at twice at most.
        """
        closed = 0
        for _ in range(2 if wanted > 0 else 0):
            for key, reference in list(self._files.items()):
                file = reference()
                if file is None or not file.is_used:
                    self._files.pop(key, None)
                    closed += file is not None and file.close_idle()
                    if closed >= wanted:
                        return True
                else:
                    file.is_used = False
                    if self._files.pop(key, None) is not None:  # else it was closed meanwhile
                        self._files[key] = reference  # the others come first the next time
        return closed > 0

    def _allowed(self) -> int:
        if self.limit is not None:
            return self.limit
        limit = descriptors_allowed()
        return max(limit - limit // 4, _LEAST)


POOL = DescriptorPool()


def with_descriptor(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What the call returns, which takes a descriptor; where none was left, once more after files that are idle were closed."""
    try:
        return call(*arguments, **options)
    except own(OSError) as error:
        if error.errno not in _NONE_LEFT or not POOL.close_some(
            min(max(len(POOL) // _AT_ONCE, _LEAST), len(POOL) - _KEPT)
        ):
            raise
    return call(*arguments, **options)


def descriptors_allowed() -> int:
    """How many this process may have, as the system says now."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def remedy_for(number: int | None) -> str:
    """What to do about an error of this number, if it is about descriptors; else nothing."""
    if number == errno.EMFILE:
        return (
            f" (this process may have {descriptors_allowed()}); close files that it does not need, or raise the limit: "
            "ulimit -n, LimitNOFILE= of systemd, resource.setrlimit(resource.RLIMIT_NOFILE, ...)"
        )
    if number == errno.ENFILE:
        return " on this machine; close files in other processes, or raise the limit: sysctl fs.file-max"
    return ""


def identity_of(descriptor: int) -> Identity | None:
    """What this file can be told by when it is opened again; None where the filesystem does not say when it was made."""
    status = os.fstat(descriptor)
    born_ns = _born_ns(descriptor, status)
    return None if born_ns is None else Identity(status.st_dev, status.st_ino, born_ns)


# Python has no call for statx(2), which says it on Linux.
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_known_statx: list[Callable[[int, bytearray], int]] = []
_STATX = Struct("=I76xqI164x")  # struct statx, 256 bytes: stx_mask, and stx_btime in seconds and nanoseconds


def _born_ns(descriptor: int, status: os.stat_result) -> int | None:
    born_s: float | None = getattr(status, "st_birthtime", None)  # macOS
    if born_s is not None:
        return int(born_s * 1e9)
    statx = _statx()
    if statx is None:
        return None
    answer = bytearray(_STATX.size)
    refused = statx(descriptor, answer)
    mask, seconds, nanoseconds = _STATX.unpack(answer)
    return None if refused or not mask & _STATX_BTIME else seconds * 10**9 + nanoseconds


def _statx() -> Callable[[int, bytearray], int] | None:
    """Asks about an open file: fills the second argument, answers 0. None where the C library has no such call.

    A refusal is not remembered: perhaps no descriptor was left to load the library with.
    """
    if not _known_statx:
        try:
            import ctypes  # only where files are many

            call, buffer_of = ctypes.CDLL(None).statx, (ctypes.c_char * _STATX.size).from_buffer
        except own(ImportError, OSError, AttributeError):
            return None
        _known_statx.append(
            lambda descriptor, answer: call(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer_of(answer))
        )
    return _known_statx[0]
