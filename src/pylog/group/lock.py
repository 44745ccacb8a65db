"""The lock of a group, opened together with its state; who holds it gets a ``GroupGrant``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pylog.errors import ForkedHandle, LogLocked, PylogError, StorageError
from pylog.group.directory import GroupDirectory
from pylog.group.state import Group
from pylog.group.state_file import StateFile
from pylog.interrupts import own, suppress
from pylog.storage import LOCK_TIMEOUT_S, FileLock, acquire, after_fork_in_child

T = TypeVar("T")

_DELETIONS_MAX = 100  # that one opening may meet


class GroupGrant:
    """The right to change a group and to commit its offsets, given by ``GroupLock.holding`` for the
    time of one call.

    A signal handler may fork and return, in the child, into its parent's change. Then ``check``
    raises in the child, which has lost its parent's files, too.
    """

    __slots__ = ("directory", "holder", "state")

    state: StateFile

    def __init__(self, directory: GroupDirectory) -> None:
        self.directory = directory
        self.holder = 0  # the process that called ``holding``, until that returns

    def check(self) -> None:
        """Raises ``ForkedHandle`` if a signal handler has forked and the child does its parent's
        work."""
        if self.holder != self.directory.filesystem.process_id():
            raise ForkedHandle(
                f"the group {self.directory.group!r} was being changed by this thread when a signal handler forked; the parent "
                "continues with it, the child must not",
                group=self.directory.group, path=self.directory.path,
            )  # fmt: skip

    def publish(self, group: Group) -> None:
        """Publish this group, which follows from the state that was read under the same lock."""
        assert self.holder, "the call that had this grant has ended"
        self.state.publish(group)


class GroupLock:
    """For one thread at a time. The lock is held during one change, or one commit of offsets."""

    def __init__(self, directory: GroupDirectory) -> None:
        self.directory = directory
        self._lock: FileLock | None = None
        self._state: StateFile | None = None
        self._grant = GroupGrant(directory)
        after_fork_in_child(self.forget_parent)

    @property
    def state(self) -> StateFile:
        """The state, to be read without the lock."""
        state = self._state
        return self._open()[1] if state is None else state

    def holding(
        self,
        work: Callable[[GroupGrant], T],
        timeout_s: float = LOCK_TIMEOUT_S,
        while_waiting: Callable[[], object] = bool,
    ) -> T:
        """Return the result of ``work``, called with the lock held. ``LogLocked`` after a time in
        which ``while_waiting`` is called every few milliseconds."""
        while True:
            self._grant.holder = self.directory.filesystem.process_id()
            lock = self._lock or self._open(timeout_s)[0]
            try:
                if not lock.try_acquire() and not acquire(lock, self.directory.clock, timeout_s, while_waiting):
                    raise self._timed_out(timeout_s)
                if lock.is_in_place():
                    return self._work(work)
            finally:
                lock.release()
                self._grant.holder = 0
            self.close()  # the group was deleted, together with this lock

    def _work(self, work: Callable[[GroupGrant], T]) -> T:
        grant = self._grant
        grant.state = self._state or self.state
        grant.check()
        try:
            return work(grant)
        except own(FileNotFoundError) as error:
            if isinstance(error, PylogError):
                raise
            path = self.directory.path
            raise StorageError(
                f"files of the group were removed from {path} meanwhile; try again", path=path
            ) from error
        except Exception:
            grant.check()  # a forked child has lost its parent's files: that is the cause of any error
            raise

    def _open(self, timeout_s: float = LOCK_TIMEOUT_S) -> tuple[FileLock, StateFile]:
        directory = self.directory
        for _ in range(_DELETIONS_MAX):
            with suppress(FileNotFoundError):  # it is new, or was deleted in between
                lock = directory.filesystem.lock(directory.lock)
                try:
                    state = StateFile(directory.filesystem.open_appendable(directory.state), directory.boot)
                except BaseException:
                    lock.close()
                    raise
                self._lock, self._state = lock, state
                return lock, state
            with suppress(FileNotFoundError):  # the log was removed
                directory.make(timeout_s)
        path = directory.path
        raise StorageError(f"{path} can't be made: the log was removed, or moved, while it was open", path=path)

    def _timed_out(self, timeout_s: float) -> LogLocked:
        return LogLocked(
            f"{self.directory.lock} stayed locked for {timeout_s:g} s: a process of the group {self.directory.group!r} may be "
            "stopped; try again, or find out which one holds it",
            path=self.directory.lock, group=self.directory.group, timeout_s=timeout_s,
        )  # fmt: skip

    def close(self) -> None:
        """Close the files. The next use opens them again."""
        lock, self._lock = self._lock, None
        state, self._state = self._state, None
        if state is not None:
            state.close()
        if lock is not None:
            lock.close()

    def forget_parent(self) -> None:
        """In a forked child: drop the files. The lock, and a change under way, are the parent's."""
        lock, self._lock = self._lock, None
        state, self._state = self._state, None
        if state is not None:
            with suppress(StorageError):
                state.close()
        if lock is not None:
            lock.abandon()


def read_group(directory: GroupDirectory) -> Group:
    """Read a group without its lock, and without creating files. Empty if it has no state."""
    try:
        state = StateFile(directory.filesystem.open_readable(directory.state), directory.boot)
    except own(FileNotFoundError):
        return Group()
    try:
        return state.read()
    finally:
        state.close()
