"""One consumer's membership in a group: it joins, sends heartbeats, follows decisions, leaves.

There is no coordinator. The member that notices a necessary decision makes it, under the group's
lock, by the rules of ``state.py``. The lock on a member's file shows that its process lives: the
kernel frees it with the process. The heartbeat shows that the member polls. What is found without
the group's lock is checked again with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from pylog.errors import CommitFailed, ConfigError, LogLocked, PylogError, StorageError
from pylog.group.directory import MEMBER_ID_BYTES, GroupDirectory
from pylog.group.liveness import ROUNDS, TICK_S, Absence, Heartbeats, dead_members, has_process
from pylog.group.lock import GroupGrant, GroupLock
from pylog.group.ownership import expelled, require_owned
from pylog.group.state import (
    NONE,
    Group,
    GroupTopic,
    Member,
    appeared_since,
    reconciled,
    with_member,
    with_starts,
    with_subscription,
    without_members,
)
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition
from pylog.storage import LOCK_TIMEOUT_S, FileLock

logger = logging.getLogger("pylog.group")

SHORT_S = 0.02  # a poll does not wait longer for a lock, whose holder may be stopped
_LEAVE_S = 1.0

T = TypeVar("T")


class MemberOptions(NamedTuple):
    """The options of a consumer as a member of its group."""

    assignor: str
    instance_id: str
    client_id: str
    max_poll_interval_ms: int
    session_timeout_ms: int


class Membership:
    """For one thread at a time. ``topics_now`` returns those of the given topics that exist."""

    def __init__(
        self,
        directory: GroupDirectory,
        options: MemberOptions,
        topics_now: Callable[[Iterable[str]], Mapping[str, GroupTopic]],
    ) -> None:
        self.id = ""  # "" while it is not a member
        self.generation = 0  # the owner of this membership has followed the group up to it
        self.state_path = directory.state  # changes with each decision: a wait watches it
        self._directory = directory
        self._options = options
        self._topics_now = topics_now
        self._files = GroupLock(directory)
        self._alive: FileLock | None = None
        self._heartbeats: Heartbeats | None = None
        self._cell = 0
        self._seen = b""  # the slots at the last look
        self._absence = Absence(directory)
        self._rounds = -1
        self._next_tick_s = 0.0

    # Joining and leaving

    def join(self, wanted: frozenset[str], timeout_s: float = LOCK_TIMEOUT_S) -> Group:
        """Join the group, subscribe to these topics, and take their free partitions.

        ``ConfigError`` if members use another assignor. ``LogLocked`` if the lock is not free in
        time. A member of the same ``group_instance_id`` is replaced, and fenced if it lives.
        """
        self._drop()
        return self._files.holding(lambda grant: self._join(grant, wanted), timeout_s)

    def _join(self, grant: GroupGrant, wanted: frozenset[str]) -> Group:
        directory, options = self._directory, self._options
        group = grant.state.read()
        dead = dead_members(self._directory, group) - {self.id}
        # static ones may return
        others = {id_: m for id_, m in group.members.items() if m.instance_id or id_ not in dead}
        before = group.member_of_instance(options.instance_id)
        has_rivals = any(id_ not in dead and other is not before for id_, other in others.items())
        if has_rivals and group.assignor != options.assignor:
            raise ConfigError(
                f"the members of group {directory.group!r} divide by assignor={group.assignor!r}, this consumer has "
                f"{options.assignor!r}; give all members the same",
                option="assignor", value=options.assignor, expected=group.assignor,
            )  # fmt: skip
        group = group._replace(members=others)
        directory.filesystem.make_directory(directory.members)
        self._sweep(group)
        id_ = directory.filesystem.random_bytes(MEMBER_ID_BYTES).hex()
        self._alive = directory.filesystem.lock(directory.member(id_))
        self._alive.try_acquire()
        self._heartbeats = Heartbeats(directory.filesystem.open_appendable(directory.heartbeats))
        member = Member(
            id_, options.instance_id, options.client_id, directory.filesystem.host_name(), directory.filesystem.process_id(),
            group.free_cell(), max(directory.clock.now_ms(), 0), options.max_poll_interval_ms, options.session_timeout_ms, wanted,
        )  # fmt: skip
        group = reconciled(
            with_member(group, member, options.assignor, self._topics_now(wanted | group.topics_read())), id_, NONE
        )
        self.generation, self._cell, self._next_tick_s = 0, member.cell, 0.0
        grant.publish(group)
        self.id = id_  # last: the membership is complete now
        logger.info("joined group %r as member %s, generation %d", directory.group, id_, group.generation)
        return group

    def leave(self, timeout_s: float = _LEAVE_S) -> None:
        """Leave the group. A static member stays listed until its session ends, or it returns.
        If this can't be published now, the others find out as if the process had died."""
        try:
            if self.id and not self._options.instance_id:
                self._files.holding(lambda grant: self._publish_without(grant, {self.id}), min(timeout_s, _LEAVE_S))
        except own(PylogError) as error:
            logger.info("member %s leaves group %r without a word: %s", self.id, self._directory.group, error)
        finally:
            self._drop()
            self._files.close()

    def _drop(self) -> None:
        """Forget the membership. The freed lock shows the others that the member is gone."""
        id_, self.id = self.id, ""
        alive, self._alive = self._alive, None
        heartbeats, self._heartbeats = self._heartbeats, None
        if heartbeats is not None:
            heartbeats.close()
        if alive is None:
            return
        try:
            if id_ and not self._options.instance_id:
                with suppress(FileNotFoundError):  # the group was deleted
                    self._remove_lock(id_)
        finally:
            alive.close()  # also if the name stays: the others see that the lock is free

    def forget_parent(self) -> None:
        """In a forked child: the member is the parent's. Its next poll joins again."""
        self.id = ""
        self._alive = self._heartbeats = None  # the lock closes its own descriptor
        self._files.forget_parent()

    # Following the group

    def has_news(self) -> bool:
        """Whether the state changed since the last ``look``, or a check of the others is due."""
        return self._directory.clock.monotonic() >= self._next_tick_s or self._files.state.raw() != self._seen

    def look(self) -> Group:
        """Read the published group."""
        state = self._files.state
        group, self._seen = state.read(), state.known
        return group

    def owned(self) -> set[TopicPartition]:
        """Read which partitions are this member's, and were not taken after ``generation``."""
        me = self._files.state.read().members.get(self.id)
        return set() if me is None else {name for name, since in me.owned.items() if since <= self.generation}

    def reconcile(self, released: Collection[TopicPartition], timeout_s: float) -> Group:
        """Give up these partitions, take this member's free ones. ``LogLocked``.

        What the result lists as ``owned`` stays this member's until it gives it up or is expelled.
        """
        return self._files.holding(lambda grant: self._reconcile(grant, released), timeout_s, self._beat)

    def _reconcile(self, grant: GroupGrant, released: Collection[TopicPartition]) -> Group:
        group = grant.state.read()
        if self.id not in group.members:
            return group
        after = reconciled(group, self.id, released)
        if after is not group:
            grant.publish(after)
        return after

    def remember_starts(self, starts: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Record where this member began, for later owners, until a commit. ``LogLocked``."""
        self._files.holding(lambda grant: self._remember(grant, starts), timeout_s, self._beat)

    def _remember(self, grant: GroupGrant, starts: Mapping[TopicPartition, int]) -> None:
        group = grant.state.read()
        if self.id in group.members and starts.keys() - group.starts.keys():
            grant.publish(with_starts(group, starts))

    def want(self, wanted: frozenset[str], *, appeared: bool, timeout_s: float = SHORT_S) -> None:
        """Divide the partitions again if topics or this member's subscription have changed.

        Partitions that have ``appeared`` during the membership are read from their beginning: all
        their records are new. ``LogLocked`` if the lock is not free in ``timeout_s``.
        """
        group = self.look()
        if self.id in group.members and self._is_outdated(group, wanted):
            self._files.holding(lambda grant: self._want(grant, wanted, appeared), timeout_s, self._beat)

    def _want(self, grant: GroupGrant, wanted: frozenset[str], appeared: bool) -> None:
        group = grant.state.read()
        if self.id in group.members and self._is_outdated(group, wanted):
            after = with_subscription(group, self.id, wanted, self._topics_now(wanted | group.topics_read()))
            after = with_starts(after, dict.fromkeys(appeared_since(group, after), 0)) if appeared else after
            grant.publish(reconciled(after, self.id, NONE))

    def _is_outdated(self, group: Group, wanted: frozenset[str]) -> bool:
        read = wanted | group.topics_read()
        known = {name: topic for name, topic in group.topics.items() if name in read}
        return group.members[self.id].topics != wanted or known != self._topics_now(read)

    # Checking the others

    def tick(self) -> None:
        """Once per tick: send a heartbeat, check the others, expel those that are gone."""
        now_s, heartbeats = self._directory.clock.monotonic(), self._heartbeats
        if now_s < self._next_tick_s or heartbeats is None:
            return
        if (now_s - self._next_tick_s) * 1000 > self._options.max_poll_interval_ms:
            self._absence.restart()  # after such a pause this member can't know that others were silent
        self._next_tick_s = now_s + TICK_S
        heartbeats.beat(self._cell)
        self._files.state.forget()
        group = self.look()
        if len(group.members) < 2:
            return
        counters = heartbeats.all()
        gone = self._absence.silent(group, self.id, counters, now_s)
        if counters[ROUNDS] == self._rounds:
            heartbeats.beat(ROUNDS)
            self._rounds = (counters[ROUNDS] + 1) % (1 << 64)
            gone |= self._absence.gone(group, self.id, now_s)
        else:
            self._rounds = counters[ROUNDS]  # another member has checked since
        if gone:
            self._expel(gone, heartbeats, counters)

    def _expel(self, gone: set[str], heartbeats: Heartbeats, counters: tuple[int, ...]) -> None:
        try:
            self._files.holding(lambda grant: self._expel_now(grant, gone, heartbeats.all(), counters), SHORT_S)
        except own(LogLocked):
            return  # the holder may be expelling them; else the next tick does

    def _expel_now(self, grant: GroupGrant, gone: set[str], now: tuple[int, ...], counters: tuple[int, ...]) -> None:
        group, group_name = grant.state.read(), self._directory.group
        dead = dead_members(self._directory, group) - {self.id}
        still = {
            id_
            for id_ in gone & group.members.keys()
            if id_ in dead or now[group.members[id_].cell :][:1] == counters[group.members[id_].cell :][:1]
        }
        for id_ in sorted(still):
            member = group.members[id_]
            if id_ in dead:
                logger.info(
                    "member %s (process %d on %s) of group %r is gone", id_, member.pid, member.host, group_name
                )
            else:
                logger.warning(
                    "member %s (process %d on %s) of group %r did not poll for %d ms (max_poll_interval_ms): it is expelled",
                    id_, member.pid, member.host, group_name, member.max_poll_interval_ms,
                )  # fmt: skip
        if still and self.id in group.members:
            self._publish_without(grant, still)
            for id_ in still & dead:
                self._remove_lock(id_)

    def _publish_without(self, grant: GroupGrant, ids: Collection[str]) -> None:
        group = grant.state.read()
        if group.members.keys() & ids:
            grant.publish(without_members(group, ids, self._topics_now(group.topics_read())))

    def _sweep(self, group: Group) -> None:
        """With the lock held: remove files of dead members that are not, or no longer, listed."""
        directory = self._directory
        for name in directory.filesystem.names(directory.members):
            id_ = name.removesuffix(".lock")
            if id_ not in group.members and not has_process(directory, id_):
                self._remove_lock(id_)

    def _remove_lock(self, id_: str) -> None:
        """Remove the lock of a former member. If this fails now, others do it later."""
        try:
            self._directory.filesystem.remove(self._directory.member(id_))
        except own(StorageError) as error:  # for example, it is a directory
            logger.warning("what is left of a member of group %r stays: %s", self._directory.group, error)

    # Committing

    def commit(
        self,
        partitions: Collection[TopicPartition],
        append: Callable[[GroupGrant], T],
        timeout_s: float = LOCK_TIMEOUT_S,
    ) -> T:
        """Return the result of ``append``, called with the lock held. ``CommitFailed`` if this
        member does not own these partitions, or has taken one after ``generation``; ``LogLocked``
        if the lock is not free in time."""
        return self._files.holding(partial(self._commit, partitions, append), timeout_s, self._beat)

    def _commit(
        self, partitions: Collection[TopicPartition], append: Callable[[GroupGrant], T], grant: GroupGrant
    ) -> T:
        group = grant.state.read()
        me = group.members.get(self.id)
        if me is None:
            raise self.expelled(group)
        require_owned(self._directory.group, group, me, dict.fromkeys(partitions, self.generation))
        appended = append(grant)
        self._beat()
        return appended

    def _beat(self) -> None:
        """A member that commits, or waits to, counts as alive, however late its next poll is."""
        if self._heartbeats is not None:
            self._heartbeats.beat(self._cell)

    def expelled(self, group: Group) -> CommitFailed:
        """Return the error that explains why this is not a member any more."""
        options, name = self._options, self._directory.group
        if not self.id:
            return CommitFailed(
                f"this consumer is no member of group {name!r} now: a forked child, and one that could not join again, joins "
                "when it polls; what its parent has read is its parent's to commit",
                group=name, member="", generation=group.generation,
            )  # fmt: skip
        return expelled(
            name, group, self.id, options.instance_id,
            f"it did not poll for {options.max_poll_interval_ms} ms (max_poll_interval_ms), and others continue with its "
            "partitions; poll to join again, and let max_poll_records or the time between two polls be smaller",
            max_poll_interval_ms=options.max_poll_interval_ms,
        )  # fmt: skip
