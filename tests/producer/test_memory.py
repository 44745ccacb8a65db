"""A producer's memory is bounded by ``buffer_bytes``, and it never drops a record to stay
within."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import BufferTimeout, RecordTooLarge, StorageFull
from pylog.producer import Producer
from tests.producer.fakes import FakeLog, blocking, call_in_thread


def held_bytes(producer: Producer) -> int:
    return int(producer.metrics()["buffered_bytes"])


@given(
    st.integers(1, 40), st.integers(200, 3000), st.integers(0, 4000), st.lists(st.integers(0, 400), max_size=300),
    st.integers(),
)  # fmt: skip
def test_open_batches_never_hold_more_than_buffer_bytes(
    partitions: int, batch_bytes: int, extra_bytes: int, sizes: list[int], seed: int
) -> None:
    random = Random(seed)
    log = FakeLog(partitions=partitions)
    buffer_bytes = batch_bytes + extra_bytes
    with log.producer(batch_bytes=batch_bytes, buffer_bytes=buffer_bytes, max_block_ms=0) as producer:
        sent = []
        for size in sizes:
            try:
                sent.append(producer.send("t", bytes(size), partition=random.randrange(partitions)))
            except RecordTooLarge:
                assert size > buffer_bytes - 100
            assert held_bytes(producer) <= producer.metrics()["reserved_bytes"] <= buffer_bytes
        assert len({delivery.result() for delivery in sent}) == len(sent)
    assert producer.metrics()["reserved_bytes"] == 0


@pytest.mark.usefixtures("quick_switches")
def test_the_bound_holds_for_many_threads() -> None:
    log = FakeLog(partitions=8)
    highest: list[int] = []
    with log.producer(batch_bytes=1000, buffer_bytes=2500) as producer:

        def send(number: int) -> None:
            for _ in range(300):
                producer.send("t", bytes(300), partition=number)
                highest.append(producer._pool.reserved_bytes)

        threads = [call_in_thread(lambda number=number: send(number)) for number in range(8)]
        for thread in threads:
            thread.join()
        assert 1000 < max(highest) <= 2500
    assert producer._pool.reserved_bytes == 0
    assert [len(log.partition("t", number).values) for number in range(8)] == [300] * 8


def test_memory_given_back_twice_is_given_back_once() -> None:
    log = FakeLog(partitions=2)
    with log.producer(batch_bytes=1000) as producer:
        for number in range(2):
            producer.send("t", b"v", partition=number)
        batch = next(iter(producer._incomplete.batches))
        batch.close()
        assert batch.settle(StorageFull("full"), producer._pool)
        assert not batch.settle(StorageFull("full"), producer._pool)
        assert producer._pool.reserved_bytes == 1000


def test_where_memory_is_short_the_batches_that_waited_longest_are_written_first() -> None:
    log = FakeLog(partitions=4)
    with log.producer(batch_bytes=10_000, buffer_bytes=20_000) as producer:
        for number in range(4):
            producer.send("t", b"v", partition=number)
        assert [len(log.partition("t", number).batches) for number in range(4)] == [1, 1, 0, 0] or (
            [len(log.partition("t", number).batches) for number in range(4)] == [1, 0, 0, 0]
        )


def test_many_partitions_share_the_buffer_instead_of_writing_each_record_alone() -> None:
    log = FakeLog(partitions=100)
    with log.producer(batch_bytes=1 << 20, buffer_bytes=4 << 20) as producer:
        for n in range(20_000):
            producer.send("t", bytes(100), partition=n % 100)
    batches = [header.count for number in range(100) for header in log.partition("t", number).headers]
    assert sum(batches) == 20_000
    assert sum(batches) / len(batches) > 60


def test_a_batch_takes_only_the_memory_its_records_need() -> None:
    log = FakeLog(partitions=30)
    with log.producer() as producer:
        producer.send("t", b"v", partition=0)
        tracemalloc.start()
        try:
            for number in range(30):
                producer.send("t", b"v", partition=number)
            assert tracemalloc.get_traced_memory()[0] < 30 * 5_000
        finally:
            tracemalloc.stop()


def test_a_record_larger_than_buffer_bytes_is_too_large() -> None:
    log = FakeLog(max_message_bytes=1 << 20)
    with log.producer(batch_bytes=1000, buffer_bytes=2000) as producer:
        producer.send("t", bytes(1900))
        with pytest.raises(RecordTooLarge, match="buffer_bytes"):
            producer.send("t", bytes(2000))
    assert [len(value or b"") for value in log.partition("t").values] == [1900]


def test_a_send_waits_for_memory_that_another_thread_is_about_to_free() -> None:
    log = FakeLog(partitions=2)
    entered, leave, block = blocking()
    log.partition("t", 0).script.append(block)
    with log.producer(batch_bytes=1000, buffer_bytes=1000) as producer:
        first = producer.send("t", bytes(800), partition=0)
        writer = call_in_thread(producer.flush)
        entered.wait()
        sent: list[object] = []
        sender = call_in_thread(lambda: sent.append(producer.send("t", bytes(800), partition=1)))
        sender.join(0.05)
        assert sent == []
        leave.set()
        sender.join()
        writer.join()
        assert first.result().offset == 0
    assert len(log.partition("t", 1).values) == 1


def test_memory_that_does_not_become_free_is_a_timeout_and_nothing_is_sent() -> None:
    log = FakeLog(partitions=2)
    entered, leave, block = blocking()
    log.partition("t", 0).script.append(block)
    with log.producer(batch_bytes=1000, buffer_bytes=1000, max_block_ms=0) as producer:
        producer.send("t", bytes(800), partition=0)
        writer = call_in_thread(producer.flush)
        entered.wait()
        with pytest.raises(BufferTimeout, match="1000 of 1000 buffer bytes") as caught:
            producer.send("t", bytes(800), partition=1)
        assert caught.value.retriable
        leave.set()
        writer.join()
        producer.send("t", bytes(801), partition=1)
    assert [len(value or b"") for value in log.partition("t", 1).values] == [801]


def test_a_stuck_partition_does_not_keep_the_others_from_making_room() -> None:
    log = FakeLog(partitions=3)
    entered, leave, block = blocking()
    log.partition("t", 0).script.append(block)
    with log.producer(batch_bytes=1000, buffer_bytes=3000) as producer:
        stuck = producer.send("t", bytes(800), partition=0)
        writer = call_in_thread(stuck.result)
        entered.wait()
        for n in range(20):
            producer.send("t", bytes(800), partition=1 + n % 2)
        leave.set()
        writer.join()
    assert [len(log.partition("t", number).values) for number in range(3)] == [1, 10, 10]
