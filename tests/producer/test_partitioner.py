from __future__ import annotations

from random import Random

import mmh3
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from pylog.codec import murmur2
from pylog.codec.format import POSITIVE
from pylog.errors import InvalidPartition
from pylog.producer.partitioner import NAMED_PARTITIONERS, Custom, RoundRobin, Sticky
from tests.producer.fakes import FakeLog

# Kafka's own UtilsTest.testMurmur2
VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
    "": 275646681,
}
COUNTS = st.integers(1, 1000)


@pytest.mark.parametrize("key", VECTORS)
def test_murmur2_gives_the_values_of_kafkas_own_test(key: str) -> None:
    assert murmur2(key.encode()) == VECTORS[key] & 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_murmur2_agrees_with_aiokafka(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_murmur2_of_a_key_that_is_asked_for_again_is_the_same(key: bytes) -> None:
    key_hash = NAMED_PARTITIONERS["murmur2"].key_hash
    assert key_hash is not None
    assert [key_hash(key), key_hash(key), key_hash(bytearray(key)) if len(key) > 64 else murmur2(key)] == [
        murmur2(key)
    ] * 3


@given(st.binary(max_size=200), COUNTS)
def test_murmur3_puts_a_key_where_its_formula_says(key: bytes, count: int) -> None:
    key_hash = NAMED_PARTITIONERS["murmur3"].key_hash
    assert key_hash is not None
    assert (key_hash(key) & POSITIVE) % count == (mmh3.hash(key) & 0x7FFFFFFF) % count


@given(COUNTS, st.integers())
def test_sticky_stays_until_its_batch_closes_and_then_goes_elsewhere(count: int, seed: int) -> None:
    choice = Sticky(Random(seed))
    first = choice.choose(None, count)
    assert 0 <= first < count
    assert choice.choose(b"keys are ignored", count) == first
    choice.batch_closed((first + 1) % count, count) if count > 1 else None
    assert choice.choose(None, count) == first
    choice.batch_closed(first, count)
    second = choice.choose(None, count)
    assert 0 <= second < count
    assert (second != first) == (count > 1)


def test_sticky_may_go_from_any_partition_to_any_other(seed: int) -> None:
    choice = Sticky(Random(seed))
    steps = set()
    for _ in range(500):
        before = choice.choose(None, 4)
        choice.batch_closed(before, 4)
        steps.add((choice.choose(None, 4) - before) % 4)
    assert steps == {1, 2, 3}


def test_sticky_prefers_no_partition(seed: int) -> None:
    choice = Sticky(Random(seed))
    seen = [0] * 5
    for _ in range(5000):
        partition = choice.choose(None, 5)
        seen[partition] += 1
        choice.batch_closed(partition, 5)
    assert min(seen) > 800


def test_sticky_moves_when_its_partition_is_gone(seed: int) -> None:
    choice = Sticky(Random(seed))
    choice.choose(None, 1000)
    assert choice.choose(None, 1) == 0


@given(COUNTS, st.integers())
def test_round_robin_takes_each_partition_in_turn(count: int, seed: int) -> None:
    choice = RoundRobin(Random(seed))
    taken = [choice.choose(b"same key", count) for _ in range(2 * count)]
    assert sorted(taken[:count]) == list(range(count))
    assert taken[count:] == taken[:count]


@pytest.mark.parametrize("answer", [-1, 3, 1.0, None, "0"])
def test_an_answer_that_is_no_partition_is_refused_with_both_sides_named(answer: object) -> None:
    choice = Custom(lambda key, count: answer)
    with pytest.raises(InvalidPartition, match=r"expected 0 to 2") as caught:
        choice.choose(b"k", 3)
    assert (caught.value.partition, caught.value.partition_count, caught.value.key) == (answer, 3, b"k")


# Through a producer


def test_records_with_one_key_go_to_one_partition_and_the_formula_holds() -> None:
    log = FakeLog(partitions=12)
    with log.producer() as producer:
        for n in range(600):
            producer.send("t", b"%d" % n, key=b"key %d" % (n % 50))
    for (_, number), partition in log.partitions.items():
        for record in partition.records:
            assert (mmh3.hash(record.key) & 0x7FFFFFFF) % 12 == number
    assert sum(len(partition.records) for partition in log.partitions.values()) == 600


@pytest.mark.parametrize("key", [b"", b"k", bytearray(b"k"), memoryview(b"k")])
@pytest.mark.parametrize("partitioner", ["murmur2", "murmur3"])
def test_every_kind_of_bytes_is_a_key(partitioner: str, key: bytes) -> None:
    log = FakeLog(partitions=12)
    with log.producer(partitioner=partitioner, partitioner_override=True) as producer:
        metadata = producer.send("t", b"v", key=key).result()
    key_hash = {"murmur2": murmur2, "murmur3": mmh3.hash}[partitioner]
    assert metadata.partition == (key_hash(bytes(key)) & 0x7FFFFFFF) % 12
    assert log.partition("t", metadata.partition).records[0].key == bytes(key)


def test_a_custom_partitioner_sees_key_and_count_and_decides() -> None:
    log = FakeLog(partitions=4)
    asked: list[tuple[bytes | None, int]] = []

    def last(key: bytes | None, count: int) -> int:
        asked.append((key, count))
        return count - 1

    with log.producer(partitioner=last, partitioner_override=True) as producer:
        producer.send("t", b"1", key=b"k")
        producer.send("t", b"2")
        producer.send_many("t", [b"3", b"4"], keys=[b"x", None])
    assert asked == [(b"k", 4), (None, 4), (b"x", 4), (None, 4)]
    assert log.partition("t", 3).values == [b"1", b"2", b"3", b"4"]


def test_an_error_of_a_custom_partitioner_is_the_callers() -> None:
    def broken(key: bytes | None, count: int) -> int:
        raise LookupError("no such tenant")

    log = FakeLog(partitions=4)
    with log.producer(partitioner=broken, partitioner_override=True) as producer:
        with pytest.raises(LookupError):
            producer.send("t", b"1", key=b"k")
        with pytest.raises(LookupError):
            producer.send_many("t", [b"1"], keys=[b"k"])
        assert producer.send("t", b"2", partition=1).result().partition == 1


def test_keyless_records_stay_together_until_their_batch_is_written() -> None:
    log = FakeLog(partitions=8)
    with log.producer() as producer:
        for _ in range(20):
            deliveries = [producer.send("t", b"v") for _ in range(10)]
            producer.flush()
            assert len({delivery.result().partition for delivery in deliveries}) == 1
    assert len(log.partitions) > 1
