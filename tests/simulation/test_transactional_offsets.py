"""Records in two partitions and a group's offset, in one transaction: both or none after a crash at any operation."""

from __future__ import annotations

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.group.admin import GroupAdmin
from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)
LAST = {1: [1], 2: [1], 3: [1, 3]}
"""What is visible after each transaction: the second one is aborted."""


class Pipeline:
    """Three transactions of a member. Number n writes n to both partitions, and commits the offset n."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ended = 0  # transactions whose end was acknowledged
        with machine.process().open_log("/log") as log:
            log.create_topic("t")
            log.create_topic("out", partitions=2)
            log.partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(5)], acks=1)
            Consumer(log, group_id="g").close()
            log.manager.part(GroupAdmin).offsets.create_topic()

    def run(self) -> None:
        with self.machine.process().open_log("/log") as log:
            consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", max_poll_records=1)
            consumer.subscribe("t")
            producer = Producer(log, transactional_id="p")
            producer.init_transactions()
            for number in LAST:
                assert [record.offset for record in consumer.poll()] == [number - 1]
                producer.begin_transaction()
                for partition in range(2):
                    producer.send("out", b"%d" % number, partition=partition)
                producer.send_offsets_to_transaction({T0: consumer.position(T0)}, consumer.group_metadata())
                if number == 2:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                self.ended = number

    def check(self, machine: Machine) -> None:
        """What the next process finds: all of a transaction or nothing of it, and at least what was acknowledged."""
        with machine.process().open_log("/log") as log:
            found = log.manager.part(GroupAdmin).committed("g")
            committed = found[T0].offset if found else 0
            visible = [numbers(log, partition) for partition in range(2)]
            assert visible == [LAST[committed] if committed else []] * 2, (committed, visible)
            assert committed >= max((n for n in (1, 3) if n <= self.ended), default=0)
            with Consumer(log, group_id="g", auto_offset_reset="earliest") as successor:
                successor.subscribe("t")
                assert successor.position(T0) == committed
            assert [numbers(log, partition) for partition in range(2)] == visible
            assert list(log.verify().problems) == []


def numbers(log: Log, partition: int) -> list[int]:
    found = []
    with Consumer(log, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition("out", partition)])
        while records := consumer.poll():
            found += [int(record.value) for record in records]
    return found


@pytest.mark.parametrize("tear_writes", [False, True])
def test_a_kill_at_any_operation_leaves_both_or_none(seed: int, tear_writes: bool) -> None:
    pipeline = Pipeline(Machine(seed, tear_writes=tear_writes))
    assert for_every_kill(pipeline.machine, pipeline.run, pipeline.check) > 50
    assert pipeline.ended == 3


def test_a_loss_of_power_at_any_operation_leaves_both_or_none(seed: int) -> None:
    pipeline = Pipeline(Machine(seed))
    assert for_every_power_loss(pipeline.machine, pipeline.run, pipeline.check, at_most=6) > 100
    assert pipeline.ended == 3
