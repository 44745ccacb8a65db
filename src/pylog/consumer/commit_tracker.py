"""The progress of a consumer in a group: what it has processed and committed.

A commit is a record of ``__consumer_offsets``, appended under the group's lock. A member commits
while it has the partition; a consumer with partitions assigned by hand, while the group has no
members.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from pylog.catalog.topic import CONSUMED
from pylog.checks import OFFSETS_TOPIC
from pylog.consumer.config import ConsumerConfig
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.subscription import name_of
from pylog.errors import (
    CommitFailed,
    GroupNotEmpty,
    InvalidPartition,
    LogLocked,
    OutcomeUnknown,
    PylogError,
    TopicNotFound,
)
from pylog.group.admin import GroupAdmin
from pylog.group.membership import Membership
from pylog.group.offset_records import Committed
from pylog.group.offsets_partition import Appended
from pylog.group.truncation import make_records_durable
from pylog.interrupts import own
from pylog.model import OffsetAndMetadata, TopicPartition
from pylog.partition.read.visibility import READ_COMMITTED

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.manager.access import ConsumerLog

logger = logging.getLogger("pylog.consumer")

_LONGEST_S = 1e9  # infinity, also when counted in milliseconds
_FIRST_S = 5.0  # how long a poll waits for others that create topics, for the first commit of a log
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
        self._begun: dict[TopicPartition, int | None] = {}  # where partitions began that the group may not hold yet
        self._must_hold = False  # one of them may be of a topic with retention="consumed"
        self.others_commit = False  # a producer may, in transactions: ``_committed`` may be outdated then
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
        self._begun.update(starts)
        self._must_hold = True
        self._processed.update((partition, offset) for partition, offset in starts.items() if offset is not None)
        self._committed.update(
            (partition, committed[partition].offset) for partition in starts if partition in committed
        )

    def forget(self, partition: TopicPartition) -> None:
        """Stop tracking this partition."""
        self._committed.pop(partition, None)
        self._durable.pop(partition, None)
        self._processed.pop(partition, None)
        self._begun.pop(partition, None)

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
            if self._next_commit_s:
                error, _ = self._auto_commit(self._processed, _DUE_S)
                if error is not None:
                    self.report(error)  # the next commit includes it
            self._next_commit_s = now_s + self._config.auto_commit_interval_ms / 1000

    def commit_read(self, partitions: Collection[TopicPartition], timeout_s: float | None = None) -> None:
        """Auto-commit partitions no longer read. ``LogLocked`` only if ``timeout_s`` is given."""
        if not self._config.enable_auto_commit:
            return
        offsets = {p: at for p, at in self._fetcher.positions().items() if p in partitions}
        error, left = self._auto_commit(offsets, timeout_s)
        if isinstance(error, LogLocked) and timeout_s is not None:
            raise error
        if error is not None:
            self.report(error, left)

    def _auto_commit(
        self, offsets: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> tuple[PylogError | None, Mapping[TopicPartition, int]]:
        """Commit these offsets, without those of topics that are gone, and those of partitions that
        are lost meanwhile. Returns why not all the others are committed, and which are not."""
        left_s, failure = self.countdown(timeout_s), None
        try:
            there = self.still_there(offsets)
            offsets = {name: offset for name, offset in offsets.items() if name in there}
            while True:
                named = {name: OffsetAndMetadata(offsets[name]) for name in there}
                try:
                    self.commit(named, durable=True, named=False, timeout_s=left_s(), automatic=True)
                    return failure, {name: offset for name, offset in offsets.items() if name not in there}
                except own(CommitFailed) as error:
                    failure = error
                    kept = self.still_there(there)
                    if self._is_subscribed():
                        kept &= self._membership.owned()
                    if kept == there:  # a topic was missing for a moment, or others are the group's members
                        kept = {name for name in there if name.topic != error.facts.get("topic")}
                    if kept == there:
                        return failure, offsets
                    there = kept
        except own(PylogError) as error:
            return error, offsets

    def report(self, error: PylogError, offsets: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Log a failed commit that the application does not see as an error."""
        what = ", ".join(f"{name_of(partition)} at {offset}" for partition, offset in sorted(offsets.items()))
        logger.warning("group %r: could not commit%s: %s", self._group_id, what and f" {what}", error)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """What the group has committed now. With ``read_committed`` an offset in a transaction that
        is under way is waited for, up to ``default_api_timeout_ms``: ``LogLocked``."""
        if self._config.isolation_level == READ_COMMITTED:
            committed = self._groups.decided(self._group_id, [partition], self.countdown(None)())
        else:
            committed = self._groups.committed(self._group_id)
        found = committed.get(partition)
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata)

    def look_at_begun(self) -> None:
        """A topic has changed: perhaps its retention."""
        self._must_hold = True

    def hold(self, timeout_s: float) -> None:
        """Commit where the group begins in topics with retention="consumed", before records are
        returned. Raises like ``commit``.

        Else retention would delete what the group has read, if its members died before its first
        commit. A partition without a position waits until the application has moved to one; one
        whose offsets others commit in transactions, once it is read, until they do: this commit
        could supersede theirs.
        """
        if not self._must_hold or self._fetcher.stored_offsets is not None:  # else the application holds the positions
            return
        topics = self._log.existing_topics({name.topic for name in self.still_there(self._begun)})
        consumed = {name for name, topic in topics.items() if topic.config.retention == CONSUMED}
        offsets = {
            name: position if (start := self._begun[name]) is None else min(start, position)
            for name, position in self._fetcher.positions().items()
            if name in self._begun
            and name.topic in consumed
            and not (self.others_commit and position != self._begun[name])
        }
        if offsets:
            for name in self._held(offsets, timeout_s):
                del self._begun[name]
        self._must_hold = any(name.topic in consumed for name in self._begun)

    def _held(self, starts: Mapping[TopicPartition, int], timeout_s: float) -> set[TopicPartition]:
        """Commit these offsets where the group has committed nothing. Retention keeps what follows,
        whatever becomes of the members: everything that the group has committed is durable on
        return.

        Returns the partitions with a commit. Others have an offset in an open transaction, which a
        commit would supersede: call again.
        """
        store, left_s = self._groups.offsets, self.countdown(timeout_s)
        undecided = store.look(self._group_id).undecided
        committed = self._groups.committed(self._group_id)
        held = {name for name in starts if name in committed or name not in undecided}
        fresh = {name: OffsetAndMetadata(starts[name]) for name in held if name not in committed}
        processed = self._processed.copy()
        if fresh:
            store.create_topic(max(left_s(), _FIRST_S))
        self.commit(fresh, durable=True, named=False, timeout_s=left_s())
        self._processed = processed  # a partition may be read for long before it is held
        if held and (commits := store.all_commits(self._group_id)) is not None:
            commits.sync(left_s())
        return held

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        durable: bool,
        named: bool,
        timeout_s: float | None = None,
        automatic: bool = False,
    ) -> None:
        """Visible to all on return, and on disk if ``durable``. Raises like ``Consumer.commit``.

        ``named``: the application named the offsets. Otherwise they are positions: for those that
        the group has only the membership is checked, and those of deleted topics are skipped;
        ``CommitFailed`` if the topic was renamed or repartitioned instead.
        ``timeout_s``: how long to wait for other processes; None: ``default_api_timeout_ms``.
        ``automatic``: not asked for, so an idle consumer takes back nothing that others have done
        to a group without members.
        """
        if not offsets:
            return
        left_s = self.countdown(timeout_s)
        names = {OFFSETS_TOPIC, *map(attrgetter("topic"), offsets)}
        topics = self._log.existing_topics(names)
        offsets, is_member = dict(offsets), self._is_subscribed()
        if not is_member and not automatic:
            self._forget_changed(offsets, topics)
        news, is_unsafe = self._prepare(offsets, topics, durable, named, left_s)
        if not offsets and not news:
            return
        store = self._groups.offsets
        if news and OFFSETS_TOPIC not in topics:
            store.create_topic(left_s())
        gone = news.keys() - offsets.keys()
        if is_member:
            append = partial(store.append, self._group_id, news, left_s=left_s, missing=gone)
            appended = self._membership.commit(offsets, append, left_s())
        else:
            appended = self._commit_alone(news, left_s)
        for name, at in offsets.items():
            self._committed[name] = at.offset
            if name in self._processed:
                self._processed[name] = at.offset
        if is_unsafe and (commits := appended or store.all_commits(self._group_id)) is not None:
            commits.sync(left_s())
        if durable:
            for name, at in offsets.items():
                self._durable[name] = at.offset
        if appended is not None:
            store.maintain_if_due(appended.partition, left_s)

    def _forget_changed(self, offsets: Collection[TopicPartition], topics: Collection[str]) -> None:
        """Without members, others may have committed since, and not durably, or reset the group."""
        self._durable.clear()
        now = self._groups.committed(self._group_id)
        for name in offsets:
            if name.topic in topics and (name not in now or now[name].offset != self._committed.get(name)):
                self._committed.pop(name, None)

    def _prepare(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        topics: Mapping[str, TopicDescription],
        durable: bool,
        named: bool,
        left_s: Callable[[], float],
    ) -> tuple[dict[TopicPartition, Committed], bool]:
        """The commits to append, and whether one of ``offsets`` is not durable yet, but is to be.
        The records before such offsets are durable on return. Positions in topics whose name is
        gone are removed from ``offsets``; ``OffsetStore.append`` skips or refuses them."""
        news: dict[TopicPartition, Committed] = {}
        is_unsafe = False
        for name, at in tuple(offsets.items()):
            is_new = named or self.others_commit or self._committed.get(name) != at.offset
            to_sync = durable and (is_new or self._durable.get(name) != at.offset)
            topic, assigned = topics.get(name.topic), self._fetcher.assigned.get(name)
            epoch, topic_id = -1, "" if assigned is None else str(assigned.topic_id)
            if not named and topic is None:
                del offsets[name]
            elif topic_id and topic is not None and topic.id != topic_id:
                pass  # another topic has the name: the member may own the partition of the old one no more
            elif is_new or to_sync:
                try:
                    partition = None if assigned is None else assigned.partition
                    if partition is None or partition.is_closed or topic is None or topic.id != partition.topic_id:
                        partition = self._log.partition(*name)
                    epoch = make_records_durable(partition, at.offset, left_s()) if to_sync else partition.leader_epoch
                    topic_id = topic_id or partition.topic_id
                except own(TopicNotFound, InvalidPartition, OutcomeUnknown):
                    if topic is None or assigned is None or name in self.still_there([name]):
                        raise
                is_unsafe = is_unsafe or to_sync
            if is_new:
                news[name] = Committed(at.offset, epoch, at.metadata, self._log.clock.now_ms(), topic_id)
                self._committed.pop(name, None)  # a signal handler may raise after the append
                self._durable.pop(name, None)
        return news, is_unsafe

    def still_there(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of these partitions that are read here, and whose topic has the id that is read."""
        read = {name: item.topic_id for name, item in self._fetcher.assigned.items() if name in partitions}
        topics = self._log.existing_topics({name.topic for name in read})
        return {name for name, id_ in read.items() if name.topic in topics and topics[name.topic].id == id_}

    def _commit_alone(
        self, committed: Mapping[TopicPartition, Committed], left_s: Callable[[], float]
    ) -> Appended | None:
        try:
            return self._groups.commit_alone(self._group_id, committed, left_s)
        except own(GroupNotEmpty) as error:
            raise CommitFailed(
                f"{error}; a consumer with partitions assigned by hand commits for a group without members",
                **error.facts,
            ) from error
