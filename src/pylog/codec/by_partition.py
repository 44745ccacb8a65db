"""Many records for the partitions of a topic, readable: where each key goes, and the records in groups, one for each
partition.

The compiled codec has the same functions. Numbers of partitions and places are in an ``array("i")``, one for each record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeVar

import mmh3

from pylog.codec.format import HEADER_BYTES, MAX_FRAMING_BYTES, MURMUR2, MURMUR3, POSITIVE

T = TypeVar("T")

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_REMEMBERED_KEYS = 16_384
_REMEMBERED_KEY_BYTES = 64  # together they bound what is remembered to about 3 MB


@lru_cache(maxsize=64)
def _words(length: int) -> Struct:
    return Struct(f"<{length // 4}I")


def compute_murmur2(key: bytes) -> int:
    """MurmurHash2, 32 bits, as Kafka's ``Utils.murmur2`` (format.md, section 10), unsigned."""
    length = len(key)
    h = _SEED ^ length
    for word in _words(length & ~3).unpack_from(key):
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    tail = length & 3
    if tail:
        h = (h ^ int.from_bytes(key[-tail:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


_remembered_murmur2 = lru_cache(maxsize=_REMEMBERED_KEYS)(compute_murmur2)


def murmur2(key: bytes) -> int:
    """The same. It takes a microsecond in Python, so the hashes of short keys are remembered."""
    return _remembered_murmur2(key) if len(key) <= _REMEMBERED_KEY_BYTES else compute_murmur2(key)


_HASHES = {MURMUR2: murmur2, MURMUR3: mmh3.mmh3_32_uintdigest}


def choose_partitions(
    kind: int, keys: Sequence[bytes | None], start: int, partitions: array[int], count: int, keyless: int
) -> int:
    """Fill ``partitions`` from ``start`` on with what the hash ``kind`` chooses of ``count`` for each key.

    A record without a key goes to ``keyless``. Returns the index of the first key that is left to the caller: one that is
    neither ``bytes`` nor None, or is None while ``keyless`` is negative; the number of keys if there is none.
    """
    key_hash = _HASHES[kind]
    for index in range(start, len(keys)):
        key = keys[index]
        if type(key) is bytes:
            partitions[index] = (key_hash(key) & POSITIVE) % count
        elif key is None and keyless >= 0:
            partitions[index] = keyless
        else:
            return index
    return len(keys)


def group_by_partition(partitions: array[int], count: int) -> tuple[array[int], list[tuple[int, int, int]]]:
    """The places of the records, those of each partition together and in order, and the groups that they are in: number
    of the partition, start and stop. The partition of the first record comes first. ``IndexError`` for a number that is
    not below ``count``."""
    places: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions):
        if not 0 <= partition < count:
            raise IndexError(partition)
        places.setdefault(partition, []).append(place)
    order, groups = array("i"), []
    for partition, chosen in places.items():
        groups.append((partition, len(order), len(order) + len(chosen)))
        order.extend(chosen)
    return order, groups


def pick(items: Sequence[T], order: array[int]) -> list[T]:
    """The items at these places, in this order."""
    return [items[place] for place in order]


def count_plain(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, limit_bytes: int) -> int:
    """How many records come before the first that is not made of ``bytes`` and None, or that might be too large for a
    batch of ``limit_bytes``."""
    most = limit_bytes - HEADER_BYTES - MAX_FRAMING_BYTES
    for index, value in enumerate(values):
        key = None if keys is None else keys[index]
        is_plain = (type(value) is bytes or value is None) and (type(key) is bytes or key is None)
        if not is_plain or len(value or b"") + len(key or b"") > most:
            return index
    return len(values)
