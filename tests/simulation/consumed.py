"""``retention="consumed"`` on the simulated machine: members of groups, and what must be left for them."""

from __future__ import annotations

from collections.abc import Sequence

from pylog import Log, TopicPartition
from pylog.group.admin import GroupAdmin
from pylog.group.consumption import Consumption
from pylog.testing.machine import Machine
from pylog.testing.machine.images import Image, pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.actors import ROOT, Actor, World

TP = TopicPartition("t", 0)
RECORDS = 8


class Member:
    """A member of a group. What it reads must begin where it joined, and have no gap."""

    def __init__(self, world: World, group: str) -> None:
        self.actor = world.actor()
        assert self.actor.log
        self.group = group
        self.start = -1

    def join(self) -> None:
        self.actor.join(self.group, "t")
        if self.actor._consumer is not None:
            self.start = self.actor._consumer.position(TP) or 0

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

    def problems(self) -> list[str]:
        """Read the rest, unless it has left."""
        if self.actor._consumer is None:
            return []
        for _ in range(RECORDS):
            self.actor.poll()
        expected = set(range(max(self.start, 0), RECORDS))
        missing = sorted(expected - self.actor.polled) if self.start >= 0 else []
        return [f"{self.group} began at {self.start} and has never got {missing}"] if missing else []


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
        partition.delete_before(RECORDS, lambda _: consumption.consumed(partition, durably=False).offset >= RECORDS)

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
    """What is wrong now, and if the power fails now."""
    world.machine.before_step.clear()
    found = [*world.seen, *map(repr, world.errors)]
    units = pending_units(world.machine.disk, SECTOR_BYTES)
    lost = world.machine.after_power_loss(Image((0,) * len(units), "natural"))  # all that was not synced
    for what, machine in (("", world.machine), ("after a loss of power ", lost)):
        with machine.process().open_log(ROOT) as log:
            start = log.partition("t", 0).earliest_offset
            groups = {"a"} | {member.group for member in members if not what and member.start >= 0}
            for group in groups:
                joined = next((member.start for member in members if member.group == group), 0)
                if start > max(committed(log, group), joined if group != "a" else 0):
                    found.append(
                        f"{what}the log begins at {start}, group {group} has committed {committed(log, group)}"
                    )
    for member in members:
        found += member.problems()
    return found
