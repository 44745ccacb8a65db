"""``retention="consumed"`` against members that join and commit, and retention against a
transaction, in all orders.

A preemption comes before a step in a group's directory, in the offsets topic or in the partition.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog import Producer
from pylog.checks import OFFSETS_TOPIC
from pylog.testing.machine import Machine, Priorities, Process, Schedule, Step, Strategy
from tests.simulation.actors import ROOT, World
from tests.simulation.consumed import STEPS_OF_A_STAY, Member, after, dies_within, maintain, staged
from tests.simulation.orders import in_all_orders


class WhereTheyMeet(Schedule):
    """Lets others go first only before steps at files that retention and groups share."""

    def _before_step(self, process: Process, step: Step) -> None:
        if "/groups" in step.path or OFFSETS_TOPIC in step.path or step.path.endswith(("t-0/.commit", "t-0/.lock")):
            super()._before_step(process, step)


def commits(strategy: Strategy) -> list[str]:
    world, member = staged(1)
    schedule, cleaner = WhereTheyMeet(world.machine, strategy), world.actor()
    assert cleaner.log
    schedule.add(member.actor.process, lambda: [member.poll_and_commit(durable=d) for d in (False, True)] and None)
    schedule.add(cleaner.process, lambda: maintain(cleaner))
    schedule.run()
    return after(world, [member])


def joins(strategy: Strategy) -> list[str]:
    world, member = staged(4)
    schedule, cleaner, other = WhereTheyMeet(world.machine, strategy), world.actor(), Member(world, "b")
    assert cleaner.log
    schedule.add(other.actor.process, other.join)
    schedule.add(cleaner.process, lambda: maintain(cleaner))
    schedule.run()
    return after(world, [member, other])


def joins_and_commits(strategy: Strategy) -> list[str]:
    world, member = staged(2)
    schedule, cleaner, other = WhereTheyMeet(world.machine, strategy), world.actor(), Member(world, "b")
    assert cleaner.log

    def work() -> None:
        other.join()
        other.poll_and_commit(durable=False)

    schedule.add(other.actor.process, work)
    schedule.add(member.actor.process, lambda: member.poll_and_commit(durable=True))
    schedule.add(cleaner.process, lambda: maintain(cleaner))
    schedule.run()
    return after(world, [member, other])


@pytest.mark.slow
@pytest.mark.parametrize(("once", "preemptions"), [(commits, 1), (joins, 1)])
@pytest.mark.one_in(8)
def test_what_a_group_has_not_committed_durably_stays(once: Callable[[Strategy], list[str]], preemptions: int) -> None:
    assert in_all_orders(once, preemptions) > 100


@pytest.mark.slow
def test_a_member_that_joins_and_one_that_commits_in_orders_drawn_at_random(seed: int) -> None:
    for number in range(60):
        assert joins_and_commits(Priorities(seed + number, 3, 400)) == [], number


def dies(strategy: Strategy, step: int, *, has_committed: bool) -> tuple[list[str], bool]:
    """The only member of a group dies before this one of its steps. Returns what is wrong, and
    whether it has died.

    Its group has committed nothing, or not durably. Retention meets it, and comes again after its
    death.
    """
    world, member = staged(1 if has_committed else 4)
    schedule, cleaner = WhereTheyMeet(world.machine, strategy), world.actor()
    assert cleaner.log
    other = member if has_committed else Member(world, "b")
    dies_within(other, step)
    schedule.add(other.actor.process, other.stay if has_committed else other.join_and_stay)
    schedule.add(cleaner.process, lambda: maintain(cleaner))
    schedule.run()
    return after(world, [member, other]), not other.actor.process.is_alive


@pytest.mark.slow
@pytest.mark.parametrize("has_committed", [False, True])
def test_what_a_member_had_not_committed_stays_if_it_dies_at_any_step(has_committed: bool, seed: int) -> None:
    """In an order drawn at random. Each run has a third of the steps."""
    step, has_died = seed % 3 - 2, True
    while has_died:
        step += 3
        problems, has_died = dies(Priorities(seed + step, 2, 300), step, has_committed=has_committed)
        assert problems == [], step
    assert step > 40


@pytest.mark.engine  # a minute
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_member_that_dies_at_any_step_meets_retention_in_every_order_with_one_preemption(seed: int) -> None:
    """Each run has a sixteenth of the steps."""
    for step in range(1 + seed % 16, STEPS_OF_A_STAY, 16):
        runs = in_all_orders(lambda strategy, step=step: dies(strategy, step, has_committed=False)[0], 1)
        assert runs > 1


# A transaction


def transaction(strategy: Strategy) -> list[str]:
    """A transaction whose records fill several segments commits while retention takes all it
    may."""
    world = World(Machine())
    first = world.actor()
    first.create("t", segment_bytes=1024)
    first.append("t", 1, 400)
    first.close()
    schedule, owner, cleaner = WhereTheyMeet(world.machine, strategy), world.actor(), world.actor()
    assert cleaner.log
    producer = Producer(owner.log, transactional_id="x", linger_ms=0)
    producer.init_transactions()
    starts: list[int] = []

    def writes() -> None:
        producer.begin_transaction()
        for _ in range(3):
            producer.send("t", b"x" * 700).result()
        state = owner.log.partition("t", 0).log.current()
        starts.append(state.log_start_offset)
        producer.commit_transaction()

    schedule.add(owner.process, writes)
    schedule.add(cleaner.process, lambda: [cleaner.retain("t", retention_bytes=0) for _ in range(2)] and None)
    schedule.run()
    world.machine.before_step.clear()
    found = [*world.seen, *map(repr, world.errors)]
    if starts[0] > 1:
        found.append(f"an open transaction has lost what is before offset {starts[0]}")
    with world.machine.process().open_log(ROOT) as log:
        partition = log.partition("t", 0)
        seen = [record.offset for record in partition.scan()]
        if seen != [offset for offset in range(4) if offset >= partition.earliest_offset]:
            found.append(f"{seen} is left of a committed transaction from {partition.earliest_offset} on")
        found += [str(problem) for problem in log.verify().problems]
    return found


@pytest.mark.slow
def test_an_open_transaction_loses_nothing() -> None:
    assert in_all_orders(transaction, 1) > 20
