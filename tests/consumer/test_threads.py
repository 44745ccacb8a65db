"""One thread at a time; wakeup from anywhere; forks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pylog.consumer import Consumer
from pylog.errors import Closed, Wakeup, WrongThread
from pylog.model import TopicPartition
from pylog.storage import fork
from tests.consumer.fakes import BlockingLog, FakeLog, consumer_of, numbered, offsets, values

ORDERS = TopicPartition("orders", 0)


class Caught(threading.Thread):
    """A thread whose result or exception is kept."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def finished(self) -> Caught:
        self.join(30)
        assert not self.is_alive()
        return self


def waiting_consumer() -> tuple[BlockingLog, Consumer, Caught]:
    """A consumer whose poll waits in another thread."""
    log = BlockingLog(orders=1)
    consumer = consumer_of(log, "orders")
    thread = Caught(lambda: consumer.poll(3600.0))
    assert log.waiting.wait(30)
    return log, consumer, thread


def test_wakeup_from_another_thread_ends_a_waiting_poll() -> None:
    log, consumer, thread = waiting_consumer()
    consumer.wakeup()
    assert isinstance(thread.finished().error, Wakeup)
    log["orders"].append(b"a")
    assert values(consumer.poll()) == [b"a"], "the consumer is intact"


def test_an_append_by_another_thread_ends_a_waiting_poll() -> None:
    log, _, thread = waiting_consumer()
    log["orders"].append(b"a")
    assert values(thread.finished().result) == [b"a"]


def test_a_wakeup_before_the_poll_is_not_lost_and_counts_once() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"a")
    consumer = consumer_of(log, "orders")
    consumer.wakeup()
    consumer.wakeup()
    with pytest.raises(Wakeup):
        consumer.poll()
    assert values(consumer.poll()) == [b"a"]


def test_wakeup_from_a_signal_handler_ends_a_waiting_poll() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
    try:
        log.on_wait = [lambda: signal.raise_signal(signal.SIGUSR1)]
        with pytest.raises(Wakeup):
            consumer.poll(3600.0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_every_call_but_wakeup_is_refused_while_another_thread_is_in_one() -> None:
    log, consumer, thread = waiting_consumer()
    iterator = iter(consumer)
    for call in (
        consumer.poll,
        consumer.assignment,
        consumer.subscription,
        consumer.unsubscribe,
        consumer.topics,
        consumer.paused,
        consumer.lag,
        consumer.metrics,
        consumer.close,
        consumer.seek_to_end,
        consumer.pause,
        consumer.resume,
        lambda: consumer.partitions_for_topic("orders"),
        lambda: consumer.subscribe("orders"),
        lambda: consumer.assign([ORDERS]),
        lambda: consumer.seek(ORDERS, 0),
        lambda: consumer.seek_to_time(0),
        lambda: consumer.position(ORDERS),
        lambda: consumer.end_offsets([ORDERS]),
        lambda: consumer.beginning_offsets([ORDERS]),
        lambda: consumer.offsets_for_times({ORDERS: 0}),
        lambda: next(iterator),
    ):
        with pytest.raises(WrongThread):
            call()
    log["orders"].append(b"a")
    assert values(thread.finished().result) == [b"a"]
    assert consumer.position(ORDERS) == 1


def test_threads_may_use_a_consumer_one_after_the_other() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 30))
    consumer = consumer_of(log, "orders", max_poll_records=10)
    read = [offsets(Caught(consumer.poll).finished().result) for _ in range(3)]
    assert read == [list(range(10)), list(range(10, 20)), list(range(20, 30))]


def test_a_deserializer_cannot_use_the_consumer_that_called_it() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"a")
    errors: list[BaseException] = []

    def meddle(value: bytes) -> bytes:
        with pytest.raises(WrongThread) as caught:
            consumer.seek_to_end()
        errors.append(caught.value)
        return value

    consumer = consumer_of(log, "orders", value_deserializer=meddle)
    assert values(consumer.poll()) == [b"a"]
    assert len(errors) == 1


def test_a_call_that_raised_leaves_the_consumer_usable() -> None:
    log = FakeLog(orders=1)
    consumer = consumer_of(log, "orders")
    for _ in range(2):
        with pytest.raises(Wakeup):
            consumer.wakeup() or consumer.poll()
    assert consumer.poll() == []


def test_after_close_every_call_says_so_and_closing_again_is_fine() -> None:
    with consumer_of(FakeLog(orders=1), "orders") as consumer:
        pass
    consumer.close()
    consumer.wakeup()
    for call in (
        consumer.poll,
        consumer.lag,
        consumer.metrics,
        lambda: consumer.subscribe("a"),
        lambda: iter(consumer),
    ):
        with pytest.raises(Closed):
            call()


def test_leaving_the_with_block_on_an_exception_closes_and_lets_it_through() -> None:
    with pytest.raises(ZeroDivisionError), consumer_of(FakeLog(orders=1)) as consumer:
        raise ZeroDivisionError
    with pytest.raises(Closed):
        consumer.poll()


def test_a_child_forked_during_a_call_of_another_thread_may_use_the_consumer() -> None:
    _, consumer, thread = waiting_consumer()
    fork._run()  # what runs in a child, where the other thread is gone
    assert consumer.poll() == []
    consumer.wakeup()
    thread.finished()


def test_a_child_forked_in_the_middle_of_a_poll_of_another_thread_gets_the_records_that_poll_had_taken() -> None:
    log = FakeLog(orders=2)
    for number in range(2):
        log.partition("orders", number).append(*[b"%d" % number] * 5)
    in_the_child: list[int] = []

    def fork_at_the_second_partition(value: bytes) -> bytes:
        if value == b"1":
            fork._run()
            in_the_child.append(consumer.position(ORDERS))
            raise KeyboardInterrupt
        return value

    consumer = consumer_of(log, "orders", value_deserializer=fork_at_the_second_partition)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    assert in_the_child == [0]


def test_a_child_forked_after_a_poll_does_not_get_its_records_again() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 10))
    consumer = consumer_of(log, "orders", max_poll_records=5)
    consumer.poll()
    with consumer._call():  # another thread is asking for the position, say
        fork._run()
    assert offsets(consumer.poll()) == list(range(5, 10))


@pytest.mark.processes
def test_a_forked_child_goes_on_reading_where_the_parent_stood_and_disturbs_it_not() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(*numbered(0, 100))
    consumer = consumer_of(log, "orders", max_poll_records=10, consumer_timeout_ms=0)
    read = []
    reader, writer = os.pipe()
    for record in consumer:
        read.append(record.offset)
        if record.offset == 14:
            child = os.fork()
            if child == 0:
                os.write(writer, bytes(record.offset for record in consumer))
                os._exit(0)
            os.waitpid(child, 0)
    assert os.read(reader, 1_000) == bytes(range(15, 100))
    assert read == list(range(100))
    os.close(reader)
    os.close(writer)
