"""What a consumer reads while topics and partitions come and go."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from pylog.errors import Closed, ConfigError, InvalidPartition, TopicNotFound
from pylog.model import TopicPartition
from pylog.partition.read.cursor import Fetched
from tests.consumer.fakes import FakeLog, FakePartition, consumer_of, numbered, offsets, values

ORDERS = TopicPartition("orders", 0)


def test_subscribing_means_all_partitions_of_the_topics() -> None:
    consumer = consumer_of(FakeLog(orders=2, payments=1, other=1), "orders", "payments")
    assert consumer.assignment() == {("orders", 0), ("orders", 1), ("payments", 0)}
    assert consumer.subscription() == {"orders", "payments"}


def test_a_topic_may_be_named_alone_and_a_pattern_matches_whole_names() -> None:
    log = FakeLog(orders=1, orders2=1)
    consumer = consumer_of(log)
    consumer.subscribe("orders")
    assert consumer.subscription() == {"orders"}
    consumer.subscribe(re.compile("orders"))
    assert consumer.assignment() == {ORDERS}
    consumer.subscribe(re.compile(r"orders\d*"))
    assert consumer.subscription() == {"orders", "orders2"}


class DeletedMeanwhile(FakeLog):
    """A topic is deleted between being listed and being looked up."""

    def partition(self, topic: str, number: int) -> FakePartition:
        if "orders2" in self.topics():
            self.delete_topic("orders2")
        return super().partition(topic, number)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_topic_that_is_deleted_while_a_pattern_is_subscribed_is_done_without(policy: str) -> None:
    log = DeletedMeanwhile(orders=1, orders2=1)
    consumer = consumer_of(log, auto_offset_reset=policy)
    consumer.subscribe(re.compile(r"orders\d*"))
    assert consumer.assignment() == {ORDERS}
    log.create_topic("orders3")
    consumer.poll(0)
    assert consumer.subscription() == {"orders", "orders3"}


class RecreatedMeanwhile(FakeLog):
    """A topic is created again with fewer partitions between being listed and being looked up."""

    def partition(self, topic: str, number: int) -> FakePartition:
        if len(self.describe_topic("orders").numbers) > 1:
            self.delete_topic("orders")
            self.create_topic("orders")
        return super().partition(topic, number)


def test_a_topic_that_is_created_again_with_fewer_partitions_meanwhile_is_looked_up_again() -> None:
    consumer = consumer_of(RecreatedMeanwhile(orders=2))
    consumer.subscribe("orders")
    assert consumer.assignment() == {ORDERS}


def test_a_topic_that_is_listed_and_never_found_is_an_error_and_no_endless_search() -> None:
    class Damaged(FakeLog):
        def partition(self, topic: str, number: int) -> FakePartition:
            raise TopicNotFound(f"{topic} is gone", topic=topic)

    consumer = consumer_of(Damaged(orders=1))
    with pytest.raises(TopicNotFound):
        consumer.subscribe(re.compile("orders"))
    assert consumer.assignment() == set()


@pytest.mark.parametrize("policy", ["earliest", "latest", "none", "by_duration:PT0S"])
def test_partitions_added_later_are_read_from_their_beginning_whatever_the_policy(policy: str) -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders", auto_offset_reset=policy)
    consumer.seek(ORDERS, 0)
    log.add_partitions("orders", 3)
    log.clock.sleep(60)
    log.partition("orders", 2).append(b"before anybody noticed", timestamp_ms=1)
    assert values(consumer.poll()) == [b"before anybody noticed"]
    assert consumer.assignment() == {("orders", 0), ("orders", 1), ("orders", 2)}


def test_a_topic_that_does_not_exist_yet_is_waited_for_and_said_to_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    with caplog.at_level(logging.WARNING, "pylog.consumer"):
        consumer = consumer_of(log, "orders", auto_offset_reset="latest")
    assert "topic orders does not exist yet" in caplog.text
    assert consumer.assignment() == set()
    assert consumer.poll() == []
    log.on_wait = [lambda: (log.create_topic("orders"), log["orders"].append(b"first"))]
    assert values(consumer.poll(9.0)) == [b"first"]
    assert log.clock.monotonic() == 0, "the wait ended with the news"


def test_a_pattern_takes_up_topics_that_match_later() -> None:
    log = FakeLog(other=1)
    consumer = consumer_of(log)
    consumer.subscribe(re.compile("orders-.*"))
    assert consumer.poll() == []
    log.create_topic("orders-eu")
    log.create_topic("payments")
    log["orders-eu"].append(b"a")
    assert values(consumer.poll()) == [b"a"]
    assert consumer.subscription() == {"orders-eu"}


def test_an_iteration_takes_up_new_partitions_while_it_waits() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.on_wait = [lambda: (log.add_partitions("orders", 2), log.partition("orders", 1).append(b"a"))]
    assert next(iter(consumer)).partition == 1


def test_a_deleted_topic_is_read_no_longer_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog(orders=1, payments=1)
    log["orders"].append(*numbered(0, 1_000))
    consumer = consumer_of(log, "orders", "payments", max_poll_records=10)
    consumer.poll()
    log.delete_topic("orders")
    log["payments"].append(b"paid")
    with caplog.at_level(logging.WARNING, "pylog.consumer"):
        assert values(consumer.poll()) == [b"paid"]
    assert consumer.assignment() == {("payments", 0)}
    assert consumer.metrics()["read_ahead_bytes"] == 0
    assert "orders-0 was deleted" in caplog.text


def test_a_topic_made_anew_under_an_old_name_is_read_from_its_beginning() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 50))
    for subscribe in (True, False):
        consumer = consumer_of(log)
        consumer.subscribe("orders") if subscribe else consumer.assign([ORDERS])
        consumer.poll(max_records=20)
        log.delete_topic("orders")
        log.create_topic("orders")
        log["orders"].append(*numbered(100, 130))
        assert values(consumer.poll()) == numbered(100, 130)
        log.create_topic(f"another-{subscribe}")
        assert consumer.poll() == [], "once"


def test_a_topic_made_anew_is_warned_of_with_its_partition(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog(orders=2)
    consumer = consumer_of(log)
    consumer.assign([TopicPartition("orders", 1)])
    log.delete_topic("orders")
    log.create_topic("orders", 2)
    with caplog.at_level(logging.WARNING, "pylog.consumer"):
        consumer.poll()
    assert "topic orders was created again or repartitioned: reading orders-1 from its beginning" in caplog.text


def test_an_assigned_partition_whose_topic_was_deleted_is_an_error_until_it_is_there_again() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log)
    consumer.assign([ORDERS])
    log.delete_topic("orders")
    for _ in range(2):
        with pytest.raises(TopicNotFound):
            consumer.poll()
    log.create_topic("orders")
    log["orders"].append(b"new")
    assert values(consumer.poll()) == [b"new"]


def test_assigning_reads_exactly_these_partitions_and_no_later_ones() -> None:
    log = FakeLog(orders=3)
    consumer = consumer_of(log)
    consumer.assign([("orders", 2), TopicPartition("orders", 0)])  # type: ignore[list-item]
    assert consumer.assignment() == {("orders", 0), ("orders", 2)}
    assert consumer.subscription() == set()
    log.add_partitions("orders", 5)
    for number in range(5):
        log.partition("orders", number).append(b"%d" % number)
    assert sorted(values(consumer.poll())) == [b"0", b"2"]


@pytest.mark.parametrize(
    ("partition", "error"),
    [(("orders", 1), InvalidPartition), (("orders", -1), InvalidPartition), (("nowhere", 0), TopicNotFound)],
)
def test_assigning_what_is_not_there_is_refused_and_changes_nothing(
    partition: tuple[str, int], error: type[Exception]
) -> None:
    consumer = consumer_of(FakeLog(orders=1, payments=1))
    consumer.assign([TopicPartition("payments", 0)])
    with pytest.raises(error):
        consumer.assign([ORDERS, TopicPartition(*partition)])
    assert consumer.assignment() == {("payments", 0)}


def test_partitions_kept_across_a_new_assignment_or_subscription_keep_their_positions() -> None:
    for call in ("assign", "subscribe"):
        log = FakeLog(orders=2, payments=1)
        log["orders"].append(*numbered(0, 100))
        consumer = consumer_of(log)
        consumer.assign([ORDERS]) if call == "assign" else consumer.subscribe("orders")
        assert offsets(consumer.poll(max_records=30)) == list(range(30))
        if call == "assign":
            consumer.assign([TopicPartition("payments", 0), ORDERS])
        else:
            consumer.subscribe(["orders", "payments"])
        assert consumer.position(ORDERS) == 30
        assert offsets(consumer.poll()) == list(range(30, 100))


def test_unsubscribing_forgets_the_positions() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    consumer = consumer_of(log, "orders")
    consumer.poll()
    for forget in (consumer.unsubscribe, lambda: consumer.subscribe([]), lambda: consumer.assign([])):
        forget()
        assert consumer.assignment() == set()
        with pytest.raises(ConfigError, match="subscribe"):
            consumer.poll()
        consumer.subscribe("orders")
        assert offsets(consumer.poll()) == list(range(10))


def test_subscribing_and_assigning_do_not_mix() -> None:
    consumer = consumer_of(FakeLog(orders=1), "orders")
    with pytest.raises(ConfigError, match="unsubscribe"):
        consumer.assign([ORDERS])
    consumer.unsubscribe()
    consumer.assign([ORDERS])
    with pytest.raises(ConfigError, match="unsubscribe"):
        consumer.subscribe("orders")
    assert consumer.assignment() == {ORDERS}
    consumer.unsubscribe()
    consumer.subscribe("orders")


def test_a_poll_looks_at_the_catalog_once_and_reads_it_only_when_it_changed() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    consumer = consumer_of(log, "orders", max_poll_records=1)
    looks = log.catalog_looks
    for _ in range(10):
        consumer.poll()
    assert log.catalog_looks - looks == 10


def test_a_topic_deleted_between_two_looks_at_the_catalog_is_no_error() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.add_partitions("orders", 2)
    partition = log.partition

    def deleted_meanwhile(topic: str, number: int) -> FakePartition:
        log.partition = partition
        log.delete_topic("orders")
        return partition(topic, number)

    log.partition = deleted_meanwhile
    assert consumer.poll() == []
    assert consumer.assignment() == set()


def test_a_topic_deleted_while_it_is_read_ends_without_an_error() -> None:
    log = FakeLog(orders=1, payments=1)
    consumer = consumer_of(log, "orders", "payments")
    fetch = log["orders"].fetch

    def deleted_meanwhile(*arguments: Any, **options: Any) -> Fetched:
        if log.topics() == ["orders", "payments"]:
            log.delete_topic("orders")
            log["payments"].append(b"paid")
        return fetch(*arguments, **options)

    log["orders"].fetch = deleted_meanwhile
    assert values(consumer.poll()) == [b"paid"]
    assert consumer.poll() == []
    assert consumer.assignment() == {("payments", 0)}


def test_a_topic_whose_files_go_before_the_catalog_was_looked_at_again_is_no_error() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")

    def gone(*_: Any, **__: Any) -> Fetched:
        log.delete_topic("orders")
        raise TopicNotFound("its directory is gone")

    log["orders"].fetch = gone
    assert consumer.poll() == []
    assert consumer.assignment() == set()


def test_a_topic_deleted_during_a_wait_ends_without_an_error() -> None:
    log = FakeLog(orders=1, payments=1)
    consumer = consumer_of(log, "orders", "payments")
    log.on_wait = [lambda: log.delete_topic("orders"), lambda: log["payments"].append(b"paid")]
    assert values(consumer.poll(3.0)) == [b"paid"]
    assert log.waits == [3.0, 3.0]


def test_a_partition_handle_closed_by_somebody_else_is_opened_again() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    consumer = consumer_of(log, "orders", max_poll_records=1)
    consumer.poll()
    consumer.seek(ORDERS, 1)
    old = log["orders"]
    new = FakeLog(orders=1)["orders"]
    new.append(*numbered(0, 10))
    log._topics["orders"][1][0] = new
    old.closed = True
    assert offsets(consumer.poll()) == [1]


def test_a_closed_log_ends_polling_and_waiting_with_an_error() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    log.on_wait = [log.close]
    for timeout in (5.0, 0.0):
        with pytest.raises(Closed):
            consumer.poll(timeout)
    consumer.close()
