"""Consumers that are told what comes and goes."""

from __future__ import annotations

import pytest

from pylog import Consumer, Log, TopicPartition
from pylog.errors import (
    WrongThread,
)
from tests.group.consumers import fill, member, place, settle


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
    with pytest.raises(WrongThread, match="a group's callback may commit, seek"):
        one.subscribe("t", on_assigned=lambda _: getattr(one, call)())
    one.close()


def test_an_error_of_a_callback_is_the_callers_and_the_member_goes_on(log: Log) -> None:
    fill(log, 5)
    one = Consumer(log, group_id="g", auto_offset_reset="earliest")
    with pytest.raises(ZeroDivisionError):
        one.subscribe("t", on_assigned=lambda _: 1 / 0)
    assert len(one.poll(1.0)) == 20
    one.close()


def test_a_callback_that_raises_stop_iteration_does_not_end_an_iteration_in_silence(log: Log) -> None:
    fill(log, 5)

    def stop(_: list[TopicPartition]) -> None:
        raise StopIteration

    one = Consumer(log, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=0)
    one.subscribe("t", on_revoked=stop)
    other = member(log)
    with pytest.raises(RuntimeError, match="a callback, or a signal handler, raised StopIteration"):
        list(one)
    other.close()
    with pytest.raises(StopIteration):
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


def test_a_callback_commits_though_a_topic_was_deleted(log: Log) -> None:
    """Its TopicNotFound came out of the poll, and of the other topics nothing was committed."""
    log.create_topic("u")
    fill(log, 3)
    one = Consumer(log, group_id="g", auto_offset_reset="earliest")
    one.subscribe(["t", "u"], on_revoked=lambda _: one.commit())
    assert len(one.poll(1.0)) == 12
    log.delete_topic("u")
    assert one.poll(0) == []
    assert set(log.lag("g").values()) == {0}
    one.close()


def test_a_topic_that_is_deleted_before_it_is_taken_is_not_read(log: Log) -> None:
    log.create_topic("u")
    one = Consumer(log, group_id="g", auto_offset_reset="earliest")
    one.subscribe("t", on_revoked=lambda _: log.delete_topic("u"))
    one.subscribe("u", on_revoked=lambda _: log.delete_topic("u"))
    assert (one.poll(0), one.assignment()) == ([], set())
    one.close()
