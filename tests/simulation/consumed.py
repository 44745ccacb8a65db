"""``retention="consumed"`` on the simulated machine: members of groups, and what must be left for
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pylog import Consumer, Log, TopicPartition
from pylog.group.admin import GroupAdmin
from pylog.group.consumption import Consumption
from pylog.testing.machine import Machine
from pylog.testing.machine.images import Image, pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.actors import ROOT, Actor, World, kill_at

TP = TopicPartition("t", 0)
RECORDS = 8
STEPS_OF_A_STAY = 230  # of ``Member.join_and_stay``, about


class Member:
    """A member of a group. What it reads must begin where it joined, and have no gap."""

    def __init__(self, world: World, group: str) -> None:
        self.actor = world.actor()
        assert self.actor.log
        self.group = group
        self.start = -1

    def join(self) -> None:
        self.actor.join(self.group, "t")
        if self.is_reading:
            assert self.actor._consumer is not None
            self.start = self.actor._consumer.position(TP) or 0

    def join_and_stay(self) -> None:
        self.join()
        self.actor.attempt(self._poll)
        self.stay()

    def stay(self) -> None:
        """Commit, then leave."""
        for durable in (False, True):
            self.poll_and_commit(durable=durable)
        self.leave()

    def join_without_position(self) -> None:
        """It is a member, and its group has not begun."""
        self.actor._consumer = Consumer(self.actor.log, group_id=self.group, auto_offset_reset="none")
        self.actor._consumer.subscribe("t")

    def begin(self) -> None:
        """Read all."""
        assert self.actor._consumer is not None
        self.actor._consumer.seek(TP, 0)
        self.actor.attempt(self._poll)
        self.start = 0

    def poll_and_commit(self, *, durable: bool) -> None:
        self.actor.attempt(self._poll)  # without a pause, in which the others would take all of their steps
        self.actor.commit(self.group, durable=durable)

    def leave(self) -> None:
        self.actor.attempt(self._leave)

    def _leave(self) -> None:
        consumer, self.actor._consumer = self.actor._consumer, None
        if consumer is not None:
            consumer.close()

    def _poll(self) -> None:
        consumer = self.actor._consumer
        self.actor.polled |= {record.offset for record in (consumer.poll() if consumer is not None else ())}

    @property
    def is_reading(self) -> bool:
        return self.actor.process.is_alive and self.actor._consumer is not None

    def problems(self) -> list[str]:
        """Read the rest, unless it is dead or has left."""
        if not self.is_reading:
            return []
        for _ in range(RECORDS):
            self.actor.poll()
        return self.missing(self.actor.polled)

    def missing(self, read: set[int]) -> list[str]:
        """``read``: by its group."""
        missing = sorted(set(range(self.start, RECORDS)) - read) if self.start >= 0 else []
        return [f"{self.group} began at {self.start} and has never got {missing}"] if missing else []


def dies_within(member: Member, step: int) -> None:
    """Kill it before this one of its next steps."""
    kill_at(member.actor.process, member.actor.process.steps + step)


def maintain(actor: Actor) -> None:
    def work() -> None:
        report = actor.log.maintain(["t"])
        actor.world.seen += [done.error for done in report.partitions if done.error]

    actor.attempt(work)


def delete_what_is_allowed(actor: Actor) -> None:
    """All, if the groups have consumed it by the time of the last check."""

    def work() -> None:
        partition = actor.log.partition("t", 0).log
        consumption = actor.log.manager.part(Consumption)
        consumption.consumed(partition, durably=True)
        partition.delete_before(RECORDS, lambda _: consumption.is_still_consumed(partition, RECORDS))

    actor.attempt(work)


def committed(log: Log, group: str) -> int:
    found = log.manager.part(GroupAdmin).committed(group).get(TP)
    return 0 if found is None else found.offset


def staged(first_polls: int) -> tuple[World, Member]:
    """Four segments, and a member of group a that has committed two records a poll, not durably."""
    world = World(Machine())
    actor = world.actor()
    actor.create("t", segment_bytes=1024)
    actor.log.alter_topic("t", retention="consumed")
    for _ in range(RECORDS):
        actor.append("t", 1, 400, acks="all")
    member = Member(world, "a")
    member.join()
    for _ in range(first_polls):
        member.poll_and_commit(durable=False)
    actor.close()
    assert world.errors == []
    return world, member


def after(world: World, members: Sequence[Member]) -> list[str]:
    """What is wrong now, and if the power fails now: after the next maintenance, which deletes what
    nothing holds."""
    world.machine.before_step.clear()
    units = pending_units(world.machine.disk, SECTOR_BYTES)
    lost = world.machine.after_power_loss(Image((0,) * len(units), "natural"))  # all that was not synced
    living = {member.group for member in members if member.is_reading}
    found = [*world.seen, *map(repr, world.errors), *_after(world.machine, members, living)]
    known = [(member.group, member.start, frozenset(member.actor.polled)) for member in members]
    mark = hash((tuple(sorted(lost.disk.contents().items())), tuple(known)))
    if mark not in _CHECKED:
        without_power = [f"{text}, without power" for text in _after(lost, members, set())]
        found += without_power
        if not without_power:
            _CHECKED.add(mark)
    return [*found, *(text for member in members for text in member.problems())]


_CHECKED: set[int] = set()
"""What was left by losses of power, after which all was well."""


def _after(machine: Machine, members: Sequence[Member], living: set[str]) -> Iterator[str]:
    with machine.process().open_log(ROOT) as log:
        yield from (done.error for done in log.maintain(["t"]).partitions if done.error)
        start = log.partition("t", 0).earliest_offset
        for member in members:
            if member.start >= 0 and start > max(committed(log, member.group), member.start):
                yield f"the log begins at {start}, group {member.group} has committed {committed(log, member.group)}"
            if member.group not in living:
                yield from member.missing(member.actor.polled | _rest(log, member.group))


def _rest(log: Log, group: str) -> set[int]:
    """What the next member of the group gets."""
    with Consumer(log, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        return {record.offset for record in consumer.poll()}
