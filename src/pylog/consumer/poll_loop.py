"""Reading until there is something to return: the look at the catalog, the wait, the deadline, and ``wakeup``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pylog.consumer.assignment import Assignment
from pylog.consumer.fetcher import Fetcher
from pylog.errors import ConfigError, TopicNotFound, Wakeup
from pylog.interrupts import own

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.partition_log import PartitionLog
    from pylog.storage import Watch

_ASK_AGAIN_S = 5.0  # for what could not be had, and for what may have been exchanged by hand; no wait is longer

Taken = TypeVar("Taken")


class Waiting:
    """The loop around the fetcher. ``wake`` alone may be called from other threads and signal handlers."""

    def __init__(self, log: Log, assignment: Assignment, fetcher: Fetcher) -> None:
        self._log = log
        self._assignment = assignment
        self._fetcher = fetcher
        self._woken = False
        self._watch: Watch | None = None
        self._watched: tuple[PartitionLog | str, ...] | None = None
        self._ask_again_s = 0.0

    def wake(self) -> None:
        """Make ``take_within``, or its next call, raise ``Wakeup``. Any thread and any signal handler may call this."""
        self._woken = True
        self._log.wake()

    def take_within(self, timeout_s: float, take: Callable[[int], Taken], max_records: int) -> Taken:
        """The first thing ``take(max_records)`` brings that is not empty, or what it brought when time was up.

        Time is up only once everything that was there has been read, so that an empty answer means there was nothing.
        """
        clock = self._log.clock
        deadline = clock.monotonic() + timeout_s
        while True:
            self._begin_round()
            try:
                taken = take(max_records)
            except own(TopicNotFound):
                if not self._assignment.changed():
                    raise
                continue  # deleted since the look at the catalog: look again
            if taken:
                return taken
            if not self._fetcher.caught_up:
                continue
            wait_s = min(deadline - clock.monotonic(), _ASK_AGAIN_S)
            if wait_s <= 0:
                return taken
            came = self._log.wait_for_change(self._has_news, wait_s, self._current_watch())
            if not came and clock.monotonic() >= deadline:
                return taken

    def _current_watch(self) -> Watch | None:
        """Of the partitions that are waited for: made with the first wait, and kept until they are others.

        If it can't be had now, the wait goes by looking, and one of the next asks again.
        """
        lanes = self._fetcher.lanes.values()
        partitions = tuple(lane.partition for lane in lanes if lane.partition is not None and not lane.paused)
        paths = self._assignment.paths
        is_other = (*partitions, *paths) != self._watched or (self._watch is not None and not self._watch.is_open)
        now_s = self._log.clock.monotonic()
        is_due = now_s >= self._ask_again_s
        if is_other or is_due:
            self._ask_again_s = now_s + _ASK_AGAIN_S
        if is_other or (is_due and self._watch is None):
            self.close()
            self._watch, self._watched = self._log.watch(partitions, paths), (*partitions, *paths)
        return self._watch

    def close(self) -> None:
        """Give the watch back; another wait makes another one."""
        watch, self._watch, self._watched = self._watch, None, None
        if watch is not None:
            watch.close()

    def _begin_round(self) -> None:
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")
        if self._assignment.is_empty:
            raise ConfigError("nothing to read: call subscribe() or assign() first")
        self._assignment.refresh()

    def _has_news(self) -> bool:
        return self._woken or self._fetcher.changed() or self._assignment.changed()
