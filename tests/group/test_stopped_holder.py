"""Somebody is stopped with the group's lock in his hands: others read on, and do what is due once
he has let go."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.consumer.commit_tracker import CommitTracker
from pylog.errors import Closed, ConfigError, LogLocked, TransactionAborted
from pylog.group.admin import GroupAdmin
from pylog.group.liveness import TICK_S
from pylog.group.lock import GroupGrant, GroupLock, read_group
from pylog.group.membership import MemberOptions, Membership
from pylog.group.offset_records import partition_of_group
from pylog.group.offsets import OffsetStore
from pylog.group.state import without_members
from pylog.storage import FileLock, OsFileSystem
from pylog.testing import ManualClock, consume_all
from tests.group.consumers import ROUNDS, fill, lock_of, member, membership_of, place, settle
from tests.processes.sharing import forked, result_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmpfs_dir: Path, clock: ManualClock) -> Iterator[Log]:
    with Log(tmpfs_dir / "log", clock=clock) as opened:
        opened.create_topic("t", partitions=4)
        yield opened


def lock_of_group(log: Log) -> FileLock:
    """As another process has it, not held yet."""
    return log.manager.filesystem.lock(log.manager.part(GroupAdmin).directory("g").lock)


def while_held(log: Log, work: Callable[[], object]) -> None:
    """As if another process were stopped in the midst of a change."""
    holder = GroupLock(log.manager.part(GroupAdmin).directory("g"))
    holder.holding(lambda _state: work())
    holder.close()


def test_a_member_counts_as_alive_while_it_waits_to_commit(log: Log) -> None:
    fill(log, 1)
    one = member(log, default_api_timeout_ms=1_000)
    settle(one)
    membership, beats = membership_of(one), []
    heartbeats = membership._heartbeats
    assert heartbeats is not None

    def wait() -> None:
        before = heartbeats.all()[membership._cell]
        with pytest.raises(LogLocked):
            one.commit({place(0): 1})
        beats.append(heartbeats.all()[membership._cell] - before)

    while_held(log, wait)
    assert beats[0] > 100  # once in each pause of 2 ms
    one.close()


def test_a_poll_reads_on_and_hands_over_later(log: Log) -> None:
    fill(log, 3)
    one = member(log)
    other = member(log)

    def poll() -> None:
        assert {record.partition for record in one.poll(0)} == {place.partition for place in one.assignment()}
        assert len(one.assignment()) == 2  # given up already,
        members = read_group(log.manager.part(GroupAdmin).directory("g")).members.values()
        assert sum(len(other.owned) for other in members) == 4  # and not told yet

    while_held(log, poll)
    assert one._assignment.changed()
    assert [len(some) for some in settle(one, other)] == [2, 2]
    one.close()
    other.close()


def test_a_subscription_that_could_not_be_changed_is_the_one_before(log: Log) -> None:
    """It was the new one by name, and the old one's partitions for ever."""
    log.create_topic("u")
    one = member(log, default_api_timeout_ms=100)

    def subscribe() -> None:
        with pytest.raises(LogLocked):
            one.subscribe("u")

    while_held(log, subscribe)
    one.poll(0)
    assert one.subscription() == {found.topic for found in one.assignment()} == {"t"}
    one.subscribe("u")
    assert one.subscription() == {found.topic for found in one.assignment()} == {"u"}
    one.close()


def test_a_dead_member_is_expelled_later(log: Log, clock: ManualClock) -> None:
    one, other = member(log), member(log)
    settle(one, other)
    lock_of(other).abandon()

    def poll() -> None:
        for _ in range(5):
            clock.advance(TICK_S)
            one.poll(0)
        assert len(one.assignment()) == 2

    while_held(log, poll)
    for _ in range(3):
        clock.advance(TICK_S)
        one.poll(0)
    assert len(one.assignment()) == 4
    one.close()


def test_a_topic_that_appears_is_taken_up_later(log: Log) -> None:
    one = member(log, topics=re.compile("[tu]"))
    log.create_topic("u")
    while_held(log, lambda: one.poll(0))
    assert len(one.assignment()) == 4
    one.poll(0)
    assert place(0, "u") in one.assignment()
    one.close()


def test_a_poll_ends_in_time_if_a_topic_is_deleted(log: Log) -> None:
    """It tried to read the topic until the lock was free."""
    fill(log, 1)
    log.create_topic("u")
    fill(log, 1, "u")
    lost: list[TopicPartition] = []
    one = member(log, topics=["t", "u"], on_lost=lost.extend)
    assert len(one.assignment()) == 5

    def delete_and_poll() -> None:
        with Log(log.path) as other:
            other.delete_topic("t")
        assert [record.topic for record in one.poll(1.0)] == ["u"]
        assert one.poll(1.0) == []
        assert sorted(lost) == [place(number) for number in range(4)]

    while_held(log, delete_and_poll)
    assert (one.poll(0), one.assignment()) == ([], {place(0, "u")})
    assert len(lost) == 4
    assert {name.topic for name in log.manager._partitions} == {"u"}, "no file of the deleted topic stays open"
    one.close()


def test_a_group_appears_while_another_process_holds_the_catalog_s_lock(log: Log) -> None:
    """It deletes or renames a topic, and waits for a group's lock, whose holder must not wait for
    it."""
    fill(log, 1)
    with member(log) as one:
        one.poll()
        one.commit()
    with closing(log.manager.filesystem.lock(log.manager.layout.catalog_lock)) as lock:
        assert lock.try_acquire()
        with member(log, "new", default_api_timeout_ms=0) as other:
            assert len(other.poll()) == 4
            other.commit()
    assert sum(log.lag("new").values()) == 0


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_first_commit_of_a_log_does_not_wait_longer_for_the_catalog(
    log: Log, clock: ManualClock, by_hand: bool
) -> None:
    """It creates the topic of commits: a poll, a commit and a close took half a minute each."""
    fill(log, 1)
    one = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True)
    if by_hand:
        one.assign([place(0)])
    else:
        one.subscribe("t")
    assert one.poll()
    with closing(log.manager.filesystem.lock(log.manager.layout.catalog_lock)) as lock:
        assert lock.try_acquire()
        begun_s = clock.monotonic()
        with pytest.raises(LogLocked):
            one.commit(timeout=0.5)
        clock.advance(5.0)
        one.poll(0)
        one.close(0.5)
        assert clock.monotonic() - begun_s < 7


def test_a_poll_waits_for_the_catalog_to_hold_what_it_begins_with(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's first commit creates a topic: a process that was creating another made a poll
    fail."""
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as one:
        one.subscribe("consumed")
        log.create_topic("consumed", retention="consumed")
        fill(log, 1, "consumed")
        holder = log.manager.filesystem.lock(log.manager.layout.catalog_lock)
        assert holder.try_acquire()
        free_s, sleep = clock.monotonic() + 1.0, clock.sleep

        def sleep_until_free(seconds: float) -> None:
            sleep(seconds)
            if clock.monotonic() > free_s:
                holder.release()

        monkeypatch.setattr(clock, "sleep", sleep_until_free)
        assert len(one.poll(0)) == 1
        monkeypatch.undo()
        holder.close()


def test_an_expelled_member_joins_again_later(log: Log, clock: ManualClock) -> None:
    """Its poll waited for ``default_api_timeout_ms``, and raised then."""
    fill(log, 1)
    one = member(log)
    directory = log.manager.part(GroupAdmin).directory("g")

    def expel(grant: GroupGrant) -> None:
        grant.publish(without_members(grant.state.read(), {membership_of(one).id}, {}))
        begun_s = clock.monotonic()
        assert (one.poll(1.0), one.assignment()) == ([], set())
        assert one.poll(1.0) == []
        assert clock.monotonic() - begun_s < 3

    holder = GroupLock(directory)
    holder.holding(expel)
    holder.close()
    assert len(one.poll(0)) == 4
    one.close()


def test_an_expelled_member_that_subscribes_waits_and_then_gives_up(log: Log) -> None:
    one = member(log, default_api_timeout_ms=100)

    def expel(grant: GroupGrant) -> None:
        grant.publish(without_members(grant.state.read(), {membership_of(one).id}, {}))
        with pytest.raises(LogLocked):
            one.subscribe("t")

    holder = GroupLock(log.manager.part(GroupAdmin).directory("g"))
    holder.holding(expel)
    holder.close()
    one.subscribe("t")
    assert len(one.assignment()) == 4
    one.close()


def test_a_commit_waits_and_says_who_may_hold_it_up(log: Log) -> None:
    one = member(log, default_api_timeout_ms=0)

    def commit() -> None:
        with pytest.raises(
            LogLocked, match=r"stayed locked for 0 s: a process of the group 'g' may be stopped"
        ) as caught:
            one.commit({place(0): 1})
        assert (caught.value.group, caught.value.retriable) == ("g", True)
        one.commit_async({place(0): 1})  # is logged

    while_held(log, commit)
    assert one.committed(place(0)) is None
    one.close()


def test_an_auto_commit_in_a_poll_does_not_wait_for_long(log: Log, clock: ManualClock) -> None:
    """It waited half a minute, with everything there was to read."""
    fill(log, 3)
    one = member(log, enable_auto_commit=True, auto_commit_interval_ms=100, max_poll_records=4)
    one.poll(0)

    def poll() -> None:
        clock.advance(0.2)
        before = clock.monotonic()
        assert len(one.poll(0)) == 4
        assert clock.monotonic() - before < 0.5

    while_held(log, poll)
    assert log.lag("g") == {}
    clock.advance(0.2)
    one.poll(0)
    assert sum(log.lag("g").values()) == 4
    one.close()


def test_what_moves_is_read_on_until_it_can_be_committed_and_told(log: Log, clock: ManualClock) -> None:
    fill(log, 3)
    told: list[TopicPartition] = []
    one = member(log, enable_auto_commit=True, max_poll_records=2, on_revoked=told.extend)
    one.poll(0)
    other = member(log)

    def poll() -> None:
        before = clock.monotonic()
        one.poll(0)
        assert clock.monotonic() - before < 0.5
        assert len(one.assignment()) == 4
        assert told == []

    while_held(log, poll)
    assert one._assignment.changed()
    assert [len(some) for some in settle(one, other)] == [2, 2]
    assert len(told) == 2
    one.close()
    other.close()


def test_who_may_not_write_commits_now_does_so_later(log: Log) -> None:
    """A process of any other group may be stopped in the midst of a commit: they are in one log."""
    one = member(log, default_api_timeout_ms=0)
    one.commit({place(0): 1})
    number = partition_of_group("g", log.describe_topic(OFFSETS_TOPIC).partitions)
    lock = log.manager.part(GroupAdmin).directory("g").filesystem.lock(f"{log.path}/{OFFSETS_TOPIC}-{number}/.lock")
    assert lock.try_acquire()
    with pytest.raises(LogLocked, match="another group"):
        one.commit({place(0): 2})
    lock.close()
    one.commit({place(0): 3})
    assert one.committed(place(0)) == 3
    one.close()


@pytest.mark.parametrize(
    ("held", "commit_s", "is_committed"),
    [("offsets", 30, False), ("t-0", 60, True), ("t-1", 30, True)],
    ids=["of the offsets", "of a record", "of what was read"],
)
def test_each_call_of_a_transaction_waits_half_a_minute_for_a_partition(
    log: Log, clock: ManualClock, held: str, commit_s: int, is_committed: bool
) -> None:
    """They waited two minutes, the commit of ``t-0`` for its sync and again for its marker."""
    fill(log, 1)
    with Consumer(log, group_id="g") as one:
        one.commit({place(0): 0})
    number = partition_of_group("g", log.describe_topic(OFFSETS_TOPIC).partitions)
    path = f"{OFFSETS_TOPIC}-{number}" if held == "offsets" else held
    producer = Producer(log, transactional_id="p", transaction_timeout_ms=600_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"a", partition=0).result()
    producer.send_offsets_to_transaction({place(1): 1}, "g")

    def seconds(call: Callable[[], object]) -> float:
        before = clock.monotonic()
        call()
        return clock.monotonic() - before

    def commit() -> None:
        if is_committed:
            producer.commit_transaction()
            return
        with pytest.raises(TransactionAborted, match="stayed locked by another writer for 30000 ms"):
            producer.commit_transaction()

    with closing(log.manager.filesystem.lock(f"{log.path}/{path}/.lock")) as lock:
        assert lock.try_acquire()
        assert seconds(commit) == pytest.approx(commit_s, abs=1)
        if not is_committed:
            assert seconds(producer.abort_transaction) == pytest.approx(30, abs=1)
        assert seconds(producer.close) == pytest.approx(0 if held == "t-1" else 30, abs=1)
    with Log(log.path, clock=clock) as other:
        committed = other.manager.part(GroupAdmin).committed("g")
        assert (place(1) in committed) is is_committed
        values = [record.value for record in consume_all(other, "t", isolation_level="read_committed")]
        assert (b"a" in values) is is_committed


def test_who_can_not_say_that_it_leaves_is_found_gone(log: Log, clock: ManualClock) -> None:
    one, other = member(log), member(log)
    settle(one, other)
    while_held(log, other.close)
    for _ in range(4):
        clock.advance(TICK_S)
        one.poll(0)
    assert len(one.assignment()) == 4
    one.close()


def test_joining_waits_and_then_gives_up(log: Log) -> None:
    def join() -> None:
        with pytest.raises(LogLocked):
            member(log, default_api_timeout_ms=0)

    while_held(log, join)
    with member(log) as one:
        assert len(one.assignment()) == 4


def test_a_member_that_is_gone_from_the_state_changes_nothing_of_it(log: Log) -> None:
    """It was expelled between its last look and what it was about to publish."""
    with Consumer(log, group_id="g") as one:
        one.subscribe("t")
        membership = membership_of(one)
        membership.id = "0" * 32
        before = read_group(log.manager.part(GroupAdmin).directory("g"))
        found = membership.reconcile(frozenset(), 1.0)
        assert found.members.keys() == before.members.keys()
        membership.remember_starts({place(0): 5}, 0.1)
        membership.want(frozenset({"u"}), appeared=True)
        assert read_group(log.manager.part(GroupAdmin).directory("g")) == before


def test_what_is_free_is_had_when_subscribe_returns_and_after_that_nobody_passes_over_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining had the lock, and taking did not get it: the next poll took what was sent in between
    for old."""

    def refused(*_: object) -> None:
        raise LogLocked("another process is stopped")

    reconcile = Membership.reconcile
    monkeypatch.setattr(Membership, "reconcile", refused)
    one = member(log, auto_offset_reset="latest")
    monkeypatch.setattr(Membership, "reconcile", reconcile)
    fill(log, 2)
    assert len(one.poll(0)) == 8
    log.create_topic("u")
    monkeypatch.setattr(Membership, "reconcile", refused)
    one.subscribe(["t", "u"])
    monkeypatch.setattr(Membership, "reconcile", reconcile)
    fill(log, 2, "u")
    assert len(one.poll(0)) == 2
    one.close()


@pytest.mark.parametrize("timeout_ms", [10, 100])
def test_a_subscription_that_cannot_be_followed_is_told(log: Log, clock: ManualClock, timeout_ms: int) -> None:
    """It returned without the free partitions of the new topic: what was sent then was skipped."""
    log.create_topic("u")
    one = member(log, auto_offset_reset="latest", default_api_timeout_ms=timeout_ms)
    holder, held, begun_s = lock_of_group(log), [], clock.monotonic()
    with pytest.raises(LogLocked):
        one.subscribe("u", on_revoked=lambda _: held or held.append(holder.try_acquire()))
    holder.close()
    assert held == [True]
    assert clock.monotonic() - begun_s > timeout_ms / 1000 - 0.01
    one.poll(0)
    assert one.assignment() == {place(0, "u")}
    fill(log, 2, "u")
    assert len(one.poll(0)) == 2
    one.close()


def test_what_could_not_be_given_up_is_told_by_subscribe(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("u")
    fill(log, 1)
    one = member(log, enable_auto_commit=True, default_api_timeout_ms=100)
    assert len(one.poll(0)) == 4
    holder, commit_read, begun_s = lock_of_group(log), CommitTracker.commit_read, clock.monotonic()

    def commit_while_locked(*arguments: object) -> object:
        holder.try_acquire()
        return commit_read(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(CommitTracker, "commit_read", commit_while_locked)
        with pytest.raises(LogLocked):
            one.subscribe("u")
    holder.close()
    assert clock.monotonic() - begun_s > 0.09
    one.poll(0)
    assert one.assignment() == {place(0, "u")}
    assert sum(log.lag("g").values()) == 0
    one.close()


def test_who_begins_with_partitions_reads_the_others_on_meanwhile(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for half a minute to publish where it began."""
    log.create_topic("u")
    fill(log, 3)
    fill(log, 3, "u")
    groups = log.manager.part(GroupAdmin)
    first = Membership(
        groups.directory("g"), MemberOptions("cooperative-sticky", "", "", 9999, 9999), groups.topics_now
    )
    first.join(frozenset("t"), 1.0)  # and ends before it has begun anywhere
    one = member(log, topics=["t", "u"])
    assert one.assignment() == {place(0, "u")}
    first.leave()
    reconcile = Membership.reconcile

    def then_stop(*arguments: object) -> object:
        group = reconcile(*arguments)
        monkeypatch.setattr(GroupLock, "holding", refused)
        return group

    def refused(_files: GroupLock, _work: object, timeout_s: float, *_: object) -> object:
        assert timeout_s < 1
        raise LogLocked("somebody is stopped")

    monkeypatch.setattr(Membership, "reconcile", then_stop)
    assert [record.topic for record in one.poll(0)] == ["u"] * 3
    assert one._assignment.changed()
    monkeypatch.undo()
    assert len(one.poll(0)) == 12
    one.close()


def test_who_waits_for_the_lock_is_not_silent(log: Log, clock: ManualClock) -> None:
    """It was expelled by whoever had the lock first, once it was free."""
    one, other = member(log), member(log, max_poll_interval_ms=5_000)
    settle(one, other)
    (mine, *_) = other.assignment()

    def commit() -> None:
        one.poll(0)
        with pytest.raises(LogLocked):
            other.commit({mine: 0})

    while_held(log, commit)
    for _ in range(2):
        clock.advance(TICK_S)
        one.poll(0)
    other.commit({mine: 0})
    one.close()
    other.close()


# The time that a caller gives


class Holder:
    """A process that is stopped with the lock of a group, or of the partition of its commits, in
    its hands."""

    def __init__(self, log: Log, which: str) -> None:
        groups = log.manager.part(GroupAdmin)
        number = partition_of_group("g", log.describe_topic(OFFSETS_TOPIC).partitions)
        path = {
            "the group's": groups.directory("g").lock,
            "that of its commits": f"{log.path}/{OFFSETS_TOPIC}-{number}/.lock",
            "that of the records": f"{log.path}/t-0/.lock",
        }[which]

        def hold() -> None:
            lock = OsFileSystem().lock(path)
            assert lock.try_acquire()
            os.kill(os.getpid(), signal.SIGSTOP)

        self.child = forked(hold)
        _, status = os.waitpid(self.child[0], os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self) -> None:
        os.kill(self.child[0], signal.SIGCONT)
        result_of(self.child)


every_holder = pytest.mark.parametrize("which", ["the group's", "that of its commits", "that of the records"])


@every_holder
@pytest.mark.parametrize("timeout", [0, 0.5, None])
def test_close_returns_in_the_time_that_its_caller_gives(
    log: Log, clock: ManualClock, which: str, timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It waited for 30 s to commit, and for 30 s more to append that; and for two minutes to tell
    that records are durable."""
    fill(log, 3)
    one = member(log, enable_auto_commit=True, default_api_timeout_ms=2_000)
    assert len(one.poll(0)) == 12
    log.manager.part(GroupAdmin).committed("g")
    one.commit({place(3): 0})
    stopped = Holder(log, which)
    before = clock.monotonic()
    one.close(timeout)
    took = clock.monotonic() - before
    stopped.go_on()
    limit = 2.0 if timeout is None else timeout
    assert took <= limit + 0.05
    with pytest.raises(Closed):
        one.poll(0)
    if which == "that of the records":  # they are durable, which is told later
        assert sum(log.lag("g").values()) == 0
    else:
        assert took >= limit
        assert "group 'g': could not commit t-0 at 3, t-1 at 3, t-2 at 3, t-3 at 3: " in caplog.text
        assert log.manager.part(GroupAdmin).committed("g")[place(3)].offset == 0
    with member(log) as other:
        assert len(other.poll(0)) == (0 if which == "that of the records" else 12)


@every_holder
def test_a_commit_has_a_time_of_its_own(log: Log, clock: ManualClock, which: str) -> None:
    fill(log, 3)
    one = member(log)
    one.poll(0)
    one.commit({place(3): 0})
    stopped = Holder(log, which)
    before = clock.monotonic()
    if which == "that of the records":
        one.commit(timeout=0.25)
    else:
        with pytest.raises(LogLocked):
            one.commit(timeout=0.25)
    assert clock.monotonic() - before <= 0.3
    stopped.go_on()
    one.commit()
    assert sum(log.lag("g").values()) == 0
    one.close()


def test_an_auto_commit_in_a_poll_does_not_wait_for_a_stopped_writer_of_the_records(
    log: Log, clock: ManualClock
) -> None:
    """Two minutes: the records were durable, and it wanted to tell so under the partition's
    lock."""
    one = member(log, enable_auto_commit=True, auto_commit_interval_ms=100)
    one.poll(0)
    one.commit({place(3): 0})
    fill(log, 3)
    assert len(one.poll(0)) == 12
    stopped = Holder(log, "that of the records")
    clock.advance(0.2)
    before = clock.monotonic()
    one.poll(0)
    assert clock.monotonic() - before <= 0.5
    stopped.go_on()
    one.close()
    assert sum(log.lag("g").values()) == 0


def test_a_commit_in_a_callback_of_close_has_what_is_left_of_its_time(log: Log, clock: ManualClock) -> None:
    fill(log, 3)
    failed: list[LogLocked] = []

    def revoked(_partitions: list[TopicPartition]) -> None:
        try:
            one.commit(timeout=60)
        except LogLocked as error:
            failed.append(error)

    one = member(log, on_revoked=revoked)
    one.poll(0)

    def close() -> None:
        before = clock.monotonic()
        one.close(timeout=0.5)
        assert clock.monotonic() - before <= 0.55

    while_held(log, close)
    assert len(failed) == 1


def test_a_commit_in_a_callback_of_a_poll_has_the_time_of_the_consumer(log: Log, clock: ManualClock) -> None:
    """Half a minute, whatever the application could bear."""
    fill(log, 3)
    waited: list[float] = []

    def revoked(_partitions: list[TopicPartition]) -> None:
        before = clock.monotonic()
        held = (
            log.manager.part(GroupAdmin)
            .directory("g")
            .filesystem.lock(log.manager.part(GroupAdmin).directory("g").lock)
        )
        assert held.try_acquire()
        with pytest.raises(LogLocked):
            one.commit()
        held.close()
        waited.append(clock.monotonic() - before)

    one = member(log, on_revoked=revoked, default_api_timeout_ms=300)
    one.poll(0)
    other = member(log)
    one.poll(0)
    assert [0.3 <= seconds <= 0.35 for seconds in waited] == [True]
    one.close()
    other.close()


@pytest.mark.parametrize("timeout", [-1, 0, 1e400])
def test_any_number_of_seconds_is_a_time_to_close_in(log: Log, timeout: float) -> None:
    fill(log, 3)
    one = member(log, enable_auto_commit=True)
    one.poll(0)
    one.close(timeout)
    assert sum(log.lag("g").values()) == 0


def test_what_is_no_time_is_refused(log: Log) -> None:
    with member(log) as one:
        for call in (lambda: one.close("1"), lambda: one.commit(timeout="1")):
            with pytest.raises(ConfigError, match="timeout must be a number of seconds, or None, not '1'"):
                call()
        one.poll(0)
    with pytest.raises(ConfigError, match="default_api_timeout_ms"):
        Consumer(log, group_id="g", default_api_timeout_ms=-1)


def test_a_member_that_was_assigned_partitions_by_hand_follows_the_catalog(log: Log) -> None:
    with Consumer(log, group_id="g") as one:
        one.assign([place(0)])
        assert not one._assignment.changed()
        log.create_topic("another")
        assert one._assignment.changed()
        one.poll(0)
        assert not one._assignment.changed()


def test_what_a_member_could_not_begin_to_read_is_its_own_since_it_took_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not since a later generation in which it begins: it would count as lost, and taken again."""

    def is_locked(*_: object) -> None:
        raise LogLocked("somebody is stopped")

    lost: list[TopicPartition] = []
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as late:
        monkeypatch.setattr(OffsetStore, "recover_last_commit", is_locked)
        with pytest.raises(LogLocked):
            late.subscribe("t", on_lost=lost.extend)
        monkeypatch.undo()
        with member(log, topics="t"):
            for _ in range(ROUNDS):
                late.poll()
            assert late.assignment()
            assert lost == []
