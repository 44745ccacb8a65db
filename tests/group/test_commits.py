"""Commits of consumers, by themselves and by the clock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from pylog import Consumer, Log, OffsetAndMetadata, TopicPartition
from pylog.catalog import Catalog
from pylog.errors import CommitFailed, ConfigError, TopicNotFound
from pylog.group.offsets import OffsetStore
from pylog.testing import ManualClock
from tests.group.consumers import fill, member, place, settle


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
        {("t", 0): "3"},
        {("t", 0): 2**63},
        [("t", 0)],
        {("t", 0): OffsetAndMetadata(2**63)},
        {("t", 0): OffsetAndMetadata(1, "x" * 5000)},
        {("t", 0): OffsetAndMetadata(1, "\ud800")},
        {("t", 0): OffsetAndMetadata(1, None)},
    ],
)
def test_what_can_be_no_commit_is_refused(log: Log, wrong: Any) -> None:
    with member(log) as one, pytest.raises(ConfigError):
        one.commit(wrong)


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


def test_a_commit_looks_at_the_catalog_before_the_lock_and_under_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log)
    with member(log) as one:
        one.poll()
        one.commit({place(0): 1})
        looks: list[int] = []
        version = Catalog.version

        def counted(catalog: Catalog) -> int:
            looks.append(version(catalog))
            return looks[-1]

        monkeypatch.setattr(Catalog, "version", counted)
        one.commit({place(number): 2 for number in range(4)})
        assert len(looks) == 2


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


def reset(log: Log) -> None:
    log.reset_offsets("g", "t", to="earliest")


def delete(log: Log) -> None:
    log.delete_group("g")


def another_commits(log: Log) -> None:
    with Consumer(log, group_id="g") as another:
        another.assign([place(0)])
        another.commit({place(0): 2})


@pytest.mark.parametrize("change", [reset, delete, another_commits])
def test_a_position_is_committed_again_after_others_have_changed_the_group(
    log: Log, change: Callable[[Log], object]
) -> None:
    """It was taken for committed already, by this consumer's own memory."""
    fill(log, 5)
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as alone, Log(log.path) as other:
        alone.assign([place(0)])
        assert len(alone.poll(1.0)) == 5
        alone.commit()
        change(other)
        assert alone.committed(place(0)) != 5
        alone.commit()
        assert alone.committed(place(0)) == 5


@pytest.mark.parametrize("change", [reset, delete, another_commits])
def test_an_automatic_commit_of_an_idle_consumer_takes_nothing_back(
    timed_log: Log, clock: ManualClock, change: Callable[[Log], object]
) -> None:
    """Two idle consumers would set the group from one position to the other, for ever."""
    timed_log.create_topic("t")
    fill(timed_log, 5)
    with Consumer(timed_log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True) as idle:
        idle.assign([place(0)])
        assert len(idle.poll(0)) == 5
        idle.commit()
        change(timed_log)
        changed = idle.committed(place(0))
        assert changed != 5
        for _ in range(3):
            clock.advance(10.0)
            idle.poll(0)
    with Consumer(timed_log, group_id="g") as reader:
        assert reader.committed(place(0)) == changed


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_commit_that_was_interrupted_is_no_memory(log: Log, by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raised after the append; the next commit, back at the offset before it, was
    taken for committed already."""
    append = OffsetStore.append

    def interrupted(*arguments: Any, **named: Any) -> None:
        append(*arguments, **named)
        raise KeyboardInterrupt

    fill(log, 5)
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        if by_hand:
            consumer.assign([place(0)])
        else:
            consumer.subscribe("t")
        consumer.commit({place(0): 2})
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(OffsetStore, "append", interrupted)
            consumer.commit({place(0): 5})
        assert consumer.committed(place(0)) == 5
        consumer.seek(place(0), 2)
        consumer.commit()
        assert consumer.committed(place(0)) == 2


def test_auto_commit_takes_what_the_application_came_back_from(timed_log: Log, clock: ManualClock) -> None:
    timed_log.create_topic("t", partitions=1)
    fill(timed_log, 6)
    one = member(timed_log, enable_auto_commit=True, auto_commit_interval_ms=1000)
    assert len(one.poll(0, max_records=2)) == 2
    clock.advance(2.0)
    assert one.committed(place(0)) is None  # in its hands still
    assert len(one.poll(0, max_records=2)) == 2
    assert one.committed(place(0)) == 2
    assert len(one.poll(0, max_records=1)) == 1
    assert one.committed(place(0)) == 2  # not due
    one.close()
    with member(timed_log) as again:
        assert again.position(place(0)) == 5


def test_auto_commit_is_for_partitions_assigned_by_hand_too(timed_log: Log, clock: ManualClock) -> None:
    """Nothing of them was ever committed."""
    timed_log.create_topic("t", partitions=2)
    fill(timed_log, 6)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": True}
    with Consumer(timed_log, group_id="g", auto_commit_interval_ms=1000, **options) as one:
        one.assign([place(0), place(1)])
        (record, *_) = one.poll(0, max_records=1)
        clock.advance(2.0)
        assert one.committed(place(record.partition)) is None  # in its hands still
        assert one.poll(0, max_records=20) != []
        assert one.committed(place(record.partition)) == 1
        one.assign([place(1)])
        assert one.committed(place(0)) == 6
    assert timed_log.lag("g") == {place(0): 0, place(1): 0}
    fill(timed_log, 1)
    with suppress(ZeroDivisionError), Consumer(timed_log, group_id="g", **options) as one:
        one.assign([place(0)])
        assert len(one.poll(0)) == 1
        raise ZeroDivisionError
    assert timed_log.lag("g") == {place(0): 1, place(1): 1}


def test_what_a_failing_application_had_in_its_hands_is_not_committed(log: Log) -> None:
    log.create_topic("one")
    fill(log, 6, "one")
    with suppress(ZeroDivisionError), member(log, topics="one", enable_auto_commit=True) as one:
        one.poll(0, max_records=2)
        one.poll(0, max_records=3)
        raise ZeroDivisionError
    with member(log, topics="one") as again:
        assert again.position(place(0, "one")) == 2


@pytest.mark.parametrize("auto", [False, True])
def test_a_failing_application_takes_back_nothing_that_it_has_committed(log: Log, auto: bool) -> None:
    """It went on where it had begun, or had polled last: committed by ``on_revoked``, or by the
    clock's commit at the end."""
    log.create_topic("one")
    fill(log, 6, "one")
    with (
        suppress(ZeroDivisionError),
        Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=auto) as one,
    ):
        one.subscribe("one", on_revoked=lambda _: one.commit())
        for record in one:
            if record.offset == 4:
                raise ZeroDivisionError
            one.commit()
    assert log.lag("g") == {place(0, "one"): 2}


def test_what_moves_is_committed_before(log: Log) -> None:
    fill(log, 10)
    one = member(log, enable_auto_commit=True)
    assert len(one.poll(1.0)) == 40
    other = member(log)
    settle(one, other)
    assert {other.position(p) for p in other.assignment()} == {10}
    one.close()
    other.close()


def test_what_was_committed_by_hand_is_not_taken_back_where_the_application_fails(log: Log) -> None:
    log.create_topic("one")
    fill(log, 6, "one")
    with suppress(ZeroDivisionError), member(log, topics="one", enable_auto_commit=True) as one:
        one.poll(0, max_records=5)
        one.commit({place(0, "one"): 3})
        raise ZeroDivisionError
    with member(log, topics="one") as again:
        assert again.position(place(0, "one")) == 3


def test_a_child_that_has_not_polled_is_told_why_it_may_not_commit(log: Log) -> None:
    one = member(log)
    one._assignment._forget_parent()  # type: ignore[attr-defined]  # as in a child
    with pytest.raises(CommitFailed, match="a forked child"):
        one.commit({place(0): 0})
    one.close()
