"""``for record in consumer``: every record once, an exact position at each, and an end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice

import pytest

from pylog.consumer import Consumer
from pylog.errors import Closed, ConfigError, Wakeup
from pylog.model import TopicPartition
from tests.consumer.fakes import FakeLog, consumer_of, numbered, offsets, values

ORDERS = TopicPartition("orders", 0)
CHUNK = 10


def log_of(records: int, batch: int = 7) -> FakeLog:
    log = FakeLog(orders=1)
    for start in range(0, records, batch):
        log["orders"].append(*numbered(start, min(start + batch, records)))
    return log


def iterating(log: FakeLog, **options: object) -> Consumer:
    return consumer_of(log, "orders", **{"max_poll_records": CHUNK, "consumer_timeout_ms": 0, **options})


def test_an_iteration_gives_every_record_once_and_in_order() -> None:
    assert values(list(iterating(log_of(100)))) == numbered(0, 100)


def test_the_position_is_exact_at_every_record() -> None:
    consumer = iterating(log_of(100))
    seen = 0
    for record in consumer:
        seen += 1
        assert consumer.position(ORDERS) == record.offset + 1
        assert consumer.lag() == {ORDERS: 100 - seen}
    assert seen == 100


def test_the_position_is_exact_across_gaps() -> None:
    log = log_of(40, batch=10)
    del log["orders"]._batches[1]
    consumer = iterating(log)
    before = -1
    for record in consumer:
        assert before < record.offset
        assert before < consumer.position(ORDERS) - 1 >= record.offset
        assert consumer.position(ORDERS) in (record.offset + 1, 20)
        before = record.offset
    assert before == 39


def test_asking_for_the_position_does_not_disturb_the_iteration() -> None:
    consumer = iterating(log_of(100))
    read = []
    for record in consumer:
        read.append(record.offset)
        consumer.position(ORDERS)
        consumer.metrics()
        consumer.assignment()
    assert read == list(range(100))
    assert consumer.metrics()["fetches"] == 1


@pytest.mark.parametrize("stop_at", [0, 1, 6, 7, 9, 10, 11, 55, 98, 99])
def test_a_break_leaves_the_position_behind_the_record_it_stopped_at(stop_at: int) -> None:
    def resumed_by_poll(consumer: Consumer) -> list[int]:
        rest = []
        while records := consumer.poll():
            rest += offsets(records)
        return rest

    def resumed_by_iterating(consumer: Consumer) -> list[int]:
        return offsets(list(consumer))

    def resumed_by_seek(consumer: Consumer) -> list[int]:
        consumer.seek(ORDERS, consumer.position(ORDERS))
        return offsets(list(consumer))

    for resumed in (resumed_by_poll, resumed_by_iterating, resumed_by_seek):
        consumer = iterating(log_of(100))
        for record in consumer:
            if record.offset == stop_at:
                break
        assert consumer.position(ORDERS) == stop_at + 1
        assert resumed(consumer) == list(range(stop_at + 1, 100))


def test_seeking_inside_the_loop_takes_effect_at_the_next_record() -> None:
    consumer = iterating(log_of(100))
    read = []
    for record in consumer:
        read.append(record.offset)
        if record.offset == 3:
            consumer.seek(ORDERS, 90)
            assert consumer.position(ORDERS) == 90
        if read.count(90) == 1 and record.offset == 91:
            consumer.seek(ORDERS, 90)
    assert read == [0, 1, 2, 3, 90, 91, *range(90, 100)]


def test_polling_inside_the_loop_takes_the_records_that_come_next() -> None:
    consumer = iterating(log_of(100))
    read = []
    for record in consumer:
        read.append(record.offset)
        if record.offset % 20 == 0:
            read += offsets(consumer.poll(max_records=3))
    assert read == list(range(100))


def test_pausing_inside_the_loop_stops_that_partition_at_once() -> None:
    log = FakeLog(orders=2)
    for number in range(2):
        log.partition("orders", number).append(*numbered(0, 100))
    consumer = iterating(log)
    read = []
    for record in consumer:
        read.append((record.partition, record.offset))
        if record.partition == 0 and record.offset == 4:
            consumer.pause(ORDERS)
    assert [offset for partition, offset in read if partition == 0] == [0, 1, 2, 3, 4]
    assert [offset for partition, offset in read if partition == 1] == list(range(100))
    assert consumer.position(ORDERS) == 5
    consumer.resume(ORDERS)
    assert offsets(list(consumer)) == list(range(5, 100))


@pytest.mark.parametrize("act", ["unsubscribe", "close"])
def test_what_ends_the_consumers_reading_ends_the_loop(act: str) -> None:
    consumer = iterating(log_of(100))
    read = []
    with pytest.raises(ConfigError) if act == "unsubscribe" else nullcontext():
        for record in consumer:
            read.append(record.offset)
            if record.offset == 3:
                getattr(consumer, act)()
    assert read == [0, 1, 2, 3]


def test_two_iterations_of_one_consumer_share_its_records() -> None:
    consumer = iterating(log_of(100))
    first, second = iter(consumer), iter(consumer)
    assert [next(first if turn % 3 else second).offset for turn in range(100)] == list(range(100))


def test_an_iterator_that_was_left_does_not_return_what_others_have_read() -> None:
    consumer = iterating(log_of(100))
    left = iter(consumer)
    assert next(left).offset == 0
    assert offsets(list(islice(consumer, 49))) == list(range(1, 50))
    assert next(left).offset == 50


def test_partitions_take_turns_in_an_iteration() -> None:
    log = FakeLog(orders=3)
    for number in range(3):
        log.partition("orders", number).append(*[b"x"] * 1_000)
    first = list(islice(iterating(log), 3 * CHUNK))
    assert [sum(record.partition == number for record in first) for number in range(3)] == [CHUNK] * 3


def test_an_iteration_waits_for_new_records() -> None:
    log = log_of(1)
    consumer = consumer_of(log, "orders")
    log.on_wait = [lambda: log["orders"].append(b"second"), lambda: None, lambda: log["orders"].append(b"third")]
    assert values(list(islice(consumer, 3))) == [b"0", b"second", b"third"]


def test_an_iteration_ends_after_consumer_timeout_ms_without_a_record() -> None:
    log = log_of(5)
    consumer = consumer_of(log, "orders", consumer_timeout_ms=1_500)
    log.on_wait = [lambda: (log.clock.sleep(1.0), log["orders"].append(b"late"))]
    assert len(list(consumer)) == 6
    assert log.waits == [1.5, 1.5], "the time starts anew after every record"
    log["orders"].append(b"later")
    assert values(list(consumer)) == [b"later"], "and another loop goes on"


def test_an_iteration_of_a_closed_consumer_is_refused_and_a_running_one_ends() -> None:
    consumer = iterating(log_of(20))
    running = iter(consumer)
    next(running)
    consumer.close()
    assert list(running) == []
    with pytest.raises(Closed):
        iter(consumer)


def test_wakeup_ends_an_iteration_between_chunks_and_loses_nothing() -> None:
    consumer = iterating(log_of(100))
    read: list[int] = []

    def woken_at_13() -> None:
        for record in consumer:
            read.append(record.offset)
            if record.offset == 13:
                consumer.wakeup()

    with pytest.raises(Wakeup):
        woken_at_13()
    assert read == list(range(20))
    assert consumer.position(ORDERS) == 20
    assert offsets(list(consumer)) == list(range(20, 100))


@pytest.mark.parametrize("use", [lambda c: c.subscribe(["orders", "payments"]), lambda c: c.subscription()])
def test_changing_the_subscription_inside_the_loop_keeps_the_position(use: Callable[[Consumer], object]) -> None:
    consumer = iterating(log_of(100))
    read = []
    for record in consumer:
        read.append(record.offset)
        if record.offset == 13:
            use(consumer)
    assert read == list(range(100))
