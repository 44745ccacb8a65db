"""The entries of a producer snapshot: the compiled functions say what the readable ones say, of
whatever bytes."""

from __future__ import annotations

from random import Random

import pytest

from pylog import codec
from pylog.codec import producer_entries as readable
from pylog.codec.format import Buffer
from pylog.codec.producer_entries import PRODUCER_ENTRY, PRODUCER_ENTRY_BYTES

NUMBERS = [-(2**63), -2, -1, 0, 1, 2, 1000, 2**31 - 1, 2**62, 2**63 - 1]
LIMITS = [2**63, 2**15, 2**31, 2**63, 2**31, 2**63, 2**31, 2**63]
pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="there is nothing to compare with")


def drawn(random: Random) -> list[bytes]:
    """A few entries, most of them possible, most by rising id."""
    found = []
    producer_id = 0
    for _ in range(random.randrange(6)):
        producer_id += random.randrange(1, 4)
        last_offset = random.randrange(-1, 20)
        fields = [producer_id, 0, 5, last_offset, random.randrange(max(last_offset, 0) + 1), random.randrange(9), 0, -1]
        if random.random() < 0.4:
            field = random.randrange(8)
            number = random.choice(NUMBERS)
            fields[field] = max(-LIMITS[field], min(number, LIMITS[field] - 1))
        found.append(PRODUCER_ENTRY.pack(*fields))
    return found


def test_both_say_the_same_of_any_entries(seed: int) -> None:
    random = Random(seed)
    for _ in range(3000):
        data: Buffer = b"".join(drawn(random))
        if random.random() < 0.5:
            data = memoryview(bytearray(data))
        assert codec.check_producers(data) == readable.check_producers(data)
        before_ms, before_offset = random.randrange(-1, 10), random.randrange(-1, 20)
        assert codec.without_expired(data, before_ms, before_offset) == readable.without_expired(
            data, before_ms, before_offset
        )
        if readable.check_producers(data)[:2] == (-1, True):
            for producer_id in range(-1, 20):
                assert codec.find_producer(data, producer_id) == readable.find_producer(data, producer_id)


def test_a_producer_is_found_or_its_place(seed: int) -> None:
    ids = sorted(Random(seed).sample(range(10_000), 500))
    data = b"".join(PRODUCER_ENTRY.pack(number, 0, 0, 0, 0, 0, 0, -1) for number in ids)
    for find in (codec.find_producer, readable.find_producer):
        assert [find(data, number) for number in ids] == list(range(500))
        assert find(data, -1) == ~0
        assert find(data, 10_000) == ~500
        assert find(b"", 7) == ~0


def test_nothing_is_copied_where_nothing_expires() -> None:
    data = PRODUCER_ENTRY.pack(7, 0, 0, 5, 0, 5, 0, -1)
    for left_of in (codec.without_expired, readable.without_expired):
        assert left_of(data, 5, 6) is data
        assert left_of(data, 6, 5) is data
        assert bytes(left_of(data, 6, 6)) == b""
        assert bytes(left_of(data * 2, 6, 6)) == b""
        in_transaction = PRODUCER_ENTRY.pack(7, 0, 0, 5, 0, 5, 0, 3)
        assert bytes(left_of(data + in_transaction + data, 6, 6)) == in_transaction


def test_a_part_of_an_entry_is_not_looked_at() -> None:
    part = bytes(range(PRODUCER_ENTRY_BYTES - 1))
    assert codec.check_producers(part) == (-1, True, -1, [])
    assert codec.find_producer(part, 0) == ~0
