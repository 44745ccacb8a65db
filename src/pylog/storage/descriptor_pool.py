"""Limits the open files of this process: closes those that are idle; their next use reopens them.

A partition that is written and read has up to nine files open, and a process may have 1,024. So
this pool lists the files that stay open long (``close_when_idle``). If more of them are open than
three quarters of the limit, or if the system refuses a descriptor, the pool closes some idle ones.

The file refers to its open descriptor (``OpenDescriptor``), and each call refers to it while it
runs. The pool, and ``close`` of the file, only remove the file's reference. So a descriptor that
another thread uses in a system call is closed after that call returns: if it were closed before,
its number could be another file's by then, and the call would write there. No function here waits.
Each step on shared state is one call into C, because a signal handler or a forked child may open
files in between.

Files that are not synced are closed, too: Linux reports a failed write-back to the next process
that opens the file.
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
from pylog.storage.descriptors import Descriptor

T = TypeVar("T")

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_LEAST = 16  # the lowest limit of open files
_KEPT = 32  # files that stay open even if no descriptor is left; at this count ``statx`` is loaded
_AT_ONCE = 8  # one eighth of the files is closed together, to search the list less often


class OpenDescriptor:
    """An open file's number and its owner, which closes it when this object is unreferenced.

    An error that the system reports for the close is dropped: what must last is synced before.
    """

    __slots__ = ("_owner", "number")

    def __init__(self, owner: Descriptor) -> None:
        self._owner = owner
        self.number = owner.fileno()

    def revoke(self) -> None:
        """A call that has not read the number yet is refused. One that has read it completes."""
        self.number = -1

    def identity(self) -> Identity | None:
        """``identity_of`` the file. None also if another thread has just closed it."""
        try:
            return identity_of(self.number)
        except own(OSError):
            return None


class Identity(NamedTuple):
    """Identifies a closed file: a new file may reuse a removed one's number, but is born later."""

    device: int
    number: int
    born_ns: int


class Idle(Protocol):
    """A file or a lock that the pool may close."""

    is_used: bool
    """Each use sets it; the pool clears it when it looks at the file."""

    def close_idle(self) -> bool:
        """Drop the descriptor; the next use reopens it. False if that is not possible now.

        Any thread may call it, also while another one closes the file.
        """


class DescriptorPool:
    """The files of this process that may be closed while idle, in the order of inspection."""

    def __init__(self) -> None:
        self._files: dict[int, weakref.ref[Idle]] = {}
        self._most = 0
        self.limit: int | None = None  # set by tests; default: 3/4 of the process's limit

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: Idle) -> None:
        """List a file that was just opened, so that it may be closed when idle."""
        if len(self._files) >= self._most:
            self._most = self._allowed()
            surplus = len(self._files) + 1 - self._most
            if surplus > 0:
                self.close_some(surplus + self._most // _AT_ONCE)
        if len(self._files) == _KEPT:
            _statx()
        key = id(file)
        # a callback in C: see descriptors.py
        self._files[key] = weakref.ref(file, partial(self._files.pop, key))

    def discard(self, file: Idle) -> None:
        """Remove a file that was closed for good."""
        self._files.pop(id(file), None)

    def close_some(self, wanted: int) -> bool:
        """Close up to ``wanted`` files, first those that were not used since the last call.

        Looks at every file at most twice. False if none was closed, as if ``wanted`` is below 1.
        """
        closed = 0
        for _ in range(2 if wanted > 0 else 0):
            for key, reference in list(self._files.items()):
                file = reference()
                if file is None:
                    continue  # it is not listed any more, but a new file may have its key
                if not file.is_used:
                    self._files.pop(key, None)
                    closed += file.close_idle()
                    if closed >= wanted:
                        return True
                else:
                    file.is_used = False
                    if self._files.pop(key, None) is not None:  # else it has been closed
                        self._files[key] = reference  # to the end of the list
        return closed > 0

    def _allowed(self) -> int:
        if self.limit is not None:
            return self.limit
        limit = descriptors_allowed()
        return max(limit - limit // 4, _LEAST)


POOL = DescriptorPool()


def with_descriptor(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call a function that opens a descriptor. If none is left, close idle files and retry once."""
    try:
        return call(*arguments, **options)
    except own(OSError) as error:
        if error.errno not in _NONE_LEFT or not POOL.close_some(
            min(max(len(POOL) // _AT_ONCE, _LEAST), len(POOL) - _KEPT)
        ):
            raise
    return call(*arguments, **options)


def descriptors_allowed() -> int:
    """The current limit of open descriptors of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def remedy_for(number: int | None) -> str:
    """The advice in an error message for this errno; "" if the error is not about descriptors."""
    if number == errno.EMFILE:
        return (
            f" (this process may have {descriptors_allowed()}); close files that it does not need, or raise the limit: "
            "ulimit -n, LimitNOFILE= of systemd, resource.setrlimit(resource.RLIMIT_NOFILE, ...)"
        )
    if number == errno.ENFILE:
        return " on this machine; close files in other processes, or raise the limit: sysctl fs.file-max"
    return ""


def identity_of(descriptor: int) -> Identity | None:
    """Identifies the file when it is reopened; None if the filesystem records no birth time."""
    status = os.fstat(descriptor)
    born_ns = _born_ns(descriptor, status)
    return None if born_ns is None else Identity(status.st_dev, status.st_ino, born_ns)


# Linux reports the birth time by statx(2), for which Python has no call.
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_known_statx: list[Callable[[int, bytearray], int]] = []
_STATX = Struct("=I76xqI164x")  # struct statx, 256 bytes: stx_mask, stx_btime (s, ns)


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
    """A function that fills a buffer by ``statx`` and returns 0; None if the C library lacks it.

    A failure is not remembered: there may have been no descriptor to load the library with.
    """
    if not _known_statx:
        try:
            import ctypes  # only if there are many files

            call, buffer_of = ctypes.CDLL(None).statx, (ctypes.c_char * _STATX.size).from_buffer
        except own(ImportError, OSError, AttributeError):
            return None
        _known_statx.append(
            lambda descriptor, answer: call(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer_of(answer))
        )
    return _known_statx[0]
