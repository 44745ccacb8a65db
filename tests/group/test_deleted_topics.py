"""Commits of a topic that is deleted: tombstones take their place, as in Kafka, whoever deletes,
dies or commits meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from traceback import extract_stack
from typing import Any

import pytest

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.consumer.commit_tracker import CommitTracker
from pylog.errors import Closed, CommitFailed, LogLocked, RecordTooLarge, TopicNotFound
from pylog.group import offsets as offsets_module
from pylog.group.admin import GroupAdmin
from pylog.group.lock import GroupLock
from pylog.group.offset_records import Committed, decode_key, encode_key, encode_value
from pylog.group.state_file import StateFile
from pylog.storage import OsFileSystem
from pylog.testing import ManualClock, produce_all
from pylog.testing.machine import Machine, Process, Schedule, Step, Strategy, for_every_kill
from tests.internal_records import append_by_hand
from tests.simulation.actors import World
from tests.simulation.orders import in_all_orders

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        for topic in "tu":
            opened.create_topic(topic)
            produce_all(opened, topic, [b"0", b"1", b"2"])
        yield opened


def commit(log: Log, group: str, *partitions: TopicPartition) -> None:
    with Consumer(log, group_id=group) as consumer:
        consumer.commit(dict.fromkeys(partitions, 2))


def newest(log: Log) -> dict[tuple[str, TopicPartition], int | None]:
    """What Kafka's coordinator would load: the last record of each key; None for a tombstone."""
    found: dict[tuple[str, TopicPartition], int | None] = {}
    if OFFSETS_TOPIC in log.topics():
        for record in log.partition(OFFSETS_TOPIC, 0).scan():
            assert record.key is not None
            name = decode_key(record.key)
            assert name is not None
            found[name] = None if record.value is None else int.from_bytes(record.value[2:10], "big")
    return found


@pytest.mark.parametrize("gone", ["the topic", "the group"])
def test_commits_of_more_partitions_than_one_batch_takes_are_removed(log: Log, gone: str) -> None:
    log.create_topic("wide", partitions=5)
    wide = [TopicPartition("wide", number) for number in range(5)]
    commit(log, "g", *wide, U0)
    log.alter_topic(OFFSETS_TOPIC, max_message_bytes=128)
    if gone == "the topic":
        log.delete_topic("wide")
    else:
        log.delete_group("g")
    removed = {"g": {*wide}} if gone == "the topic" else {"g": {*wide, U0}}
    assert {name for (_, name), offset in newest(log).items() if offset is None} == removed["g"]


def test_a_commit_that_no_batch_takes_stays(log: Log) -> None:
    topic = "t" * 100
    log.create_topic(topic)
    commit(log, "g", TopicPartition(topic, 0), U0)
    log.alter_topic(OFFSETS_TOPIC, max_message_bytes=128)
    with pytest.raises(RecordTooLarge):
        log.delete_group("g")
    log.alter_topic(OFFSETS_TOPIC, max_message_bytes=1024)
    log.delete_group("g")
    assert set(newest(log).values()) == {None}


def reads_another(consumer: Consumer) -> None:
    if consumer.subscription():
        consumer.subscribe("u")
    else:
        consumer.assign([U0])


def unsubscribes(consumer: Consumer) -> None:
    consumer.unsubscribe()


def closes(consumer: Consumer) -> None:
    consumer.close()


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("group", ["g", None])
@pytest.mark.parametrize("does", [reads_another, unsubscribes, closes, Consumer.poll])
def test_no_file_of_a_deleted_topic_stays_open(
    log: Log, group: str | None, by_hand: bool, does: Callable[[Consumer], object]
) -> None:
    """A consumer that read something else before its next poll forgot it, and kept its files."""
    with Consumer(log, group_id=group, auto_offset_reset="earliest") as consumer, Log(log.path) as other:
        if by_hand:
            consumer.assign([T0, U0])
        else:
            consumer.subscribe(["t", "u"])
        assert {record.topic for _ in range(3) for record in consumer.poll(0)} == {"t", "u"}
        other.delete_topic("t")
        with suppress(TopicNotFound):
            does(consumer)
        assert "t" not in {name.topic for name in log.manager._partitions}


def test_each_groups_commits_of_a_deleted_topic_become_tombstones(log: Log) -> None:
    commit(log, "g", T0, U0)
    commit(log, "h", T0)
    commit(log, "only u", U0)
    log.delete_topic("t")
    assert newest(log) == {("g", T0): None, ("h", T0): None, ("g", U0): 2, ("only u", U0): 2}
    assert log.groups() == ["g", "only u"]
    partition = log.partition(OFFSETS_TOPIC, 0)
    assert partition.durable_offset == partition.latest_offset
    log.create_topic("t")
    with Log(log.path) as other:
        assert other.describe_group("g").partitions.keys() == {U0}


def test_without_commits_of_it_nothing_is_appended(log: Log) -> None:
    log.create_topic("v")
    log.delete_topic("v")
    assert OFFSETS_TOPIC not in log.topics()
    commit(log, "g", U0)
    end = log.partition(OFFSETS_TOPIC, 0).latest_offset
    log.delete_topic("t")
    assert log.partition(OFFSETS_TOPIC, 0).latest_offset == end


def test_the_topic_of_commits_is_deleted_itself(log: Log) -> None:
    commit(log, "g", T0)
    log.delete_topic(OFFSETS_TOPIC)
    assert log.topics() == ["t", "u"]


def test_commits_of_names_that_no_group_of_ours_has_go_too(log: Log) -> None:
    commit(log, "g", T0)
    long = "ö" * 200  # a Kafka group may have it
    append_by_hand(log, OFFSETS_TOPIC, ProducerRecord(encode_value(Committed(2, 0, "", 0, "")), encode_key(long, T0)))
    log.delete_topic("t")
    assert newest(log) == {("g", T0): None, (long, T0): None}


def test_a_checkpoint_of_offsets_follows(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 3)
    for _ in range(5):
        commit(log, "g", T0, U0)
    assert (log.path / ".pylog" / "offsets-0.checkpoint").exists()
    log.delete_topic("t")
    with Log(log.path) as other:
        assert other.manager.part(GroupAdmin).offsets.committed("g").keys() == {U0}


def test_a_group_whose_lock_stays_held_leaves_the_rest_to_the_next_opening(log: Log) -> None:
    commit(log, "g", T0)
    held = OsFileSystem().lock(f"{log.path}/.pylog/groups/g/lock")
    assert held.try_acquire()
    try:
        with Log(log.path, clock=ManualClock()) as other, pytest.raises(LogLocked, match="groups/g/lock"):
            other.delete_topic("t")
        assert log.topics() == [OFFSETS_TOPIC, "u"]
        Log(log.path).close()  # waits for nobody
        assert newest(log) == {("g", T0): 2}
    finally:
        held.close()
    Log(log.path).close()
    assert newest(log) == {("g", T0): None}
    assert list((log.path / ".pylog" / "topics").glob("*.gone")) == []


def test_a_damaged_log_of_commits_keeps_no_log_from_opening(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    commit(log, "g", T0)
    path = log.path / f"{OFFSETS_TOPIC}-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:70] + bytes([whole[70] ^ 255]) + whole[71:])
    with Log(log.path) as other, pytest.raises(Exception, match="CRC"):
        other.delete_topic("t")
    Log(log.path).close()
    assert "could not be finished" in caplog.text
    path.write_bytes(whole)
    Log(log.path).close()
    assert newest(log) == {("g", T0): None}


def test_what_is_committed_of_a_topic_that_was_deleted_since_is_not_appended(log: Log) -> None:
    """As the newest record of its key it would be taken for a commit in the topic that has the name
    now."""
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t", "u"])
        assert len(consumer.poll()) == 6
        log.delete_topic("t")
        log.create_topic("t")
        consumer.commit()
        assert newest(log) == {("g", U0): 3}
        assert consumer.committed(T0) is None


# Kills, and orders


def with_a_commit(machine: Machine) -> None:
    process = machine.process()
    with process.open_log("/log") as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"0"), ProducerRecord(b"1")], acks="all")
        commit(log, "g", T0)


def test_a_commit_counts_if_the_topic_of_commits_is_deleted_while_it_waits_for_the_lock(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds its partition under the lock, in the topic that is there then, and syncs that
    one."""
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as one:
        one.subscribe("t")
        assert len(one.poll(0)) == 3
        one.commit({T0: 1})
        ready = GroupLock._work

        def after_a_deletion(lock: GroupLock, work: Callable[[StateFile], object]) -> object:
            monkeypatch.undo()
            with Log(log.path) as other:
                other.delete_topic(OFFSETS_TOPIC)
                other.manager.part(GroupAdmin).offsets.create_topic()
            return ready(lock, work)

        monkeypatch.setattr(GroupLock, "_work", after_a_deletion)
        one.commit({T0: 3})
        assert newest(log) == {("g", T0): 3}
        assert log.partition(OFFSETS_TOPIC, 0).durable_offset == 1


def test_a_topic_deleted_during_a_commit_is_left_out_of_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as one:
        one.subscribe(["t", "u"])
        found = 0
        while found < 6:
            found += len(one.poll(1.0))
        prepare = CommitTracker._prepare

        def after_a_deletion(tracker: CommitTracker, *given: Any) -> Any:
            monkeypatch.undo()
            with Log(log.path) as other:
                other.delete_topic("t")
            return prepare(tracker, *given)

        monkeypatch.setattr(CommitTracker, "_prepare", after_a_deletion)
        one.commit()
    assert newest(log) == {("g", U0): 3}


def test_one_look_finds_the_topics_that_exist(log: Log) -> None:
    topics = log.manager.existing_topics(["u", "t", "no", "in/valid"])
    assert list(topics.values()) == [log.describe_topic("t"), log.describe_topic("u")]
    with Log(log.path) as other:
        other.delete_topic("t")
        new = other.create_topic("t", partitions=2)
    assert log.manager.existing_topics("t") == {"t": new}
    log.close()
    with pytest.raises(Closed):
        log.manager.existing_topics([])


def test_a_deletion_killed_at_any_step_leaves_no_commit_when_it_is_finished() -> None:
    machine = Machine()
    with_a_commit(machine)
    deleter = machine.process()

    def check(killed: Machine) -> None:
        finisher = killed.process()
        with finisher.open_log("/log") as log:
            assert newest(log) == {("g", T0): 2 if "t" in log.topics() else None}

    with deleter.open_log("/log") as log:
        assert for_every_kill(machine, lambda: log.delete_topic("t"), check) > 20


@pytest.mark.slow
def test_tombstones_are_durable_when_the_deletion_returns(seed: int) -> None:
    machine = Machine(seed)
    with_a_commit(machine)
    process = machine.process()
    with process.open_log("/log") as log:
        log.delete_topic("t")
    for image in machine.power_losses():
        later = image.process()
        with later.open_log("/log") as log:
            assert (log.topics(), newest(log)) == ([OFFSETS_TOPIC], {("g", T0): None})


class WhereTopicsAndCommitsAre(Schedule):
    """Lets others go first before steps in the directories of topics, of groups, and of committed
    offsets only."""

    def _before_step(self, process: Process, step: Step) -> None:
        if "/topics" in step.path or "/groups" in step.path or OFFSETS_TOPIC in step.path:
            super()._before_step(process, step)

    def sleep(self, seconds: float) -> None:
        """A deletion that gives the directory of topics another time goes on at once: others go
        first at its steps as it is."""
        names = [frame.name for frame in extract_stack()]
        if "advance_version" in names:
            self._machine.seconds += seconds
        else:
            super().sleep(seconds)


def commit_and_delete(first: bool, by_hand: bool, then: str, strategy: Strategy) -> list[str]:
    """What is wrong after one process commits for the topic that another one deletes."""
    world = World(Machine())
    committing, deleting = world.actor(), world.actor()
    for topic in "tu":
        committing.create(topic)
        committing.log.partition(topic, 0).append([ProducerRecord(b"0")], acks="all")
    if not first:
        commit(committing.log, "g", U0)
    consumer = Consumer(committing.log, group_id="g", auto_offset_reset="earliest")
    if by_hand:
        consumer.assign([T0])
    else:
        consumer.subscribe("t")
    assert len(consumer.poll()) == 1
    assert deleting.log

    def commits() -> None:
        with suppress(TopicNotFound, CommitFailed):
            consumer.commit({T0: 1})

    def deletes() -> None:
        deleting.log.delete_topic("t")
        if then == "create":
            deleting.log.create_topic("t")

    schedule = WhereTopicsAndCommitsAre(world.machine, strategy)
    schedule.add(committing.process, commits)
    schedule.add(deleting.process, deletes)
    schedule.run()
    left = newest(world.actor().log).get(("g", T0))
    return [] if left is None else [f"committed is {left}, of a topic that was deleted"]


@pytest.mark.slow
@pytest.mark.parametrize("then", ["create", ""])
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.one_in(4)
def test_no_commit_comes_after_the_tombstone_in_any_order(by_hand: bool, then: str) -> None:
    assert in_all_orders(partial(commit_and_delete, False, by_hand, then), 1) > 10


@pytest.mark.slow
def test_no_commit_comes_after_the_tombstone_where_it_is_the_first_of_the_log() -> None:
    """So it creates the topic of commits while somebody deletes: neither waits for the other for
    ever."""
    assert in_all_orders(partial(commit_and_delete, True, True, ""), 1) > 100
