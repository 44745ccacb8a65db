from __future__ import annotations

from array import array
from collections.abc import Iterator
from io import BytesIO
from random import Random
from typing import Any

import mmh3
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import (
    BufferTimeout,
    ConfigError,
    InvalidPartition,
    InvalidTimestamp,
    PylogError,
    RecordTooLarge,
    SerializationError,
)
from pylog.producer.deliveries import Deliveries
from pylog.producer.delivery import Delivery
from tests.producer.fakes import FakeLog

KEYS = st.none() | st.binary(max_size=3)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=60), KEYS), max_size=80),
    st.booleans(), st.none() | st.integers(0, 3), st.integers(1, 4), st.integers(150, 1000),
    st.sampled_from(["murmur3", "murmur2", "round_robin", "sticky"]), st.sampled_from([0, 60_000]),
)  # fmt: skip
def test_it_sends_what_as_many_sends_would_in_the_same_order(
    records: list[tuple[bytes | None, bytes | None]], with_keys: bool, partition: int | None, partitions: int,
    batch_bytes: int, partitioner: str, linger_ms: int,
) -> None:  # fmt: skip
    log = FakeLog(partitions=partitions)
    values = [value for value, _ in records]
    keys = [key for _, key in records] if with_keys else None
    where = None if partition is None else min(partition, partitions - 1)
    with log.producer(
        batch_bytes=batch_bytes, partitioner=partitioner, partitioner_override=True, linger_ms=linger_ms
    ) as producer:
        deliveries = producer.send_many("t", values, keys=keys, partition=where, timestamp_ms=9)
        assert linger_ms or deliveries.done()
        metadata = deliveries.result()
    assert len(deliveries) == len(metadata) == len(values)
    stored = {(number, r.offset): r for (_, number), p in log.partitions.items() for r in p.records}
    assert len(stored) == len(values)
    for number, found in enumerate(metadata):
        record = stored[found.partition, found.offset]
        assert (record.value, record.key, record.timestamp_ms) == (values[number], keys[number] if keys else None, 9)
        if where is not None:
            assert found.partition == where
        elif record.key is not None and partitioner == "murmur3":
            assert found.partition == (mmh3.hash(record.key) & 0x7FFFFFFF) % partitions
    for number in range(partitions):
        offsets = [found.offset for found in metadata if found.partition == number]
        assert offsets == sorted(offsets)


@pytest.mark.slow
@given(
    st.integers(1, 200), st.integers(0, 2**32), st.sampled_from([0, 1, 30, 600]),
    st.sampled_from(["murmur3", "murmur2"]), st.sampled_from([150, 600, 1 << 20]),
    st.sampled_from([None, "value", "key", "large", "time"]), st.sampled_from([2000, 1 << 25]),
)  # fmt: skip
def test_records_with_keys_are_where_a_simple_model_puts_them(
    partitions: int, seed: int, count: int, partitioner: str, batch_bytes: int, wrong: str | None, buffer_bytes: int
) -> None:
    """The model: each record in its turn to the partition of its key, until one is refused."""
    random = Random(seed)
    key_hash = {"murmur3": mmh3.hash, "murmur2": aiokafka_murmur2}[partitioner]
    plain_keys = [b"%d" % random.randrange(2 * partitions) for _ in range(count)]
    plain_values = [b"%d " % n + bytes(random.choice([0, 10, 10, 100, 300])) for n in range(count)]
    keys: list[Any] = list(plain_keys)
    values: list[Any] = list(plain_values)
    for place in random.sample(range(count), count // 20):  # like bytes, and no bytes
        changed = random.choice([keys, values])
        changed[place] = random.choice([bytearray, memoryview])(changed[place])
    accepted = count
    if wrong is not None and count:
        accepted = 0 if wrong == "time" else random.randrange(count)
        if wrong == "key":
            keys[accepted] = random.choice(["text", 5])
        elif wrong != "time":
            values[accepted] = random.choice(["text", 5]) if wrong == "value" else bytes(2001)
    log = FakeLog(partitions=partitions, partitioner=partitioner, max_message_bytes=2000)
    opened = random.sample(range(partitions), partitions // 2)
    model = [[b"before"] if number in opened else [] for number in range(partitions)]
    for key, value in zip(plain_keys[:accepted], plain_values, strict=False):
        model[(key_hash(key) & 0x7FFFFFFF) % partitions].append(value)
    called: list[Delivery] = []
    with log.producer(
        batch_bytes=batch_bytes, buffer_bytes=max(batch_bytes, buffer_bytes), on_delivery=called.append
    ) as producer:
        for number in opened:
            producer.send("t", b"before", partition=number)
        timestamp_ms = -1 if wrong == "time" else 9
        if accepted < count:
            with pytest.raises(PylogError) as caught:
                producer.send_many("t", values, keys=keys, timestamp_ms=timestamp_ms)
            assert caught.value.index == accepted
        else:
            metadata = producer.send_many("t", values, keys=keys, timestamp_ms=timestamp_ms).result()
            assert [model[at.partition][at.offset] for at in metadata] == plain_values
    assert [log.partition("t", number).values for number in range(partitions)] == model
    assert len(called) == len(set(map(id, called))) == len(opened) + accepted
    assert all(delivery.exception() is None for delivery in called)


def test_records_without_a_key_among_others_stay_on_the_sticky_partition(seed: int) -> None:
    random = Random(seed)
    log = FakeLog(partitions=50)
    with log.producer() as producer:
        sticky = producer.send("t", b"v").result().partition
        producer.flush()
        assert producer.send("t", b"v").result().partition != sticky  # another after each batch
        for keys in ([None, b"a", None, None, b"b", None], [random.choice([None, b"k"]) for _ in range(500)]):
            current = producer.send("t", b"v")
            sent = producer.send_many("t", [b"v"] * len(keys), keys=keys)
            found = {at.partition for at, key in zip(sent.result(), keys, strict=True) if key is None}
            assert found == {current.result().partition}


def test_any_iterable_will_do() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send_many("t", (b"%d" % n for n in range(3)), keys=iter([b"a", b"b", b"c"]))
        producer.send_many("t", {b"x": 1, b"y": 2})
        assert len(producer.send_many("t", [])) == 0
    assert log.partition("t").values == [b"0", b"1", b"2", b"x", b"y"]


@pytest.mark.parametrize("how", ["a view that is filled again", "a bytearray that is filled again", "a serializer's"])
def test_a_buffer_that_is_filled_again_for_the_next_record_is_copied(how: str) -> None:
    source, buffer = BytesIO(b"aaaabbbbcc"), bytearray(4)

    def pieces() -> Iterator[memoryview | bytearray]:
        while count := source.readinto(buffer):
            yield memoryview(buffer)[:count] if how == "a view that is filled again" else buffer

    def refill(value: bytes) -> bytearray:
        buffer[:] = value
        return buffer

    log = FakeLog()
    if how == "a serializer's":
        with log.producer(value_serializer=refill) as producer:
            producer.send_many("t", [b"aaaa", b"bbbb", b"cc"])
    else:
        with log.producer() as producer:
            producer.send_many("t", pieces())
    last = b"ccbb" if how == "a bytearray that is filled again" else b"cc"
    assert log.partition("t").values == [b"aaaa", b"bbbb", last]


def test_a_serializer_gets_a_buffer_of_the_same_kind() -> None:
    log = FakeLog()
    with log.producer(
        value_serializer=lambda value: value.tobytes() if isinstance(value, memoryview) else bytes(value)
    ) as producer:
        producer.send_many("t", iter([memoryview(b"a"), bytearray(b"b"), b"c", None]))
    assert log.partition("t").values == [b"a", b"b", b"c", None]


def test_a_view_that_an_iterator_releases_is_refused_at_its_place() -> None:
    released = memoryview(b"x")
    released.release()
    log = FakeLog()
    with log.producer() as producer, pytest.raises(SerializationError) as caught:
        producer.send_many("t", iter([b"1", released]))
    assert caught.value.facts["index"] == 1


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_list_that_changes_during_the_call_is_sent_as_it_was(partitions: int) -> None:
    """For example in a callback of records sent before, which the call may run."""
    pending = [b"%03d" % number * 30 for number in range(100)]
    keys = [b"%d" % number for number in range(100)]
    log = FakeLog(partitions=partitions)
    with log.producer(batch_bytes=600) as producer:
        for some in (None, keys):
            given = list(pending)
            producer.send("t", b"first", partition=0).add_done_callback(lambda _, given=given: given.clear())
            assert len(producer.send_many("t", given, keys=some)) == 100
            assert given == []
    sent = [value for number in range(partitions) for value in log.partition("t", number).values]
    assert sorted(sent) == sorted([b"first", *pending] * 2)  # type: ignore[type-var]


def test_deliveries_are_a_sequence_whose_items_are_made_when_asked_for() -> None:
    log = FakeLog(partitions=3)
    with log.producer(batch_bytes=200) as producer:
        for keys in (None, [b"%d" % n for n in range(50)]):
            deliveries = producer.send_many("t", [b"v"] * 50, keys=keys)
            assert isinstance(deliveries, Deliveries)
            where = [delivery.result()[1:3] for delivery in deliveries]
            assert [deliveries[n].result()[1:3] for n in range(50)] == where
            assert [delivery.result()[1:3] for delivery in deliveries[10:20:3]] == where[10:20:3]
            assert deliveries[-1].result()[1:3] == where[-1]
            assert [delivery.result()[1:3] for delivery in reversed(deliveries)] == where[::-1]
            with pytest.raises(IndexError):
                deliveries[50]
            assert repr(deliveries) == "<Deliveries of 50 records>"


@pytest.mark.parametrize("keys", [None, [b"1", b"2", b"3"]])
def test_deliveries_of_one_record_are_equal(keys: Any) -> None:
    told: list[Delivery] = []
    with FakeLog(partitions=2).producer(on_delivery=told.append) as producer:
        deliveries = producer.send_many("t", [b"a", b"b", b"c"], keys=keys)
        one = producer.send("t", b"a")
    assert deliveries[1] in deliveries
    assert deliveries[0] != deliveries[1] != one
    assert set(told) == {*deliveries, one}
    assert len({*deliveries, *deliveries}) == 3
    assert one != 1


def test_more_than_the_buffer_holds_is_sent_in_one_call() -> None:
    log = FakeLog()
    with log.producer(batch_bytes=1000, buffer_bytes=1000) as producer:
        producer.send_many("t", [b"%d" % n for n in range(10_000)])
    assert log.partition("t").values == [b"%d" % n for n in range(10_000)]


@pytest.mark.slow
def test_many_keyless_records_are_spread_batch_by_batch() -> None:
    log = FakeLog(partitions=4)
    with log.producer(batch_bytes=10_000) as producer:
        deliveries = producer.send_many("t", [b"%d" % n for n in range(100_000)])
        assert [log.partition("t", m.partition).values[m.offset] for m in deliveries.result()[::9973]] == [
            b"%d" % n for n in range(0, 100_000, 9973)
        ]
    counts = [len(log.partition("t", number).values) for number in range(4)]
    assert sum(counts) == 100_000
    assert max(counts) < 100_000  # which ones follow one another is chance; that it is never the same one twice is not


def test_a_record_larger_than_batch_bytes_goes_alone_in_the_midst_of_the_others() -> None:
    log = FakeLog()
    values = [b"a", bytes(5000), b"b", bytes(6000), bytes(7000), b"c"]
    with log.producer(batch_bytes=1000) as producer:
        producer.send_many("t", values)
        producer.send_many("t", values, keys=[b"k"] * 6)
    assert log.partition("t").values == values * 2


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("bad", [0, 1, 7, 29])
@pytest.mark.parametrize(
    ("wrong", "error"), [("text", SerializationError), (bytes(3000), RecordTooLarge), (object(), SerializationError)]
)
@pytest.mark.parametrize("batch_bytes", [150, 1 << 20])
def test_what_precedes_a_refused_value_is_sent_and_nothing_behind_it(
    keys: bool, bad: int, wrong: Any, error: type[PylogError], batch_bytes: int
) -> None:
    log = FakeLog(partitions=3, max_message_bytes=2000)
    values: list[Any] = [b"%d" % n if n % 3 else bytearray(b"%d" % n) for n in range(30)]
    values[bad] = wrong
    called: list[object] = []
    with log.producer(batch_bytes=batch_bytes, on_delivery=called.append) as producer:
        with pytest.raises(error) as caught:
            producer.send_many("t", values, keys=[b"%d" % (n % 5) for n in range(30)] if keys else None)
        assert caught.value.index == bad
    stored = [record.value for partition in log.partitions.values() for record in partition.records]
    assert sorted(stored, key=lambda value: int(value or b"")) == values[:bad]
    assert len(called) == bad


@pytest.mark.parametrize("bad", [0, 4])
def test_a_key_that_is_not_bytes_and_a_serializer_that_fails_are_refused_at_their_place(bad: int) -> None:
    keys: list[Any] = [b"k"] * 6
    keys[bad] = 5
    log = FakeLog(partitions=3)
    with log.producer() as producer:
        with pytest.raises(SerializationError, match="key is int") as caught:
            producer.send_many("t", [b"v"] * 6, keys=keys)
        assert caught.value.index == bad
    assert sum(len(partition.values) for partition in log.partitions.values()) == bad

    values: list[Any] = ["v"] * 6
    values[bad] = 5
    log = FakeLog(partitions=3)
    with log.producer(value_serializer=str.encode) as producer:
        with pytest.raises(SerializationError, match="value serializer") as caught:
            producer.send_many("t", values, keys=[b"k"] * 6)
        assert caught.value.index == bad
    assert sum(len(partition.values) for partition in log.partitions.values()) == bad


def test_of_two_wrong_records_the_first_is_named() -> None:
    log = FakeLog(partitions=3)
    with log.producer(value_serializer=str.encode, key_serializer=str.encode) as producer:
        with pytest.raises(SerializationError) as caught:
            producer.send_many("t", ["v", "v", 1, "v"], keys=["k", 1, "k", "k"])
        assert (caught.value.index, caught.value.field) == (1, "key")
        with pytest.raises(SerializationError) as caught:
            producer.send_many("t", ["v", 1, "v", "v"], keys=["k", "k", 1, "k"])
        assert (caught.value.index, caught.value.field) == (1, "value")


def test_a_key_that_is_not_bytes_is_refused_where_there_is_no_choice_of_partition_too() -> None:
    log = FakeLog()
    with log.producer() as producer:
        with pytest.raises(SerializationError, match="key is int") as caught:
            producer.send_many("t", [b"v"] * 3, keys=[b"k", 5, b"k"])
        assert caught.value.index == 1
    assert len(log.partition("t").values) == 1


def test_keys_must_be_as_many_as_values() -> None:
    with FakeLog().producer() as producer, pytest.raises(ConfigError, match="1 keys for 2 values"):
        producer.send_many("t", [b"1", b"2"], keys=[b"k"])


def test_an_unknown_partition_is_refused_before_anything_is_sent() -> None:
    log = FakeLog()
    with log.producer() as producer, pytest.raises(InvalidPartition):
        producer.send_many("t", [b"1", b"2"], partition=1)
    assert log.partitions == {}


@pytest.mark.parametrize("keys", [False, True])
def test_a_call_that_times_out_says_what_was_accepted(keys: bool, seed: int) -> None:
    from pylog.errors import DeliveryTimeout

    log = FakeLog(partitions=3)

    def locked() -> None:
        raise DeliveryTimeout("locked")

    for number in range(3):
        log.partition("t", number).script.append(locked if number == 1 else lambda: None)
    random = Random(seed)
    values = [b"%d" % n for n in range(300)]
    key_list = [b"%d" % random.randrange(100) for _ in values]
    producer = log.producer(batch_bytes=200, max_block_ms=0)
    with pytest.raises(BufferTimeout) as caught:
        producer.send_many("t", values, keys=key_list if keys else None, partition=None if keys else 1)
    producer.close()
    stored = {record.value for partition in log.partitions.values() for record in partition.records}
    accepted = caught.value.index
    assert 0 < accepted < 300
    assert set(values[:accepted]) <= stored
    assert values[accepted] not in stored
    assert keys or stored == set(values[:accepted])


def test_what_is_refused_in_a_spread_is_found_without_sending(seed: int) -> None:
    log = FakeLog(partitions=5)
    with log.producer() as producer:
        with pytest.raises(SerializationError):
            producer.send_many("t", [b"1", 2], keys=[b"a", b"b"])
        assert producer.metrics()["reserved_bytes"] > 0
        producer.flush()
        assert producer.metrics()["records_sent"] == 1


@pytest.mark.parametrize("wrong", [1.5, "9", True, 2**63, -1, [1, 2], array("q", [1, 2])], ids=repr)
@pytest.mark.parametrize("keys", [None, [b"k", b"l"]], ids=["no keys", "keys"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_time_that_is_none_is_refused_before_any_record(wrong: Any, keys: Any, partitions: int) -> None:
    log = FakeLog(partitions=partitions)
    with log.producer() as producer:
        with pytest.raises(InvalidTimestamp, match="expected whole milliseconds") as caught:
            producer.send_many("t", [b"a", b"b"], keys=keys, timestamp_ms=wrong)
        assert caught.value.index == 0
    assert not any(log.partition("t", number).records for number in range(partitions))
