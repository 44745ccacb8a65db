"""What a consumer in a group reads: the partitions that the group assigns to it.

In each round the member first gives up partitions that are no longer its own (auto-commit,
``on_revoked``), publishes that, and then takes its own free ones (committed position,
``on_assigned``). It keeps reading the others during the round. If the group continued without the
member, the member has lost all its partitions (``on_lost``) and joins again.

Partitions assigned by hand take no part in that. They are read from the group's committed offsets,
and committed while the group has no members.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pylog.catalog.topic import CONSUMED
from pylog.consumer.assignment import Assignment, Callback, Start
from pylog.consumer.commit_tracker import CommitTracker
from pylog.consumer.config import ConsumerConfig
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.offset_lookup import OffsetLookup
from pylog.consumer.subscription import Subscription, name_of
from pylog.consumer.thread_guard import SingleThreadGuard
from pylog.errors import (
    CommitFailed,
    DeliveryTimeout,
    InstanceFenced,
    InvalidPartition,
    LogLocked,
    PylogError,
    TopicNotFound,
)
from pylog.group.admin import GroupAdmin
from pylog.group.membership import SHORT_S, MemberOptions, Membership
from pylog.group.offset_records import Committed
from pylog.group.state import Group
from pylog.group.truncation import next_offset
from pylog.interrupts import WeakSet, own, suppress
from pylog.model import TopicPartition
from pylog.storage import after_fork_in_child

if TYPE_CHECKING:
    from pylog.manager.access import ConsumerLog
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.consumer")


class GroupAssignment(Assignment):
    """Keeps the fetcher's partitions in line with the group. Used by one thread at a time."""

    def __init__(
        self, log: ConsumerLog, lookup: OffsetLookup, fetcher: Fetcher, config: ConsumerConfig, guard: SingleThreadGuard
    ) -> None:
        super().__init__(log, lookup, fetcher)
        log.require_writable()
        assert config.group_id is not None
        self.group_id = config.group_id
        self.instance_id = config.group_instance_id
        self._groups = log.part(GroupAdmin)
        self._config = config
        self._guard = guard
        options = MemberOptions(
            config.assignor, config.group_instance_id or "", config.client_id or "",
            config.max_poll_interval_ms, config.session_timeout_ms,
        )  # fmt: skip
        self.membership = Membership(self._groups.directory(self.group_id), options, self._groups.topics_now)
        self.tracker = CommitTracker(log, fetcher, config, self.membership, self.requested.is_subscribed)
        self._since: dict[TopicPartition, int] = {}  # when this member took what it reads: the generation
        self._must_retry = False  # the group's lock was not free
        self._followed: Group | None = None  # the last state that was followed completely
        _OPEN.add(self)
        after_fork_in_child(self._forget_parent)

    # Following the group

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group, or change its topics. On return, partitions that were free are
        assigned."""
        self._refuse_by_hand()
        version = self._log.catalog_version()
        topics = self._existing(subscription.wanted(self._log.topics()))
        self._warn_of_missing(subscription, topics)
        left_s = self.tracker.countdown(None)
        if self.membership.id:
            self.membership.want(frozenset(topic.name for topic in topics), appeared=False, timeout_s=left_s())
        self.requested.subscription, self._catalog_version = subscription, version
        if not self.membership.id:
            self._drop(list(self._fetcher.assigned))  # of a forked child's parent
            self.membership.join(self._wanted(), left_s())
        self._follow_and_hold(max(left_s(), 2 * SHORT_S))  # longer than a poll, which would not raise

    def refresh(self) -> None:
        """Show that this member is alive, and follow the group's decisions."""
        self.tracker.commit_when_due()
        if self.requested.subscription is None:
            super().refresh()
            return
        if not self.membership.id:  # a forked child, or an expelled member
            self._drop(list(self._fetcher.assigned))
            if not self._join_again(SHORT_S):
                return
        version = self._log.catalog_version()
        if version != self._catalog_version:
            try:
                self.membership.want(self._wanted(), appeared=True)
            except own(LogLocked):  # the next poll asks again; what is gone can't be read meanwhile
                self._close_gone()
                self._lose_gone(self._of_gone_topics())
            else:
                self._close_gone()
                self._catalog_version = version
                self.tracker.look_at_begun()
        self.membership.tick()
        self._follow_and_hold(SHORT_S)

    def changed(self) -> bool:
        """True if ``refresh`` has something to do."""
        if self.requested.subscription is None:
            return super().changed()
        return self._must_retry or not self.membership.id or self.membership.has_news() or super().changed()

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that a wait should watch besides those of partitions."""
        return (self.membership.state_path,) if self.membership.id else ()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """As without a group, but commits partitions that are no longer read."""
        if self.requested.by_hand and partitions:
            self.tracker.commit_read(set(self._fetcher.assigned).difference(partitions))
        super().assign(partitions)

    def clear(self) -> None:
        """Leave the group, if it was joined, and read nothing."""
        if self.requested.subscription is not None:
            self._leave_group()
        else:
            self.tracker.commit_read(self._fetcher.assigned)
        super().clear()

    def _wanted(self) -> frozenset[str]:
        assert self.requested.subscription is not None
        return frozenset(topic.name for topic in self._existing(self.requested.subscription.wanted(self._log.topics())))

    def _follow(self, timeout_s: float) -> None:
        """One round: give up, publish, take. Does nothing if all is in line with the group.

        If the group's lock is not free in time, the next round does the rest. ``join`` and ``want``
        have already taken free partitions: ``subscribe`` has them when it returns, or raises
        ``LogLocked``.
        """
        group = self.membership.look()
        if group is self._followed:
            return
        if self.membership.id not in group.members:
            self._lose_everything(group, timeout_s)
            return
        me = group.members[self.membership.id]
        assigned = self._fetcher.assigned
        self._must_retry = False
        # also those that were lost between two looks, and taken again
        gone = [name for name in assigned if me.owned.get(name) != self._since.get(name)]
        self._lose_gone(gone)
        self.membership.generation = group.generation  # what is read was taken in it, or before
        if not gone and me.owned.keys() == me.target == assigned.keys():
            self._followed = group
            return
        try:
            self._give_up([partition for partition in assigned if partition not in me.target], timeout_s)
        except own(LogLocked):
            self._must_retry = True  # keep reading: without the lock, the members that wait could not be notified
            if timeout_s > SHORT_S:
                raise
            return
        others = [member.owned for id_, member in group.members.items() if id_ != me.id]
        if (released := me.owned.keys() - me.target) or (me.target - me.owned.keys()).difference(*others):
            try:
                after = self.membership.reconcile(released, timeout_s)
            except own(LogLocked):
                self._must_retry = True
                if timeout_s > SHORT_S:
                    raise
                return
            if self.membership.id not in after.members:
                return
            if after.generation != group.generation:  # others have changed it meanwhile
                self._follow(timeout_s)
                return
            group = after
        self._take(group, group.members[me.id].owned.keys() - assigned.keys(), timeout_s)

    def _follow_and_hold(self, timeout_s: float) -> None:
        while True:
            self._follow(timeout_s)
            try:
                self.tracker.hold(timeout_s)
            except own(CommitFailed):
                continue  # it was expelled, or a topic has changed: the next round sees that
            return

    def _give_up(self, partitions: list[TopicPartition], timeout_s: float | None = None) -> None:
        """Give up partitions, but none if the commit fails within ``timeout_s``: ``LogLocked``."""
        if not partitions:
            return
        self.tracker.commit_read(partitions, timeout_s)
        try:
            self._call(self.listeners.on_revoked, partitions)
        finally:
            self._drop(partitions)  # even after an error: other members wait for them
        logger.info("group %r: gave up %s", self.group_id, ", ".join(map(name_of, sorted(partitions))))

    def _take(self, group: Group, partitions: Collection[TopicPartition], timeout_s: float) -> None:
        """Read this member's new partitions from the group's positions."""
        if not partitions:
            return
        try:
            starts = self._begin(group, partitions, timeout_s)
        except own(LogLocked):
            if timeout_s > SHORT_S:
                raise
            self._must_retry = True
            return
        if starts:
            logger.info("group %r: took %s", self.group_id, ", ".join(map(name_of, starts)))
            self._call(self.listeners.on_assigned, starts)

    def _begin(self, group: Group, partitions: Collection[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """Begin to read partitions, and return them. ``LogLocked``: none is read."""
        version = self._log.catalog_version()
        self._groups.offsets.recover_last_commit(self.group_id, timeout_s)
        committed = self._groups.decided(self.group_id, partitions, timeout_s)
        starts: dict[TopicPartition, Start] = {}
        fresh: dict[TopicPartition, int] = {}
        topics = {topic.name: topic for topic in self._existing({partition.topic for partition in partitions})}
        for name in sorted(name for name in partitions if name.topic in topics):
            with suppress(TopicNotFound, InvalidPartition):  # gone: the catalog's version will change
                partition = self._log.partition(*name)
                if partition.topic_id != group.topics[name.topic].id:
                    continue  # created again since; the positions are of the old topic
                position = self._resumed(partition, committed.get(name))
                if position is None:
                    position = group.starts.get(name)
                if position is None:
                    if self._log.describe_topic(name.topic).config.retention == CONSUMED:
                        _wait_for_deletion(partition, timeout_s)
                    position = self._lookup.start_position(partition)
                    if position is not None:
                        fresh[name] = position
                starts[name] = Start(partition, position)
        if self._log.catalog_version() != version:  # the commits of a topic that was missing did not count
            return self._begin(group, partitions, timeout_s)
        if fresh:
            self.membership.remember_starts(fresh, timeout_s)
        self._since.update((name, group.members[self.membership.id].owned[name]) for name in starts)
        self._apply([], starts, topics.values())
        positions = {name: start.position for name, start in starts.items()}
        self.tracker.add(positions, committed)
        return list(starts)

    def _resumed(self, partition: PartitionLog, committed: Committed | None) -> int | None:
        """The committed position, or an earlier one if a power failure removed records before
        it."""
        if committed is None:
            return None
        offset = next_offset(partition, committed)
        if committed.offset > offset:
            logger.warning(
                "group %r has committed offset %d of %s, but the records from %d on were lost, perhaps in a power failure; "
                "continuing there", self.group_id, committed.offset, name_of(partition.topic_partition), offset,
            )  # fmt: skip
        return offset

    def _forget_commits(self, partition: TopicPartition) -> None:
        self.tracker.forget(partition)

    def _start(self, topic_partition: TopicPartition) -> Start:
        """The start of a partition assigned by hand."""
        left_s = self.tracker.countdown(None)
        self._groups.offsets.recover_last_commit(self.group_id, left_s())
        partition = self._log.partition(*topic_partition)
        committed = self._groups.decided(self.group_id, [topic_partition], left_s())
        position = self._resumed(partition, committed.get(topic_partition))
        return Start(partition, self._lookup.start_position(partition) if position is None else position)

    def _lose_everything(self, group: Group, timeout_s: float) -> None:
        error = self.membership.expelled(group)
        if isinstance(error, InstanceFenced):
            self._lose(list(self._fetcher.assigned))
            raise error
        logger.warning("%s", error)
        self._lose(list(self._fetcher.assigned))
        if self._join_again(timeout_s):
            self._follow(timeout_s)

    def _join_again(self, timeout_s: float) -> bool:
        """Whether this is a member again; in a poll, the next round tries if the lock is not
        free."""
        try:
            self.membership.join(self._wanted(), timeout_s)
        except own(LogLocked):
            if timeout_s > SHORT_S:
                raise
            return False
        return True

    def _lose_gone(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            logger.warning(
                "group %r: lost %s: its topic was deleted, created again, renamed, or repartitioned",
                self.group_id, ", ".join(map(name_of, sorted(partitions))),
            )  # fmt: skip
            self._lose(partitions)

    def _lose(self, partitions: list[TopicPartition]) -> None:
        """Drop partitions that others already have."""
        self._close_gone()
        self._drop(partitions)
        self._call(self.listeners.on_lost or self.listeners.on_revoked, partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        self._followed = None
        for partition in partitions:
            self._fetcher.remove(partition)
            self.tracker.forget(partition)
            self._since.pop(partition, None)

    def _call(self, callback: Callback | None, partitions: list[TopicPartition]) -> None:
        if callback is not None and partitions:
            with self._guard.callback():
                callback(sorted(partitions))

    # The end

    def _of_gone_topics(self) -> list[TopicPartition]:
        try:
            there = self.tracker.still_there(self._fetcher.assigned)
        except own(PylogError):  # the log was closed or removed: what can't be given up is reported
            return []
        return [partition for partition in self._fetcher.assigned if partition not in there]

    def _leave_group(self) -> None:
        """Commit and call back, as when partitions move; then leave the group."""
        try:
            if not self.membership.id:
                pass  # it could not join; or a forked child, that has not polled, and lost nothing
            elif self.membership.id in self.membership.look().members:
                try:
                    self._lose(self._of_gone_topics())
                finally:
                    self._give_up(list(self._fetcher.assigned))
            else:
                self._lose(list(self._fetcher.assigned))
        finally:
            self.membership.leave(self.tracker.countdown(None)())
            self._drop(list(self._fetcher.assigned))

    def close(self, *, failed: bool, timeout_s: float | None = None) -> None:
        """Leave the group. ``failed``: do not commit the records returned last."""
        self.tracker.begin_to_close(timeout_s)
        if failed:
            self.tracker.rewind()
        self.clear()
        _OPEN.discard(self)

    def leave_at_exit(self) -> None:
        """Leave at interpreter exit, so that others need not wait. No commits, no callbacks."""
        with suppress(PylogError, OSError):
            self.membership.leave()

    def _forget_parent(self) -> None:
        """In a forked child: the member is the parent's. The child joins at its next poll."""
        self.membership.forget_parent()
        _OPEN.discard(self)


def _wait_for_deletion(partition: PartitionLog, timeout_s: float) -> None:
    """After joining: a process that is deleting records may have looked at the groups before.
    ``LogLocked``."""
    try:
        partition.settle(int(timeout_s * 1000))
    except own(DeliveryTimeout) as error:
        raise LogLocked(str(error), **error.facts) from error


_OPEN: WeakSet[GroupAssignment] = WeakSet()


def _leave_all() -> None:
    for assignment in list(_OPEN):
        assignment.leave_at_exit()


atexit.register(_leave_all)
