"""The map of keys: both codecs know the newest offset of each key, and leave the same of a
batch."""

from __future__ import annotations

import struct
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.codec import key_map
from pylog.codec.format import INT64_MIN, KEY_ORDINAL_MASK
from pylog.codec.key_map import ENTRY_BYTES, SECRET_BYTES, memory_for
from pylog.errors import CorruptRecord
from tests.codec.conftest import implementation
from tests.codec.reference import TS0, Raw, payload_of

SECRET = b"s" * SECRET_BYTES
PUTS = st.lists(st.tuples(st.binary(max_size=3), st.integers(100, 1 << 40)), max_size=40)


@pytest.fixture(params=["readable", "compiled"], scope="module")
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return key_map if request.param == "readable" else implementation("compiled")


def drawn(random: Random, deltas: list[int]) -> list[Raw]:
    return [
        Raw(
            random.randrange(-50, 50),
            delta,
            random.choice([None, b"", b"%d" % random.randrange(30), b"k" * random.randrange(40)]),
            random.choice([None, b"", b"v" * random.randrange(90)]),
            ((b"h", None),) * random.randrange(2),
        )
        for delta in deltas
    ]


@pytest.mark.slow
@given(PUTS)
def test_the_newest_offset_of_each_key_is_known(codec: ModuleType, puts: list[tuple[bytes, int]]) -> None:
    keys = codec.KeyMap(memory_for(40), SECRET, 100)
    newest: dict[bytes, int] = {}
    for key, offset in puts:
        assert keys.put(key, offset)
        newest[key] = max(newest.get(key, -1), offset)
    for key, offset in newest.items():
        assert keys.is_superseded(key, offset - 1)
        assert keys.is_superseded(key, 0)
        assert not keys.is_superseded(key, offset)
        assert not keys.is_superseded(key, offset + 1)
    assert keys.count == len(newest)
    assert not keys.is_superseded(b"none of them", 0)


def test_a_full_map_refuses_another_key_and_takes_a_known_one(codec: ModuleType) -> None:
    keys = codec.KeyMap(ENTRY_BYTES * 10, SECRET)
    taken = [number for number in range(20) if keys.put(b"%d" % number, number)]
    assert taken == [*range(9)]
    assert keys.put(b"3", 100)
    assert keys.is_superseded(b"3", 99)
    assert not keys.is_superseded(b"3", 100)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, 5000])
def test_so_many_keys_have_room(codec: ModuleType, count: int) -> None:
    keys = codec.KeyMap(memory_for(count), SECRET)
    assert all(keys.put(b"%d" % number, number) for number in range(count))
    assert not any(keys.is_superseded(b"%d" % number, number) for number in range(count))
    assert all(keys.is_superseded(b"%d" % number, number - 1) for number in range(count))


def test_an_offset_too_far_from_the_first_has_no_room(codec: ModuleType) -> None:
    keys = codec.KeyMap(1 << 10, SECRET, 1000)
    farthest = 1000 + KEY_ORDINAL_MASK - 1
    assert keys.put(b"a", farthest)
    assert not keys.put(b"a", farthest + 1)
    assert not keys.put(b"b", farthest + 1)
    assert keys.is_superseded(b"a", farthest - 1)
    assert not keys.is_superseded(b"a", farthest)
    assert not keys.is_superseded(b"b", 0)
    assert (
        keys.put_records(payload_of([Raw(0, 5, b"c", b""), Raw(0, 9, b"a", b"")]), 2, farthest - 5, 12) == farthest + 4
    )


def test_wrong_arguments_are_refused(codec: ModuleType) -> None:
    with pytest.raises(ValueError, match="a secret of 3 bytes, expected 16"):
        codec.KeyMap(100, b"abc")
    with pytest.raises(ValueError, match="offset 4, the first is 5"):
        codec.KeyMap(100, SECRET, 5).put(b"", 4)


def test_bytes_after_the_last_record_are_damage(codec: ModuleType) -> None:
    keys = codec.KeyMap(memory_for(10), SECRET)
    payload = payload_of([Raw(0, 0, b"a", b"")]) + b"more"
    with pytest.raises(CorruptRecord, match="4 bytes"):
        keys.put_records(payload, 1, 0, 0)
    with pytest.raises(CorruptRecord, match="4 bytes"):
        keys.newest(payload, 1, 0, TS0, -1, 0, 10, False)


def test_keys_are_told_apart_by_their_hash_and_not_by_their_place() -> None:
    """Of the readable map, whose entries can be seen: the part of the hash beside the offset
    counts, too."""
    keys = key_map.KeyMap(ENTRY_BYTES * 4, SECRET)
    assert keys.put(b"a", 7)
    entries = keys._entries
    at = next(at for at in range(0, len(entries), ENTRY_BYTES) if any(entries[at : at + ENTRY_BYTES]))
    hashed, more = struct.unpack_from("<QQ", entries, at)
    assert more & KEY_ORDINAL_MASK == 8
    for changed in (hashed ^ 1, more), (hashed, more ^ 1 << 48), (hashed, more ^ 1 << 63):
        struct.pack_into("<QQ", entries, at, *changed)
        assert not keys.is_superseded(b"a", 0)
    struct.pack_into("<QQ", entries, at, hashed, more)
    assert keys.is_superseded(b"a", 0)


def test_records_are_noted_up_to_the_first_without_room(codec: ModuleType, seed: int) -> None:
    random = Random(seed)
    for _ in range(150):
        deltas = sorted(random.sample(range(300), random.randrange(1, 120)))
        raws = drawn(random, deltas)
        first = random.choice([0, 1000, 1000 + random.randrange(300)])
        room = random.choice([2, 5, 20, 200])
        keys, expected = codec.KeyMap(ENTRY_BYTES * room, SECRET, first), dict[bytes, int]()
        end = 1000 + 300
        for raw, delta in zip(raws, deltas, strict=True):
            if raw.key is None or 1000 + delta < first:
                continue
            if raw.key not in expected and len(expected) == room * 9 // 10:
                end = 1000 + delta
                break
            expected[raw.key] = 1000 + delta
        assert keys.put_records(payload_of(raws), len(raws), 1000, 299) == end
        assert keys.count == len(expected)
        assert all(keys.is_superseded(key, at - 1) for key, at in expected.items())
        assert not any(keys.is_superseded(key, at) for key, at in expected.items())


def test_what_is_left_of_a_batch_is_what_the_rules_say(codec: ModuleType, seed: int) -> None:
    random = Random(seed)
    for _ in range(150):
        deltas = sorted(random.sample(range(300), random.choice([1, 31, 32, 33, 64, 120])))
        raws = drawn(random, deltas)
        keys, newest = codec.KeyMap(1 << 13, SECRET), dict[bytes, int]()
        for raw in random.sample(raws, random.randrange(len(raws) + 1)):
            if raw.key is not None:
                offset = 1000 + random.choice([raw.offset_delta, random.randrange(600)])
                assert keys.put(raw.key, offset)
                newest[raw.key] = max(newest.get(raw.key, -1), offset)
        end, append_time = random.choice([0, 1100, 1200, 9999]), random.choice([-1, TS0 + 1])
        drops_tombstones = random.random() < 0.5
        stay = [
            raw
            for raw, offset in zip(raws, (1000 + delta for delta in deltas), strict=True)
            if offset >= end
            or (
                raw.key is not None
                and newest.get(raw.key, -1) <= offset
                and not (drops_tombstones and raw.value is None)
            )
        ]
        times = [append_time if append_time >= 0 else TS0 + raw.timestamp_delta for raw in stay]
        has_tombstones = any(raw.value is None and 1000 + raw.offset_delta < end for raw in stay)
        found = keys.newest(payload_of(raws), len(raws), 1000, TS0, append_time, 299, end, drops_tombstones)
        left = None if len(stay) == len(raws) else payload_of(stay)
        assert found == (len(stay), has_tombstones, max(times, default=INT64_MIN), left)


def verdict(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except CorruptRecord as error:
        return str(error), error.facts


@pytest.mark.slow
def test_both_say_the_same_of_damaged_records(seed: int) -> None:
    random, compiled = Random(seed), implementation("compiled")
    damaged = 0
    for _ in range(2000):
        raws = drawn(random, sorted(random.sample(range(90), random.randrange(1, 70))))
        payload = bytearray(payload_of(raws))
        del payload[random.choice([len(payload), random.randrange(1, len(payload))]) :]
        for _ in range(random.choice([0, 1, 2])):
            payload[random.randrange(len(payload))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        answers = []
        for codec in key_map, compiled:
            keys = codec.KeyMap(1 << 13, SECRET)
            put = verdict(keys.put_records, bytes(payload), len(raws), 5, 89)
            left = verdict(keys.newest, memoryview(payload), len(raws), 5, TS0, -1, 89, 80, False)
            answers.append((put, left))
        assert answers[0] == answers[1]
        damaged += len(answers[0][1]) == 2
    assert 100 < damaged < 1900
