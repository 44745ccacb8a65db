"""Many records for many partitions: both codecs choose and group as the plain definitions say."""

from __future__ import annotations

from array import array
from random import Random
from types import ModuleType
from typing import Any

import mmh3
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from pylog.codec import RecordEncoder, by_partition
from pylog.codec.format import MURMUR2, MURMUR3
from pylog.errors import ConfigError, RecordTooLarge
from tests.codec.conftest import implementation

KEYS = st.lists(st.none() | st.binary(max_size=80), max_size=40)


@pytest.fixture(params=["readable", "compiled"], scope="module")
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return by_partition if request.param == "readable" else implementation("compiled")


def expected(kind: int, key: bytes, count: int) -> int:
    found = aiokafka_murmur2(key) if kind == MURMUR2 else mmh3.hash(key)
    return (found & 0x7FFFFFFF) % count


@given(st.binary(max_size=200))
def test_murmur2_is_kafkas(codec: ModuleType, key: bytes) -> None:
    found = aiokafka_murmur2(key) & 0xFFFFFFFF
    assert [codec.murmur2(key), codec.murmur2(key), by_partition.compute_murmur2(key)] == [found] * 3


def test_murmur2_of_a_view_is_that_of_its_bytes(codec: ModuleType) -> None:
    key = bytes(range(12))
    for view in (memoryview(key), memoryview(key).cast("B", (3, 4)), memoryview(key).cast("I"), memoryview(key)[:]):
        assert codec.murmur2(view) == codec.murmur2(key)
    assert codec.murmur2(array("I", [1, 2])) == codec.murmur2(array("I", [1, 2]).tobytes())
    with pytest.raises(BufferError):
        codec.murmur2(memoryview(key)[::2])


@pytest.mark.parametrize("wrong", ["text", 5, None])
def test_murmur2_refuses_what_is_not_bytes(codec: ModuleType, wrong: Any) -> None:
    with pytest.raises(TypeError):
        codec.murmur2(wrong)


@given(KEYS, st.sampled_from([MURMUR2, MURMUR3]), st.integers(1, 1000), st.sampled_from([list, tuple]))
def test_each_key_goes_where_its_hash_says(
    codec: ModuleType, keys: list[bytes | None], kind: int, count: int, sequence: type
) -> None:
    chosen = array("i", [-7] * len(keys))
    assert codec.choose_partitions(kind, sequence(keys), 0, chosen, count, 0) == len(keys)
    assert list(chosen) == [0 if key is None else expected(kind, key, count) for key in keys]


def test_an_unknown_hash_places_no_key(codec: ModuleType) -> None:
    chosen = array("i", [-7])
    with pytest.raises(KeyError):
        codec.choose_partitions(9, [b"key"], 0, chosen, 10, 0)
    assert list(chosen) == [-7]


@pytest.mark.parametrize("other", [None, "text", bytearray(b"key"), 5, type("Bytes", (bytes,), {})(b"key")])
def test_what_is_not_plainly_bytes_is_left_to_the_caller(codec: ModuleType, other: Any) -> None:
    keys: list[Any] = [b"a", b"b", other, b"c"]
    chosen = array("i", [-7] * 4)
    assert codec.choose_partitions(MURMUR3, keys, 0, chosen, 10, -1) == 2
    assert list(chosen[2:]) == [-7, -7]
    assert codec.choose_partitions(MURMUR3, keys, 3, chosen, 10, -1) == 4
    assert list(chosen) == [expected(MURMUR3, b"a", 10), expected(MURMUR3, b"b", 10), -7, expected(MURMUR3, b"c", 10)]


def test_groups_hold_each_place_once_in_order(codec: ModuleType, seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        count = random.choice([1, 2, 7, 200])
        partitions = array("i", [random.randrange(count) for _ in range(random.choice([0, 1, 10, 300]))])
        order, groups = codec.group_by_partition(partitions, count)
        assert sorted(order) == list(range(len(partitions)))
        assert [number for number, _, _ in groups] == list(dict.fromkeys(partitions))
        at = 0
        for number, start, stop in groups:
            assert start == at
            assert list(order[start:stop]) == [place for place, found in enumerate(partitions) if found == number]
            at = stop
        assert at == len(partitions)
        items = [object() for _ in partitions]
        for some in (items, tuple(items)):
            assert codec.pick(some, order) == [items[place] for place in order]
        times = array("q", [random.randrange(-(2**63), 2**63) for _ in partitions])
        assert codec.pick_times(times, order) == array("q", [times[place] for place in order])


def test_only_times_that_are_there_are_picked(codec: ModuleType) -> None:
    with pytest.raises(IndexError):
        codec.pick_times(array("q", [1, 2]), array("i", [0, 2]))
    with pytest.raises(ConfigError):
        codec.pick_times(array("i", [1, 2]), array("i", [0, 1]))


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
def test_a_number_that_is_no_partition_is_refused(codec: ModuleType, wrong: int) -> None:
    with pytest.raises(IndexError):
        codec.group_by_partition(array("i", [0, 2, wrong]), 3)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(100, 400))
def test_records_that_are_counted_fit_alone(codec: ModuleType, value_size: int, key_size: int, limit: int) -> None:
    values, keys = [b"", bytes(value_size)], [None, bytes(key_size)]
    counted = codec.count_plain(values, keys, limit)
    encoder = RecordEncoder(limit)
    try:
        encoder.append(2**63 - 1, keys[1], values[1], ())
    except RecordTooLarge:
        assert counted == 1
    else:
        assert counted == 2 or value_size + key_size > limit - 61 - 33


@pytest.mark.parametrize("other", ["text", bytearray(b"v"), memoryview(b"v"), 5])
def test_what_is_not_plainly_bytes_is_not_counted(codec: ModuleType, other: Any) -> None:
    assert codec.count_plain([b"a", None, other, b"c"], None, 1000) == 2
    assert codec.count_plain((b"a", None, b"c"), (b"k", None, other), 1000) == 2
    assert codec.count_plain((b"a", None, b"c"), [None] * 3, 1000) == 3
    assert codec.count_plain([], None, 1000) == 0
