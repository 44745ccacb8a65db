"""Several threads on one producer: everything arrives once, in each thread's order, whatever the
switch interval."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import SerializationError
from pylog.log import Log
from pylog.producer import Producer
from tests.producer.fakes import FakeLog, blocking, call_in_thread, wait_until

THREADS = 8


@pytest.fixture(params=[None, 1e-6], ids=["usual", "frantic"])
def _switching(request: pytest.FixtureRequest) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(request.param or before)
    yield
    sys.setswitchinterval(before)


def run_threads(*functions: Any) -> None:
    failures: list[BaseException] = []

    def run(function: Any) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - shown by the assert below
            failures.append(error)

    threads = [call_in_thread(lambda function=function: run(function)) for function in functions]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []


@pytest.mark.slow
@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize(
    "options",
    [
        {}, {"acks": 1, "linger_ms": 1}, {"acks": 0}, {"linger_ms": 0, "acks": 1}, {"batch_bytes": 300},
        {"batch_bytes": 500, "buffer_bytes": 600}, {"batch_bytes": 500, "buffer_bytes": 600, "linger_ms": 0.1},
    ],
    ids=str,
)  # fmt: skip
def test_everything_sent_by_eight_threads_arrives_once_and_in_each_threads_order(
    options: dict[str, Any], tmpfs_dir: Path
) -> None:
    count = 300 if options.get("linger_ms") == 0 else 2000
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=3)
        results: dict[int, list[Any]] = {}
        with Producer(log, **options) as producer:

            def send(thread: int) -> None:
                deliveries = []
                for n in range(count):
                    deliveries.append(producer.send("t", b"%d %d" % (thread, n), key=b"%d" % thread))
                    if n % 50 == 49:
                        deliveries[-1].result()
                results[thread] = deliveries

            def send_many(thread: int) -> None:
                values = [b"%d %d" % (thread, n) for n in range(count)]
                results[thread] = list(producer.send_many("t", values, keys=[b"%d" % thread] * count))

            run_threads(*(
                (lambda thread=thread: (send_many if thread % 4 == 3 else send)(thread)) for thread in range(THREADS)
            ))  # fmt: skip
        found: dict[int, list[int]] = {thread: [] for thread in range(THREADS)}
        place: dict[bytes | None, tuple[int, int]] = {}
        for number in range(3):
            for record in log.partition("t", number).scan():
                thread, n = map(int, record.value.split())
                found[thread].append(n)
                place[record.value] = (number, record.offset)
        assert found == {thread: list(range(count)) for thread in range(THREADS)}
        if options.get("acks") != 0:
            for thread, deliveries in results.items():
                for n, delivery in enumerate(deliveries):
                    assert place[b"%d %d" % (thread, n)] == delivery.result()[1:3]
    assert producer.metrics()["reserved_bytes"] == 0
    assert producer.metrics()["records_sent"] == THREADS * count


@pytest.mark.usefixtures("_switching")
def test_close_while_others_send_loses_nothing_that_was_accepted() -> None:
    from pylog.errors import Closed

    log = FakeLog(partitions=2)
    producer = log.producer(batch_bytes=500)
    accepted: list[bytes] = []
    started = threading.Barrier(5)

    def send(thread: int) -> None:
        started.wait()
        for n in range(100_000):
            value = b"%d %d" % (thread, n)
            try:
                producer.send("t", value)
            except Closed:
                return
            accepted.append(value)

    def close() -> None:
        started.wait()
        wait_until(lambda: len(accepted) >= 200)
        producer.close()

    run_threads(close, *(lambda thread=thread: send(thread) for thread in range(4)))
    stored = [value for number in (0, 1) for value in log.partition("t", number).values]
    assert Counter(stored) == Counter(accepted)


class Watched(list[Any]):
    """A list that lets other threads run whenever an item is taken."""

    def __getitem__(self, index: Any) -> Any:
        time.sleep(0)  # noqa: TID251 - it only switches threads
        return super().__getitem__(index)


@pytest.mark.usefixtures("_switching")
def test_a_bulk_that_is_refused_takes_no_record_of_another_thread_with_it(seed: int) -> None:
    log = FakeLog()
    accepted: list[bytes] = []
    sending = [True]

    def send(thread: int) -> None:
        for n in range(3000):
            value = b"%d %d" % (thread, n)
            delivery = producer.send("t", value)
            accepted.append(value)
            deliveries.append((delivery, value))
        sending[0] = False

    def send_many() -> None:
        number = 0
        while sending[0]:
            values: list[Any] = [b"many %d" % n for n in range(number, number + 20)]
            number += 20
            with pytest.raises(SerializationError) as caught:
                producer.send_many("t", Watched([*values[:7], object(), *values[7:]]), partition=0)
            assert caught.value.index == 7
            accepted.extend(values[:7])

    deliveries: list[tuple[Any, bytes]] = []
    with log.producer(batch_bytes=20_000) as producer:
        run_threads(send_many, *(lambda thread=thread: send(thread) for thread in range(3)))
    stored = log.partition("t").values
    assert Counter(stored) == Counter(accepted)
    assert all(stored[delivery.result().offset] == value for delivery, value in deliveries)


def test_records_that_pile_up_behind_a_slow_write_go_together() -> None:
    log = FakeLog()
    entered, leave, block = blocking()
    log.partition("t").script.append(block)
    with log.producer(linger_ms=0) as producer:
        threads = [call_in_thread(lambda: producer.send("t", b"first"))]
        entered.wait()
        threads += [call_in_thread(lambda: producer.send("t", b"later")) for _ in range(5)]
        wait_until(lambda: producer._topics.known["t"].buffers[0].open.encoder.count >= 5)
        leave.set()
        for thread in threads:
            thread.join()
    assert [header.count for header in log.partition("t").headers] == [1, 5]


def test_threads_that_wait_for_a_sync_share_it_and_do_not_hold_up_appends() -> None:
    log = FakeLog()
    entered, leave, block = blocking()
    log.partition("t").sync_script.append(block)
    with log.producer() as producer:
        first = producer.send("t", b"1")
        waiter = call_in_thread(first.result)
        entered.wait()
        second = producer.send("t", b"2")
        assert second.result().offset == 1
        assert log.partition("t").values == [b"1", b"2"]
        leave.set()
        waiter.join()


def test_callbacks_of_a_partition_run_in_the_order_of_its_offsets_whichever_thread_is_first() -> None:
    log = FakeLog()
    entered, leave, block = blocking()
    log.partition("t").script.append(lambda: None)
    seen: list[int] = []
    with log.producer(on_delivery=lambda delivery: seen.append(delivery.result().offset)) as producer:
        producer.send("t", b"0")

        def wait_first(delivery: object) -> None:
            block()

        producer.send("t", b"1").add_done_callback(wait_first)
        writer = call_in_thread(producer.flush)
        entered.wait()
        assert producer.send("t", b"2").result().offset == 2
        assert seen == [0, 1]
        leave.set()
        producer.flush()
        assert seen == [0, 1, 2]
        writer.join()


def test_a_flush_waits_for_callbacks_that_another_thread_is_running() -> None:
    log = FakeLog()
    entered, leave = threading.Event(), threading.Event()
    finished: list[str] = []

    def block(_: object) -> None:
        entered.set()
        leave.wait()
        finished.append("callback")

    with log.producer() as producer:
        delivery = producer.send("t", b"v")
        delivery.add_done_callback(block)
        caller = call_in_thread(delivery.result)
        entered.wait()
        with pytest.raises(TimeoutError):
            producer.flush(0)
        flusher = call_in_thread(lambda: (producer.flush(), finished.append("flush")))
        leave.set()
        flusher.join()
        caller.join()
    assert finished == ["callback", "flush"]
