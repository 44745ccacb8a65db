"""The right to change a partition: a mutex among the threads of this process, a kernel lock among processes.

Both are held from reading the commit slots to publishing the next one. The kernel frees its lock when the holder dies;
a holder that is stopped keeps it, and rightly: its write may still land.
"""

from __future__ import annotations

import threading  # threads of one process share the lock's descriptor, so a mutex stands in front of it

from pylog.errors import Closed, DeliveryTimeout
from pylog.partition.commit_slots import CommitSlots
from pylog.partition.place import Place
from pylog.segment.naming import COMMIT_SLOTS, LOCK
from pylog.storage import FileLock

_SLEEP_MIN_S = 20e-6
_SLEEP_MAX_S = 2e-3


class WriterLock:
    """Guards one partition directory; ``slots`` may be published to while it is held."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._mutex = threading.Lock()
        self._lock: FileLock | None = None
        self._slots: CommitSlots | None = None
        self._closed = False

    @property
    def slots(self) -> CommitSlots:
        slots = self._slots
        assert slots is not None
        return slots

    @property
    def is_open(self) -> bool:
        return self._slots is not None

    def acquire(self, timeout_ms: int) -> None:
        """Take the lock, or raise ``DeliveryTimeout`` after ``timeout_ms``: nothing was done then."""
        if not self._mutex.acquire(timeout=min(max(timeout_ms, 0) / 1000, threading.TIMEOUT_MAX)):
            raise self._timed_out(timeout_ms)
        try:
            if self._closed:
                raise Closed(f"{self._place.directory} has been closed", path=self._place.directory)
            lock = self._lock or self._open()
            if not lock.try_acquire():
                self._wait(lock, timeout_ms)
        except BaseException:
            self._mutex.release()
            raise

    def _wait(self, lock: FileLock, timeout_ms: int) -> None:
        clock = self._place.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        sleep_s = _SLEEP_MIN_S
        while not lock.try_acquire():
            if clock.monotonic() >= deadline:
                raise self._timed_out(timeout_ms)
            clock.sleep(sleep_s)
            sleep_s = min(sleep_s * 1.5, _SLEEP_MAX_S)

    def _timed_out(self, timeout_ms: int) -> DeliveryTimeout:
        return DeliveryTimeout(
            f"{self._place.directory} stayed locked by another writer for {timeout_ms} ms; nothing was written, try again",
            path=self._place.directory,
            timeout_ms=timeout_ms,
        )

    def release(self) -> None:
        try:
            if self._lock is not None:
                self._lock.release()
        finally:
            self._mutex.release()

    def _open(self) -> FileLock:
        place = self._place
        try:
            lock = place.filesystem.lock(f"{place.directory}/{LOCK}")
            self._slots = CommitSlots(place.filesystem.open_appendable(f"{place.directory}/{COMMIT_SLOTS}"))
        except FileNotFoundError as error:
            raise place.gone() from error
        self._lock = lock
        return lock

    def reopen(self, timeout_ms: int) -> None:
        """While holding it: take the lock of the directory that stands at this path *now*.

        For slots that turned invalid: the topic may have been deleted, and created anew under the same name.
        """
        self._drop()
        self._wait(self._open(), timeout_ms)

    def _drop(self) -> None:
        slots, self._slots = self._slots, None
        lock, self._lock = self._lock, None
        if slots is not None:
            slots.close()
        if lock is not None:
            lock.close()

    def close(self) -> None:
        """Give the files back for good. Waits for the holder."""
        with self._mutex:
            self._closed = True
            self._drop()

    def forget_parent(self) -> None:
        """In a forked child: the kernel lock is the parent's, and a thread of the parent may have held the mutex."""
        self._mutex = threading.Lock()
        lock, self._lock, self._slots = self._lock, None, None
        if lock is not None:
            lock.abandon()
