"""How much a consumer holds in memory: bounded per partition, over all partitions, and for hostile
batches."""

from __future__ import annotations

from typing import Any

import pytest

from pylog.codec.batch import BatchView
from pylog.consumer import Consumer
from pylog.limits import DECODE_RECORDS_MAX
from tests.consumer.fakes import FakeLog, consumer_of

KIB = 1 << 10
STORED = 10 * KIB  # a batch of ten values of 1000 bytes, roughly


def wide_log(partitions: int, batches: int, codec: str = "none") -> FakeLog:
    log = FakeLog(orders=partitions)
    for number in range(partitions):
        for _ in range(batches):
            log.partition("orders", number).append(*[b"x" * 1_000] * 10, codec=codec)
    return log


def held_while_draining(consumer: Consumer, log: FakeLog, records: int) -> int:
    """The most that was held between polls, while every record of the log is read."""
    count = most = 0
    while records_now := consumer.poll():
        count += len(records_now)
        most = max(most, consumer.metrics()["read_ahead_bytes"])
    assert count == records
    assert consumer.metrics()["read_ahead_bytes"] == 0
    return most


def test_one_partition_is_read_ahead_by_at_most_its_own_bound() -> None:
    log = wide_log(partitions=1, batches=50)
    consumer = consumer_of(log, "orders", max_poll_records=3, max_partition_fetch_bytes=3 * STORED)
    most = held_while_draining(consumer, log, 500)
    assert 2 * STORED < most <= 3 * STORED


def test_all_partitions_together_are_read_ahead_by_at_most_fetch_max_bytes() -> None:
    log = wide_log(partitions=20, batches=10)
    consumer = consumer_of(
        log, "orders", max_poll_records=3, max_partition_fetch_bytes=3 * STORED, fetch_max_bytes=10 * STORED
    )
    most = held_while_draining(consumer, log, 2_000)
    assert 7 * STORED < most <= 10 * STORED


def test_the_bound_of_all_partitions_bounds_each_of_them() -> None:
    log = wide_log(partitions=1, batches=50)
    consumer = consumer_of(log, "orders", max_poll_records=3, fetch_max_bytes=3 * STORED)
    assert held_while_draining(consumer, log, 500) <= 3 * STORED


def test_no_partition_starves_while_there_is_no_room_for_all() -> None:
    log = wide_log(partitions=10, batches=10)
    consumer = consumer_of(
        log, "orders", max_poll_records=1, max_partition_fetch_bytes=2 * STORED, fetch_max_bytes=4 * STORED
    )
    served = [0] * 10
    last_turn = [0] * 10
    for turn in range(1_000):
        (record,) = consumer.poll()
        served[record.partition] += 1
        last_turn[record.partition] = turn
    assert served == [100] * 10
    assert min(last_turn) >= 800, "the last round, of one fetch of twenty records each, has all of them"


def test_a_batch_larger_than_every_bound_is_read_all_the_same() -> None:
    log = wide_log(partitions=3, batches=3)
    consumer = consumer_of(log, "orders", max_poll_records=4, max_partition_fetch_bytes=1, fetch_max_bytes=1)
    most = held_while_draining(consumer, log, 90)
    assert most <= 1.1 * STORED, "one such batch at a time"


@pytest.fixture
def sized_decoders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Decoders that tell the size of their payload; the list holds the payloads now open, as the
    test sees them."""
    opened: list[int] = []
    decoder_of = BatchView.decoder

    class Sized:
        def __init__(self, decoder: Any, size_bytes: int) -> None:
            self._decoder = decoder
            self.size_bytes = size_bytes
            opened.append(size_bytes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._decoder, name)

        def __del__(self) -> None:
            opened.remove(self.size_bytes)

    def sized(view: BatchView, topic: str, partition: int, limit_bytes: int) -> Any:
        return Sized(decoder_of(view, topic, partition, limit_bytes), len(view.payload(limit_bytes)))

    monkeypatch.setattr(BatchView, "decoder", sized)
    return opened


def test_decompressed_bytes_count(sized_decoders: list[int]) -> None:
    log = wide_log(partitions=10, batches=5, codec="gzip")  # a hundred times smaller than what is in them
    limit = 4 * STORED
    consumer = consumer_of(log, "orders", max_poll_records=1, fetch_max_bytes=limit, max_partition_fetch_bytes=KIB)
    most = read = 0
    while records := consumer.poll():
        read += len(records)
        most = max(most, sum(sized_decoders))
        assert consumer.metrics()["read_ahead_bytes"] >= sum(sized_decoders)
    assert read == 500
    assert 3 * STORED < most <= limit + STORED, "the bound, and the one batch that may exceed it"
    assert sized_decoders == []


def test_no_partition_starves_while_there_is_no_room_to_decompress(sized_decoders: list[int]) -> None:
    log = wide_log(partitions=10, batches=5, codec="gzip")
    consumer = consumer_of(log, "orders", max_poll_records=1, fetch_max_bytes=2 * STORED, max_partition_fetch_bytes=KIB)
    last_turn = [0] * 10
    for turn in range(500):
        (record,) = consumer.poll()
        last_turn[record.partition] = turn
    assert min(last_turn) >= 400
    assert consumer.poll() == []


@pytest.mark.parametrize("act", ["pause", "unsubscribe", "close", "seek"])
def test_what_is_not_going_to_be_returned_is_let_go(act: str, sized_decoders: list[int]) -> None:
    log = wide_log(partitions=1, batches=10, codec="gzip")
    consumer = consumer_of(log, "orders", max_poll_records=1)
    consumer.poll()
    assert sized_decoders != []
    {
        "pause": lambda: consumer.pause(*consumer.assignment()),
        "unsubscribe": consumer.unsubscribe,
        "close": consumer.close,
        "seek": consumer.seek_to_end,
    }[act]()
    assert sized_decoders == []
    assert consumer._fetcher.read_ahead_bytes == 0


def test_paused_partitions_take_no_room_from_the_others() -> None:
    log = wide_log(partitions=4, batches=4)
    consumer = consumer_of(log, "orders", max_poll_records=1, fetch_max_bytes=STORED, max_partition_fetch_bytes=STORED)
    (first,) = consumer.poll()
    consumer.pause(first[:2])
    assert len([record for _ in range(120) for record in consumer.poll()]) == 120


def test_records_are_decoded_in_pieces_whatever_a_batch_claims_and_whatever_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    decoder_of = BatchView.decoder

    class Asked:
        def __init__(self, decoder: Any) -> None:
            self._decoder = decoder

        def take(self, max_records: int) -> Any:
            asked.append(max_records)
            return self._decoder.take(max_records)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._decoder, name)

    monkeypatch.setattr(BatchView, "decoder", lambda *arguments: Asked(decoder_of(*arguments)))
    log = FakeLog(orders=1)
    log["orders"].append(*[b""] * 20_000)
    consumer = consumer_of(log, "orders", max_poll_records=1_000_000, consumer_timeout_ms=0)
    assert len(consumer.poll()) == 20_000
    consumer.seek_to_beginning()
    assert len(list(consumer)) == 20_000
    assert max(asked) == DECODE_RECORDS_MAX


def test_a_batch_that_grows_beyond_fetch_max_bytes_is_refused_only_beyond_the_codecs_own_limit() -> None:
    log = FakeLog(orders=1)
    log["orders"].append(b"x" * (1 << 20), codec="gzip")
    assert len(consumer_of(log, "orders", fetch_max_bytes=KIB).poll()) == 1
