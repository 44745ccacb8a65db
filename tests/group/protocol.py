"""Members of a group on a simulated machine, and what must hold after each of their steps.

A ``Peer`` does with its ``Membership`` what a consumer does in ``poll``: it gives up what is no
longer its own, publishes that, takes what is its own and free, and reads and commits. What is
published is looked at before every step of anybody, and so is what each peer takes for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pylog.errors import CommitFailed, CorruptSegment, InstanceFenced
from pylog.group.directory import GroupDirectory
from pylog.group.liveness import TICK_S
from pylog.group.membership import MemberOptions, Membership
from pylog.group.state import Group, GroupTopic
from pylog.group.state_file import SLOTS, SLOTS_BYTES, GroupDecoder
from pylog.model import TopicPartition
from pylog.testing.machine import Killed, Machine, Process, Step
from pylog.testing.machine.disk import File

DIRECTORY = "/groups/g"
MAX_POLL_INTERVAL_MS = 1_000
SESSION_TIMEOUT_MS = 2_000
ROUNDS = 8  # polls of everybody within which a group must have settled


class World:
    """A machine, the topics there are, the peers, and what the group has committed."""

    def __init__(self, seed: int = 0, *, partitions: int = 4, tear_writes: bool = False) -> None:
        self.machine = Machine(seed, tear_writes=tear_writes)
        self.topics = {"t": GroupTopic("first", partitions)}
        self.peers: list[Peer] = []
        self.committed: dict[TopicPartition, int] = {}
        self.wrong: list[str] = []
        self._slots = b""
        self._group = Group()
        self.machine.before_step.append(self._before)

    def peer(self, **options: object) -> Peer:
        """Another one, not joined yet."""
        return Peer(self, **options)

    def topics_now(self, names: Iterable[str]) -> dict[str, GroupTopic]:
        return {name: self.topics[name] for name in names if name in self.topics}

    # What must hold at each moment

    def _before(self, process: Process, step: Step) -> None:
        if not self.wrong:
            self.wrong += [f"{what} (before step {process.steps} of process {process.number}, {step.name})"
                           for what in self.look()]  # fmt: skip

    def look(self) -> list[str]:
        """What is wrong now."""
        before, group = self._group, self.published()
        found = []
        if group is not before:
            if group.generation < before.generation:
                found.append(f"generation {group.generation} was published after {before.generation}")
            found += _twice("owned", {id_: member.owned for id_, member in group.members.items()})
            found += _twice("the target", {id_: member.target for id_, member in group.members.items()})
        for peer in self.peers:
            member = group.members.get(peer.membership.id)
            if member is not None and peer.process.is_alive and not peer.positions.keys() <= member.owned.keys():
                extra = sorted(
                    p for p in peer.positions.keys() - member.owned.keys() if peer.ids[p] == group.topics[p.topic].id
                )
                if extra:
                    found.append(f"process {peer.process.number} reads {extra}, which are not published as its own")
        return found

    def published(self) -> Group:
        """What the state file says: its slots, and what they point to."""
        node = self.machine.disk.look(f"{DIRECTORY}/state")
        if not isinstance(node, File):
            return self._group
        raw = bytes(node.content[:SLOTS_BYTES])
        if raw != self._slots:
            slot = SLOTS.latest(raw)
            self._slots = raw
            if slot is None:
                self._group = Group()
            else:
                try:
                    self._group = GroupDecoder().decode(
                        bytes(node.content[slot.position : slot.position + slot.size_bytes])
                    )
                except CorruptSegment as damage:
                    self.wrong.append(f"what is published can't be read: {damage}")
        return self._group

    # What must hold in the end

    def settle(self, rounds: int = ROUNDS) -> list[str]:
        """Let all who live poll in turn. What is wrong then."""
        for _ in range(rounds):
            for peer in self.peers:
                if peer.is_at_work:
                    peer.poll()
            self.machine.seconds += TICK_S + 0.01
        return self.wrong or self.look() or self._unsettled()

    def _unsettled(self) -> list[str]:
        living = [peer for peer in self.peers if peer.is_at_work]
        group, found = self.published(), []
        if not living:
            return []
        if group.members.keys() != {peer.membership.id for peer in living}:
            found.append(f"members are {sorted(group.members)}, alive are {[peer.membership.id for peer in living]}")
        owners = {partition: peer for peer in living for partition in peer.positions}
        wanted = {
            TopicPartition(name, number)
            for name, topic in self.topics.items()
            for number in range(topic.partitions)
            if any(name in peer.wanted for peer in living)
        }
        found += [
            f"process {peer.process.number} reads {partition} of a topic that was deleted"
            for partition, peer in owners.items()
            if peer.ids[partition] != self.topics[partition.topic].id
        ]
        if owners.keys() != wanted:
            found.append(f"of {sorted(wanted)}, {sorted(wanted ^ owners.keys())} are read by nobody, or not there")
        counts = [len(peer.positions) for peer in living]
        if len({peer.wanted for peer in living}) == 1 and max(counts) - min(counts) > 1:
            found.append(f"the members read {counts} partitions")
        return found


def _twice(what: str, partitions: dict[str, frozenset[TopicPartition]]) -> list[str]:
    owners: dict[TopicPartition, str] = {}
    return [
        f"{partition} is {what} of two members"
        for id_, some in partitions.items()
        for partition in some
        if owners.setdefault(partition, id_) != id_
    ]


class Peer:
    """A process with one membership. ``positions``: what it reads, and how far it has come."""

    def __init__(
        self,
        world: World,
        *,
        instance_id: str = "",
        wanted: Iterable[str] = ("t",),
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
    ) -> None:
        self.world = world
        self.wanted = frozenset(wanted)
        self.instance_id = instance_id
        self.is_fenced = self.has_left = False
        self.positions: dict[TopicPartition, int] = {}
        self.ids: dict[TopicPartition, str] = {}  # of the topics that it reads
        self.since: dict[TopicPartition, int] = {}
        self.process = world.machine.process()
        place = GroupDirectory(self.process.filesystem, self.process.clock, "g", DIRECTORY, 1, "/groups.lock")
        options = MemberOptions("cooperative-sticky", instance_id, "", max_poll_interval_ms, SESSION_TIMEOUT_MS)
        self.membership = Membership(place, options, world.topics_now)
        world.peers.append(self)

    @property
    def is_at_work(self) -> bool:
        return self.process.is_alive and not self.is_fenced and not self.has_left

    def work(self, *calls: Callable[[], object]) -> Callable[[], None]:
        """A program of a schedule that makes these calls, one after the other, until this is
        killed."""

        def program() -> None:
            for call in calls:
                self.tries(call)

        return program

    def tries(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Killed:
            self.process.kill()

    # What a consumer does

    def poll(self) -> None:
        """See ``GroupAssignment.refresh``."""
        membership = self.membership
        try:
            if not membership.id:
                self.positions.clear()
                membership.join(self.wanted)
            membership.want(self.wanted, appeared=True)
            membership.tick()
            self._follow()
        except InstanceFenced:
            self.is_fenced = True
            self.positions.clear()

    def _follow(self) -> None:
        membership = self.membership
        group = membership.look()
        if membership.id not in group.members:
            self.positions.clear()
            error = membership.expelled(group)
            if isinstance(error, InstanceFenced):
                raise error
            membership.join(self.wanted)
            group = membership.look()
            if membership.id not in group.members:
                return
        me = group.members[membership.id]
        self._drop(p for p in self.positions if me.owned.get(p) != self.since[p])
        membership.generation = group.generation
        self._give_up(self.positions.keys() - me.target)
        others = [member.owned for id_, member in group.members.items() if id_ != me.id]
        if me.owned.keys() - me.target or (me.target - me.owned.keys()).difference(*others):
            after = membership.reconcile(me.owned.keys() - me.target, 1.0)
            if after.generation != group.generation:
                self._follow()
                return
            group = after
        if membership.id in group.members:
            me = group.members[membership.id]
            for partition in me.owned.keys() - self.positions.keys():
                self.since[partition] = me.owned[partition]
                self.positions[partition] = self.world.committed.get(partition, 0)
                self.ids[partition] = group.topics[partition.topic].id

    def _give_up(self, partitions: set[TopicPartition]) -> None:
        if partitions:
            self.commit(partitions)
            self._drop(partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in list(partitions):
            self.positions.pop(partition, None)

    def read(self) -> None:
        """One record of each partition."""
        for partition in self.positions:
            self.positions[partition] += 1

    def commit(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Whether what was read of these partitions, or of all, was committed."""
        offsets = {p: self.positions[p] for p in sorted(self.positions if partitions is None else partitions)}
        try:
            self.membership.commit(offsets, lambda _: self._append(offsets))
        except CommitFailed:
            return False
        return True

    def _append(self, offsets: dict[TopicPartition, int]) -> None:
        world = self.world
        self.process.step("append", "offsets")
        member = world.published().members.get(self.membership.id)
        for partition, offset in offsets.items():
            if member is None or partition not in member.owned:
                world.wrong.append(f"process {self.process.number} committed {partition}, which is not its own")
            if offset < world.committed.get(partition, 0):
                world.wrong.append(f"{partition} was committed at {offset} after {world.committed[partition]}")
            world.committed[partition] = offset

    def leave(self) -> None:
        self._give_up(set(self.positions))
        self.has_left = True
        self.membership.leave()
        self.positions.clear()


class Scenario(NamedTuple):
    """Who meets whom: peers, some of whom are members already, and what each of them does."""

    world: World
    programs: list[tuple[Peer, Callable[[], None]]]


def settled(world: World, count: int, **options: object) -> list[Peer]:
    """So many members, who share the partitions, and have read and committed something."""
    peers = [world.peer(**options) for _ in range(count)]
    for peer in peers:
        peer.poll()
    assert not (wrong := world.settle()), wrong
    for peer in peers:
        peer.read()
        peer.commit()
    return peers
