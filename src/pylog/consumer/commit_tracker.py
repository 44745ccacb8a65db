"""The progress of a consumer in a group: what it has processed and committed.

A commit is a record of ``__consumer_offsets``, appended under the group's lock. A member commits
while it has the partition; a consumer with partitions assigned by hand, while the group has no
members.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from pylog.consumer.config import ConsumerConfig
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.subscription import name_of
from pylog.errors import CommitFailed, GroupNotEmpty, LogLocked, PylogError
from pylog.group.admin import GroupAdmin
from pylog.group.membership import Membership
from pylog.group.offset_records import Committed
from pylog.group.truncation import make_records_durable
from pylog.interrupts import own
from pylog.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pylog.manager.access import ConsumerLog

logger = logging.getLogger("pylog.consumer")

_LONGEST_S = 1e9  # infinity, also when counted in milliseconds
_DUE_S = 0.2  # how long an auto-commit in a poll waits, every ``auto_commit_interval_ms``


class CommitTracker:
    """Used by one thread at a time, like its consumer.

    ``is_subscribed`` is True for a member of the group, False with partitions assigned by hand. It
    must not refer to the consumer's assignment, which owns this object: without a reference cycle a
    dropped consumer leaves its group at once, not when the garbage collector runs.
    """

    def __init__(
        self,
        log: ConsumerLog,
        fetcher: Fetcher,
        config: ConsumerConfig,
        membership: Membership,
        is_subscribed: Callable[[], bool],
    ) -> None:
        assert config.group_id is not None
        self._log = log
        self._fetcher = fetcher
        self._config = config
        self._group_id = config.group_id
        self._groups = log.part(GroupAdmin)
        self._membership = membership
        self._is_subscribed = is_subscribed
        self._committed: dict[TopicPartition, int] = {}  # committed by this consumer, or where it started
        self._durable: dict[TopicPartition, int] = {}  # committed offsets that survive a power failure
        self._processed: dict[TopicPartition, int] = {}  # positions at the last poll, or committed
        self._next_commit_s = 0.0
        self._close_by_s = math.inf  # no call waits for other processes after this time

    def begin_to_close(self, timeout_s: float | None) -> None:
        """Limit the total wait for other processes in all later calls, also those of callbacks."""
        self._close_by_s = math.inf
        self._close_by_s = self._log.clock.monotonic() + self.countdown(timeout_s)()

    def countdown(self, timeout_s: float | None) -> Callable[[], float]:
        """A function for the seconds left. None: ``default_api_timeout_ms``."""
        clock = self._log.clock
        timeout_s = self._config.default_api_timeout_ms / 1000 if timeout_s is None else min(timeout_s, _LONGEST_S)
        end_s = min(clock.monotonic() + timeout_s, self._close_by_s)
        return lambda: max(end_s - clock.monotonic(), 0.0)

    def add(self, starts: Mapping[TopicPartition, int | None], committed: Mapping[TopicPartition, Committed]) -> None:
        """Begin to track these partitions, which start at a committed offset or elsewhere."""
        self._processed.update((partition, offset) for partition, offset in starts.items() if offset is not None)
        self._committed.update(
            (partition, committed[partition].offset) for partition in starts if partition in committed
        )

    def forget(self, partition: TopicPartition) -> None:
        """Stop tracking this partition."""
        self._committed.pop(partition, None)
        self._durable.pop(partition, None)
        self._processed.pop(partition, None)

    def rewind(self) -> None:
        """Move back to what is processed: the application failed with the records returned last."""
        for partition, assigned in self._fetcher.assigned.items():
            assigned.move_to(self._processed.get(partition, assigned.position))

    def mark_processed(self) -> None:
        """Note that the application has processed all returned records."""
        self._processed = self._fetcher.positions()

    def commit_when_due(self) -> None:
        now_s = self._log.clock.monotonic()
        if self._config.enable_auto_commit and now_s >= self._next_commit_s:
            error = self._auto_commit(self._processed, _DUE_S) if self._next_commit_s else None
            if error is not None:
                self.report(error)  # the next commit includes it
            self._next_commit_s = now_s + self._config.auto_commit_interval_ms / 1000

    def commit_read(self, partitions: Collection[TopicPartition], timeout_s: float | None = None) -> None:
        """Auto-commit partitions no longer read. ``LogLocked`` only if ``timeout_s`` is given."""
        if not self._config.enable_auto_commit:
            return
        offsets = {p: at for p, at in self._fetcher.positions().items() if p in partitions}
        error = self._auto_commit(offsets, timeout_s)
        if isinstance(error, LogLocked) and timeout_s is not None:
            raise error
        if error is not None:
            self.report(error, offsets)

    def _auto_commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float | None) -> PylogError | None:
        """Commit these offsets; returns the error if that is impossible now."""
        try:
            committed = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
            self.commit(committed, durable=True, named=False, timeout_s=timeout_s)
        except own(PylogError) as error:
            return error
        return None

    def report(self, error: PylogError, offsets: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Log a failed commit that the application does not see as an error."""
        what = ", ".join(f"{name_of(partition)} at {offset}" for partition, offset in sorted(offsets.items()))
        logger.warning("group %r: could not commit%s: %s", self._group_id, what and f" {what}", error)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """What the group has committed now."""
        found = self._groups.committed(self._group_id).get(partition)
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        durable: bool,
        named: bool,
        timeout_s: float | None = None,
    ) -> None:
        """Visible to all on return, and on disk if ``durable``. Raises like ``Consumer.commit``.

        ``named``: the application named the offsets. Otherwise they are positions: for those
        already committed only the membership is checked, and those of deleted topics are skipped.
        ``timeout_s``: how long to wait for other processes; None: ``default_api_timeout_ms``.
        """
        left_s = self.countdown(timeout_s)
        if not named:
            there = self._groups.topics_now({partition.topic for partition in offsets})
            offsets = {name: at for name, at in offsets.items() if name.topic in there}
        if not offsets:
            return
        news = offsets if named else {p: at for p, at in offsets.items() if self._committed.get(p) != at.offset}
        unsafe = {p: at for p, at in offsets.items() if durable and self._durable.get(p) != at.offset}
        committed = self._prepare(news, unsafe, left_s)
        if news:
            self._groups.offsets.make_topic()
        commit = self._commit_as_member if self._is_subscribed() else self._commit_alone
        end = commit(offsets, committed, left_s)
        for name, at in offsets.items():
            self._committed[name] = at.offset
            self._durable.pop(name, None)
            if name in self._processed:
                self._processed[name] = at.offset
        if unsafe:
            self._groups.offsets.sync(self._group_id, end if news else None, left_s())
        if durable:
            self._durable.update({name: at.offset for name, at in offsets.items()})
        if news:
            self._groups.offsets.tidy(self._group_id, left_s())

    def _prepare(
        self,
        news: Mapping[TopicPartition, OffsetAndMetadata],
        unsafe: Mapping[TopicPartition, OffsetAndMetadata],
        left_s: Callable[[], float],
    ) -> dict[TopicPartition, Committed]:
        """Make the records before the ``unsafe`` offsets durable. Returns the commits of ``news``."""
        committed: dict[TopicPartition, Committed] = {}
        for name, at in {**unsafe, **news}.items():
            partition = self._log.partition(*name)
            if name in unsafe:
                make_records_durable(partition, at.offset, left_s())
            if name in news:
                now_ms = self._log.clock.now_ms()
                committed[name] = Committed(at.offset, partition.leader_epoch, at.metadata, now_ms, self._id_of(name))
        return committed

    def _commit_as_member(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, Committed],
        left_s: Callable[[], float],
    ) -> int:
        end = 0

        def append(check_held: Callable[[], None]) -> None:
            nonlocal end
            if committed:
                end = self._groups.offsets.append(self._group_id, committed, check_held, left_s())

        self._membership.commit(partitions, append, left_s())
        return end

    def _commit_alone(
        self,
        _partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, Committed],
        left_s: Callable[[], float],
    ) -> int:
        try:
            return self._groups.commit_alone(self._group_id, committed, left_s)
        except own(GroupNotEmpty) as error:
            raise CommitFailed(
                f"{error}; a consumer with partitions assigned by hand commits for a group without members",
                **error.facts,
            ) from error

    def _id_of(self, partition: TopicPartition) -> str:
        """The id of the topic that was read. Its name may belong to another topic now."""
        assigned = self._fetcher.assigned.get(partition)
        return self._log.describe_topic(partition.topic).id if assigned is None else str(assigned.topic_id)
