"""poll: what it returns, in which order, and when it waits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pylog.errors import ConfigError
from pylog.model import Record, TopicPartition
from tests.consumer.fakes import START_MS, FakeLog, consumer_of, numbered, offsets, values


def test_a_record_comes_with_everything_it_was_sent_with() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"400", key=b"costco", timestamp_ms=7)
    assert consumer_of(log, "orders").poll() == [Record("orders", 0, 0, 7, b"costco", b"400", ())]


def test_records_come_in_the_order_stored_across_batches_and_polls() -> None:
    log = FakeLog(orders=1)
    for start in range(0, 100, 10):
        log["orders"].append(*numbered(start, start + 10))
    consumer = consumer_of(log, "orders", max_poll_records=7)
    read: list[Record] = []
    while records := consumer.poll():
        assert len(records) <= 7
        read += records
    assert values(read) == numbered(0, 100)
    assert offsets(read) == list(range(100))


def test_max_records_bounds_one_poll() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 1_000))
    consumer = consumer_of(log, "orders")
    assert [len(consumer.poll(max_records=count)) for count in (1, 3, 990)] == [1, 3, 990]
    assert values(consumer.poll()) == numbered(994, 1_000)
    assert len(consumer_of(log, "orders").poll()) == 500


def test_one_poll_gathers_small_partitions_together() -> None:
    log = FakeLog(orders=5)
    for number in range(5):
        log.partition("orders", number).append(b"%d" % number)
    assert sorted(values(consumer_of(log, "orders").poll())) == numbered(0, 5)


def test_partitions_take_turns_so_that_none_starves() -> None:
    log = FakeLog(orders=4)
    for number in range(4):
        log.partition("orders", number).append(*[b"x"] * 10_000)
    consumer = consumer_of(log, "orders", max_poll_records=100)
    for _ in range(10):
        served = [consumer.poll()[0].partition for _ in range(4)]
        assert sorted(served) == [0, 1, 2, 3]


def test_quiet_partitions_are_asked_again_soon_though_another_is_busy() -> None:
    log = FakeLog(orders=4)
    log.partition("orders", 0).append(*[b"busy"] * 50_000)
    consumer = consumer_of(log, "orders", max_poll_records=10)
    for _ in range(4):
        assert values(consumer.poll()) == [b"busy"] * 10  # the others have been asked now, and have nothing
    for number in (1, 2, 3):
        log.partition("orders", number).append(b"quiet")
    log.clock.advance(0.0015)  # half a millisecond for each
    found = [value for _ in range(4) for value in values(consumer.poll())]
    assert found.count(b"quiet") == 3


def test_polling_at_the_end_returns_nothing_and_reads_nothing_again() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"a")
    consumer = consumer_of(log, "orders")
    consumer.poll()
    fetches = len(log["orders"].fetched)
    assert [consumer.poll() for _ in range(5)] == [[]] * 5
    assert len(log["orders"].fetched) == fetches, "a partition that published nothing is not read"
    log["orders"].append(b"b")
    assert values(consumer.poll()) == [b"b"]


def test_poll_waits_until_a_record_appears() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.on_wait = [lambda: log["orders"].append(b"late")]
    assert values(consumer.poll(5.0)) == [b"late"]
    assert log.waits == [5.0]


def test_poll_returns_nothing_when_its_time_is_up() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    assert consumer.poll(2.5) == []
    assert log.clock.monotonic() == 2.5


def test_a_wait_that_ends_for_nothing_goes_on_for_the_time_left() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.on_wait = [lambda: (log.clock.sleep(1.0), log["orders"].publish()), lambda: log["orders"].append(b"late")]
    assert values(consumer.poll(5.0)) == [b"late"]
    assert log.waits == [5.0, 4.0]


def test_poll_does_not_wait_at_all_by_default() -> None:
    log = FakeLog(orders=1)
    consumer_of(log, "orders").poll()
    assert log.waits == []


def test_an_empty_poll_means_there_was_nothing_although_markers_and_aborted_records_lay_in_between() -> None:
    log = FakeLog(orders=1)
    orders = log["orders"]
    for _ in range(50):
        orders.aborted.add(orders.append(b"x" * 1_000))
        orders.append_marker()
    orders.append(b"good")
    consumer = consumer_of(log, "orders", isolation_level="read_committed", max_partition_fetch_bytes=1_500)
    assert values(consumer.poll()) == [b"good"]
    assert consumer.poll() == []


def test_markers_at_the_end_are_passed_so_that_no_lag_remains() -> None:
    log = FakeLog(orders=1)
    orders = log["orders"]
    orders.append(b"a")
    orders.append_marker()
    consumer = consumer_of(log, "orders", isolation_level="read_committed")
    assert values(consumer.poll()) == [b"a"]
    assert consumer.poll() == []
    assert consumer.position(TopicPartition("orders", 0)) == 2
    assert consumer.lag() == {("orders", 0): 0}


def test_markers_written_after_the_records_were_read_leave_no_lag_either() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log["orders"].append(b"a")
    consumer.poll()
    log["orders"].append_marker()
    assert consumer.poll() == []
    assert consumer.lag() == {("orders", 0): 0}


def test_read_committed_stops_at_the_last_stable_offset_and_goes_on_when_it_moves() -> None:
    log = FakeLog(orders=1)
    orders = log["orders"]
    orders.append(*numbered(0, 3))
    orders.append(*numbered(3, 6))
    orders.stable_end = 3
    consumer = consumer_of(log, "orders")  # the default
    assert values(consumer.poll()) == numbered(0, 3)
    assert consumer.lag() == {("orders", 0): 0}
    assert values(consumer_of(log, "orders", isolation_level="read_uncommitted").poll()) == numbered(0, 6)
    orders.stable_end = None
    orders.publish()
    assert values(consumer.poll()) == numbered(3, 6)


def test_durable_visibility_returns_only_what_has_been_synced() -> None:
    log = FakeLog(orders=1)
    orders = log["orders"]
    orders.durable_end = 0
    consumer = consumer_of(log, "orders", visibility="durable")
    orders.append(b"a")
    assert consumer.poll() == []
    orders.durable_end = 1
    orders.publish()
    assert values(consumer.poll()) == [b"a"]


def test_gaps_left_by_compaction_are_no_end_and_no_error() -> None:
    log = FakeLog(orders=1)
    orders = log["orders"]
    for start in range(0, 40, 10):
        orders.append(*numbered(start, start + 10))
    del orders._batches[1:3]
    consumer = consumer_of(log, "orders", max_poll_records=10)
    read = consumer.poll() + consumer.poll()
    assert offsets(read) == [*range(10), *range(30, 40)]
    assert all(before < after for before, after in pairwise(offsets(read)))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_batches_are_records_like_any_others(codec: str) -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 1_000), codec=codec)
    consumer = consumer_of(log, "orders", max_poll_records=300)
    assert [len(consumer.poll()) for _ in range(5)] == [300, 300, 300, 100, 0]


def test_a_paused_partition_returns_nothing_and_keeps_its_position() -> None:
    log = FakeLog(orders=2)
    paused, running = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for number in range(2):
        log.partition("orders", number).append(*numbered(0, 100))
    consumer = consumer_of(log, "orders", max_poll_records=10)
    consumer.poll()
    consumer.poll()
    position = consumer.position(paused)
    consumer.pause(paused)
    assert consumer.paused() == {paused}
    assert consumer.metrics()["paused_partitions"] == 1
    rest = [record for _ in range(30) for record in consumer.poll()]
    assert {record.partition for record in rest} == {running.partition}
    assert consumer.position(paused) == position
    consumer.resume(paused)
    assert consumer.paused() == set()
    assert offsets([record for _ in range(30) for record in consumer.poll()]) == list(range(position, 100))


def test_waiting_pays_no_heed_to_paused_partitions() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    consumer.pause(("orders", 0))
    log.on_wait = [lambda: log["orders"].append(b"a")]
    assert consumer.poll(1.0) == []
    assert log.clock.monotonic() == 1.0


def test_polling_before_anything_is_subscribed_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="subscribe"):
        consumer_of(FakeLog()).poll()


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", None, True, 10**400])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout: object) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        consumer_of(FakeLog(orders=1), "orders").poll(timeout)


@pytest.mark.parametrize("max_records", [0, -1, 1.5, "1", True])
def test_a_number_of_records_that_is_none_is_refused(max_records: object) -> None:
    with pytest.raises(ConfigError, match="max_records"):
        consumer_of(FakeLog(orders=1), "orders").poll(max_records=max_records)


def test_an_infinite_timeout_waits_in_pieces_that_any_system_call_can_take() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.on_wait = [lambda: None, lambda: None, lambda: log["orders"].append(b"late")]
    assert values(consumer.poll(float("inf"))) == [b"late"]
    assert max(log.waits) <= 3600


def test_the_clock_of_the_log_is_the_consumers_clock() -> None:
    log = FakeLog(orders=1)
    assert log.clock.now_ms() == START_MS
    log["orders"].append(b"old")
    log.clock.sleep(7_200)
    log["orders"].append(b"new")
    assert values(consumer_of(log, "orders", auto_offset_reset="by_duration:PT1H").poll()) == [b"new"]
