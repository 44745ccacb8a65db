"""Reading until there is something to return: catalog check, wait, deadline, and ``wakeup``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pylog.consumer.assignment import Assignment
from pylog.consumer.fetcher import LOOK_AGAIN_S, Fetcher
from pylog.errors import TopicNotFound, Wakeup
from pylog.interrupts import own

if TYPE_CHECKING:
    from pylog.manager.access import ConsumerLog
    from pylog.partition.partition_log import PartitionLog
    from pylog.storage import Watch

_ASK_AGAIN_S = 5.0  # to retry a watch that could not be created; no wait is longer

Taken = TypeVar("Taken")


class PollLoop:
    """The loop around the fetcher. Other threads and signal handlers may only call ``wake``."""

    def __init__(self, log: ConsumerLog, assignment: Assignment, fetcher: Fetcher) -> None:
        self._log = log
        self._assignment = assignment
        self._fetcher = fetcher
        self._woken = False
        self._watch: Watch | None = None
        self._watched: tuple[PartitionLog | str, ...] | None = None
        self._ask_again_s = 0.0

    def wake(self) -> None:
        """Make ``poll_until``, or its next call, raise ``Wakeup``. Safe in any thread or
        handler."""
        self._woken = True
        self._log.wake()

    def poll_until(self, timeout_s: float, take: Callable[[int], Taken], max_records: int) -> Taken:
        """The first result of ``take(max_records)`` that is not empty, or the last at the deadline.

        The deadline only counts after everything was read: an empty result means no records. A
        partition that ends at a transaction is looked at again after the deadline: its owner may
        have died since, which changes no file.
        """
        clock = self._log.clock
        deadline = clock.monotonic() + timeout_s if timeout_s else 0.0
        while True:
            if self._woken:
                self._woken = False
                raise Wakeup("wakeup() was called")
            is_last = not timeout_s or clock.monotonic() >= deadline
            self._assignment.refresh()
            try:
                taken = take(max_records)
            except own(TopicNotFound):
                if not self._assignment.changed():
                    raise
                continue  # deleted since the catalog was read: read it again
            if taken:
                return taken
            if not self._fetcher.caught_up:
                continue
            if is_last:
                return taken
            must_look_again = self._fetcher.must_look_again()
            wait_s = min(deadline - clock.monotonic(), LOOK_AGAIN_S if must_look_again else _ASK_AGAIN_S)
            changed = wait_s > 0 and self._log.wait_for_change(self._has_changes, wait_s, self._current_watch())
            if not changed and not must_look_again and clock.monotonic() >= deadline:
                return taken

    def _current_watch(self) -> Watch | None:
        """A watch of the awaited partitions: made with the first wait, replaced when they change.

        If no watch can be created, the wait checks periodically, and a later wait tries again.
        """
        partitions = self._fetcher.watched_partitions()
        paths = self._assignment.paths
        is_other = (*partitions, *paths) != self._watched or (self._watch is not None and not self._watch.is_open)
        now_s = self._log.clock.monotonic()
        if is_other or (self._watch is None and now_s >= self._ask_again_s):
            self._ask_again_s = now_s + _ASK_AGAIN_S
            self.close()
            self._watch, self._watched = self._log.watch(partitions, paths), (*partitions, *paths)
        return self._watch

    def close(self) -> None:
        """Release the watch; another wait makes another one."""
        watch, self._watch, self._watched = self._watch, None, None
        if watch is not None:
            watch.close()

    def _has_changes(self) -> bool:
        return self._woken or self._fetcher.changed() or self._assignment.changed()
