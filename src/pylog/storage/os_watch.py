"""Waits for file changes by any process: inotify, on filesystems that no other machine writes to.

An idle wait costs nothing, and ends about 20 microseconds after the write. If inotify is missing
(another system, its limits reached, a network filesystem), there is no watch: callers poll.

Source: Linux ``inotify(7)``, ``eventfd(2)``.
"""

from __future__ import annotations

import os
import select
import sys
import threading  # other threads call ``wake``
from collections.abc import Callable, Collection
from math import ceil
from typing import Any

from pylog.interrupts import own, suppress
from pylog.storage.descriptors import Descriptor, owned
from pylog.storage.fork import after_fork_in_child

LOCAL_FILESYSTEMS = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "tmpfs", "xfs", "zfs"})

_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_DONT_FOLLOW = 0x2000000
_CHANGES = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DONT_FOLLOW
_EVENTS_BYTES = 1 << 16


class OsWatch:
    """A watch. Its owner waits in one thread; any thread or signal handler may call ``wake``."""

    __slots__ = ("__weakref__", "_descriptors", "_lock", "_poll")

    def __init__(self, paths: Collection[str]) -> None:
        """Raises ``OSError`` if not all paths can be watched."""
        self._descriptors: list[Descriptor] = []  # events and wakeups; open if both are there
        self._lock = threading.RLock()  # ``wake`` must not write to a closed, reused descriptor
        after_fork_in_child(self._forget_parent)
        try:
            self._poll = self._opened(self._descriptors, paths)
        except BaseException:
            self.close()
            raise

    def _opened(self, descriptors: list[Descriptor], paths: Collection[str]) -> select.poll:
        library, errno_of_call = _c_library()
        descriptors.extend(owned(map(library.inotify_init1, (os.O_CLOEXEC | os.O_NONBLOCK,))))
        if not descriptors:
            raise OSError(errno_of_call(), "inotify_init1")
        events = descriptors[0].fileno()
        for path in paths:
            if library.inotify_add_watch(events, os.fsencode(path), _CHANGES) < 0:
                raise OSError(errno_of_call(), "inotify_add_watch")
        descriptors.extend(owned(map(os.eventfd, (0,), (os.EFD_CLOEXEC | os.EFD_NONBLOCK,))))
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor.fileno(), select.POLLIN)
        return poll

    def wait(self, seconds: float) -> None:
        for descriptor, _ in self._poll.poll(ceil(max(0.0, seconds) * 1000)) if self.is_open else ():
            if self.is_open:  # else a signal handler forked, and this is the child
                with suppress(BlockingIOError):
                    os.read(descriptor, _EVENTS_BYTES)

    @property
    def is_open(self) -> bool:
        return len(self._descriptors) > 1

    def wake(self) -> None:
        with self._lock:
            if self.is_open:
                with suppress(BlockingIOError):  # the counter of wakeups is full
                    os.eventfd_write(self._descriptors[1].fileno(), 1)

    def close(self) -> None:
        with self._lock:
            self._descriptors = []  # their owners close them

    def _forget_parent(self) -> None:
        """Close in a forked child, which would consume the parent's events."""
        self._lock = threading.RLock()
        self.close()


def _c_library() -> tuple[Any, Callable[[], int]]:
    """The C library, and the function that returns the errno of a failed call."""
    import ctypes  # only if a caller waits

    return ctypes.CDLL(None, use_errno=True), ctypes.get_errno


def watch_files(paths: Collection[str], filesystem_kind: str) -> OsWatch | None:
    """A watch of these paths, all on one filesystem of this kind. None if that is not possible."""
    if sys.platform != "linux" or filesystem_kind not in LOCAL_FILESYSTEMS:
        return None
    try:
        if len({os.stat(path).st_dev for path in paths}) > 1:  # a mount of unknown kind is below
            return None
        return OsWatch(paths)
    # limits reached or a path is gone; a C library without inotify; no ctypes
    except own(OSError, AttributeError, ImportError):
        return None
