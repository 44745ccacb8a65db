"""The protocol of group members in every order of their steps: no partition has two owners, and
none is left alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

import pytest

from pylog.errors import PylogError
from pylog.group.state import GroupTopic
from pylog.testing.machine import Interrupted, Killed, Process, RandomWalk, Schedule, Step, Strategy
from tests.group.protocol import (
    MAX_POLL_INTERVAL_MS,
    ROUNDS,
    SESSION_TIMEOUT_MS,
    TICK_S,
    Peer,
    Scenario,
    World,
    settled,
)
from tests.simulation.faults import FAULTS, RAISED, error_of
from tests.simulation.orders import in_all_orders

LATE_S = MAX_POLL_INTERVAL_MS / 1000 + 0.1


# Who meets whom


def two_join_at_once() -> Scenario:
    world = World()
    a, b = world.peer(), world.peer()
    return Scenario(world, [(peer, peer.work(peer.poll, peer.read, peer.commit, peer.poll)) for peer in (a, b)])


def one_joins_a_member() -> Scenario:
    world = World()
    a, b = *settled(world, 1), world.peer()
    return Scenario(world, [(a, a.work(a.read, a.poll, a.commit, a.poll)), (b, b.work(b.poll, b.poll))])


def one_joins_as_another_leaves() -> Scenario:
    world = World()
    a = settled(world, 2)[0]
    c = world.peer()
    a.read()
    return Scenario(world, [(a, a.work(a.leave)), (c, c.work(c.poll, c.poll))])


def one_leaves_as_another_polls() -> Scenario:
    world = World()
    a, b = settled(world, 2)
    b.read()
    return Scenario(world, [(a, a.work(a.leave)), (b, b.work(b.poll, b.commit, b.poll))])


def one_is_expelled_and_comes_back() -> Scenario:
    """One has not polled for too long: another finds out, or just does not."""
    world = World()
    a, b = settled(world, 2)
    a.read()
    for _ in range(int(LATE_S / TICK_S)):
        b.poll()
        world.machine.seconds += TICK_S + 0.01
    return Scenario(world, [(a, a.work(a.commit, a.poll, a.commit)), (b, b.work(b.poll, b.read, b.commit))])


def one_expels_whom_another_expels() -> Scenario:
    world = World()
    a, b, c = settled(world, 3)
    a.process.kill()
    for peer in (b, c, b, c):
        peer.membership.tick()
    world.machine.seconds += TICK_S + 0.01
    return Scenario(world, [(peer, peer.work(peer.poll, peer.poll)) for peer in (b, c)])


def a_topic_grows() -> Scenario:
    world = World(partitions=2)
    a, b = settled(world, 2)
    world.topics["t"] = GroupTopic("first", 5)
    return Scenario(world, [(peer, peer.work(peer.poll, peer.read, peer.commit, peer.poll)) for peer in (a, b)])


def a_topic_is_made_anew() -> Scenario:
    world = World()
    a, b = settled(world, 2)
    world.topics["t"] = GroupTopic("second", 4)
    world.committed.clear()
    return Scenario(world, [(peer, peer.work(peer.poll, peer.poll)) for peer in (a, b)])


def a_static_member_starts_again_while_it_still_runs() -> Scenario:
    world = World()
    a = settled(world, 1, instance_id="one")[0]
    settled(world, 1)
    again = world.peer(instance_id="one")
    a.read()
    return Scenario(world, [(a, a.work(a.poll, a.commit)), (again, again.work(again.poll, again.read, again.commit))])


def one_wants_other_topics() -> Scenario:
    world = World()
    world.topics["u"] = GroupTopic("other", 3)
    a, b = settled(world, 2, wanted=("t", "u"))
    a.read()
    a.wanted = frozenset({"u"})
    return Scenario(world, [(peer, peer.work(peer.poll, peer.commit, peer.poll)) for peer in (a, b)])


MEETINGS = [
    two_join_at_once, one_joins_a_member, one_joins_as_another_leaves, one_leaves_as_another_polls,
    one_is_expelled_and_comes_back, one_expels_whom_another_expels, a_topic_grows, a_topic_is_made_anew,
    a_static_member_starts_again_while_it_still_runs, one_wants_other_topics,
]  # fmt: skip

every_meeting = pytest.mark.parametrize("meeting", MEETINGS, ids=lambda meeting: meeting.__name__)


def run(meeting: Callable[[], Scenario], strategy: Strategy) -> list[str]:
    """What is wrong after the programs have run in this order."""
    world, programs = meeting()
    schedule = Schedule(world.machine, strategy)
    for peer, program in programs:
        schedule.add(peer.process, program)
    schedule.run()
    return world.wrong or world.settle()


@pytest.mark.slow
@every_meeting
def test_members_meet_in_every_order_with_one_preemption(meeting: Callable[[], Scenario]) -> None:
    assert in_all_orders(partial(run, meeting), 1) > 10


@pytest.mark.one_in(8)
@pytest.mark.slow
def test_members_meet_in_every_order_with_two_preemptions(seed: int) -> None:
    """Three of the meetings in each run."""
    for meeting in Random(seed).sample(MEETINGS, 3):
        assert in_all_orders(partial(run, meeting), 2) > 100


def test_a_commit_for_a_partition_of_another_is_refused() -> None:
    a, b = settled(World(), 2)
    a.positions.update(b.positions)
    assert not a.commit(b.positions)
    assert not a.commit()
    assert b.commit()


# What interrupts one of them

Strike = Callable[[Peer, Step], BaseException | None]
SESSION_ROUNDS = int(SESSION_TIMEOUT_MS / 1000 / TICK_S) + ROUNDS
PATIENT_MS = 10**6  # so that only a lock that was freed tells that somebody is gone


class Interruption(NamedTuple):
    """What one of several does, and is interrupted at. ``begin`` gives the victim, and what it is
    to do."""

    begin: Callable[[World], tuple[Peer, list[Callable[[], object]]]]

    def run(self, at: int, strike: Strike, *, sticky: bool = False) -> tuple[Step | None, list[str]]:
        """At the victim's step of this number, and what is wrong then; None for the step where it
        does not take so many.

        ``sticky``: at all later ones, too.
        """
        world = World()
        victim, calls = self.begin(world)
        began, struck = victim.process.steps, []

        def before(process: Process, step: Step) -> None:
            taken = process.steps - began - 1
            if process is victim.process and (taken == at or (sticky and taken > at)):
                struck.append(step)
                error = strike(victim, step)
                if error is not None:
                    raise error

        world.machine.before_step.append(before)
        for call in calls:
            with suppress(PylogError, KeyboardInterrupt, MemoryError):  # as somebody who goes on all the same
                victim.tries(call)
        world.machine.before_step.remove(before)
        return (struck[0] if struck else None), world.wrong or world.settle(SESSION_ROUNDS)


def _member_of(world: World, count: int, **options: Any) -> list[Peer]:
    return settled(world, count, max_poll_interval_ms=PATIENT_MS, **options)


def joins_alone(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    peer, _later = (world.peer(max_poll_interval_ms=PATIENT_MS) for _ in range(2))
    return peer, [peer.poll, peer.read, peer.commit]


def joins_others(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    a, b = _member_of(world, 2)
    peer = world.peer(max_poll_interval_ms=PATIENT_MS)
    return peer, [peer.poll, a.poll, b.poll, peer.poll, peer.read, peer.commit]


def gives_up(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    peer, other = *_member_of(world, 1), world.peer(max_poll_interval_ms=PATIENT_MS)
    other.poll()
    return peer, [peer.read, peer.poll, other.poll, peer.poll]


def expels(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    a, b, peer = _member_of(world, 3)
    a.process.kill()
    for _ in range(2):
        world.machine.seconds += TICK_S + 0.01
        b.membership.tick()
    b.process.kill()
    world.machine.seconds += TICK_S + 0.01
    peer.poll()
    world.machine.seconds += TICK_S + 0.01
    return peer, [peer.poll, peer.poll]


def leaves(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    _, peer = _member_of(world, 2)
    peer.read()
    return peer, [peer.leave]


def comes_back_as_a_static_member(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    before, _ = *_member_of(world, 1, instance_id="one"), *_member_of(world, 1)
    before.process.kill()
    peer = world.peer(instance_id="one", max_poll_interval_ms=PATIENT_MS)
    return peer, [peer.poll, peer.read, peer.commit]


def sees_a_topic_grow(world: World) -> tuple[Peer, list[Callable[[], object]]]:
    _, peer = _member_of(world, 2)
    world.topics["t"] = GroupTopic("first", 6)
    return peer, [peer.poll, peer.read, peer.commit]


INTERRUPTED = [
    joins_alone, joins_others, gives_up, expels, leaves, comes_back_as_a_static_member, sees_a_topic_grow,
]  # fmt: skip
every_interrupted = pytest.mark.parametrize("begin", INTERRUPTED, ids=lambda begin: begin.__name__)


@pytest.mark.slow
@every_interrupted
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_kill_at_any_step_leaves_a_group_that_goes_on(begin: Any, share: float) -> None:
    def kill(victim: Peer, step: Step) -> BaseException:
        victim.process.kill()
        return Interrupted(int(step.size_bytes * share), Killed()) if step.name == "pwrite" else Killed()

    for at in count():
        step, wrong = Interruption(begin).run(at, kill)
        assert wrong == [], f"killed at step {at}, {step}"
        if step is None:
            break
    assert at > 10


@pytest.mark.slow
@every_interrupted
@pytest.mark.one_in(8)
def test_a_refusal_or_interrupt_at_any_step_leaves_a_group_that_goes_on(begin: Any) -> None:
    for at in count():
        step, wrong = Interruption(begin).run(at, lambda _victim, _step: None)
        assert wrong == []
        if step is None:
            break
        for kind in FAULTS.get(step.name, ("KeyboardInterrupt",)):
            for sticky in (False, True) if kind not in RAISED else (False,):
                struck, wrong = Interruption(begin).run(at, refusing(kind), sticky=sticky)
                assert wrong == [], f"{kind} at step {at}, {struck}, {sticky=}"
    assert at > 10


def refusing(kind: str) -> Strike:
    return lambda _victim, step: error_of(kind, step) if kind in FAULTS.get(step.name, ("KeyboardInterrupt",)) else None


# Drawn at random


def drawn(random: Random) -> Scenario:
    """Two to four peers, some of them members already, do what there is to do, each a few times."""
    world = World(tear_writes=True, partitions=random.choice((1, 3, 5)))
    world.topics["u"] = GroupTopic("other", 2)
    ids = ["", "", "one", random.choice(("", "one", "two"))]
    peers = [world.peer(instance_id=id_) for id_ in ids[: random.choice((2, 3, 4))]]
    for peer in peers:
        if random.random() < 0.6:
            peer.poll()
    return Scenario(world, [(peer, peer.work(*_calls(world, peer, random))) for peer in peers])


def _calls(world: World, peer: Peer, random: Random) -> list[Callable[[], object]]:
    def lets_time_pass() -> None:
        peer.process.clock.sleep(random.choice((TICK_S, LATE_S)))

    def has_the_topic_grow() -> None:
        topic = world.topics["t"]
        world.topics["t"] = topic._replace(partitions=topic.partitions + 1)

    def wants_another() -> None:
        peer.wanted = random.choice((frozenset("t"), frozenset("tu")))

    often: list[Callable[[], object]] = [peer.poll, peer.poll, peer.poll, peer.read, peer.commit, lets_time_pass]
    calls = [random.choice(often) for _ in range(random.randrange(3, 10))]
    if random.random() < 0.5:
        calls.insert(random.randrange(len(calls)), random.choice((has_the_topic_grow, wants_another)))
    if random.random() < 0.2:
        calls.append(peer.leave)
    return calls


def at_random(seed: int, number: int) -> list[str]:
    """One run; in half of them somebody is killed at some step."""
    random = Random(f"{seed} {number}")
    world, programs = drawn(random)
    schedule = Schedule(world.machine, RandomWalk(random.randrange(1 << 32), random.choice((0.02, 0.1, 0.5))))
    for peer, program in programs:
        schedule.add(peer.process, program)
    kill_at = random.randrange(60 * len(programs)) if random.random() < 0.5 else -1

    def before(process: Process, step: Step) -> None:
        if schedule.steps == kill_at and process.is_alive:
            process.kill()
            raise Interrupted(random.randint(0, step.size_bytes), Killed()) if step.name == "pwrite" else Killed

    world.machine.before_step.append(before)
    schedule.run()
    world.machine.before_step.remove(before)
    return world.wrong or world.settle(SESSION_ROUNDS)


@pytest.mark.slow
def test_members_meet_at_random(seed: int) -> None:
    for number in range(300):
        assert at_random(seed, number) == [], f"run {number}"


# What went wrong once


def test_a_static_member_keeps_its_partitions_when_others_join_while_it_is_away() -> None:
    """A join took every member without a process for gone, the static ones too."""
    world = World()
    a, b = *settled(world, 1, instance_id="one"), *settled(world, 1, instance_id="two")
    assert not world.settle()
    before = {peer.instance_id: peer.positions.keys() for peer in (a, b)}
    for peer in (a, b):  # all are started anew, as with a new version
        peer.process.kill()
    again = [world.peer(instance_id=peer.instance_id) for peer in (a, b)]
    again[0].poll()
    assert again[0].positions.keys() == before["one"]
    again[1].poll()
    assert {peer.instance_id: peer.positions.keys() for peer in again} == before


def test_members_that_were_all_stopped_do_not_expel_each_other() -> None:
    """Who went on first found that no other had polled for so long, and neither had it."""
    world = World()
    a, b = settled(world, 2)
    assert world.settle() == []
    generation = world.published().generation
    world.machine.seconds += 10 * LATE_S  # as with a container that is paused
    for peer in (b, a, b, a):
        peer.poll()
    assert world.published().generation == generation
    assert a.commit()


def test_a_member_may_be_silent_for_its_max_poll_interval_and_no_longer() -> None:
    world = World()
    a, b = settled(world, 2)
    ticks = int(MAX_POLL_INTERVAL_MS / 1000 / (TICK_S + 0.01))
    for _ in range(ticks):
        world.machine.seconds += TICK_S + 0.01
        a.poll()
    assert b.commit()
    b.poll()
    for _ in range(ticks + 3):
        world.machine.seconds += TICK_S + 0.01
        a.poll()
    assert not b.commit()
    assert len(a.positions) == world.topics["t"].partitions
