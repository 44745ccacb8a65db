"""The state of a group, and its transitions. Pure functions; ``state_file.py`` stores it.

A generation is one division of the partitions among the members. A member's ``target`` is what it
should read, ``owned`` what it reads. It first gives up what is not in its target, then takes
partitions of its target that no other member owns. So only partitions that move pause, and none
has two owners.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from pylog.group.assignor import ASSIGNORS, Share
from pylog.model import TopicPartition

Partitions = frozenset[TopicPartition]
NONE: Partitions = frozenset()


class GroupTopic(NamedTuple):
    """A topic at the time of the target; another id is another topic."""

    id: str
    partitions: int


class Member(NamedTuple):
    """``cell`` is its heartbeat counter; ``topics`` are the existing ones that it wants. ``owned``
    has the generation in which it took each partition."""

    id: str
    instance_id: str
    client_id: str
    host: str
    pid: int
    cell: int
    joined_ms: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    topics: frozenset[str] = frozenset()
    owned: Mapping[TopicPartition, int] = {}
    target: Partitions = NONE

    @property
    def name(self) -> str:
        """Its name for assignors: with an instance id, the same after a restart."""
        return self.instance_id or self.id


class Group(NamedTuple):
    """``topics`` has each of ``topics_read`` that existed. ``starts`` are uncommitted positions
    that the group began from, kept while it has members."""

    generation: int = 0
    assignor: str = ""
    members: Mapping[str, Member] = {}
    topics: Mapping[str, GroupTopic] = {}
    starts: Mapping[TopicPartition, int] = {}

    def topics_read(self) -> frozenset[str]:
        """All that any member wants, or owns partitions of."""
        members = self.members.values()
        return frozenset(partition.topic for member in members for partition in member.owned).union(
            *(member.topics for member in members)
        )

    @property
    def is_settled(self) -> bool:
        """Whether each member owns its target, and nothing else."""
        return all(member.owned.keys() == member.target for member in self.members.values())

    def member_of_instance(self, instance_id: str) -> Member | None:
        return next((m for m in self.members.values() if instance_id and m.instance_id == instance_id), None)

    def free_cell(self) -> int:
        """The first cell that no member uses."""
        taken = {member.cell for member in self.members.values()}
        return next(cell for cell in range(1, len(taken) + 2) if cell not in taken)


def with_member(group: Group, member: Member, assignor: str, topics: Mapping[str, GroupTopic]) -> Group:
    """Add the member, or replace the one with its instance id; other members lose nothing by that.
    ``topics`` are all that any member wants or owns partitions of, as they are now."""
    before = group.member_of_instance(member.instance_id)
    members = {id_: other for id_, other in group.members.items() if other is not before}
    if before is not None:
        member = member._replace(target=before.target)
    return rebalanced(group._replace(assignor=assignor, members={**members, member.id: member}), topics)


def without_members(group: Group, ids: Collection[str], topics: Mapping[str, GroupTopic]) -> Group:
    """Remove these members, which are dead or were silent for too long."""
    return rebalanced(
        group._replace(members={id_: member for id_, member in group.members.items() if id_ not in ids}), topics
    )


def with_subscription(group: Group, id_: str, wanted: frozenset[str], topics: Mapping[str, GroupTopic]) -> Group:
    """Change the topics that one member wants."""
    return rebalanced(
        group._replace(members={**group.members, id_: group.members[id_]._replace(topics=wanted)}), topics
    )


def rebalanced(group: Group, topics: Mapping[str, GroupTopic]) -> Group:
    """Return the next generation: the current partitions, divided again.
    Partitions added to a topic, or of a recreated one, are read from their beginning."""
    same = {name for name, topic in topics.items() if name in group.topics and group.topics[name].id == topic.id}

    def still(partitions: Iterable[TopicPartition]) -> Partitions:
        """Leave out partitions of topics that are gone, or others. A topic that comes back, even
        with its id, may have been read under another name meanwhile."""
        return frozenset(partition for partition in partitions if partition.topic in same)

    members = {
        id_: member._replace(
            owned={partition: member.owned[partition] for partition in still(member.owned)}, target=still(member.target)
        )
        for id_, member in group.members.items()
    }
    wanted = frozenset[str]().union(*(member.topics for member in members.values()))
    read = group._replace(members=members).topics_read()
    topics = {name: topic for name, topic in sorted(topics.items()) if name in read}
    target = ASSIGNORS[group.assignor](
        {name: topic.partitions for name, topic in topics.items() if name in wanted},
        {member.name: Share(member.topics, member.target) for member in members.values()},
    ) if members else {}  # fmt: skip
    after = group._replace(
        generation=group.generation + 1,
        members={id_: member._replace(target=frozenset(target[member.name])) for id_, member in members.items()},
        topics=topics,
        starts={p: offset for p, offset in group.starts.items() if p.topic in topics and p.topic in same},
    )
    grown = {p: 0 for p in appeared_since(group, after) if p.topic in group.topics}
    return after._replace(starts={**after.starts, **grown} if members else {})


def reconciled(group: Group, id_: str, released: Collection[TopicPartition]) -> Group:
    """Release these partitions, take the member's free ones. The same group if nothing changes."""
    me = group.members[id_]
    others = NONE.union(*(member.owned for other, member in group.members.items() if other != id_))
    kept = {partition: since for partition, since in me.owned.items() if partition not in released}
    owned = dict.fromkeys(me.target - others, group.generation) | kept
    if owned == me.owned:
        return group
    return group._replace(members={**group.members, id_: me._replace(owned=owned)})


def with_starts(group: Group, starts: Mapping[TopicPartition, int]) -> Group:
    """Add starting positions of partitions that have none."""
    return group._replace(starts={**starts, **group.starts})


def appeared_since(before: Group, after: Group) -> Partitions:
    """Return the partitions of new, recreated and grown topics."""
    return frozenset(
        TopicPartition(name, number)
        for name, topic in after.topics.items()
        for number in range(topic.partitions)
        if name not in before.topics or before.topics[name].id != topic.id or number >= before.topics[name].partitions
    )
