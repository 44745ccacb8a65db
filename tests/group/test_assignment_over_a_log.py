"""Consumers of a group, over a real log: who reads what, and from where."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer
from pylog.errors import (
    CommitFailed,
)
from pylog.group.liveness import TICK_S
from pylog.testing import ManualClock
from tests.group.consumers import ROUNDS, fill, lock_of, member, offsets_of, place, settle


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


def test_what_a_commit_has_seen_of_the_group_is_still_to_be_followed(tmpfs_dir: Path) -> None:
    """A wait took it for known, as after a commit in a callback, and slept on till the next look
    after the others."""
    with Log(tmpfs_dir / "log", clock=ManualClock()) as log:
        log.create_topic("t", partitions=4)
        one, other = member(log), member(log)
        one.commit()
        settle(one, other)
        assert not one._assignment.changed()
        other.close()
        one.commit({min(one.assignment()): 0})
        assert one._assignment.changed()
        settle(one)
        assert not one._assignment.changed()
        one.close()


def test_a_dead_members_partitions_go_to_the_others(log: Log) -> None:
    one, other = member(log), member(log)
    settle(one, other)
    lock_of(other).abandon()  # as the kernel does it
    while len(one.assignment()) < 4:
        one.poll(TICK_S)
    with pytest.raises(CommitFailed, match=r"not a member of group 'g' any more"):
        other.commit()
    one.close()


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
    one: Consumer = member(log, on_revoked=lambda partitions: one.commit({p: one.position(p) for p in partitions}))
    assert len(one.poll(1.0, max_records=20)) == 20
    position = {p: one.position(p) for p in one.assignment()}
    other = member(log)
    settle(one, other)
    assert {p: other.position(p) for p in other.assignment()} == {p: position[p] for p in other.assignment()}
    one.close()
    other.close()


def test_latest_is_where_the_group_began_and_not_where_a_partition_moved_to(log: Log) -> None:
    """A partition that moved before its first commit was read from its end, and records between
    were never seen."""
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


@pytest.mark.parametrize("way", ["added", "made again"])
def test_partitions_that_a_member_finds_as_it_joins_are_read_from_their_beginning_too(log: Log, way: str) -> None:
    """They were no news any more to the member who was there, and were read from their end."""
    log.create_topic("one")
    one = member(log, topics="one", auto_offset_reset="latest")
    if way == "made again":
        log.delete_topic("one")
        log.create_topic("one")
    else:
        log.add_partitions("one", 2)
    fill(log, 3, "one")
    other = member(log, topics="one", auto_offset_reset="latest")
    got: list[Any] = []
    for _ in range(ROUNDS):
        got += [*one.poll(0), *other.poll(0)]
    assert offsets_of(got) == ({0: [0, 1, 2]} if way == "made again" else {0: [0, 1, 2], 1: [0, 1, 2]})
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
