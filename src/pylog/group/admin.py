"""The groups of one log, seen from outside: who is in them, how far they have come, and how that is changed by hand.

Nobody has to join a group to look at it, and looking needs no lock and no permission to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pylog.catalog import Layout
from pylog.catalog.layout import decoded_group
from pylog.checks import require_count, require_whole
from pylog.errors import (
    ConfigError,
    GroupNotEmpty,
    GroupNotFound,
    InvalidPartition,
    InvalidTopicName,
    StorageError,
    TopicNotFound,
)
from pylog.group.absence import dead_members
from pylog.group.descriptions import GroupDescription, MemberDescription, OffsetChange, PartitionProgress
from pylog.group.directory import GroupDirectory, check_group
from pylog.group.lock import LOCK_TIMEOUT_S, GroupLock, read_group
from pylog.group.offset_records import OFFSETS_TOPIC, Committed
from pylog.group.offsets import Offsets, OffsetStore
from pylog.group.state import Group, GroupTopic, Member, left
from pylog.group.state_file import StateFile
from pylog.group.truncation import make_records_durable, next_offset
from pylog.interrupts import own, suppress
from pylog.model import OffsetAndMetadata, TopicPartition
from pylog.storage import FileSystem

if TYPE_CHECKING:
    from pylog.log import Log

_GONE = "."  # begins the names of directories that are no group's any more
EMPTY, STABLE, RECONCILING = "Empty", "Stable", "Reconciling"


class Groups:
    """Of one log. Safe to share among threads."""

    def __init__(self, log: Log, filesystem: FileSystem, layout: Layout, boot: int) -> None:
        self.offsets = OffsetStore(log, filesystem, layout)
        self._log = log
        self._filesystem = filesystem
        self._layout = layout
        self._boot = boot

    def place(self, group: str) -> GroupDirectory:
        """Where the files of this group are. ``ConfigError`` for what can be no group."""
        check_group(group)
        return GroupDirectory(self._filesystem, self._log.clock, group, self._layout.group(group), self._boot)

    def topics_now(self, names: Iterable[str]) -> dict[str, GroupTopic]:
        """Those of these topics that are there."""
        found = {}
        for name in sorted(names):
            try:
                topic = self._log.describe_topic(name)
            except own(TopicNotFound, InvalidTopicName):  # the latter from a damaged state
                continue
            found[name] = GroupTopic(topic.id, topic.partitions)
        return found

    def committed(self, group: str) -> Offsets:
        """What the group has committed in topics that are there; what it had in one that was deleted counts no more."""
        offsets = self.offsets.committed(group)
        topics = self.topics_now({partition.topic for partition in offsets})
        return {
            partition: committed
            for partition, committed in offsets.items()
            if partition.topic in topics and committed.topic_id in ("", topics[partition.topic].id)
        }

    # Looking

    def names(self) -> list[str]:
        """Every group that has members, or has committed anything."""
        found = self.offsets.groups()
        found.update(group for group in self._in_files() if group not in found and self._may_have_members(group))
        return sorted(found)

    def _may_have_members(self, group: str) -> bool:
        """True also if its files can't be read: then the group is listed, and the next question about it says why."""
        try:
            return bool(self._alive(group).members)
        except own(StorageError):
            return True

    def gone(self, group: str) -> set[str]:
        """The static members whose processes are gone, and whose partitions wait for them to come back."""
        return dead_members(self.place(group), self._alive(group))

    def _alive(self, group: str) -> Group:
        """The group as it stands, without members whose processes are gone; static ones may come back."""
        place = self.place(group)
        found = read_group(place)
        dead = {id_ for id_ in dead_members(place, found) if not found.members[id_].instance_id}
        return found._replace(members={id_: m for id_, m in found.members.items() if id_ not in dead})

    def describe(self, group: str) -> GroupDescription:
        """``GroupNotFound`` for one that has no members and has committed nothing."""
        found, committed = self._alive(group), self.committed(group)
        if not committed:
            self._require_there(group)
        owners = {partition: member.id for member in found.members.values() for partition in member.owned}
        targets = {partition for member in found.members.values() for partition in member.target}
        state = EMPTY if not found.members else STABLE if found.is_settled else RECONCILING
        return GroupDescription(
            group, state, found.generation, found.assignor if found.members else "",
            tuple(map(_described, sorted(found.members.values()))),
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
        """By how many offsets the group's commits are behind the end, of each partition that it has committed in."""
        committed = self.committed(group)
        if not committed:
            self._require_there(group)
        return {partition: behind for partition, _, behind in self._ends(committed, committed)}

    def _ends(
        self, partitions: Iterable[TopicPartition], committed: Offsets
    ) -> Iterator[tuple[TopicPartition, int, int]]:
        """Of each that is there, in order: its end, and how far behind that is what was committed (0: nothing was)."""
        for name in sorted(partitions):
            with suppress(TopicNotFound, InvalidPartition):  # deleted meanwhile
                partition = self._log.partition(*name).log
                end = partition.latest_offset
                at = next_offset(partition, committed[name]) if name in committed else end
                yield name, end, max(end - at, 0)

    def _require_there(self, group: str) -> None:
        """A group that has committed nothing, but in topics that are gone perhaps."""
        if self._alive(group).members or self.offsets.committed(group):
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
    ) -> int:
        """Commit for a group without members; the end of the log of commits. ``GroupNotEmpty`` where it has some.

        ``left_s`` tells for how long it may wait for other processes; then it raises ``LogLocked``.

        Visible on return, and durable after ``offsets.sync``.
        """
        self._log.require_writable()
        place = self.place(group)
        self.offsets.make_topic()
        files = GroupLock(place)
        try:
            return files.holding(
                lambda state: self._commit_alone(place, state, offsets, files.check_held, left_s()), left_s()
            )
        finally:
            files.close()

    def _commit_alone(
        self,
        place: GroupDirectory,
        state: StateFile,
        offsets: Mapping[TopicPartition, Committed | None],
        check_held: Callable[[], None],
        timeout_s: float,
    ) -> int:
        self._require_empty(place, state)
        return self.offsets.append(place.group, offsets, check_held, timeout_s) if offsets else 0

    def _require_empty(self, place: GroupDirectory, state: StateFile) -> None:
        """The lock is held. Members that are dead are none, static ones too: by hand one may go on without waiting for them."""
        found = state.read()
        dead = dead_members(place, found)
        alive = [member for id_, member in found.members.items() if id_ not in dead]
        if alive:
            first = alive[0]
            raise GroupNotEmpty(
                f"group {place.group!r} has members ({len(alive)}, among them process {first.pid} on {first.host}): stop them "
                "first, since they would go on from where they are",
                group=place.group, members=len(alive), pid=first.pid, host=first.host,
            )  # fmt: skip
        if found.members:
            state.publish(left(found, set(found.members), {}))

    def reset(
        self,
        group: str,
        partitions: Iterable[TopicPartition | str] | None,
        *,
        to: str | int | None = None,
        to_time_ms: int | None = None,
        shift_by: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetChange]:
        """See ``Log.reset_offsets``."""
        targets = {"to": to, "to_time_ms": to_time_ms, "shift_by": shift_by, "offsets": offsets}
        given = [name for name, value in targets.items() if value is not None]
        if len(given) != 1:
            raise ConfigError(
                f"reset_offsets takes one of to, to_time_ms, shift_by and offsets, got {', '.join(given) or 'none'}",
                option="to", given=given,
            )  # fmt: skip
        if offsets is not None and partitions is not None:
            raise ConfigError("offsets= names the partitions itself; leave partitions out", option="partitions")
        committed = self.committed(group)
        if not committed and partitions is offsets is None:
            self._require_there(group)
        chosen = self._chosen(partitions if offsets is None else offsets, committed)
        changes = {}
        for partition in chosen:
            before = committed.get(partition)
            after = self._target(partition, before, to, to_time_ms, shift_by, offsets)
            changes[partition] = OffsetChange(None if before is None else before.offset, after)
        if changes and not dry_run:
            end = self.commit_alone(group, {name: self._reset_to(name, at.after) for name, at in changes.items()})
            self.offsets.sync(group, end)
        return changes

    def _reset_to(self, name: TopicPartition, offset: int) -> Committed:
        """To be committed durably."""
        partition = self._log.partition(*name).log
        make_records_durable(partition, offset)
        return Committed(offset, partition.leader_epoch, "", self._log.clock.now_ms(), partition.topic_id)

    def _chosen(self, partitions: Iterable[TopicPartition | str] | None, committed: Offsets) -> list[TopicPartition]:
        if partitions is None:
            return sorted(committed)
        chosen: list[TopicPartition] = []
        for item in [partitions] if isinstance(partitions, str) else partitions:
            if isinstance(item, str):
                chosen += [TopicPartition(item, number) for number in self._log.describe_topic(item).numbers]
            else:
                self._log.partition(*item)
                chosen.append(TopicPartition(*item))
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
        partition = self._log.partition(*name)
        earliest, latest = partition.earliest_offset, partition.latest_offset
        if offsets is not None:
            wanted = require_count("offset", offsets[name], 0)
        elif to_time_ms is not None:
            found = partition.offset_for_time(require_count("to_time_ms", to_time_ms, 0))
            wanted = latest if found is None else found.offset
        elif shift_by is not None:
            if committed is None:
                raise ConfigError(
                    f"shift_by needs a committed offset, and there is none of {name.topic}-{name.partition}; name the partitions",
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
        self._log.require_writable()
        place = self.place(group)
        self.describe(group)
        files = GroupLock(place)
        try:
            end = files.holding(lambda state: self._delete(place, state, files.check_held))
        finally:
            files.close()
        self.offsets.sync(group, end)

    def _delete(self, place: GroupDirectory, state: StateFile, check_held: Callable[[], None]) -> int:
        self._require_empty(place, state)
        committed = self.offsets.committed(place.group)
        end = self.offsets.append(place.group, dict.fromkeys(committed), check_held) if committed else 0
        check_held()
        gone = f"{self._layout.groups}/{_GONE}{self._filesystem.random_bytes(8).hex()}"
        self._filesystem.replace(place.directory, gone)  # in one step: who has the lock open sees that it is gone
        self._clear_away()
        return end

    def forget_topic(self, topic: str, timeout_s: float) -> None:
        """Have no group's commits in this topic count, which has been deleted: tombstones, as Kafka's coordinator writes them.

        Durable on return. ``LogLocked`` where a group's lock is not free in time. The lock is taken of groups that have committed
        nothing in it, too: a member that found the topic there has committed when this returns.
        """
        if topic == OFFSETS_TOPIC or OFFSETS_TOPIC not in self.topics_now([OFFSETS_TOPIC]):
            return
        ends = {group: self._forget_topic(topic, group, timeout_s) for group in self._in_files()}
        later = self.offsets.groups_in(topic).difference(ends)
        ends.update((group, self._forget_topic(topic, group, timeout_s)) for group in sorted(later))
        for group in sorted(ends, key=ends.__getitem__, reverse=True):  # one sync for all in one partition
            if ends[group]:
                self.offsets.sync(group, ends[group])

    def _forget_topic(self, topic: str, group: str, timeout_s: float) -> int:
        """The end of the log of commits after the tombstones, 0 if there was nothing to remove."""
        try:
            files = GroupLock(self.place(group))
        except own(ConfigError):  # a name that only Kafka's groups have: nobody commits for it here
            return self._append_tombstones(topic, group, bool, timeout_s)
        try:
            return files.holding(
                lambda _: self._append_tombstones(topic, group, files.check_held, timeout_s), timeout_s
            )
        finally:
            files.close()

    def _append_tombstones(self, topic: str, group: str, check_held: Callable[[], object], timeout_s: float) -> int:
        gone = [name for name in self.offsets.committed(group) if name.topic == topic]
        return self.offsets.append(group, dict.fromkeys(gone), check_held, timeout_s) if gone else 0

    def _in_files(self) -> list[str]:
        """The groups that have a directory: those that have, or had, members."""
        try:
            names = self._filesystem.names(self._layout.groups)
        except own(FileNotFoundError):
            names = []
        return sorted(group for group in map(decoded_group, names) if group is not None)

    def _clear_away(self) -> None:
        """Remove what is left of groups that were deleted, by somebody who died perhaps before he had."""
        filesystem = self._filesystem
        for name in filesystem.names(self._layout.groups):
            directory = f"{self._layout.groups}/{name}"
            for inner in (f"{directory}/members", directory) if name.startswith(_GONE) else ():
                with suppress(FileNotFoundError):  # another one is at it
                    for file in filesystem.names(inner):
                        filesystem.remove(f"{inner}/{file}")
                    filesystem.remove_directory(inner)


def _described(member: Member) -> MemberDescription:
    return MemberDescription(
        member.id, member.instance_id, member.client_id, member.host, member.pid, member.joined_ms,
        tuple(sorted(member.owned)), tuple(sorted(member.target)),
    )  # fmt: skip
