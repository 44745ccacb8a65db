"""Committed offsets after a loss of power that takes all it may take."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pylog import Consumer, Log, OffsetAndMetadata, Producer, ProducerRecord, TopicPartition
from pylog.group.admin import GroupAdmin
from pylog.testing.machine import Image, Machine
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.actors import World

T0 = TopicPartition("t", 0)


def without_power(machine: Machine) -> Machine:
    """Nothing is left that was not synced."""
    nothing_kept = Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")
    return machine.after_power_loss(nothing_kept)


def test_offsets_that_were_reset_to_the_end_are_not_beyond_it_when_the_power_was_lost() -> None:
    """The commit was durable, and the records before it were not: others that got their offsets
    were passed over."""
    world = World(Machine())
    actor = world.actor()
    actor.create("t")
    actor.append("t", 3)
    actor.reset("g", "t")
    assert world.errors == []
    with without_power(world.machine).process().open_log(world.root) as log:
        assert log.manager.part(GroupAdmin).committed("g")[T0].offset == 3
        assert log.partition("t", 0).latest_offset == 3


def test_a_commit_of_what_was_committed_without_waiting_is_durable() -> None:
    """It was taken for one that is there already, and waited for no disk either."""
    world = World(Machine())
    actor = world.actor()
    actor.create("t")
    actor.append("t", 3)
    consumer = Consumer(actor.log, group_id="g", auto_offset_reset="earliest")
    consumer.subscribe("t")
    assert len(consumer.poll()) == 3
    consumer.commit_async()
    consumer.commit()
    with without_power(world.machine).process().open_log(world.root) as log:
        assert log.manager.part(GroupAdmin).committed("g")[T0].offset == 3
        assert log.partition("t", 0).latest_offset == 3


def reading(log: Log, *, by_hand: bool = False) -> Consumer:
    """A consumer of group ``g`` that has read all."""
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest")
    if by_hand:
        consumer.assign([T0])
    else:
        consumer.subscribe("t")
    assert consumer.poll()
    return consumer


def metadata(_log: Log, consumer: Consumer) -> None:
    consumer.commit({T0: OffsetAndMetadata(5, "first")})
    consumer.commit({T0: OffsetAndMetadata(5, "second")})


def back(log: Log, consumer: Consumer) -> None:
    """To an offset that was durable, after another process has moved the group on."""
    consumer.commit({T0: 5})
    log.reset_offsets("g", "t", to=8)
    consumer.commit({T0: OffsetAndMetadata(5, "second")})


def back_after_a_transaction(log: Log, consumer: Consumer) -> None:
    consumer.commit({T0: 5})
    with Producer(log, transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: 8}, consumer.group_metadata())
        producer.commit_transaction()
    consumer.commit({T0: OffsetAndMetadata(5, "second")})


def back_by_another(log: Log, consumer: Consumer) -> None:
    """To an offset that another consumer has set it back to, without waiting for a disk."""
    consumer.commit({T0: 5})
    other = reading(log, by_hand=True)
    other.commit({T0: 8})
    other.commit_async({T0: OffsetAndMetadata(5, "second")})
    consumer.seek(T0, 5)
    consumer.commit()


@pytest.mark.parametrize(
    ("by_hand", "commits"),
    [(False, metadata), (True, back), (False, back_after_a_transaction), (True, back_by_another)],
)
def test_a_commit_of_an_offset_that_was_durable_once_is_durable(
    by_hand: bool, commits: Callable[[Log, Consumer], object]
) -> None:
    """It was visible, and a power failure took it: the group continued at the commit before."""
    world = World(Machine())
    actor = world.actor()
    actor.create("t")
    actor.append("t", 10, acks="all")
    commits(actor.log, reading(actor.log, by_hand=by_hand))
    with without_power(world.machine).process().open_log(world.root) as log:
        found = log.manager.part(GroupAdmin).committed("g")[T0]
        assert (found.offset, found.metadata) == (5, "second")


@pytest.mark.parametrize("by_hand", [False, True])
def test_offsets_whose_records_were_lost_do_not_pass_over_those_that_get_their_offsets(
    by_hand: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(Machine())
    actor = world.actor()
    actor.create("t")
    actor.append("t", 2, acks="all")
    actor.append("t", 3)
    actor.join("g", "t")
    for _ in range(3):
        actor.poll()
    actor.commit("g", durable=False)
    assert world.errors == []
    commits = actor.log.partition("__consumer_offsets", 0)
    commits.log.sync(commits.latest_offset)  # as the system may at any time
    with without_power(world.machine).process().open_log(world.root) as log:
        with Producer(log, acks=1) as producer:
            for number in range(6):
                producer.send("t", b"later %d" % number)
        assert log.manager.part(GroupAdmin).committed("g")[T0].offset == 5
        assert log.lag("g") == {T0: 6}
        assert log.describe_group("g").partitions[T0].lag == 6
        with caplog.at_level(logging.WARNING), Consumer(log, group_id="g") as consumer:
            consumer.assign([T0]) if by_hand else consumer.subscribe("t")
            assert [record.offset for record in consumer.poll()] == [2, 3, 4, 5, 6, 7]
            consumer.commit()
        assert "from 2 on were lost" in caplog.text
        assert log.lag("g") == {T0: 0}


def test_a_damaged_checkpoint_of_epochs_is_told_and_the_group_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World(Machine())
    actor = world.actor()
    actor.create("t")
    actor.append("t", 2, acks="all")
    actor.join("g", "t")
    actor.poll()
    actor.commit("g")
    machine = without_power(world.machine)
    with machine.process().open_log(world.root) as log:
        log.partition("t", 0).append([ProducerRecord(b"v")], acks=1)
        (path,) = [path for path in machine.disk.contents() if path.endswith("t-0/leader-epoch-checkpoint")]
        file = machine.process().filesystem.open_appendable(path)
        file.pwrite(b"x", 0)
        assert log.lag("g") == {T0: 1}
        assert "can't be told from later ones" in caplog.text


def test_power_that_is_lost_again_does_not_bring_an_epoch_back() -> None:
    """The number of the epoch was durable before anything was written under it: what came after it
    is told apart from it."""
    machine = Machine()
    with machine.process().open_log("/log") as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"first")], acks="all")
    epochs = []
    for number in range(3):
        machine = without_power(machine)
        with machine.process().open_log("/log") as log:
            partition = log.partition("t", 0)
            partition.append([ProducerRecord(b"%d" % number)], acks=1)
            epochs.append(partition.leader_epoch)
            assert partition.latest_offset == 2
            assert [partition.log.end_of_leader_epoch(epoch) for epoch in range(number + 1)] == [1] * (number + 1)
            assert list(log.verify().problems) == []
    assert epochs == [1, 2, 3]


def test_a_committed_transaction_keeps_its_offsets_and_what_they_count(caplog: pytest.LogCaptureFixture) -> None:
    """The markers are lost, and nothing else: the records that were read, those written, and the
    offsets are there."""
    machine = Machine()
    with machine.process().open_log("/log") as log:
        log.create_topic("t")
        log.create_topic("out")
        log.partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(3)], acks=1)
        producer = Producer(log, transactional_id="p")
        producer.init_transactions()
        with producer.transaction():
            producer.send("out", b"sum")
            producer.send_offsets_to_transaction({T0: 3}, "g")
        left = without_power(machine)
    with left.process().open_log("/log") as log:
        assert log.partition("t", 0).latest_offset == 3
        assert log.manager.part(GroupAdmin).committed("g")[T0].offset == 3
        assert log.lag("g") == {T0: 0}
        with Consumer(log, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            consumer.subscribe("out")
            assert [record.value for record in consumer.poll()] == [b"sum"]
