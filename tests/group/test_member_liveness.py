"""Members that are expelled, fenced, forked, or come back."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import pytest

from pylog import Consumer, Log, TopicPartition
from pylog.errors import (
    CommitFailed,
    ConfigError,
    InstanceFenced,
    ReadOnlyLog,
    StorageError,
)
from pylog.group import membership
from pylog.group.liveness import TICK_S, Heartbeats
from pylog.testing import ManualClock
from tests.group.consumers import fill, member, place, settle


def test_who_does_not_poll_is_expelled_and_what_it_commits_is_refused(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=2)
    lost: list[list[TopicPartition]] = []
    slow = member(timed_log, max_poll_interval_ms=5_000, on_lost=lost.append)
    one = member(timed_log, max_poll_interval_ms=5_000)
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


def test_who_commits_is_at_work(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=2)
    slow, one = member(timed_log, max_poll_interval_ms=5_000), member(timed_log)
    settle(one, slow)
    for _ in range(80):
        clock.advance(0.25)
        slow.commit({min(slow.assignment()): 1})
        one.poll(0)
    assert [len(some) for some in settle(one, slow)] == [1, 1]
    one.close()
    slow.close()


def test_who_polls_within_the_interval_is_not_expelled(timed_log: Log, clock: ManualClock) -> None:
    """A poll soon after another shows no sign of life of its own, and the time counted from the one
    before."""
    timed_log.create_topic("t", partitions=2)
    slow, one = member(timed_log, max_poll_interval_ms=1_000), member(timed_log, max_poll_interval_ms=1_000)
    settle(one, slow)
    for pause_s in (TICK_S + 0.01, TICK_S - 0.01):
        clock.advance(pause_s)
        slow.poll(0)
        one.poll(0)
    for _ in range(4):
        clock.advance(0.245)
        one.poll(0)
    slow.commit({min(slow.assignment()): 0})
    one.close()
    slow.close()


def test_a_static_member_may_be_away_for_longer_than_the_poll_interval(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=4)
    one, other = (
        member(timed_log, group_instance_id=name, max_poll_interval_ms=5_000, session_timeout_ms=60_000)
        for name in "ab"
    )
    has = settle(one, other)
    other.close()
    for _ in range(59):
        clock.advance(1.0)
        one.poll(0)
    assert settle(one) == has[:1]
    for _ in range(3):
        clock.advance(1.0)
        one.poll(0)
    assert settle(one) == [[place(number) for number in range(4)]]
    one.close()


def test_a_static_member_comes_back_to_its_partitions(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=4)
    one = member(timed_log, group_instance_id="one")
    other = member(timed_log, group_instance_id="other")
    has = settle(one, other)
    other.close()
    for _ in range(20):
        clock.advance(1.0)
        one.poll(0)
    assert settle(one) == has[:1]
    other = member(timed_log, group_instance_id="other")
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


def test_a_join_that_finds_no_room_for_its_signs_of_life_is_none(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was listed already, showed no life, looked after nobody, and its polls did not sleep."""

    def refused(_: object) -> Heartbeats:
        raise StorageError("no descriptor is left")

    one = Consumer(log, group_id="g")
    with monkeypatch.context() as patch:
        patch.setattr(membership, "Heartbeats", refused)
        with pytest.raises(StorageError):
            one.subscribe("t")
    assert log.groups() == []
    one.poll(0)
    assert [len(found.assigned) for found in log.describe_group("g").members] == [4]
    settle(one)
    assert not one._assignment.changed()
    one.close()


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


def test_a_consumer_outlives_its_log_and_leaves_without_a_word(tmpfs_dir: Path) -> None:
    log = Log(tmpfs_dir / "log")
    log.create_topic("t", partitions=2)
    one = member(log, enable_auto_commit=True)
    log.close()
    one.close()
    with Log(tmpfs_dir / "log") as again, member(again) as other:
        assert len(other.assignment()) == 2


def test_who_commits_in_a_group_whose_files_were_removed_is_told_and_joins_again(log: Log) -> None:
    import shutil

    one = member(log)
    shutil.rmtree(log.path / ".pylog" / "groups")
    other = member(log)
    assert len(other.assignment()) == 4
    with pytest.raises(CommitFailed):
        one.commit(dict.fromkeys(one.assignment(), 1))
    while len(one.assignment()) + len(other.assignment()) != 4 or one.assignment() & other.assignment():
        one.poll(TICK_S / 4)
        other.poll(TICK_S / 4)
    assert len(log.describe_group("g").members) == 2
    one.close()
    other.close()


def test_who_closes_once_expelled_is_told_what_it_has_lost(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=2)
    told: list[tuple[str, list[TopicPartition]]] = []
    slow = member(
        timed_log, max_poll_interval_ms=5_000,
        on_lost=lambda lost: told.append(("lost", lost)), on_revoked=lambda gone: told.append(("revoked", gone)),
    )  # fmt: skip
    one = member(timed_log)
    settle(one, slow)
    told.clear()
    theirs = min(slow.assignment())
    for _ in range(40):
        clock.advance(0.25)
        one.poll(0)
    slow.close()
    assert told == [("lost", [theirs])]
    one.close()


def test_who_polls_all_the_time_is_not_expelled_however_short_the_interval(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=4)
    one, other = (member(timed_log, max_poll_interval_ms=1) for _ in range(2))
    settle(one, other)
    generation = timed_log.describe_group("g").generation
    for number in range(100):
        clock.advance(TICK_S / 4)
        for consumer, each in ((one, 4), (other, 3)):
            if number % each == 0:
                consumer.poll()
    assert timed_log.describe_group("g").generation == generation
    for _ in range(5):
        clock.advance(TICK_S)
        one.poll()
    assert len(one.assignment()) == 4
    one.close()
    other.close()


@pytest.mark.parametrize("option", ["max_poll_interval_ms", "session_timeout_ms", "auto_commit_interval_ms"])
@pytest.mark.parametrize("value", [0, 2**31, 2**63, 10**5000], ids=["none", "2**31", "2**63", "endless"])
def test_an_interval_is_of_kafkas_size(log: Log, option: str, value: int) -> None:
    """Others could not read the state that a member with a larger one had published, and took the
    group for empty."""
    with pytest.raises(ConfigError, match=option):
        Consumer(log, group_id="g", **{option: value})


def test_a_forgotten_consumer_leaves_its_group_without_the_collector(tmpfs_dir: Path) -> None:
    """Its files are closed with the last reference to it: nothing it is made of leads back to
    it."""
    gc.disable()
    try:
        with Log(tmpfs_dir / "log") as log:
            log.create_topic("t", partitions=2)
            fill(log, 1)
            consumer = member(log, enable_auto_commit=True)
            settle(consumer)
            assert len(consumer.poll(0)) == 2
            forgotten = weakref.ref(consumer._assignment)
            del consumer
            assert forgotten() is None
    finally:
        gc.enable()
