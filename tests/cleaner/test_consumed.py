"""``retention="consumed"`` and groups that have read, and committed nothing: they hold what follows
their starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.consumer.commit_tracker import CommitTracker
from pylog.consumer.stored_offsets import StoredOffsets
from pylog.errors import GroupNotFound, LogLocked, NoOffsetForPartition
from pylog.group.admin import GroupAdmin
from pylog.group.lock import GroupLock
from pylog.group.offsets import OffsetStore
from pylog.partition import Partition
from pylog.partition.partition_log import PartitionLog
from pylog.segment.naming import LOCK
from pylog.storage import OsFileSystem
from pylog.testing import ManualClock
from pylog.testing.machine import Killed, Machine, Process
from tests.group.consumers import membership_of
from tests.group.test_power_loss import without_power
from tests.partition.logs import topic_of
from tests.simulation.actors import ROOT, kill_at
from tests.simulation.consumed import RECORDS, TP, committed, staged
from tests.simulation.transactions_oracle import kill_all


def begun() -> Machine:
    """Group a has committed all records of t, and its member has left."""
    world, member = staged(4)
    member.leave()
    with world.machine.process().open_log(ROOT) as log:
        log.reset_offsets("a", [TP], to="latest")
    assert world.errors == []
    return world.machine


def member(log: Log, auto_offset_reset: str = "earliest", **callbacks: Callable[..., object]) -> Consumer:
    consumer = Consumer(log, group_id="b", auto_offset_reset=auto_offset_reset, max_poll_records=3)
    consumer.subscribe("t", **callbacks)
    return consumer


def maintained(machine: Machine) -> int:
    """Where the log begins after maintenance."""
    with machine.process().open_log(ROOT) as log:
        assert log.maintain(["t"]).problems == []
        return log.partition(*TP).earliest_offset


def dies(process: Process, _log: Log, _consumer: Consumer) -> None:
    process.kill()


def closes(_process: Process, log: Log, consumer: Consumer) -> None:
    consumer.close()
    log.close()


def fails(_process: Process, log: Log, consumer: Consumer) -> None:
    with pytest.raises(ZeroDivisionError), log, consumer:
        raise ZeroDivisionError


ENDS = pytest.mark.parametrize("ends", [dies, closes, fails])
End = Callable[[Process, Log, Consumer], None]


@ENDS
@pytest.mark.parametrize("lost", [False, True])
def test_what_a_group_has_read_stays_if_its_last_member_ends_before_its_first_commit(ends: End, lost: bool) -> None:
    machine = begun()
    process = machine.process()
    log = process.open_log(ROOT)
    consumer = member(log)
    assert [record.offset for record in consumer.poll()] == [0, 1, 2]
    ends(process, log, consumer)
    machine = without_power(machine) if lost else machine
    assert maintained(machine) == 0
    with machine.process().open_log(ROOT) as log, member(log) as consumer:
        assert [record.offset for record in consumer.poll()] == [0, 1, 2]


@ENDS
def test_a_group_that_begins_at_the_end_holds_what_is_written_afterwards(ends: End) -> None:
    machine = begun()
    process = machine.process()
    log = process.open_log(ROOT)
    consumer = member(log, "latest")
    log.partition(*TP).append([ProducerRecord(b"x" * 400)] * 2)
    log.partition(*TP).log.roll()
    log.reset_offsets("a", [TP], to="latest")
    ends(process, log, consumer)
    assert maintained(machine) == RECORDS  # what is before its start is consumed
    with machine.process().open_log(ROOT) as log, member(log, "latest") as consumer:
        assert [record.offset for record in consumer.poll()] == [RECORDS, RECORDS + 1]


def test_without_a_reset_a_group_begins_where_the_application_seeks() -> None:
    machine = begun()
    process = machine.process()
    log = process.open_log(ROOT)
    consumer = member(log, "none")
    with pytest.raises(NoOffsetForPartition):
        consumer.poll()
    assert committed(log, "b") == 0
    consumer.seek(TP, 4)
    assert [record.offset for record in consumer.poll()] == [4, 5, 6]
    process.kill()
    assert maintained(machine) == 4
    with machine.process().open_log(ROOT) as log, member(log, "none") as consumer:
        assert [record.offset for record in consumer.poll()] == [4, 5, 6]


def test_a_callback_that_seeks_back_decides_where_its_group_begins() -> None:
    machine = begun()
    process = machine.process()
    log = process.open_log(ROOT)
    consumer = Consumer(log, group_id="b", auto_offset_reset="latest")
    consumer.subscribe("t", on_assigned=lambda _: consumer.seek(TP, 2))
    assert consumer.poll()[0].offset == 2
    process.kill()
    assert maintained(machine) == 2


def test_members_that_read_a_topic_when_it_becomes_consumed_hold_it_from_their_starts_on() -> None:
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        log.alter_topic("t", retention=None)
        process = machine.process()
        other = process.open_log(ROOT)
        consumer = member(other)
        assert len(consumer.poll()) == 3
        assert committed(log, "b") == 0
        assert "b" not in log.manager.part(GroupAdmin).offsets.groups()
        log.alter_topic("t", retention="consumed")
    assert len(consumer.poll()) == 3
    process.kill()
    assert maintained(without_power(machine)) == 0


@pytest.mark.slow
def test_a_commit_of_a_member_that_died_before_it_was_durable_is_made_durable_by_the_next_one() -> None:
    """A kill before each step of the first member, and a loss of power after the second one has
    read."""
    begins, step, commits_seen, has_ended = begun(), 0, 0, False
    while not has_ended:
        machine = begins.copy()
        process = machine.process()
        log = process.open_log(ROOT)
        step += 1
        kill_at(process, process.steps + step)
        try:
            member(log)
            has_ended = True
        except Killed:
            with machine.process().open_log(ROOT) as log:
                commits_seen += "b" in log.groups()
                member(log).poll()
            kill_all(machine)
            assert maintained(without_power(machine)) == 0, step
    assert commits_seen > 1


def test_a_member_that_is_expelled_before_it_has_committed_its_start_joins_again() -> None:
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        expelled: list[bool] = []

        def expel(partitions: list[TopicPartition]) -> None:
            if not expelled:
                expelled.append(True)
                membership = membership_of(consumer)
                membership._files.holding(lambda state: membership._publish_without(state, {membership.id}))

        consumer = Consumer(log, group_id="b", auto_offset_reset="earliest", max_poll_records=3)
        consumer.subscribe("t", on_assigned=expel, on_lost=lambda partitions: expelled.append(False))
        assert expelled == [True, False]
        assert [record.offset for record in consumer.poll()] == [0, 1, 2]
        assert log.describe_group("b").partitions[TP].committed is not None


def test_no_record_is_returned_while_its_start_cannot_be_committed() -> None:
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        consumer = member(log, "none")
        consumer.seek(TP, 0)
        holder = GroupLock(log.manager.part(GroupAdmin).directory("b"))

        def poll(_: object) -> None:
            with pytest.raises(LogLocked, match="a process of the group 'b' may be stopped"):
                consumer.poll()

        holder.holding(poll)
        holder.close()
        assert "b" not in log.manager.part(GroupAdmin).offsets.groups()
        assert [record.offset for record in consumer.poll()] == [0, 1, 2]
        assert "b" in log.manager.part(GroupAdmin).offsets.groups()


def test_what_is_processed_stays_so_if_a_topic_becomes_consumed() -> None:
    """It was moved back to the start, which is committed then: the member's failure committed that
    once more."""
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        log.alter_topic("t", retention=None)
        consumer = Consumer(
            log, group_id="b", auto_offset_reset="earliest", max_poll_records=3, enable_auto_commit=True
        )
        consumer.subscribe("t")
        assert len(consumer.poll()) == 3
        log.alter_topic("t", retention="consumed")
        assert len(consumer.poll()) == 3
        with pytest.raises(ZeroDivisionError), consumer:
            raise ZeroDivisionError
        assert committed(log, "b") == 3


def test_a_poll_asks_for_commits_only_until_its_partitions_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[TopicPartition]] = []
    still_there = CommitTracker.still_there

    def spied(tracker: CommitTracker, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        asked.append(set(partitions))
        return still_there(tracker, partitions)

    monkeypatch.setattr(CommitTracker, "still_there", spied)
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        log.create_topic("other")
        log.create_topic("c", retention="consumed")
        consumer = member(log, "none")
        consumer.subscribe(["other", "c"])  # which gives up t
        asked.clear()
        for partition in consumer.assignment():
            consumer.seek(partition, 0)
        for _ in range(3):
            consumer.poll()
    assert asked == [{TopicPartition("c", 0), TopicPartition("other", 0)}]


def test_the_first_offsets_of_a_group_in_an_undecided_transaction_are_not_superseded() -> None:
    """The topic became ``consumed`` after they were appended: a commit of the start would have come
    after them."""
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        log.alter_topic("t", retention=None)
        consumer = member(log)
        producer = Producer(log, transactional_id="x")
        producer.init_transactions()
        producer.begin_transaction()
        assert len(consumer.poll()) == 3
        producer.send_offsets_to_transaction({TP: 3}, consumer.group_metadata())
        other = GroupLock(log.manager.part(GroupAdmin).directory("b"))

        def not_decided(_: object) -> None:
            with pytest.raises(LogLocked):
                producer.commit_transaction()

        other.holding(not_decided)
        other.close()
        log.alter_topic("t", retention="consumed")
        consumer.seek(TP, 0)  # where it began
        assert len(consumer.poll()) == 3
        producer.commit_transaction()
        assert len(consumer.poll()) == 3
        assert committed(log, "b") == 3


def test_commits_of_a_group_that_came_since_the_last_look_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention has made durable what the groups of that look had committed, and waits for no disk
    under a lock."""
    machine = begun()
    delete_before = PartitionLog.delete_before

    def after_another_has_come(partition: PartitionLog, *arguments: Any) -> int:
        monkeypatch.undo()
        process = machine.process()
        consumer = member(process.open_log(ROOT))
        while consumer.poll():
            pass
        consumer.commit_async()
        process.kill()
        assert committed(log, "b") == RECORDS
        return delete_before(partition, *arguments)

    monkeypatch.setattr(PartitionLog, "delete_before", after_another_has_come)
    with machine.process().open_log(ROOT) as log:
        assert log.maintain(["t"]).problems == []
        assert log.partition(*TP).earliest_offset == 0
        assert log.maintain(["t"]).problems == []
        assert log.partition(*TP).earliest_offset == 6


def test_a_member_that_reads_and_leaves_during_the_last_look_of_retention_is_not_overlooked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its group comes between the two looks, and begins within the second one."""
    machine = begun()
    delete_before, settled_in = PartitionLog.delete_before, OffsetStore.settled_in
    process = machine.process()
    other = process.open_log(ROOT)

    def after_another_has_joined(partition: PartitionLog, *arguments: Any) -> int:
        consumer = member(other, "none")

        def reads_and_leaves(offsets: OffsetStore, topic: str) -> object:
            found = settled_in(offsets, topic)
            monkeypatch.undo()
            consumer.seek(TP, 0)
            assert len(consumer.poll()) == 3
            consumer.close()
            return found

        monkeypatch.setattr(OffsetStore, "settled_in", reads_and_leaves)
        return delete_before(partition, *arguments)

    monkeypatch.setattr(PartitionLog, "delete_before", after_another_has_joined)
    assert maintained(machine) == 0
    assert committed(other, "b") == 0
    assert "b" in other.groups()


def test_a_start_does_not_supersede_offsets_that_a_transaction_is_about_to_commit() -> None:
    """It could append them between a look at the group's commits and the commit of the start."""
    machine = begun()
    with machine.process().open_log(ROOT) as log:
        log.alter_topic("t", retention=None)
        consumer = member(log)
        assert len(consumer.poll()) == 3
        consumer.group_metadata()
        log.alter_topic("t", retention="consumed")
        assert len(consumer.poll()) == 3
        assert "b" not in log.manager.part(GroupAdmin).offsets.groups()


def test_a_consumer_whose_positions_are_in_a_database_holds_nothing(tmp_log_dir: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, Log(tmp_log_dir) as log:
        log.create_topic("t", retention="consumed")
        log.partition("t", 0).append([ProducerRecord(b"v")], acks="all")
        StoredOffsets.create_table(connection)
        with Consumer(log, group_id="db", auto_offset_reset="earliest") as consumer:
            offsets = consumer.offsets_in(connection)
            consumer.subscribe("t")
            with offsets.transaction():
                assert len(consumer.poll(1)) == 1
        assert log.groups() == []


def test_a_group_that_has_only_begun_is_listed_and_can_be_deleted() -> None:
    machine = begun()
    process = machine.process()
    member(process.open_log(ROOT)).poll()
    process.kill()
    with machine.process().open_log(ROOT) as log:
        assert log.groups() == ["a", "b"]
        assert log.describe_group("b").partitions[TP].committed is not None
        assert log.maintain(["t"]).partitions[-1].detail == "group 'b' has committed nothing"
        log.delete_group("b")
        with pytest.raises(GroupNotFound):
            log.describe_group("b")
    assert maintained(machine) == 6


def consumed_topic(log: Log) -> Partition:
    """A topic with a closed segment of which nothing must be kept for its age or size."""
    partition = topic_of(log, "t", retention="consumed")
    partition.append([ProducerRecord(b"v")] * 3)
    partition.log.roll()
    return partition


def test_a_topic_that_no_group_reads_keeps_everything(tmpfs_dir: Path) -> None:
    """Its first group may be yet to come."""
    with Log(tmpfs_dir / "log") as log:
        partition = consumed_topic(log)
        (done,) = log.maintain(["t"]).partitions
        assert (done.detail, partition.earliest_offset) == ("a group yet to come has committed nothing", 0)
        log.reset_offsets("g", "t", to="latest")
        log.maintain(["t"])
        assert partition.earliest_offset == 3


def test_a_group_of_another_topic_lets_nothing_go(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        partition = consumed_topic(log)
        topic_of(log, "u").append([ProducerRecord(b"v")])
        log.reset_offsets("g", "u", to="latest")
        (done,) = log.maintain(["t"]).partitions
        assert (done.detail, partition.earliest_offset) == ("a group yet to come has committed nothing", 0)


def test_a_group_whose_files_cannot_be_read_may_read_every_topic(tmpfs_dir: Path) -> None:
    """Whether it has members, and what they read, is not known: so it holds what it has not
    committed."""
    with Log(tmpfs_dir / "log") as log:
        partition = consumed_topic(log)
        log.reset_offsets("g", "t", to="latest")
        with Consumer(log, group_id="other", auto_offset_reset="earliest") as other:
            log.create_topic("u")
            other.subscribe("u")
            state = log.path / ".pylog" / "groups" / "other" / "state"
            kept = state.rename(state.with_name("kept"))
            state.mkdir()
            log.maintain(["t"])
            assert partition.earliest_offset == 0
            state.rmdir()
            kept.rename(state)
            log.maintain(["t"])
            assert partition.earliest_offset == 3


def test_a_group_begins_only_when_who_may_be_deleting_records_has_let_go(tmpfs_dir: Path) -> None:
    """That process may have looked at the groups before this one was there."""
    with Log(tmpfs_dir / "log", clock=ManualClock()) as log:
        consumed_topic(log)
        deleting = OsFileSystem().lock(f"{log.path}/t-0/{LOCK}")
        assert deleting.try_acquire()
        consumer = Consumer(log, group_id="g", auto_offset_reset="earliest")
        with pytest.raises(LogLocked) as caught:
            consumer.subscribe("t")
        assert (caught.value.path, consumer.assignment()) == (f"{log.path}/t-0", set())
        deleting.close()
        assert [record.offset for record in consumer.poll()] == [0, 1, 2]
        consumer.close()
