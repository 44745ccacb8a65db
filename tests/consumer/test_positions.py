"""Where a consumer starts, how it moves, and what it knows of its place."""

from __future__ import annotations

import logging
import re

import pytest

from pylog.errors import ConfigError, InvalidPartition, NoOffsetForPartition, OffsetOutOfRange, TopicNotFound
from pylog.model import OffsetAndTimestamp, TopicPartition
from tests.consumer.fakes import START_MS, FakeLog, consumer_of, numbered, offsets, values

HOUR_MS = 3_600_000
ORDERS = TopicPartition("orders", 0)
ELSEWHERE = TopicPartition("elsewhere", 0)


def hourly_log(hours: int = 10) -> FakeLog:
    """One record an hour, the last one now."""
    log = FakeLog(orders=1)
    for hour in range(hours):
        log["orders"].append(b"%d" % hour, timestamp_ms=START_MS - (hours - 1 - hour) * HOUR_MS)
    return log


@pytest.mark.parametrize(
    ("policy", "position"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("by_duration:PT0S", 9),
        ("by_duration:PT2H", 7),
        ("by_duration:PT1H30M", 8),
        ("by_duration:P7D", 0),
    ],
)
def test_a_policy_decides_where_a_new_consumer_starts(policy: str, position: int) -> None:
    consumer = consumer_of(hourly_log(), "orders", auto_offset_reset=policy)
    assert consumer.position(ORDERS) == position


@pytest.mark.parametrize(
    ("policy", "position"), [("earliest", 4), ("latest", 10), ("by_duration:PT2H", 7), ("by_duration:P7D", 4)]
)
def test_a_policy_decides_where_to_go_on_when_the_position_is_gone(
    policy: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = hourly_log()
    consumer = consumer_of(log, "orders", auto_offset_reset=policy)
    consumer.seek(ORDERS, 2)
    log["orders"].log_start = 4
    with caplog.at_level(logging.WARNING, "pylog.consumer"):
        records = consumer.poll()
    assert offsets(records) == list(range(position, 10))
    assert f"moves it to {position}" in caplog.text
    assert consumer.metrics()["offset_resets"] == 1


def test_a_position_beyond_the_end_is_out_of_range_too() -> None:
    consumer = consumer_of(hourly_log(), "orders")
    consumer.seek(ORDERS, 99)
    assert offsets(consumer.poll()) == list(range(10))


def test_by_duration_starts_at_the_end_where_nothing_is_as_young() -> None:
    log = hourly_log()
    log.clock.sleep(7_200)
    assert consumer_of(log, "orders", auto_offset_reset="by_duration:PT1H").position(ORDERS) == 10


def test_latest_means_the_end_when_subscribe_returned_and_not_when_poll_was_first_called() -> None:
    log = hourly_log()
    consumer = consumer_of(log, "orders", auto_offset_reset="latest")
    log["orders"].append(b"after")
    assert values(consumer.poll()) == [b"after"]


@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({"isolation_level": "read_uncommitted"}, 10),
        ({}, 6),
        ({"isolation_level": "read_uncommitted", "visibility": "durable"}, 8),
    ],
)
def test_latest_is_the_end_this_consumer_can_see(options: dict[str, str], position: int) -> None:
    log = hourly_log()
    log["orders"].stable_end = 6
    log["orders"].durable_end = 8
    consumer = consumer_of(log, "orders", auto_offset_reset="latest", **options)
    assert consumer.position(ORDERS) == position
    assert consumer.end_offsets([ORDERS]) == {ORDERS: position}


def test_without_a_policy_the_application_has_to_seek() -> None:
    consumer = consumer_of(hourly_log(), "orders", auto_offset_reset="none")
    for attempt in (consumer.poll, lambda: consumer.position(ORDERS), lambda: next(iter(consumer))):
        with pytest.raises(NoOffsetForPartition, match="orders-0 has no position") as caught:
            attempt()
        assert (caught.value.topic, caught.value.partition) == ORDERS
    assert consumer.lag() == {}
    consumer.seek(ORDERS, 8)
    assert offsets(consumer.poll()) == [8, 9]


def test_without_a_policy_a_lost_position_is_an_error_and_stays() -> None:
    log = hourly_log()
    log["orders"].log_start = 4
    consumer = consumer_of(log, "orders", auto_offset_reset="none")
    consumer.seek(ORDERS, 2)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange) as caught:
            consumer.poll()
        assert caught.value.facts == {"topic": "orders", "partition": 0, "offset": 2, "earliest": 4, "latest": 10}
        assert consumer.position(ORDERS) == 2
    consumer.seek_to_beginning()
    assert offsets(consumer.poll()) == list(range(4, 10))


def test_seeking_goes_anywhere_and_forgets_what_was_read_ahead() -> None:
    log = FakeLog(orders=1)
    for start in range(0, 100, 10):
        log["orders"].append(*numbered(start, start + 10))
    consumer = consumer_of(log, "orders", max_poll_records=5)
    for offset in (50, 3, 97, 0, 42, 42):
        consumer.seek(ORDERS, offset)
        assert consumer.position(ORDERS) == offset
        assert offsets(consumer.poll())[0] == offset
    assert consumer.position(ORDERS) == 47


@pytest.mark.parametrize("offset", [-1, 1.0, "1", None, True, 2**63])
def test_seeking_to_what_is_no_offset_is_refused(offset: object) -> None:
    with pytest.raises(ConfigError, match="offset"):
        consumer_of(hourly_log(), "orders").seek(ORDERS, offset)


def test_seeking_to_beginning_end_and_time_works_for_one_partition_and_for_all() -> None:
    log = FakeLog(orders=2)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for number in range(2):
        for hour in range(4):
            log.partition("orders", number).append(b"x", timestamp_ms=START_MS + hour * HOUR_MS)
    consumer = consumer_of(log, "orders")
    consumer.seek_to_end()
    assert (consumer.position(first), consumer.position(second)) == (4, 4)
    consumer.seek_to_beginning(first)
    assert (consumer.position(first), consumer.position(second)) == (0, 4)
    consumer.seek_to_time(START_MS + HOUR_MS + 1, second)
    assert (consumer.position(first), consumer.position(second)) == (0, 2)
    consumer.seek_to_time(START_MS + 99 * HOUR_MS)
    assert (consumer.position(first), consumer.position(second)) == (4, 4)
    consumer.seek_to_beginning()
    assert (consumer.position(first), consumer.position(second)) == (0, 0)


def test_end_means_the_end_at_the_time_of_the_call() -> None:
    log = hourly_log()
    consumer = consumer_of(log, "orders")
    consumer.seek_to_end()
    log["orders"].append(b"after")
    assert values(consumer.poll()) == [b"after"]


def test_a_wrong_partition_among_several_moves_none_of_them() -> None:
    consumer = consumer_of(hourly_log(), "orders")
    with pytest.raises(ConfigError, match="elsewhere-0 is not assigned"):
        consumer.seek_to_end(ORDERS, ELSEWHERE)
    with pytest.raises(ConfigError, match="elsewhere-0 is not assigned"):
        consumer.pause(ORDERS, ELSEWHERE)
    assert consumer.position(ORDERS) == 0
    assert consumer.paused() == set()


@pytest.mark.parametrize("call", ["position", "pause", "resume", "seek_to_end", "seek_to_beginning"])
def test_a_partition_that_is_not_assigned_is_refused(call: str) -> None:
    with pytest.raises(ConfigError, match="elsewhere-0 is not assigned"):
        getattr(consumer_of(hourly_log(), "orders"), call)(ELSEWHERE)


def test_offsets_of_the_log_are_told_for_any_partition() -> None:
    log = hourly_log()
    log.create_topic("elsewhere")
    log["orders"].log_start = 3
    consumer = consumer_of(log)
    assert consumer.beginning_offsets([ORDERS, ELSEWHERE]) == {ORDERS: 3, ELSEWHERE: 0}
    assert consumer.end_offsets([ORDERS, ELSEWHERE]) == {ORDERS: 10, ELSEWHERE: 0}
    times = {ORDERS: START_MS - HOUR_MS - 1, ELSEWHERE: START_MS}
    found = {ORDERS: OffsetAndTimestamp(8, START_MS - HOUR_MS), ELSEWHERE: None}
    assert consumer.offsets_for_times(times) == found
    with pytest.raises(TopicNotFound):
        consumer.end_offsets([TopicPartition("nowhere", 0)])
    with pytest.raises(InvalidPartition):
        consumer.end_offsets([TopicPartition("orders", 7)])


@pytest.mark.parametrize("times", [{ORDERS: -1}, {ORDERS: 1.5}, {"orders": 1}, [ORDERS]])
def test_times_that_are_none_are_refused(times: object) -> None:
    with pytest.raises(ConfigError):
        consumer_of(hourly_log()).offsets_for_times(times)


def test_lag_is_what_is_left_to_read() -> None:
    log = hourly_log()
    consumer = consumer_of(log, "orders", max_poll_records=4)
    assert consumer.lag() == {ORDERS: 10}
    consumer.poll()
    assert consumer.lag() == {ORDERS: 6}
    assert consumer.metrics()["records_lag_max"] == 6
    consumer.seek(ORDERS, 99)
    assert consumer.lag() == {ORDERS: 0}


def test_topics_and_their_partitions_are_told_without_a_subscription() -> None:
    log = FakeLog(orders=3, payments=1)
    consumer = consumer_of(log)
    assert consumer.topics() == {"orders", "payments"}
    assert consumer.partitions_for_topic("orders") == {0, 1, 2}
    with pytest.raises(TopicNotFound):
        consumer.partitions_for_topic("nowhere")


def test_metrics_count_what_was_returned() -> None:
    log = hourly_log()
    consumer = consumer_of(log, "orders", max_poll_records=4)
    consumer.poll()
    for number, _ in enumerate(consumer):
        assert consumer.metrics()["records_consumed"] == 4 + number + 1
        if number == 2:
            break
    metrics = consumer.metrics()
    assert metrics["records_consumed"] == 7
    assert metrics["bytes_fetched"] > 0
    assert metrics["fetches"] == 1
    assert metrics["assigned_partitions"] == 1
    assert metrics["records_lag_max"] == 3
    consumer.poll()
    assert consumer.metrics()["read_ahead_bytes"] == 0


def test_a_consumer_shows_what_it_is() -> None:
    consumer = consumer_of(hourly_log(), "orders")
    assert re.fullmatch("<Consumer of fake: 1 partition>", repr(consumer))
    consumer.close()
    assert "closed" in repr(consumer)
