"""A member commits records and offsets in a transaction while another one expels it and continues:
in every order."""

from __future__ import annotations

from random import Random

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, Record, TopicPartition
from pylog.errors import CommitFailed
from pylog.group.admin import GroupAdmin
from pylog.testing.machine import Machine, Process, RandomWalk, Schedule, Step, Strategy, all_schedules
from tests.group.consumers import membership_of

pytestmark = [pytest.mark.slow, pytest.mark.one_in(8)]

T0 = TopicPartition("t", 0)
RECORDS = 4
PLACES = ("/groups", "/transactions", "__consumer_offsets", "__transaction_state")


class InCommits(Schedule):
    """Lets others go first before steps in groups, in transactions, and in their topics only."""

    def _before_step(self, process: Process, step: Step) -> None:
        if any(place in step.path for place in PLACES):
            super()._before_step(process, step)


def member(log: Log) -> Consumer:
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", isolation_level="read_committed")
    consumer.subscribe("t")
    return consumer


def pass_on(records: list[Record], consumer: Consumer, producer: Producer) -> None:
    """Send these records to ``out``, with their offsets."""
    if not records:
        return
    producer.begin_transaction()
    for record in records:
        producer.send("out", record.value)
    producer.send_offsets_to_transaction({T0: records[-1].offset + 1}, consumer.group_metadata())
    try:
        producer.commit_transaction()
    except CommitFailed:
        producer.abort_transaction()


def run(strategy: Strategy) -> str:
    """Who has passed on which records, in one order of the two."""
    machine = Machine()
    processes = machine.process(), machine.process()
    logs = [process.open_log("/log") for process in processes]
    logs[0].create_topic("t")
    logs[0].create_topic("out")
    logs[0].manager.part(GroupAdmin).offsets.create_topic()  # later, it would wait for the clock
    logs[0].partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(RECORDS)])
    first = member(logs[0])
    assert first.assignment() == {T0}
    second = member(logs[1])
    producers = [Producer(log, transactional_id=f"p{number}") for number, log in enumerate(logs)]
    for producer in producers:
        producer.init_transactions()
    records = first.poll(max_records=2)
    victim = first.group_metadata().member_id
    starts: list[int] = []

    def expels() -> None:
        membership = membership_of(second)
        membership._files.holding(lambda state: membership._publish_without(state, {victim}))
        while T0 not in second.assignment():
            second._assignment.refresh()
        starts.append(second.position(T0))
        pass_on(second.poll(), second, producers[1])

    schedule = InCommits(machine, strategy)
    schedule.add(processes[0], lambda: pass_on(records, first, producers[0]))
    schedule.add(processes[1], expels)
    schedule.run()
    with machine.process().open_log("/log") as log:
        with Consumer(log, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("out", 0)])
            found = [int(record.value) for record in consumer.poll()]
        assert sorted(found) == list(range(RECORDS)), (found, starts)
        assert log.lag("g") == {T0: 0}
    return f"the second began at {starts[0]}"


def test_each_record_is_passed_on_once_with_any_preemption() -> None:
    found: set[str] = set()
    runs = sum(1 for _ in all_schedules(lambda strategy: found.add(run(strategy)), preemptions=1))
    assert runs > 50
    assert found == {"the second began at 0", "the second began at 2"}  # both orders were there


def test_each_record_is_passed_on_once_in_orders_at_random(seed: int) -> None:
    chance = Random(seed)
    for _ in range(100):
        walk = chance.randrange(1 << 30)
        try:
            run(RandomWalk(walk, chance.choice([0.02, 0.1, 0.5])))
        except AssertionError as error:
            raise AssertionError(f"walk {walk}: {error}") from error
