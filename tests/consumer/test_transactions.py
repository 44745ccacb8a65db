"""A consumer at a transaction that is under way: its end changes no file of the partition, so it
looks again."""

from __future__ import annotations

import pytest

from pylog.consumer.fetcher import LOOK_AGAIN_S
from tests.consumer.fakes import START_MS, FakeLog, consumer_of, values


def blocked_log(**topics: int) -> FakeLog:
    log = FakeLog(**topics or {"orders": 1})
    log["orders"].append(b"before")
    log["orders"].append(b"of a transaction")
    log["orders"].blocked_end = 1
    return log


def seconds(log: FakeLog) -> float:
    return (log.clock.now_ms() - START_MS) / 1000


def test_a_wait_looks_again_four_times_a_second_and_sees_a_decision_without_any_append() -> None:
    log = blocked_log()
    orders = log["orders"]
    consumer = consumer_of(log, "orders")
    assert values(consumer.poll(10.0)) == [b"before"]

    def decided() -> None:
        orders.blocked_end = None

    log.on_wait = [bool, bool, decided]
    assert values(consumer.poll(10.0)) == [b"of a transaction"]
    assert seconds(log) == 3 * LOOK_AGAIN_S <= 1.0
    log.waits.clear()
    assert consumer.poll(1.0) == []
    assert log.waits == [1.0]


def test_every_poll_looks_again() -> None:
    log = blocked_log()
    consumer = consumer_of(log, "orders")
    assert values(consumer.poll()) == [b"before"]
    for _ in range(3):
        log["orders"].fetched.clear()
        assert consumer.poll() == []
        assert log["orders"].fetched == [1]
    log["orders"].blocked_end = None
    assert values(consumer.poll()) == [b"of a transaction"]
    log["orders"].fetched.clear()
    assert consumer.poll() == consumer.poll() == []
    assert log["orders"].fetched == []


def test_an_append_ends_the_wait_as_ever() -> None:
    log = blocked_log()
    consumer = consumer_of(log, "orders")
    assert values(consumer.poll()) == [b"before"]

    def marked() -> None:
        log["orders"].blocked_end = None
        log["orders"].append_marker()

    log.on_wait = [marked]
    assert values(consumer.poll(10.0)) == [b"of a transaction"]
    assert seconds(log) == 0


def test_a_deadline_before_the_next_look_is_kept() -> None:
    log = blocked_log()
    consumer = consumer_of(log, "orders")
    consumer.poll()
    assert consumer.poll(0.6) == []
    assert log.waits == pytest.approx([0.25, 0.25, 0.1])


def test_others_records_are_returned_while_one_partition_is_blocked() -> None:
    log = blocked_log(orders=1, others=1)
    consumer = consumer_of(log, "orders", "others")
    assert values(consumer.poll()) == [b"before"]
    for number in range(5):
        log["others"].append(b"%d" % number)
        assert values(consumer.poll()) == [b"%d" % number]


@pytest.mark.parametrize("how", ["paused", "read_uncommitted", "sought back"])
def test_who_does_not_wait_for_a_transaction_does_not_look_again(how: str) -> None:
    log = blocked_log()
    consumer = consumer_of(log, "orders", isolation_level=how if how == "read_uncommitted" else "read_committed")
    assert consumer.poll()
    consumer.poll()
    if how == "paused":
        consumer.pause(*consumer.assignment())
    if how == "sought back":
        log["orders"].blocked_end = None
        consumer.seek_to_beginning()
        assert len(consumer.poll()) == 2
    log.waits.clear()
    assert consumer.poll(1.0) == []
    assert log.waits == [1.0]


def test_an_iteration_looks_again_too() -> None:
    log = blocked_log()
    consumer = consumer_of(log, "orders", consumer_timeout_ms=5_000)

    def decided() -> None:
        log["orders"].blocked_end = None

    log.on_wait = [bool, decided]
    assert [record.value for record in consumer] == [b"before", b"of a transaction"]


def test_missing_markers_are_written_by_who_may_write_but_only_if_their_owner_does_not() -> None:
    log = blocked_log()
    orders = log["orders"]
    orders.blocked_end, orders.is_unmarked, orders.is_read_only = None, True, False
    consumer = consumer_of(log, "orders")
    assert len(consumer.poll()) == 2
    assert consumer.poll() == []
    assert orders.settled == 0
    assert consumer.poll(0.3) == []
    assert orders.settled == 2  # after 0.25 s, and at the deadline
    orders.is_unmarked = False
    assert consumer.poll(0.3) == []
    log.waits.clear()
    assert consumer.poll(1.0) == []
    assert (orders.settled, log.waits) == (2, [1.0])


def test_who_may_not_write_does_not_wait_for_markers() -> None:
    log = blocked_log()
    log["orders"].blocked_end, log["orders"].is_unmarked = None, True
    consumer = consumer_of(log, "orders")
    assert len(consumer.poll()) == 2
    assert consumer.poll(1.0) == []
    assert (log["orders"].settled, log.waits) == (0, [1.0])
