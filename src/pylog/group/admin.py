"""Describes and changes the consumer groups of one log from outside.

Reading needs no write permission, and takes no lock but that of a transactional id whose owner has
died or is late: its transaction is aborted if this log may write, see ``transaction/outcomes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from pylog.catalog.layout import decoded_group
from pylog.checks import OFFSETS_TOPIC, by_partition, require_bool, require_count, require_whole, topics_and_partitions
from pylog.errors import (
    ConfigError,
    GroupNotEmpty,
    GroupNotFound,
    InvalidPartition,
    LogLocked,
    StorageError,
    TopicNotFound,
)
from pylog.group.descriptions import GroupDescription, MemberDescription, OffsetChange, PartitionProgress
from pylog.group.directory import GroupDirectory, check_group
from pylog.group.liveness import dead_members
from pylog.group.lock import GroupGrant, GroupLock, read_group
from pylog.group.offset_records import Committed
from pylog.group.offsets import OffsetStore
from pylog.group.offsets_partition import Appended, Offsets
from pylog.group.state import Group, GroupTopic, Member, without_members
from pylog.group.truncation import make_records_durable, next_offset
from pylog.interrupts import own, suppress
from pylog.manager.changes import complete_changes
from pylog.model import OffsetAndMetadata, TopicPartition
from pylog.storage import LOCK_TIMEOUT_S, SLEEP_MAX_S

if TYPE_CHECKING:
    from pylog.manager.manager import LogManager

T = TypeVar("T")

_GONE = "."  # prefix of the directories of deleted groups
EMPTY, STABLE, RECONCILING = "Empty", "Stable", "Reconciling"


class GroupAdmin:
    """Reads and changes the groups of one log. Safe to share among threads."""

    def __init__(self, manager: LogManager) -> None:
        self.offsets = OffsetStore(manager)
        self._manager = manager
        self._filesystem = manager.filesystem
        self._layout = manager.layout

    def directory(self, group: str) -> GroupDirectory:
        """Return the paths of this group's files. ``ConfigError`` for an invalid name."""
        check_group(group, self._layout.ignores_case)
        return GroupDirectory(
            self._filesystem, self._manager.clock, group, self._layout.group(group), self._manager.boot,
            self._layout.groups_lock,
        )  # fmt: skip

    def topics_now(self, names: Iterable[str]) -> dict[str, GroupTopic]:
        """Return those of these topics that exist."""
        topics = self._manager.existing_topics(names)
        return {name: GroupTopic(topic.id, topic.partitions) for name, topic in topics.items()}

    def committed(self, group: str) -> Offsets:
        """Return the group's commits in existing topics. Commits in deleted topics do not count."""
        return self._existing(self.offsets.committed(group))

    def decided(self, group: str, partitions: Collection[TopicPartition], timeout_s: float) -> Offsets:
        """Like ``committed``, after every transaction with offsets of these partitions is decided.

        ``LogLocked`` if a live producer does not decide one in time: Kafka's
        ``UNSTABLE_OFFSET_COMMIT``. The transaction of a dead producer is decided at once.
        """
        found, clock = self.offsets.look(group), self._manager.clock
        end_s = clock.monotonic() + timeout_s
        while not found.undecided.isdisjoint(partitions):
            if clock.monotonic() >= end_s:
                topic, number = min(found.undecided.intersection(partitions))
                raise LogLocked(
                    f"a transaction with an offset of {topic}-{number} in group {group!r} was not decided for {timeout_s:g} s: "
                    "its producer may be stopped; try again",
                    group=group, topic=topic, partition=number, timeout_s=timeout_s,
                )  # fmt: skip
            clock.sleep(SLEEP_MAX_S)
            self.offsets.settle(group)
            found = self.offsets.look(group)
        return self._existing(found.offsets)

    def _existing(self, offsets: Offsets) -> Offsets:
        topics = self.topics_now({partition.topic for partition in offsets})
        return {
            partition: committed
            for partition, committed in offsets.items()
            if partition.topic in topics and committed.topic_id in ("", topics[partition.topic].id)
        }

    # Reading

    def names(self) -> list[str]:
        """Return every group that has members or has committed offsets."""
        found = self.offsets.groups()
        found.update(group for group in self.in_files() if group not in found and self._may_have_members(group))
        return sorted(found)

    def _may_have_members(self, group: str) -> bool:
        """Also True if its files are unreadable: the next call for the group raises the reason."""
        try:
            return bool(self._alive(group)[0].members)
        except own(StorageError):
            return True

    def _alive(self, group: str) -> tuple[Group, set[str]]:
        """Read the group without dead members; also return the static ones among those."""
        directory = self.directory(group)
        found = read_group(directory)
        dead = dead_members(directory, found)
        left = {id_: member for id_, member in found.members.items() if id_ not in dead or member.instance_id}
        return found._replace(members=left), dead & left.keys()

    def reading(self, topic: str) -> set[str]:
        """Return the groups with members that want this topic, and those with unreadable files."""
        return {group for group in self.in_files() if self._reads(group, topic)}

    def _reads(self, group: str, topic: str) -> bool:
        try:
            return any(topic in member.topics for member in self._alive(group)[0].members.values())
        except own(StorageError):
            return True

    def describe(self, group: str) -> GroupDescription:
        """See ``Log.describe_group``. A group without members and commits is ``GroupNotFound``."""
        (found, dead), committed = self._alive(group), self.committed(group)
        if not committed:
            self._require_there(group)
        owners = {partition: member.id for member in found.members.values() for partition in member.owned}
        targets = {partition for member in found.members.values() for partition in member.target}
        state = EMPTY if not found.members else STABLE if found.is_settled else RECONCILING
        return GroupDescription(
            group, state, found.generation, found.assignor if found.members else "",
            tuple(_described(member, is_alive=member.id not in dead) for member in sorted(found.members.values())),
            {
                partition: PartitionProgress(
                    None if at is None else OffsetAndMetadata(at.offset, at.metadata),
                    end,
                    None if at is None else behind,
                    owners.get(partition, ""),
                )
                for partition, end, behind in self._ends({*committed, *targets, *owners}, committed)
                for at in [committed.get(partition)]
            },
        )  # fmt: skip

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """Return the lag, in offsets, of each partition in which the group has committed."""
        committed = self.committed(group)
        if not committed:
            self._require_there(group)
        return {partition: behind for partition, _, behind in self._ends(committed, committed)}

    def _ends(
        self, partitions: Iterable[TopicPartition], committed: Offsets
    ) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield name, end and lag of each existing partition, in order; lag 0 without a commit."""
        for name in sorted(partitions):
            with suppress(TopicNotFound, InvalidPartition):  # deleted since
                partition = self._manager.partition(*name)
                end = partition.latest_offset
                at = next_offset(partition, committed[name]) if name in committed else end
                yield name, end, max(end - at, 0)

    def _require_there(self, group: str) -> None:
        """Raises ``GroupNotFound`` without members and commits. Commits in deleted topics count
        here."""
        if self._alive(group)[0].members or self.offsets.committed(group):
            return
        names = self.names()
        there = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "") or "none"
        raise GroupNotFound(
            f"no group {group!r} in {self._layout.root} (groups: {there}): it has no members and has committed nothing",
            group=group,
        )

    # Changing

    def commit_alone(
        self,
        group: str,
        offsets: Mapping[TopicPartition, Committed | None],
        left_s: Callable[[], float] = lambda: LOCK_TIMEOUT_S,
    ) -> Appended | None:
        """Commit for a group without members, else ``GroupNotEmpty``. Visible on return, not yet
        durable. Raises as ``OffsetStore.append``."""
        self._manager.require_writable()
        self.offsets.create_topic(left_s())

        def append(grant: GroupGrant) -> Appended | None:
            self.require_empty(grant)
            return self.offsets.append(group, offsets, grant, left_s)

        return _holding(self.directory(group), append, left_s())

    def require_empty(self, grant: GroupGrant) -> None:
        """Remove dead members, static ones too: a manual change does not wait for their return.
        Raises ``GroupNotEmpty`` if a member lives."""
        directory, found = grant.directory, grant.state.read()
        dead = dead_members(directory, found)
        alive = [member for id_, member in found.members.items() if id_ not in dead]
        if alive:
            first = alive[0]
            raise GroupNotEmpty(
                f"group {directory.group!r} has members ({len(alive)}, among them process {first.pid} on {first.host}): stop "
                "them first, since they would continue from where they are",
                group=directory.group, members=len(alive), pid=first.pid, host=first.host,
            )  # fmt: skip
        if found.members:
            grant.publish(without_members(found, set(found.members), {}))

    def reset(
        self,
        group: str,
        partitions: Iterable[TopicPartition | str] | TopicPartition | None,
        *,
        to: str | int | None = None,
        to_time_ms: int | None = None,
        shift_by: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetChange]:
        """See ``Log.reset_offsets``."""
        require_bool("dry_run", dry_run)
        targets = {"to": to, "to_time_ms": to_time_ms, "shift_by": shift_by, "offsets": offsets}
        given = [name for name, value in targets.items() if value is not None]
        if len(given) != 1:
            advice = "; give the mapping as offsets=" if isinstance(partitions, Mapping) else ""
            raise ConfigError(
                f"reset_offsets takes one of to, to_time_ms, shift_by and offsets, got {', '.join(given) or 'none'}{advice}",
                option="to", given=given,
            )  # fmt: skip
        if offsets is not None:
            if partitions is not None:
                raise ConfigError("offsets= names the partitions itself; leave partitions out", option="partitions")
            partitions = offsets = by_partition("offsets", offsets, "offset")
        committed = self.committed(group)
        if not committed and partitions is None:
            self._require_there(group)
        changes = {}
        for partition in self._chosen(partitions, committed):
            before = committed.get(partition)
            after = self._target(partition, before, to, to_time_ms, shift_by, offsets)
            changes[partition] = OffsetChange(None if before is None else before.offset, after)
        if changes and not dry_run:
            _sync(self.commit_alone(group, {name: self._reset_to(name, at.after) for name, at in changes.items()}))
        return changes

    def _reset_to(self, name: TopicPartition, offset: int) -> Committed:
        """Return a commit that may be made durable: the records before its offset are durable."""
        partition = self._manager.partition(*name)
        epoch = make_records_durable(partition, offset, LOCK_TIMEOUT_S)
        return Committed(offset, epoch, "", self._manager.clock.now_ms(), partition.topic_id)

    def _chosen(
        self, partitions: Iterable[TopicPartition | str] | TopicPartition | None, committed: Offsets
    ) -> list[TopicPartition]:
        if partitions is None:
            return sorted(committed)
        chosen: list[TopicPartition] = []
        for item in topics_and_partitions(partitions):
            if isinstance(item, str):
                chosen += [TopicPartition(item, number) for number in self._manager.describe_topic(item).numbers]
            else:
                chosen.append(item)
                self._manager.partition(*chosen[-1])
        return sorted(set(chosen))

    def _target(
        self,
        name: TopicPartition,
        committed: Committed | None,
        to: str | int | None,
        to_time_ms: int | None,
        shift_by: int | None,
        offsets: Mapping[TopicPartition, int] | None,
    ) -> int:
        partition = self._manager.partition(*name)
        earliest, latest = partition.earliest_offset, partition.latest_offset
        if offsets is not None:
            wanted = require_count("offset", offsets[name], 0)
        elif to_time_ms is not None:
            found = partition.offset_for_time(require_count("to_time_ms", to_time_ms, 0))
            wanted = latest if found is None else found.offset
        elif shift_by is not None:
            if committed is None:
                raise ConfigError(
                    f"shift_by needs a committed offset, but {name.topic}-{name.partition} has none; name the partitions",
                    option="shift_by", topic=name.topic, partition=name.partition,
                )  # fmt: skip
            wanted = committed.offset + require_whole("shift_by", shift_by)
        elif to == "earliest":
            wanted = earliest
        elif to == "latest":
            wanted = latest
        elif isinstance(to, str):
            raise ConfigError(f'to={to!r}; there are "earliest", "latest" and an offset', option="to", value=to)
        else:
            wanted = require_count("to", to, 0)
        return min(max(wanted, earliest), latest)

    def delete(self, group: str) -> None:
        """See ``Log.delete_group``."""
        catalog, directory = self._manager.writable_catalog(), self.directory(group)
        self.describe(group)

        def delete() -> Appended | None:
            complete_changes(self._manager, LOCK_TIMEOUT_S)  # else one could write the group's commits again
            return _holding(directory, self._delete)

        _sync(catalog.locked(delete))

    def _delete(self, grant: GroupGrant) -> Appended | None:
        directory = grant.directory
        self.require_empty(grant)
        partitions = self.offsets.partitions(directory.group)  # pending ones too: a later tombstone supersedes them
        appended = self.offsets.remove(directory.group, partitions, grant, lambda: LOCK_TIMEOUT_S)
        grant.check()
        gone = f"{self._layout.groups}/{_GONE}{self._filesystem.random_bytes(8).hex()}"
        self._filesystem.replace(directory.path, gone)  # atomic: a holder of the lock sees the deletion
        self._clear_away()
        return appended

    def forget_topic(self, topic: str, timeout_s: float) -> None:
        """Remove all commits in a deleted topic, by tombstones as of Kafka's coordinator.

        Durable on return. ``LogLocked`` if a group's lock is not free in time. Groups without
        commits in it are locked too: a member that found the topic has committed before this
        returns.
        """
        if topic == OFFSETS_TOPIC or OFFSETS_TOPIC not in self.topics_now([OFFSETS_TOPIC]):
            return
        groups = self.offsets.groups_in(topic).union(self.in_files())
        appended = [self._forget_topic(topic, timeout_s, group) for group in sorted(groups)]
        tombstones = [item for item in appended if item is not None]
        for item in sorted(tombstones, key=lambda item: item.end_offset, reverse=True):
            item.sync()  # the highest end comes first: one sync per partition

    def _forget_topic(self, topic: str, timeout_s: float, group: str) -> Appended | None:
        """Append the tombstones of one group; None if it has no commits in the topic."""

        def append(grant: GroupGrant | None) -> Appended | None:
            gone = [name for name in self.offsets.committed(group) if name.topic == topic]
            return self.offsets.remove(group, gone, grant, lambda: timeout_s)

        try:
            directory = self.directory(group)
        except own(ConfigError):  # only Kafka's groups can have this name: no pylog process commits for them
            return append(None)
        return _holding(directory, append, timeout_s)

    def in_files(self) -> list[str]:
        """Return the groups that have a directory: they have, or had, members."""
        try:
            names = self._filesystem.names(self._layout.groups)
        except own(FileNotFoundError):
            names = []
        return sorted(group for name in names if (group := decoded_group(name, self._layout.ignores_case)) is not None)

    def _clear_away(self) -> None:
        """Remove the directories of deleted groups, also those that a dead process has left."""
        filesystem = self._filesystem
        for name in filesystem.names(self._layout.groups):
            directory = f"{self._layout.groups}/{name}"
            for inner in (f"{directory}/members", directory) if name.startswith(_GONE) else ():
                with suppress(FileNotFoundError):  # another process is removing it
                    for file in filesystem.names(inner):
                        filesystem.remove(f"{inner}/{file}")
                    filesystem.remove_directory(inner)


def _described(member: Member, *, is_alive: bool) -> MemberDescription:
    return MemberDescription(
        member.id, member.instance_id, member.client_id, member.host, member.pid, member.joined_ms, is_alive,
        tuple(sorted(member.owned)), tuple(sorted(member.target)),
    )  # fmt: skip


def _holding(directory: GroupDirectory, work: Callable[[GroupGrant], T], timeout_s: float = LOCK_TIMEOUT_S) -> T:
    """Return ``work``'s result, called with the group's lock. ``LogLocked``."""
    lock = GroupLock(directory)
    try:
        return lock.holding(work, timeout_s)
    finally:
        lock.close()


def _sync(appended: Appended | None) -> None:
    if appended is not None:
        appended.sync()
