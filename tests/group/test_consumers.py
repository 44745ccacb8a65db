"""Consumers in groups, over a real log: sharing, handing over, committing, being expelled, leaving."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, OffsetAndMetadata, Producer, TopicPartition
from pylog.errors import (
    CommitFailed,
    ConfigError,
    GroupNotEmpty,
    GroupNotFound,
    InstanceFenced,
    PylogError,
    ReadOnlyLog,
    StorageError,
    TopicNotFound,
    WrongThread,
)
from pylog.group.membership import TICK_S
from pylog.group.state import Group
from pylog.testing import ManualClock
from tests.storage.filesystems import Faulty, io_error, nothing

ROUNDS = 6
GOLDEN = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=4)
        yield opened


def place(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def member(log: Log, group: str = "g", topics: Any = "t", **options: Any) -> Consumer:
    told: dict[str, Any] = {name: options.pop(name) for name in list(options) if name.startswith("on_")}
    consumer = Consumer(log, group_id=group, **{"auto_offset_reset": "earliest", **options})
    consumer.subscribe(topics, **told)
    return consumer


def settle(*consumers: Consumer) -> list[list[TopicPartition]]:
    """Let all of them follow the group in turn, as a poll does before it reads; what each has then."""
    for _ in range(ROUNDS):
        for consumer in consumers:
            consumer._assignment.refresh()
    return [sorted(consumer.assignment()) for consumer in consumers]


def fill(log: Log, count: int = 10, topic: str = "t") -> None:
    with Producer(log, acks=1) as producer:
        for partition in range(log.describe_topic(topic).partitions):
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition)


def offsets_of(records: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.offset)
    return found


# Sharing


def test_a_member_alone_has_everything_when_subscribe_returns(log: Log) -> None:
    with member(log) as one:
        assert one.assignment() == {place(number) for number in range(4)}
        assert one.group_metadata().generation == 1


def test_members_share_and_every_partition_has_one_reader(log: Log) -> None:
    members = [member(log) for _ in range(3)]
    has = settle(*members)
    assert sorted(len(some) for some in has) == [1, 1, 2]
    assert sorted(p for some in has for p in some) == [place(number) for number in range(4)]
    for consumer in members:
        consumer.close()


def test_more_members_than_partitions_leaves_some_without_and_ready(log: Log) -> None:
    log.create_topic("one")
    members = [member(log, topics="one") for _ in range(3)]
    assert sorted(len(some) for some in settle(*members)) == [0, 0, 1]
    has = next(consumer for consumer in members if consumer.assignment())
    members.remove(has)
    has.close()
    assert sorted(len(some) for some in settle(*members)) == [0, 1]
    for consumer in members:
        consumer.close()


def test_two_groups_and_a_consumer_without_one_all_read_everything(log: Log) -> None:
    fill(log, 5)
    with member(log, "g") as one, member(log, "h") as other, Consumer(log, auto_offset_reset="earliest") as alone:
        alone.subscribe("t")
        for consumer in (one, other, alone):
            assert len(consumer.poll(1.0)) == 20


def test_members_may_want_different_topics(log: Log) -> None:
    log.create_topic("u", partitions=2)
    with member(log, topics="t") as one, member(log, topics=["u", "t"]) as other:
        has = settle(one, other)
        assert {p.topic for p in has[0]} == {"t"}
        assert sorted([*has[0], *has[1]]) == [*(place(n) for n in range(4)), place(0, "u"), place(1, "u")]
        assert [len(some) for some in has] == [3, 3]


def test_a_member_that_leaves_hands_over_at_once(log: Log) -> None:
    one, other = member(log), member(log)
    settle(one, other)
    other.close()
    assert settle(one) == [[place(number) for number in range(4)]]
    one.close()
    assert log.describe_topic("t")  # and the log is as it was


def test_a_dead_members_partitions_go_to_the_others(log: Log) -> None:
    one, other = member(log), member(log)
    settle(one, other)
    other._assignment.membership._alive.abandon()  # type: ignore[attr-defined]  # as the kernel does it
    while len(one.assignment()) < 4:
        one.poll(TICK_S)
    with pytest.raises(CommitFailed, match=r"not a member of group 'g' any more"):
        other.commit()
    one.close()


# Going on where the group was


def test_a_group_goes_on_behind_what_it_has_committed(log: Log) -> None:
    fill(log, 10)
    with member(log) as one:
        first = one.poll(1.0, max_records=15)
        one.commit()
        assert log.lag("g") == {p: 10 - one.position(p) for p in one.assignment()}
    with member(log) as again:
        second = again.poll(1.0)
    assert len(first) == 15
    assert len(second) == 25
    assert sorted((r.partition, r.offset) for r in [*first, *second]) == [(p, o) for p in range(4) for o in range(10)]


def test_what_was_not_committed_comes_again(log: Log) -> None:
    fill(log, 10)
    with member(log) as one:
        assert len(one.poll(1.0)) == 40
    with member(log) as again:
        assert len(again.poll(1.0)) == 40


def test_what_moves_is_read_on_from_its_commit(log: Log) -> None:
    fill(log, 10)
    one = member(log, on_revoked=lambda partitions: one.commit({p: one.position(p) for p in partitions}))
    assert len(one.poll(1.0, max_records=20)) == 20
    position = {p: one.position(p) for p in one.assignment()}
    other = member(log)
    settle(one, other)
    assert {p: other.position(p) for p in other.assignment()} == {p: position[p] for p in other.assignment()}
    one.close()
    other.close()


def test_latest_is_where_the_group_began_and_not_where_a_partition_moved_to(log: Log) -> None:
    """A partition that moved before its first commit was read from its end, and records between were never seen."""
    one = member(log, auto_offset_reset="latest")
    fill(log, 10)
    other = member(log, auto_offset_reset="latest")
    settle(one, other)
    assert len(one.poll(1.0)) == len(other.poll(1.0)) == 20
    one.close()
    other.close()


def test_a_topic_that_appears_and_partitions_that_are_added_are_read_from_their_beginning(log: Log) -> None:
    import re

    one = member(log, topics=re.compile("[tu]"), auto_offset_reset="latest")
    other = member(log, topics=re.compile("[tu]"), auto_offset_reset="latest")
    log.create_topic("u", partitions=2)
    log.add_partitions("t", 6)
    fill(log, 3, "u")
    with Producer(log) as producer:
        for _ in range(3):
            producer.send("t", b"new", partition=5)
    got: list[Any] = []
    for _ in range(ROUNDS):
        got += [*one.poll(0), *other.poll(0)]
    assert sorted((r.topic, r.partition, r.offset) for r in got) == [
        *(("t", 5, offset) for offset in range(3)), *(("u", p, offset) for p in range(2) for offset in range(3))
    ]  # fmt: skip
    assert len(one.assignment()) == len(other.assignment()) == 4
    one.close()
    other.close()


def test_a_topic_that_is_deleted_is_given_up_and_one_made_again_is_read_from_its_beginning(log: Log) -> None:
    log.create_topic("u")
    fill(log, 3, "u")
    with member(log, topics=["t", "u"]) as one:
        one.poll(0)
        one.commit()
        log.delete_topic("u")
        settle(one)
        assert {p.topic for p in one.assignment()} == {"t"}
        log.create_topic("u")
        fill(log, 2, "u")
        assert offsets_of([r for r in one.poll(1.0) if r.topic == "u"]) == {0: [0, 1]}
        log.delete_topic("u")
        log.create_topic("u")  # between two polls
        fill(log, 1, "u")
        assert offsets_of([r for r in one.poll(1.0) if r.topic == "u"]) == {0: [0]}
        assert one.committed(place(0, "u")) is None


def test_a_commit_beyond_a_log_that_has_lost_records_is_its_end(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    fill(log, 5)
    with Consumer(log, group_id="g") as one:
        one.assign([place(0)])
        one.commit({place(0): 9})
    with caplog.at_level(logging.WARNING), member(log, auto_offset_reset="none") as one:
        assert one.position(place(0)) == 5
    assert "were lost" in caplog.text


# Committing


def test_commits_carry_metadata_and_are_read_by_everybody(log: Log) -> None:
    fill(log, 5)
    with member(log) as one:
        one.commit({place(1): OffsetAndMetadata(3, "half way"), place(2): 4})
        assert one.committed(place(1)) == 3
        assert one.committed(place(1), metadata=True) == OffsetAndMetadata(3, "half way")
        assert one.committed(place(0)) is None
    with Consumer(log, group_id="g") as reader, Log(log.path, read_only=True) as other:
        assert reader.committed(place(2)) == 4
        assert other.lag("g") == {place(1): 2, place(2): 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {("t", 0): -1},
        {("t", 0): 2**63},
        {("t", 0): "3"},
        [("t", 0)],
        {("t", 0): OffsetAndMetadata(1, "x" * 5000)},
        {("t", 0): OffsetAndMetadata(1, "\ud800")},
        {("t", 0): OffsetAndMetadata(2**63)},
    ],
)
def test_what_can_be_no_commit_is_refused(log: Log, wrong: Any) -> None:
    with member(log) as one, pytest.raises(ConfigError):
        one.commit(wrong)


@pytest.mark.parametrize("option", ["max_poll_interval_ms", "session_timeout_ms", "auto_commit_interval_ms"])
@pytest.mark.parametrize("value", [0, 2**31, 2**63, 10**5000], ids=["none", "2**31", "2**63", "endless"])
def test_an_interval_is_of_kafkas_size(log: Log, option: str, value: int) -> None:
    """Others could not read the state that a member with a larger one had published, and took the group for empty."""
    with pytest.raises(ConfigError, match=option):
        Consumer(log, group_id="g", **{option: value})


def test_a_commit_of_a_topic_that_is_not_there_names_it(log: Log) -> None:
    with Consumer(log, group_id="g") as one, pytest.raises(TopicNotFound, match="'nope'"):
        one.commit({TopicPartition("nope", 0): 1})


def test_a_partition_of_another_member_is_not_committed(log: Log) -> None:
    one, other = member(log), member(log)
    settle(one, other)
    theirs = min(other.assignment())
    with pytest.raises(CommitFailed, match=r"is not assigned to this member of group 'g' \(generation 2\)"):
        one.commit({theirs: 1})
    assert one.committed(theirs) is None
    one.close()
    other.close()


def test_a_commit_in_an_iteration_is_behind_the_record_in_hand(log: Log) -> None:
    log.create_topic("one")
    fill(log, 5, "one")
    with member(log, topics="one") as consumer:
        for record in consumer:
            consumer.commit()
            assert consumer.committed(place(0, "one")) == record.offset + 1
            if record.offset == 4:
                break


def test_commit_async_tells_its_callback(log: Log) -> None:
    told: list[Any] = []
    with member(log) as one:
        one.commit_async({place(0): 2}, lambda *what: told.append(what))
        assert told == [({place(0): OffsetAndMetadata(2)}, None)]
        assert one.committed(place(0)) == 2
    one, other = member(log), member(log)
    settle(one, other)
    one.commit_async({min(other.assignment()): 2}, lambda *what: told.append(what))
    assert isinstance(told[1][1], CommitFailed)
    one.close()
    other.close()


def test_partitions_assigned_by_hand_are_committed_for_a_group_without_members(log: Log) -> None:
    fill(log, 5)
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as alone:
        alone.assign([place(0)])
        assert len(alone.poll(1.0, max_records=3)) == 3
        alone.commit()
        with member(log, topics="t") as one:
            assert one.position(place(0)) == 3
            with pytest.raises(CommitFailed, match=r"has members \(1, among"):
                alone.commit()
    with Consumer(log, group_id="g") as again:
        again.assign([place(0)])
        assert again.position(place(0)) == 3


# Auto-commit


def test_auto_commit_takes_what_the_application_came_back_from(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=1)
        fill(log, 6)
        one = member(log, enable_auto_commit=True, auto_commit_interval_ms=1000)
        assert len(one.poll(0, max_records=2)) == 2
        clock.advance(2.0)
        assert one.committed(place(0)) is None  # in its hands still
        assert len(one.poll(0, max_records=2)) == 2
        assert one.committed(place(0)) == 2
        assert len(one.poll(0, max_records=1)) == 1
        assert one.committed(place(0)) == 2  # not due
        one.close()
        with member(log) as again:
            assert again.position(place(0)) == 5


def test_what_a_failing_application_had_in_its_hands_is_not_committed(log: Log) -> None:
    log.create_topic("one")
    fill(log, 6, "one")
    with suppress(ZeroDivisionError), member(log, topics="one", enable_auto_commit=True) as one:
        one.poll(0, max_records=2)
        one.poll(0, max_records=3)
        raise ZeroDivisionError
    with member(log, topics="one") as again:
        assert again.position(place(0, "one")) == 2


def test_what_was_committed_by_hand_is_not_taken_back_where_the_application_fails(log: Log) -> None:
    log.create_topic("one")
    fill(log, 6, "one")
    with suppress(ZeroDivisionError), member(log, topics="one", enable_auto_commit=True) as one:
        one.poll(0, max_records=5)
        one.commit({place(0, "one"): 3})
        raise ZeroDivisionError
    with member(log, topics="one") as again:
        assert again.position(place(0, "one")) == 3


def test_what_moves_is_committed_before(log: Log) -> None:
    fill(log, 10)
    one = member(log, enable_auto_commit=True)
    assert len(one.poll(1.0)) == 40
    other = member(log)
    settle(one, other)
    assert {other.position(p) for p in other.assignment()} == {10}
    one.close()
    other.close()


# Being told


def test_callbacks_tell_what_comes_and_goes_and_may_use_the_consumer(log: Log) -> None:
    fill(log, 5)
    told: list[tuple[str, list[TopicPartition]]] = []

    def assigned(partitions: list[TopicPartition]) -> None:
        told.append(("assigned", partitions))
        one.seek(partitions[0], 2)

    one = Consumer(log, group_id="g", auto_offset_reset="earliest")
    one.subscribe("t", on_assigned=assigned, on_revoked=lambda ps: told.append(("revoked", ps)))
    assert told == [("assigned", [place(n) for n in range(4)])]
    assert one.position(place(0)) == 2
    other = member(log)
    has = settle(one, other)
    assert told[1:] == [("revoked", has[1])]
    one.close()
    assert told[2:] == [("revoked", has[0])]
    other.close()


@pytest.mark.parametrize("call", ["poll", "close", "unsubscribe"])
def test_a_callback_cannot_poll_or_close(log: Log, call: str) -> None:
    one = Consumer(log, group_id="g")
    with pytest.raises(WrongThread, match="a callback of the group can commit, seek"):
        one.subscribe("t", on_assigned=lambda _: getattr(one, call)())
    one.close()


def test_an_error_of_a_callback_is_the_callers_and_the_member_goes_on(log: Log) -> None:
    fill(log, 5)
    one = Consumer(log, group_id="g", auto_offset_reset="earliest")
    with pytest.raises(ZeroDivisionError):
        one.subscribe("t", on_assigned=lambda _: 1 / 0)
    assert len(one.poll(1.0)) == 20
    one.close()


def test_others_get_what_is_revoked_whatever_the_callback_raises(log: Log) -> None:
    one = Consumer(log, group_id="g", auto_offset_reset="earliest")
    one.subscribe("t", on_revoked=lambda _: 1 / 0)
    other = member(log)
    with pytest.raises(ZeroDivisionError):
        one.poll(0)
    assert [len(some) for some in settle(one, other)] == [2, 2]
    other.close()
    with pytest.raises(ZeroDivisionError):
        one.close()
    with member(log) as again:
        assert len(again.assignment()) == 4


# Expelled, fenced, forked


def test_who_does_not_poll_is_expelled_and_what_it_commits_is_refused(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=2)
        lost: list[list[TopicPartition]] = []
        slow = member(log, max_poll_interval_ms=5_000, on_lost=lost.append)
        one = member(log, max_poll_interval_ms=5_000)
        settle(one, slow)
        theirs = min(slow.assignment())
        for _ in range(40):
            clock.advance(0.25)
            one.poll(0)
        assert len(one.assignment()) == 2
        with pytest.raises(CommitFailed, match=r"did not poll for 5000 ms \(max_poll_interval_ms\)") as caught:
            slow.commit({theirs: 1})
        assert (caught.value.group, caught.value.max_poll_interval_ms) == ("g", 5000)
        assert one.committed(theirs) is None
        slow.poll(0)
        assert lost == [[theirs]]
        assert [len(some) for some in settle(one, slow)] == [1, 1]
        one.close()
        slow.close()


def test_who_closes_once_expelled_is_told_what_it_has_lost(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=2)
        told: list[tuple[str, list[TopicPartition]]] = []
        slow = member(
            log, max_poll_interval_ms=5_000,
            on_lost=lambda lost: told.append(("lost", lost)), on_revoked=lambda gone: told.append(("revoked", gone)),
        )  # fmt: skip
        one = member(log)
        settle(one, slow)
        told.clear()
        theirs = min(slow.assignment())
        for _ in range(40):
            clock.advance(0.25)
            one.poll(0)
        slow.close()
        assert told == [("lost", [theirs])]
        one.close()


def test_who_polls_all_the_time_is_not_expelled_however_short_the_interval(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=4)
        one, other = (member(log, max_poll_interval_ms=1) for _ in range(2))
        settle(one, other)
        generation = log.describe_group("g").generation
        for number in range(100):
            clock.advance(TICK_S / 4)
            for consumer, each in ((one, 4), (other, 3)):
                if number % each == 0:
                    consumer.poll()
        assert log.describe_group("g").generation == generation
        for _ in range(5):
            clock.advance(TICK_S)
            one.poll()
        assert len(one.assignment()) == 4
        one.close()
        other.close()


def test_who_commits_is_at_work(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=2)
        slow, one = member(log, max_poll_interval_ms=5_000), member(log)
        settle(one, slow)
        for _ in range(80):
            clock.advance(0.25)
            slow.commit({min(slow.assignment()): 1})
            one.poll(0)
        assert [len(some) for some in settle(one, slow)] == [1, 1]
        one.close()
        slow.close()


def test_a_static_member_comes_back_to_its_partitions(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=4)
        one = member(log, group_instance_id="one")
        other = member(log, group_instance_id="other")
        has = settle(one, other)
        other.close()
        for _ in range(20):
            clock.advance(1.0)
            one.poll(0)
        assert settle(one) == has[:1]
        other = member(log, group_instance_id="other")
        assert settle(one, other) == has
        other.close()
        for _ in range(50):
            clock.advance(1.0)
            one.poll(0)
        assert settle(one) == [[place(number) for number in range(4)]]  # its session of 45 s is over
        one.close()


def test_another_consumer_of_the_same_instance_takes_its_place(log: Log) -> None:
    lost: list[list[TopicPartition]] = []
    one = member(log, group_instance_id="same", on_lost=lost.append)
    other = member(log, group_instance_id="same")
    assert settle(other) == [[place(number) for number in range(4)]]
    for call in (one.commit, lambda: one.poll(0)):
        with pytest.raises(InstanceFenced, match=r"group_instance_id='same' has taken this one's place"):
            call()
    one.close()
    assert lost == [[place(number) for number in range(4)]]  # once
    assert settle(other) == [[place(number) for number in range(4)]]
    other.close()


def test_members_with_another_assignor_are_refused(log: Log) -> None:
    with (
        member(log, assignor="range"),
        pytest.raises(ConfigError, match="assignor='range', this consumer has 'sticky'"),
    ):
        member(log, assignor="sticky")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_another_member(log: Log) -> None:
    fill(log, 5)
    with member(log) as one:
        id_ = one.group_metadata().member_id
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert one.group_metadata().generation == -1
                one.poll(0)
                assert one.group_metadata().member_id not in ("", id_)
                one.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        settle(one)
        assert one.group_metadata().member_id == id_
        assert len(one.assignment()) == 4
        one.commit()


def test_a_group_needs_a_log_that_can_be_written(log: Log) -> None:
    with Log(log.path, read_only=True) as other, pytest.raises(ReadOnlyLog):
        Consumer(other, group_id="g")


# From outside


def test_a_group_is_described_to_whoever_asks(log: Log) -> None:
    fill(log, 10)
    one = member(log, client_id="worker-1")
    one.poll(0, max_records=4)
    one.commit()
    with Log(log.path, read_only=True) as other:
        found = other.describe_group("g")
        assert (found.state, found.generation, found.assignor) == ("Stable", 1, "cooperative-sticky")
        assert [(m.client_id, m.pid, len(m.assigned)) for m in found.members] == [("worker-1", os.getpid(), 4)]
        assert sum(p.lag for p in found.partitions.values() if p.lag is not None) == 36
        assert {p.member_id for p in found.partitions.values()} == {one.group_metadata().member_id}
        assert other.groups() == ["g"]
    second = member(log)
    assert log.describe_group("g").state == "Reconciling"
    one.close()
    second.close()
    assert log.describe_group("g").state == "Empty"


def test_a_group_that_is_not_there_is_named(log: Log) -> None:
    for ask in (log.describe_group, log.lag, log.delete_group):
        with pytest.raises(GroupNotFound, match=r"no group 'nope' .*groups: none"):
            ask("nope")


FIRST, SECOND = place(0), place(1)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [10, 10]),
        ({"to": 7}, [7, 7]),
        ({"to": 99}, [10, 10]),
        ({"shift_by": -3}, [2, 5]),
        ({"shift_by": 4}, [9, 10]),
        ({"offsets": {SECOND: 1}}, [5, 1]),
        ({"to_time_ms": 1_000_004}, [4, 4]),
        ({"to_time_ms": 2_000_000}, [10, 10]),
        ({"partitions": [SECOND], "to": 1}, [5, 1]),
    ],
)
def test_offsets_are_reset(log: Log, target: dict[str, Any], expected: list[int]) -> None:
    with Producer(log) as producer:
        for number in range(20):
            producer.send("t", b"x", partition=number % 2, timestamp_ms=1_000_000 + number // 2)
    with Consumer(log, group_id="g") as one:
        one.commit({FIRST: 5, SECOND: 8})
    plan = log.reset_offsets("g", **target, dry_run=True)
    assert log.lag("g") == {FIRST: 5, SECOND: 2}
    assert log.reset_offsets("g", **target) == plan
    assert [10 - lag for lag in log.lag("g").values()] == expected


def test_a_reset_may_name_a_topic_that_was_never_committed(log: Log) -> None:
    fill(log, 3)
    log.reset_offsets("g", "t", to="latest")
    assert log.lag("g") == {place(number): 0 for number in range(4)}


def test_a_group_with_members_is_neither_reset_nor_deleted(log: Log) -> None:
    with member(log) as one:
        one.commit()
        for change in (lambda: log.reset_offsets("g", to="earliest"), lambda: log.delete_group("g")):
            with pytest.raises(GroupNotEmpty, match=r"has members \(1, among them process \d+ on"):
                change()
    log.delete_group("g")
    assert log.groups() == []
    assert not (log.path / ".pylog" / "groups" / "g").exists()
    with member(log) as one:  # and it begins anew
        assert one.committed(place(0)) is None


def test_a_group_that_has_committed_only_in_topics_that_are_gone_can_be_looked_at_and_deleted(log: Log) -> None:
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0})
    log.delete_topic("t")
    assert log.groups() == ["g"]
    assert (log.lag("g"), log.describe_group("g").partitions) == ({}, {})
    log.delete_group("g")
    assert log.groups() == []


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"to": "earliest", "shift_by": 1},
        {"to": "begin"},
        {"to": -1},
        {"partitions": ["t"], "offsets": {("t", 0): 1}},
    ],
)
def test_a_reset_that_says_nothing_clear_is_refused(log: Log, target: dict[str, Any]) -> None:
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0})
    with pytest.raises(ConfigError):
        log.reset_offsets("g", **target)


@pytest.mark.parametrize("name", ["a b", "../x", "ü" * 30, ".hidden", "%41", "con", "a/b\0c"])
def test_any_text_may_name_a_group(log: Log, name: str) -> None:
    with member(log, name) as one:
        one.commit()
        assert log.groups() == [name]
        assert log.describe_group(name).group == name
    assert not (log.path / "x").exists()
    log.delete_group(name)
    assert log.groups() == []


def test_a_consumer_outlives_its_log_and_leaves_without_a_word(tmpfs_dir: Path) -> None:
    log = Log(tmpfs_dir / "log")
    log.create_topic("t", partitions=2)
    one = member(log, enable_auto_commit=True)
    log.close()
    one.close()
    with Log(tmpfs_dir / "log") as again, member(again) as other:
        assert len(other.assignment()) == 2


def test_a_group_whose_files_were_removed_is_joined_anew(log: Log) -> None:
    one = member(log)
    shutil.rmtree(log.path / ".pylog" / "groups")
    other = member(log)
    while len(one.assignment()) + len(other.assignment()) != 4 or one.assignment() & other.assignment():
        one.poll(TICK_S / 4)
        other.poll(TICK_S / 4)
    assert len(log.describe_group("g").members) == 2
    one.close()
    other.close()


@pytest.mark.parametrize("call", ["poll", "close"])
def test_a_group_may_be_deleted_before_a_member_finds_out_that_it_was_expelled(tmpfs_dir: Path, call: str) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=4)
        one, other = member(log, max_poll_interval_ms=1_000), member(log)
        for _ in range(20):
            clock.advance(TICK_S)
            other.poll()
        assert len(log.describe_group("g").members) == 1
        other.commit(dict.fromkeys(other.assignment(), 0))
        other.close()
        log.delete_group("g")
        getattr(one, call)()
        assert len(log.groups()) == (call == "poll")
        one.close()


def test_a_group_whose_files_go_while_one_joins_is_told_of_and_joined_later(log: Log) -> None:
    one = Consumer(log, group_id="g")
    sweep = one._assignment.membership._sweep  # type: ignore[attr-defined]

    def removing(group: Group) -> None:
        sweep(group)
        shutil.rmtree(log.path / ".pylog" / "groups" / "g")

    one._assignment.membership._sweep = removing  # type: ignore[attr-defined]
    with pytest.raises(StorageError, match="were removed"):
        one.subscribe("t")
    one._assignment.membership._sweep = sweep  # type: ignore[attr-defined]
    one.poll()
    assert len(one.assignment()) == 4
    one.close()


def exchange(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("change", [Path.unlink, exchange])
@pytest.mark.parametrize("name", ["state", "heartbeats", "lock"])
def test_a_file_of_a_group_that_was_removed_or_replaced_parts_nobody(
    tmpfs_dir: Path, name: str, change: Callable[[Path], None]
) -> None:
    """Who had the old one open was alone with it: both read everything, or each found that the other was silent."""
    clock = ManualClock()
    with Log(tmpfs_dir / "log", clock=clock) as log:
        log.create_topic("t", partitions=4)
        one = member(log)
        change(log.path / ".pylog" / "groups" / "g" / name)
        other = member(log, max_poll_interval_ms=3_000)
        for _ in range(40):
            clock.advance(TICK_S)
            shares = settle(one, other)
        assert [len(share) for share in shares] == [2, 2]
        assert not one.assignment() & other.assignment()
        generation = log.describe_group("g").generation
        for _ in range(40):
            clock.advance(TICK_S)
            settle(one, other)
        assert log.describe_group("g").generation == generation
        one.close()
        other.close()


@pytest.mark.parametrize("name", ["heartbeats", "state", "members"])
def test_who_could_not_join_to_the_end_joins_with_the_next_poll(tmpfs_dir: Path, name: str) -> None:
    """It was a member that showed no life, and never looked after the others."""
    clock, filesystem = ManualClock(), Faulty()

    def refuse(operation: str, path: str) -> None:
        if operation in ("open", "pwrite", "lock") and f"/{name}" in path:
            raise io_error(path)

    with Log(tmpfs_dir / "log", clock=clock, filesystem=filesystem) as log:
        log.create_topic("t", partitions=4)
        one = Consumer(log, group_id="g", auto_offset_reset="earliest")
        filesystem.hook = refuse
        with pytest.raises(StorageError):
            one.subscribe("t")
        filesystem.hook = nothing
        other = member(log)
        assert [len(share) for share in settle(one, other)] == [2, 2]
        other._assignment.membership._alive.abandon()  # type: ignore[attr-defined]
        for _ in range(3):
            clock.advance(TICK_S)
            one.poll()
        assert len(one.assignment()) == 4
        one.close()


def test_a_consumer_whose_log_was_removed_can_be_closed(tmpfs_dir: Path) -> None:
    log = Log(tmpfs_dir / "log")
    log.create_topic("t")
    one = member(log)
    shutil.rmtree(log.path)
    with pytest.raises(PylogError):
        one.poll()
    one.close()
    assert not log.path.exists()
    log.close()


def test_the_groups_of_a_kafka_directory_are_told() -> None:
    with Log(GOLDEN) as log:
        assert log.groups() == ["golden-group", "golden-transactional-group"]
        assert log.lag("golden-group")[place(1, "keyed")] == log.partition("keyed", 1).latest_offset - 12
        found = log.describe_group("golden-group")
        assert (found.state, found.members) == ("Empty", ())
        assert found.partitions[place(0, "keyed")].committed == OffsetAndMetadata(7, "seven")
        with pytest.raises(ReadOnlyLog):
            log.reset_offsets("golden-group", to="earliest")
        with pytest.raises(ReadOnlyLog):
            log.delete_group("golden-group")
