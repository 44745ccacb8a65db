"""The right to change a partition: a turn among the threads of this process, a kernel lock among processes.

Both are held from reading the commit slots to publishing the next one. The kernel frees its lock when the holder dies;
a holder that is stopped keeps it, and rightly: its write may still land.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pylog.errors import Closed, DeliveryTimeout, ForkedHandle, LogLocked, PylogError, StorageError
from pylog.interrupts import own
from pylog.partition.commit_slots import CommitSlots, CommitSlotsReader, CommitState
from pylog.partition.directory import Place
from pylog.segment.naming import COMMIT_SLOTS, LOCK, temporary_path
from pylog.storage import FileLock
from pylog.turn import NOT_MINE, Turn, seconds_to_wait

T = TypeVar("T")

_SLEEP_MIN_S = 20e-6
_SLEEP_MAX_S = 2e-3
_OPENINGS_MAX = 10  # each after another process that has put its own lock there


class _NotOpen:
    """Stands for the lock while nothing is open. Each a call into C, as ``FileLock.release`` is."""

    release: Callable[[], object] = bool
    close_when_idle: Callable[[], object] = bool


_NOT_OPEN = _NotOpen()


class WriteLock:
    """Guards one partition directory; ``slots`` may be published to by what ``holding`` calls."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._turn = Turn()  # threads of one process share the lock's descriptor
        self._lock: FileLock | None = None
        self._to_release: FileLock | _NotOpen = _NOT_OPEN
        self._slots: CommitSlots | None = None
        self._is_ready = False  # the lock was taken once since it was opened, and its slots are of this version
        self._closed = False
        self._replaced = ""  # the name of what others have another one of: from then on this process must keep out

    @property
    def slots(self) -> CommitSlots:
        """To publish to, or to read what can't change now."""
        self.check_held()
        slots = self._slots
        assert slots is not None
        return slots

    def published(self) -> CommitState | None:
        """What is published at this moment, held or not; None where nothing valid is, or nothing is open yet."""
        slots = self._slots
        return None if slots is None else slots.read()

    def check_held(self) -> None:
        """``ForkedHandle`` in a child that was forked by a signal handler, and returned from it into what its parent does."""
        if not self._turn.is_mine():
            raise ForkedHandle(
                f"{self._place.directory} was being changed by this thread when a signal handler forked; the parent goes on with "
                "it, the child must not",
                path=self._place.directory,
            )

    def holding(self, timeout_ms: int, work: Callable[[], T]) -> T:
        """What ``work`` returns, called while the lock is held; or ``DeliveryTimeout`` after ``timeout_ms``, uncalled.

        Whatever is raised on the way, by a signal handler too, the lock is free again.
        """
        turn = self._turn
        if turn.is_mine():
            raise DeliveryTimeout(
                f"{self._place.directory} is being written by this very thread, further up the stack: it was interrupted by a "
                "signal handler, which cannot write here; try again when the handler has returned",
                path=self._place.directory,
                timeout_ms=0,
            )
        try:
            if not turn.take(blocking=False) and not turn.take(timeout=seconds_to_wait(timeout_ms / 1000)):
                raise self._timed_out(timeout_ms)
            try:
                self._take(timeout_ms)
                return work()
            except own(FileNotFoundError) as error:
                if isinstance(error, PylogError):
                    raise
                raise self._place.missing(error) from error
            finally:
                self._to_release.release()
                self._to_release.close_when_idle()
        finally:
            try:  # see turn.py
                turn.leave()
            except own(NOT_MINE):
                pass

    def _take(self, timeout_ms: int) -> None:
        if self._closed:
            self._place.check_topic()  # it may have been closed because its topic is gone: then that is what is said
            raise Closed(f"{self._place.directory} has been closed", path=self._place.directory)
        lock = self._lock
        if lock is None or not self._is_ready:
            self._open_and_take(timeout_ms)
        else:
            if not lock.try_acquire():
                self._wait(lock, timeout_ms)
            if not lock.is_in_place():
                self._place.check_topic()  # it was deleted, as a rule
                if not self._place.filesystem.is_directory(self._place.directory):
                    raise self._place.gone()
                raise self._refuse(LOCK)
        if self._replaced:
            raise self._refuse(self._replaced)

    def _open_and_take(self, timeout_ms: int) -> None:
        """Take the lock that stands there now. Under it, slots of an earlier version become this one's.

        That puts another lock there, and so may another process that does the same, or makes the topic again: nothing is known
        of the partition yet, so that lock is taken then.
        """
        for _ in range(_OPENINGS_MAX):
            self._drop()
            lock = self._open(timeout_ms)
            self._wait(lock, timeout_ms)
            if lock.is_in_place() and not self.slots.upgrade(self._replace_lock):
                self._is_ready = True
                return
        raise self._refuse(LOCK)

    def _replace_lock(self) -> None:
        """Processes of an earlier version have the old file open. They find that it is not in place, and stop."""
        filesystem, path = self._place.filesystem, f"{self._place.directory}/{LOCK}"
        temporary = temporary_path(path, filesystem.process_id(), filesystem.random_bytes(8))
        try:
            filesystem.lock(temporary).close()
            self.check_held()
            filesystem.replace(temporary, path)
        finally:
            filesystem.remove(temporary)

    def check_slots_in_place(self) -> None:
        """``StorageError`` where others publish to another file by now. While holding it, before files are made by path."""
        path = f"{self._place.directory}/{COMMIT_SLOTS}"
        try:
            there = CommitSlotsReader(self._place.filesystem.open_readable(path))
        except own(FileNotFoundError):
            raise self._refuse(COMMIT_SLOTS) from None
        try:
            if there.raw() != self.slots.raw():
                raise self._refuse(COMMIT_SLOTS)
        finally:
            there.close()

    def _refuse(self, name: str) -> StorageError:
        """From now on."""
        self._replaced = name
        path = f"{self._place.directory}/{name}"
        return StorageError(
            f"{path} was removed or replaced while the log was open, so this process and others may write in one another's way: "
            "close the log in every process, then open it again",
            path=path,
        )

    def _wait(self, lock: FileLock, timeout_ms: int) -> None:
        clock = self._place.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        sleep_s = _SLEEP_MIN_S
        while not lock.try_acquire():
            if clock.monotonic() >= deadline:
                raise self._timed_out(timeout_ms)
            clock.sleep(sleep_s)
            sleep_s = min(sleep_s * 1.5, _SLEEP_MAX_S)

    def give_way(self) -> None:
        """Between two holds that follow each other: sleep longer than those who wait do, so that one of them comes first."""
        self._place.clock.sleep(1.5 * _SLEEP_MAX_S)

    def _timed_out(self, timeout_ms: int) -> DeliveryTimeout:
        return DeliveryTimeout(
            f"{self._place.directory} stayed locked by another writer for {timeout_ms} ms; nothing was written, try again",
            path=self._place.directory,
            timeout_ms=timeout_ms,
        )

    def _open(self, timeout_ms: int) -> FileLock:
        place = self._place
        try:
            lock = place.filesystem.lock(f"{place.directory}/{LOCK}")
            self._slots = CommitSlots(place.filesystem.open_appendable(f"{place.directory}/{COMMIT_SLOTS}"))
        except own(FileNotFoundError) as error:
            raise place.gone() from error
        self._slots.close_when_idle()
        self._lock = self._to_release = lock
        try:
            place.check_topic()
            if not self._slots.is_current:
                place.require_slots_version()  # before the first of them is written
        except own(LogLocked) as error:
            self._drop()
            raise DeliveryTimeout(
                f"the commit slots of {place.directory} are to be upgraded: {error}",
                path=place.directory,
                timeout_ms=timeout_ms,
            ) from error
        except BaseException:
            self._drop()
            raise
        return lock

    def reopen(self, timeout_ms: int) -> None:
        """While holding it: take the lock of the directory that stands at this path *now*.

        For slots that turned invalid: the topic may have been deleted, and created anew under the same name.
        """
        self._open_and_take(timeout_ms)

    def _drop(self) -> None:
        self._is_ready = False
        slots, self._slots = self._slots, None
        lock, self._lock, self._to_release = self._lock, None, _NOT_OPEN
        if slots is not None:
            slots.close()
        if lock is not None:
            lock.close()

    def close(self, last: Callable[[], object]) -> bool:
        """Give the files back for good. Waits for the holder; False where that is this thread, interrupted by a signal.

        ``last`` is called before that, while the lock is held; but not if another process holds it at this moment, or the
        lock's file is no longer the one at its path. The files are closed, too, if ``last`` or the lock raises.
        """
        turn = self._turn
        self._closed = True
        if turn.is_mine():
            return False
        try:
            turn.take()
            try:
                lock = self._lock
                if lock is not None and not self._replaced and lock.try_acquire() and lock.is_in_place():
                    last()
            finally:
                self._to_release.release()  # before any call of Python, which a signal handler may end
                self._drop()
        finally:
            try:  # see turn.py
                turn.leave()
            except own(NOT_MINE):
                pass
        return True

    def forget_parent(self) -> None:
        """In a forked child: the kernel lock is the parent's, and a thread of the parent may have had the turn."""
        self._turn = Turn()
        lock, self._lock, self._slots, self._to_release = self._lock, None, None, _NOT_OPEN
        if lock is not None:
            lock.abandon()
