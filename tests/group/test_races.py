"""Consumers of a group, and its deletion, in every order of the steps they take in its directory
and in what it commits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from pylog import Consumer, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import CommitFailed, GroupNotEmpty, GroupNotFound
from pylog.group.admin import GroupAdmin
from pylog.testing.machine import Killed, Machine, Process, Schedule, Step, Strategy
from tests.simulation.actors import Actor, World
from tests.simulation.orders import in_all_orders


class InGroups(Schedule):
    """Lets others go first before steps in the directories of groups and in committed offsets
    only."""

    def _before_step(self, process: Process, step: Step) -> None:
        if "/groups" in step.path or OFFSETS_TOPIC in step.path:
            super()._before_step(process, step)


def joins(actor: Actor) -> None:
    actor.join("g", "t")
    actor.poll()
    actor.poll()
    actor.commit("g")


def joins_and_leaves(actor: Actor) -> None:
    actor.join("g", "t")
    actor.leave()


def deletes(actor: Actor) -> None:
    actor.attempt(lambda: actor.log.delete_group("g"))


def run(programs: tuple[Callable[[Actor], None], ...], strategy: Strategy) -> list[str]:
    world = World(Machine())
    first = world.actor()
    first.create("t")
    first.append("t", 3)
    first.join("g", "t")
    first.poll()
    first.commit("g")
    first.leave()
    assert world.errors == []
    schedule = InGroups(world.machine, strategy)
    for program in programs:
        actor = world.actor()
        assert actor.log
        schedule.add(actor.process, lambda program=program, actor=actor: program(actor))
    schedule.run()
    if any(name.startswith(".") for name in world.machine.processes[0].filesystem.names("/log/.pylog/groups")):
        world.seen.append("something is left of the group that was deleted")
    return world.seen + [repr(e) for e in world.errors if not isinstance(e, GroupNotEmpty | GroupNotFound)]


DELETIONS = [(deletes, joins), (deletes, joins_and_leaves), (deletes, deletes)]


@pytest.mark.slow
@pytest.mark.parametrize("programs", DELETIONS)
def test_a_group_that_is_deleted_while_somebody_joins_is_there_or_new(
    programs: tuple[Callable[[Actor], None], ...],
) -> None:
    """The files were removed one by one, under the hands of who was opening them."""
    assert in_all_orders(lambda strategy: run(programs, strategy), 1) > 10


class Reader:
    """A consumer that commits what it has read, and what a test has to know of it."""

    def __init__(self, world: World, committed: dict[TopicPartition, int], read: set[bytes | None]) -> None:
        self.actor = world.actor()
        self.consumer = Consumer(self.actor.log, group_id="g", auto_offset_reset="earliest", max_poll_records=1)
        self._world = world
        self._committed = committed
        self._read = read

    def join(self) -> None:
        self.consumer.subscribe("t", on_revoked=lambda _: self.commit())

    def poll(self) -> None:
        self._read |= {record.value for record in self.consumer.poll()}

    def close(self) -> None:
        self.consumer.close()

    def commit(self) -> None:
        """Refused for what is another's; else it must not go back."""
        before = dict(self._committed)
        offsets = {p: offset for p in self.consumer.assignment() if (offset := self.consumer.position(p)) is not None}
        try:
            self.consumer.commit(offsets)
        except CommitFailed:
            return
        for partition, offset in offsets.items():
            if offset < before.get(partition, 0):
                self._world.seen.append(f"{partition} was committed at {offset} after {before[partition]}")
            self._committed[partition] = max(offset, self._committed.get(partition, 0))


def read_together(calls: tuple[tuple[str, ...], tuple[str, ...]], strategy: Strategy) -> list[str]:
    """What is wrong after two consumers, the first of which is a member already, have made these
    calls."""
    world = World(Machine())
    writer = world.actor()
    writer.create("t", partitions=2)
    values = {bytes([number]) for number in range(8)}
    for number, value in enumerate(sorted(values)):
        writer.log.partition("t", number % 2).append([ProducerRecord(value)], acks=1)
    committed: dict[TopicPartition, int] = {}
    read: set[bytes | None] = set()
    readers = [Reader(world, committed, read) for _ in calls]
    for call in (readers[0].join, readers[0].poll, readers[0].poll, readers[0].commit, readers[0].poll):
        call()
    schedule = InGroups(world.machine, strategy)
    for reader, names in zip(readers, calls, strict=True):
        schedule.add(reader.actor.process, lambda r=reader, n=names: [getattr(r, name)() for name in n] and None)
    schedule.run()
    left = [reader for reader, names in zip(readers, calls, strict=True) if "close" not in names]
    for _ in range(12):
        for reader in left:
            reader.poll()
            reader.commit()
        world.machine.seconds += 0.3
    found = list(world.seen)
    if read != values:
        found.append(f"nobody read {sorted(values - read)}")
    shares = [reader.consumer.assignment() for reader in left]
    if sorted(p for share in shares for p in share) != [TopicPartition("t", number) for number in (0, 1)]:
        found.append(f"the members read {shares}")
    if any(offset != 4 for offset in committed.values()):
        found.append(f"committed in the end is {committed}")
    return found


CALLS = {
    "one joins": (("poll", "commit", "poll", "commit"), ("join", "poll", "commit", "poll")),
    "one joins as the other leaves": (("poll", "commit", "close"), ("join", "poll", "commit", "poll")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_consumers_of_a_group_read_everything_and_commit_forwards_in_every_order(name: str) -> None:
    assert in_all_orders(lambda strategy: read_together(CALLS[name], strategy), 1) > 10


@pytest.mark.one_in(8)
@pytest.mark.slow
def test_groups_are_deleted_and_read_in_every_order_with_two_preemptions(seed: int) -> None:
    """One of the five in each run."""
    each: list[Callable[[Strategy], list[str]]] = [partial(run, programs) for programs in DELETIONS]
    each += [partial(read_together, calls) for calls in CALLS.values()]
    assert in_all_orders(Random(seed).choice(each), 2) > 100


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_commit_that_its_process_did_not_live_to_publish_is_decided_of_before_others_go_on(by_hand: bool) -> None:
    """It was whole, and counted with the next commit of its partition: who had gone on from the one
    before went back by that."""
    world = World(Machine())
    first = world.actor()
    first.create("t")
    first.append("t", 6)
    first.join("g", "t")  # which polls two records at once
    first.poll()
    first.commit("g")
    first.poll()
    writes = []

    def kill(process: Process, step: Step) -> None:
        if writes and process is first.process:
            process.kill()
            raise Killed
        writes.extend([step.path] if OFFSETS_TOPIC in step.path and step.path.endswith(".log") and step.changes else [])

    world.machine.before_step.append(kill)
    first.commit("g")
    assert len(writes) == 1
    world.machine.before_step.clear()
    first._consumer = None
    log = world.actor().log
    assert log.manager.part(GroupAdmin).committed("g")[TopicPartition("t", 0)].offset == 2
    with Consumer(log, group_id="g") as second:
        if by_hand:
            second.assign([TopicPartition("t", 0)])
        else:
            second.subscribe("t")
            world.machine.seconds += 0.3
            second.poll(0, max_records=1)
        assert second.position(TopicPartition("t", 0)) == 4 + (not by_hand)
        assert log.manager.part(GroupAdmin).committed("g")[TopicPartition("t", 0)].offset == 4
