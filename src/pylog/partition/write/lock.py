"""The right to change a partition: a turn among this process's threads, a lock among processes.

Both are held from reading the commit slots to publishing the next one. The kernel frees its lock
when the holder dies; a stopped holder keeps it, since it may still write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pylog.errors import Closed, DeliveryTimeout, LogLocked, PylogError, StorageError
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitSlots
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.segment.naming import COMMIT_SLOTS, LOCK, temporary_path
from pylog.storage import SLEEP_MAX_S, FileLock, acquire
from pylog.turn import NOT_MINE, Turn, seconds_to_wait

T = TypeVar("T")

_OPENINGS_MAX = 10  # each after another process that has put its own lock there


class _NotOpen:
    """The lock while no file is open. Each method is a call into C, like ``FileLock.release``."""

    release: Callable[[], object] = bool
    close_when_idle: Callable[[], object] = bool
    abandon: Callable[[], object] = bool
    close: Callable[[], object] = bool


_NOT_OPEN = _NotOpen()


class WriteLock:
    """Guards one partition directory; what ``holding`` calls gets the ``Grant`` to change it."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._turn = Turn()  # threads of one process share the lock's descriptor
        self._grant = Grant(directory, self._turn.is_mine)
        self._lock: FileLock | None = None  # once it was taken in place, and the slots are of this version
        self._to_release: FileLock | _NotOpen = _NOT_OPEN  # since it was opened
        self.slots: CommitSlots | None = None  # also read without the lock
        self._closed = False
        self._size = 0  # of the lock file; if it grows, the topic's settings have changed
        self._is_replaced = False  # others may use another lock file: this process must not write

    def holding(self, timeout_ms: int, work: Callable[[Grant], T]) -> T:
        """Call ``work`` with the grant while holding the lock; returns its result.

        ``DeliveryTimeout`` after ``timeout_ms``, without calling ``work``. Every exception, also a
        signal handler's, frees the lock.
        """
        turn, grant = self._turn, self._grant
        if turn.is_mine():
            raise DeliveryTimeout(
                f"{self._directory.path} is being written by this very thread, further up the stack: it was interrupted by a "
                "signal handler, which cannot write here; try again when the handler has returned",
                path=self._directory.path,
                timeout_ms=0,
            )
        try:
            if not turn.take(False) and not turn.take(timeout=seconds_to_wait(timeout_ms / 1000)):
                raise self._timed_out(timeout_ms)
            try:
                lock = self._lock
                if self._closed:
                    raise self._why_closed()
                if lock is None:
                    self._open_and_take(timeout_ms)
                else:
                    if not lock.try_acquire():
                        self._wait(lock, timeout_ms)
                    if self._is_replaced or not lock.is_in_place():
                        raise self._why_not_in_place()
                    if lock.size != self._size:
                        grant.settings, self._size = None, lock.size
                return work(grant)
            except own(Exception) as error:
                if self._turn is not turn:  # a child that a signal handler forked: it has lost its parent's files
                    self._drop()  # also those that it took over from its parent's work since
                    raise grant.forked() from error
                if isinstance(error, PylogError) or not isinstance(error, FileNotFoundError):
                    raise
                raise self._directory.missing(error) from error
            finally:
                self._to_release.release()
                self._to_release.close_when_idle()
        finally:
            try:  # see turn.py
                turn.leave()
            except own(NOT_MINE):
                pass

    def _why_closed(self) -> Closed:
        self._directory.check_topic()  # if it was closed because its topic is gone, raise that
        return Closed(f"{self._directory.path} has been closed", path=self._directory.path)

    def _open_and_take(self, timeout_ms: int) -> None:
        """Open and take the lock that is in place now. Upgrade slots of an earlier version under
        it.

        An upgrade, by this process or another, and a topic created again replace the lock. This
        process knows nothing of the partition yet, so it then takes the new lock.
        """
        for _ in range(_OPENINGS_MAX):
            self._drop()
            lock, slots = self._open(timeout_ms)
            self._wait(lock, timeout_ms)
            if lock.is_in_place() and not slots.upgrade(self._replace_lock):
                self._grant.settings, self._size = None, lock.size
                self._lock = lock
                return
        raise self._refused()

    def _replace_lock(self) -> None:
        """Processes of an earlier version find the file that they have open not in place, and
        stop."""
        filesystem, path = self._directory.filesystem, f"{self._directory.path}/{LOCK}"
        temporary = temporary_path(path, filesystem.process_id(), filesystem.random_bytes(8))
        try:
            filesystem.lock(temporary).close()
            self._grant.check()
            filesystem.replace(temporary, path)
        finally:
            filesystem.remove(temporary)

    def _why_not_in_place(self) -> PylogError:
        self._directory.check_topic()  # usually the topic was deleted: if so, raise that
        if not self._directory.filesystem.is_directory(self._directory.path):
            return self._directory.gone()
        self._is_replaced = True  # also if the lock comes back
        return self._refused()

    def _refused(self) -> StorageError:
        path = f"{self._directory.path}/{LOCK}"
        return StorageError(
            f"{path} was removed or replaced while the log was open, so this process and others may write in one another's way: "
            "close the log in every process, then open it again",
            path=path,
        )

    def _wait(self, lock: FileLock, timeout_ms: int) -> None:
        if not acquire(lock, self._directory.clock, timeout_ms / 1000):
            raise self._timed_out(timeout_ms)

    def give_way(self) -> None:
        """Between two holds: sleep longer than a waiting writer, so that it can take the lock."""
        self._directory.clock.sleep(1.5 * SLEEP_MAX_S)

    def _timed_out(self, timeout_ms: int) -> DeliveryTimeout:
        return DeliveryTimeout(
            f"{self._directory.path} stayed locked by another writer for {timeout_ms} ms; nothing was written, try again",
            path=self._directory.path,
            timeout_ms=timeout_ms,
        )

    def _open(self, timeout_ms: int) -> tuple[FileLock, CommitSlots]:
        directory = self._directory
        try:
            lock = directory.filesystem.lock(f"{directory.path}/{LOCK}")
            slots = CommitSlots(directory.filesystem.open_appendable(f"{directory.path}/{COMMIT_SLOTS}"))
        except own(FileNotFoundError) as error:
            raise directory.gone() from error
        slots.close_when_idle()
        self.slots = self._grant.slots = slots
        self._to_release = lock
        try:
            directory.check_topic()
            if not slots.is_current:
                directory.require_slots_version(directory.topic_partition.topic)  # before the first new slot is written
        except own(LogLocked) as error:
            self._drop()
            raise DeliveryTimeout(
                f"the commit slots of {directory.path} are to be upgraded: {error}",
                path=directory.path,
                timeout_ms=timeout_ms,
            ) from error
        except BaseException:
            self._drop()
            raise
        return lock, slots

    def reopen(self, timeout_ms: int) -> None:
        """While holding the lock: take that of the directory which is at this path now.

        Called for invalid slots: the topic may have been deleted and created again.
        """
        self._open_and_take(timeout_ms)

    def _drop(self) -> None:
        slots, self.slots = self.slots, None
        lock, self._lock, self._to_release = self._to_release, None, _NOT_OPEN
        if slots is not None:
            slots.close()
        lock.close()

    def close(self, last: Callable[[Grant], object]) -> bool:
        """Close the files for good. Waits for the holder; False in a signal handler that
        interrupted it.

        Calls ``last`` under the lock before, unless another process holds it now or its file is not
        in place. The files are also closed if ``last`` or the lock raises.
        """
        turn = self._turn
        self._closed = True
        if turn.is_mine():
            return False
        with turn.lock:
            try:
                lock = self._lock
                if lock is not None and not self._is_replaced and lock.try_acquire() and lock.is_in_place():
                    last(self._grant)
            finally:
                self._to_release.release()  # before any Python call, which a signal handler may end
                self._drop()
        return True

    def forget_parent(self) -> None:
        """In a forked child: the kernel lock is the parent's, and a parent's thread may have the
        turn."""
        self._turn = Turn()
        self._grant.revoke()
        self._grant = Grant(self._directory, self._turn.is_mine)
        slots, self.slots = self.slots, None
        lock, self._lock, self._to_release = self._to_release, None, _NOT_OPEN
        if slots is not None:
            slots.close()  # the child may be in the middle of its parent's publication
        lock.abandon()
