from __future__ import annotations

import asyncio
import logging
import tracemalloc
from typing import Any

import pytest

from pylog.errors import NotAppended, OutcomeUnknown, PylogError, StorageFull
from pylog.model import RecordMetadata
from pylog.producer import Delivery
from tests.producer.fakes import FakeLog, Late, blocking, call_in_thread

FULL = StorageFull("no space left", path="/x")


def test_a_result_does_not_wait_for_the_linger_time() -> None:
    log = FakeLog()
    producer = log.producer(linger_ms=100_000)
    deliveries = [producer.send("t", b"%d" % n) for n in range(3)]
    assert not any(delivery.done() for delivery in deliveries)
    assert deliveries[1].result() == RecordMetadata("t", 0, 1, log.clock.now_ms())
    assert all(delivery.done() for delivery in deliveries)
    assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2]
    assert len(log.partition("t").batches) == 1
    producer.close()


@pytest.mark.parametrize(("acks", "syncs"), [("all", [1]), (1, []), (0, [])])
def test_only_acks_all_waits_for_a_sync(acks: Any, syncs: list[int]) -> None:
    log = FakeLog()
    with log.producer(acks=acks) as producer:
        producer.send("t", b"v")
        producer.flush()
        assert log.partition("t").syncs == syncs
        assert log.partition("t").values == [b"v"]


def test_acks_0_is_done_at_once_and_knows_no_offset() -> None:
    log = FakeLog()
    called: list[Delivery] = []
    with log.producer(acks=0, on_delivery=called.append) as producer:
        delivery = producer.send("t", b"v", timestamp_ms=5)
        assert delivery.done()
        assert called == [delivery]
        assert delivery.result() == RecordMetadata("t", 0, -1, 5)
        assert delivery.exception() is None
        assert log.partitions == {}
        producer.flush()
        assert log.partition("t").values == [b"v"]
        assert delivery.result().offset == -1


def test_acks_0_logs_and_counts_a_failure_and_raises_none(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    log.partition("t").script.append(FULL)
    with log.producer(acks=0) as producer:
        delivery = producer.send("t", b"v")
        producer.flush()
        assert delivery.result().offset == -1
        assert producer.metrics()["records_failed"] == 1
    assert "no space left" in caplog.text


def test_every_record_of_a_failed_batch_gets_an_error_of_its_own() -> None:
    log = FakeLog()
    log.partition("t").script.append(FULL)
    with log.producer() as producer:
        deliveries = [producer.send("t", b"v") for _ in range(3)]
        errors = [delivery.exception() for delivery in deliveries]
        for delivery in deliveries:
            with pytest.raises(StorageFull, match="no space left") as caught:
                delivery.result()
            errors.append(caught.value)
        assert len({id(error) for error in errors}) == 6
        assert all(error is not None and error.path == "/x" for error in errors)
        assert producer.send("t", b"after").result().offset == 0


def test_the_cause_of_an_error_stays_with_it_but_no_frames_that_hold_the_batch() -> None:
    log = FakeLog()
    cause = OSError(28, "full")
    error = StorageFull("no space left")

    def fail() -> None:
        try:
            raise cause
        except OSError as caught:
            raise error from caught

    log.partition("t").script.append(fail)
    with log.producer() as producer:
        caught = producer.send("t", b"v").exception()
    assert caught is not None
    assert caught.__cause__ is cause
    assert cause.__traceback__ is None
    assert error.__traceback__ is None


def test_callbacks_are_called_once_with_the_delivery_in_the_order_of_the_records() -> None:
    log = FakeLog()
    seen: list[Delivery] = []
    with log.producer() as producer:
        deliveries = []
        for n in range(5):
            delivery = producer.send("t", b"%d" % n)
            delivery.add_done_callback(seen.append)
            deliveries.append(delivery)
        assert seen == []
        producer.flush()
        assert seen == deliveries
        deliveries[0].add_done_callback(seen.append)
        assert seen == [*deliveries, deliveries[0]]
    assert len(seen) == 6


def test_on_delivery_sees_every_record_acknowledged_or_not() -> None:
    log = FakeLog()
    seen: list[tuple[int, str]] = []

    def note(delivery: Delivery) -> None:
        error = delivery.exception()
        seen.append((-1, type(error).__name__) if error else (delivery.result().offset, ""))

    with log.producer(on_delivery=note) as producer:
        producer.send_many("t", [b"1", b"2"])
        producer.flush()
        log.partition("t").script.append(FULL)
        producer.send("t", b"3")
        producer.flush()
        producer.send("t", b"4")
    assert seen == [(0, ""), (1, ""), (-1, "StorageFull"), (2, "")]


def test_a_callback_that_fails_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(delivery: Delivery) -> None:
        raise ValueError("in the callback")

    log = FakeLog()
    seen: list[Delivery] = []
    with log.producer() as producer:
        delivery = producer.send("t", b"v")
        delivery.add_done_callback(broken)
        delivery.add_done_callback(seen.append)
        assert delivery.result().offset == 0
    assert seen == [delivery]
    assert [(record.name, record.levelno) for record in caplog.records] == [("pylog.producer", logging.ERROR)]
    assert "in the callback" in caplog.text


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_callback_may_send_flush_and_ask_for_results(linger_ms: int) -> None:
    log = FakeLog(partitions=2)
    results: list[int] = []
    with log.producer(linger_ms=linger_ms) as producer:

        def answer(delivery: Delivery) -> None:
            number = len(results)
            if number < 20:
                results.append(producer.send("t", b"%d" % number, partition=number % 2).result().offset)
                producer.send("t", b"x", partition=0).add_done_callback(answer)
                producer.flush()

        producer.send("t", b"first", partition=0).add_done_callback(answer)
        producer.flush()
    assert len(results) == 20


def test_a_chain_of_callbacks_that_send_does_not_grow_the_stack() -> None:
    log = FakeLog()
    seen: list[int] = []

    def again(delivery: Delivery) -> None:
        seen.append(delivery.result().offset)
        if len(seen) < 3000:
            producer.send("t", b"v")

    with log.producer(linger_ms=0, on_delivery=again) as producer:
        producer.send("t", b"v")
    assert seen == list(range(3000))


def test_a_result_within_a_timeout_or_else_the_record_is_still_under_way() -> None:
    log = FakeLog()
    entered, leave, block = blocking()
    log.partition("t").script.append(block)
    with log.producer() as producer:
        delivery = producer.send("t", b"v")
        writer = call_in_thread(producer.flush)
        entered.wait()
        log.clock.monotonic = iter(range(10**6)).__next__  # every look is a second later
        producer._sender._monotonic = log.clock.monotonic
        for call in (delivery.result, delivery.exception):
            with pytest.raises(TimeoutError, match="still under way") as caught:
                call(0)
            assert not isinstance(caught.value, PylogError)
        with pytest.raises(TimeoutError):
            producer.flush(0)
        assert not delivery.done()
        leave.set()
        assert delivery.result().offset == 0
        writer.join()


def test_a_delivery_says_in_its_repr_how_it_stands() -> None:
    log = FakeLog()
    with log.producer() as producer:
        delivery = producer.send("t", b"v")
        assert repr(delivery) == "<Delivery to t-0: pending>"
        delivery.result()
        assert repr(delivery) == "<Delivery to t-0: offset 0>"
        log.partition("t").script.append(FULL)
        delivery = producer.send("t", b"v")
        delivery.exception()
        assert repr(delivery) == "<Delivery to t-0: StorageFull>"


def test_deliveries_kept_do_not_keep_the_batches_bytes() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"v").result()
        tracemalloc.start()
        try:
            kept = []
            for _ in range(20):
                kept.append(producer.send("t", bytes(500_000)))
                producer.flush()
                log.partition("t").batches.clear()
            log.partition("t").script.append(FULL)
            kept.append(producer.send("t", bytes(500_000)))
            assert isinstance(kept[-1].exception(), StorageFull)
            assert tracemalloc.get_traced_memory()[0] < 300_000
        finally:
            tracemalloc.stop()


# asyncio


def test_a_delivery_can_be_awaited() -> None:
    log = FakeLog()

    async def main() -> list[RecordMetadata]:
        with log.producer(linger_ms=600_000, delivery_timeout_ms=600_000) as producer:
            first = await producer.send("t", b"0")
            again = producer.send("t", b"1")
            await again
            return [first, await again, *await asyncio.gather(*(producer.send("t", b"v") for _ in range(10)))]

    assert [metadata.offset for metadata in asyncio.run(main())] == [0, 1, *range(2, 12)]


def test_awaiting_raises_what_result_would() -> None:
    log = FakeLog()
    log.partition("t").script.append(FULL)

    async def main() -> None:
        with log.producer() as producer, pytest.raises(StorageFull):
            await producer.send("t", b"v")

    asyncio.run(main())


def test_a_cancelled_wait_leaves_the_record_on_its_way() -> None:
    log = FakeLog()
    entered, leave, block = blocking()
    log.partition("t").script.append(block)

    async def main() -> None:
        with log.producer() as producer:
            delivery = producer.send("t", b"v")

            async def wait() -> None:
                await delivery

            task = asyncio.ensure_future(wait())
            await asyncio.get_running_loop().run_in_executor(None, entered.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            leave.set()
            assert (await delivery).offset == 0

    asyncio.run(main())


# Failures that nobody looked at


def test_close_raises_the_first_failure_that_nobody_has_seen() -> None:
    log = FakeLog()
    log.partition("t").script.extend([FULL, NotAppended("second")])
    producer = log.producer()
    for value in (b"1", b"2"):
        producer.send("t", value)
        producer.flush()
    with pytest.raises(StorageFull):
        producer.close()
    producer.close()
    assert producer.metrics()["batches_failed"] == 2


@pytest.mark.parametrize("look", ["result", "exception", "callback", "on_delivery"])
def test_a_failure_that_was_seen_is_not_raised_again(look: str) -> None:
    log = FakeLog()
    log.partition("t").script.append(FULL)
    options = {"on_delivery": lambda delivery: None} if look == "on_delivery" else {}
    with log.producer(**options) as producer:
        for delivery in [producer.send("t", b"1"), producer.send("t", b"2")]:
            if look == "exception":
                delivery.exception()
            elif look == "callback":
                delivery.add_done_callback(lambda delivery: None)
            elif look == "result":
                with pytest.raises(StorageFull):
                    delivery.result()


def test_having_seen_one_record_of_a_batch_fail_is_not_having_seen_the_others() -> None:
    log = FakeLog()
    log.partition("t").script.append(FULL)
    producer = log.producer()
    first, _ = producer.send("t", b"1"), producer.send("t", b"2")
    assert first.exception() is not None
    assert first.exception() is not None
    with pytest.raises(StorageFull):
        producer.close()


def test_an_error_in_a_with_block_is_not_replaced_by_a_failed_delivery(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    log.partition("t").script.append(FULL)
    with pytest.raises(ZeroDivisionError), log.producer() as producer:  # noqa: PT012 - the error is the last line
        producer.send("t", b"1")
        raise ZeroDivisionError
    assert "StorageFull: no space left" in caplog.text


@pytest.mark.slow
def test_failures_of_a_producer_that_never_asks_take_bounded_memory() -> None:
    log = FakeLog()
    with log.producer(linger_ms=0) as producer:
        producer.send("t", b"v")
        log.partition("t").script.extend([OutcomeUnknown("?")] * 3000)
        for _ in range(3000):
            producer.send("t", b"v")
        assert len(producer._sender.failures.batches) == 1000
        assert producer.metrics()["records_unknown"] == 3000
        for batch in producer._sender.failures.batches:
            batch.observed_error(0)
        log.partition("t").script.append(Late(OutcomeUnknown("?")))
        producer.send("t", b"v").exception()
        assert len(producer._sender.failures.batches) == 1
