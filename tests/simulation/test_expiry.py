"""The expiry of a transactional id: killed, or without power, at each step; and against producers
of the id in all orders.

Nothing that was committed is lost or torn, and a producer that was fenced commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog import Log, Producer
from pylog.errors import ProducerFenced
from pylog.testing.machine import (
    Machine,
    Process,
    Schedule,
    Step,
    Strategy,
    for_every_kill,
    for_every_power_loss,
)
from pylog.transaction.expiry import TRANSACTIONAL_ID_EXPIRATION_MS
from tests.partition.logs import values_of_topic
from tests.simulation.orders import in_all_orders

pytestmark = [pytest.mark.slow, pytest.mark.one_in(8)]

ROOT = "/log"
TWO_WEEKS_S = 2 * TRANSACTIONAL_ID_EXPIRATION_MS / 1000


def producer_of(log: Log) -> Producer:
    producer = Producer(log, transactional_id="app", linger_ms=0, transaction_timeout_ms=60_000)
    producer.init_transactions()
    return producer


def commit(producer: Producer, name: bytes) -> None:
    producer.begin_transaction()
    for part in (b"1", b"2"):
        producer.send("data", name + part).result()
    producer.commit_transaction()


def staged(seed: int) -> Machine:
    """The id's owner has died after a commit whose markers are not durable, two weeks ago."""
    machine = Machine(seed, tear_writes=True)
    process = machine.process()
    log = process.open_log(ROOT)
    log.create_topic("data")
    commit(producer_of(log), b"a")
    process.kill()
    machine.process().clock.sleep(TWO_WEEKS_S)
    return machine


def check(machine: Machine) -> None:
    with machine.process().open_log(ROOT, read_only=True) as log:
        assert values_of_topic(log, "data") == [b"a1", b"a2"]
    with machine.process().open_log(ROOT) as log:
        assert log.maintain().problems == []
        assert log.transactions() == []
        assert log.manager.filesystem.names(log.manager.layout.transactions) == []
        with producer_of(log) as producer:
            commit(producer, b"b")
        assert values_of_topic(log, "data") == [b"a1", b"a2", b"b1", b"b2"]
        assert not (found := log.verify().problems), found


def test_a_kill_at_any_step(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    assert for_every_kill(machine, log.maintain, check) > 10


def test_a_loss_of_power_at_any_step(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    assert for_every_power_loss(machine, log.maintain, check, at_most=2) > 10


# Orders


class WhereTheyMeet(Schedule):
    """Lets the other go first only before steps at the files of the id, and of the table."""

    def _before_step(self, process: Process, step: Step) -> None:
        if "/transactions" in step.path or "__transaction_state-0/" in step.path:
            super()._before_step(process, step)


def opened(machine: Machine) -> tuple[Process, Log]:
    process = machine.process()
    log = process.open_log(ROOT)
    log.transactions()  # what the look opens is not part of the race
    return process, log


def comes_back(strategy: Strategy) -> list[str]:
    """A producer takes the id and commits, while it expires."""
    machine = staged(0)
    (first, log), (second, other) = opened(machine), opened(machine)
    schedule = WhereTheyMeet(machine, strategy)

    def work() -> None:
        with producer_of(log) as producer:
            commit(producer, b"b")

    schedule.add(first, work)
    schedule.add(second, other.maintain)
    schedule.run()
    machine.before_step.clear()
    there = values_of_topic(log, "data")
    found = [] if there == [b"a1", b"a2", b"b1", b"b2"] else [f"{there}"]
    return found if log.transactions() == ["app"] else [*found, "the id of the new producer is forgotten"]


def two_expire(strategy: Strategy) -> list[str]:
    machine = staged(0)
    (first, log), (second, other) = opened(machine), opened(machine)
    schedule = WhereTheyMeet(machine, strategy)
    schedule.add(first, log.maintain)
    schedule.add(second, other.maintain)
    schedule.run()
    machine.before_step.clear()
    check(machine)
    return []


def a_zombie_commits(strategy: Strategy) -> list[str]:
    """A producer was stopped in a transaction, and another took over and died. It goes on while the
    id expires."""
    machine = Machine(0)
    (first, log), third = opened(machine), machine.process()
    log.create_topic("data")
    zombie = producer_of(log)
    zombie.begin_transaction()
    zombie.send("data", b"zombie").result()
    commit(producer_of(third.open_log(ROOT)), b"a")
    third.kill()
    second, other = opened(machine)
    second.clock.sleep(TWO_WEEKS_S)
    schedule = WhereTheyMeet(machine, strategy)
    told: list[str] = []

    def work() -> None:
        try:
            zombie.commit_transaction()
        except ProducerFenced:
            told.append("fenced")
        zombie.close()

    schedule.add(first, work)
    schedule.add(second, other.maintain)
    schedule.run()
    machine.before_step.clear()
    found = [] if told == ["fenced"] else ["the zombie has committed"]
    there = values_of_topic(other, "data")
    return found if there == [b"a1", b"a2"] else [*found, f"{there}"]


@pytest.mark.parametrize(("once", "preemptions"), [(comes_back, 1), (two_expire, 1), (a_zombie_commits, 2)])
def test_an_expiry_meets_another_process(once: Callable[[Strategy], list[str]], preemptions: int) -> None:
    assert in_all_orders(once, preemptions) > 50
