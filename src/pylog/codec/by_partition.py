"""Chooses a partition for each of many keys, and groups records by partition (readable codec).

Partition numbers and record indexes are in an ``array("i")``, one per record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeVar

import mmh3

from pylog.codec.format import HEADER_BYTES, MAX_FRAMING_BYTES, MURMUR2, MURMUR3, POSITIVE
from pylog.codec.times import times_of

T = TypeVar("T")

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_REMEMBERED_KEYS = 16_384
_REMEMBERED_KEY_BYTES = 64  # together about 3 MB


@lru_cache(maxsize=64)
def _words(length: int) -> Struct:
    return Struct(f"<{length // 4}I")


def compute_murmur2(key: bytes) -> int:
    """Kafka's ``Utils.murmur2``, as an unsigned number."""
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
    """``compute_murmur2`` with a cache for short keys, since it takes a microsecond in Python."""
    if type(key) is not bytes:
        view = memoryview(key)  # its length may count other items than bytes
        if not view.c_contiguous:
            raise BufferError("a key must be contiguous")
        key = view.tobytes()
    return _remembered_murmur2(key) if len(key) <= _REMEMBERED_KEY_BYTES else compute_murmur2(key)


_HASHES = {MURMUR2: murmur2, MURMUR3: mmh3.mmh3_32_uintdigest}


def choose_partitions(
    kind: int, keys: Sequence[bytes | None], start: int, partitions: array[int], count: int, keyless: int
) -> int:
    """Fill ``partitions`` from ``start``: for each key one of ``count`` partitions, by hash
    ``kind``.

    A record without a key goes to ``keyless``. Returns the index of the first key left to the
    caller (not ``bytes`` or None, or None if ``keyless`` is negative), or else the number of keys.
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
    """The indexes of the records, grouped by partition; and per group: partition, start and stop.

    The order of partitions is that of their first records. ``IndexError`` for a partition that is
    not in 0 .. ``count`` - 1.
    """
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
    """The items at these indexes, in this order."""
    return [items[place] for place in order]


def pick_times(times: array[int], order: array[int]) -> array[int]:
    """The same of timestamps in an ``array("q")``."""
    time_of = times_of(times, 0, len(times))
    return array("q", [time_of(place) for place in order])


def count_plain(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, limit_bytes: int) -> int:
    """The number of records before the first one that has a key or a value other than ``bytes`` and
    None, or may be too large for a batch of ``limit_bytes``."""
    most = limit_bytes - HEADER_BYTES - MAX_FRAMING_BYTES
    for index, value in enumerate(values):
        key = None if keys is None else keys[index]
        is_plain = (type(value) is bytes or value is None) and (type(key) is bytes or key is None)
        if not is_plain or len(value or b"") + len(key or b"") > most:
            return index
    return len(values)
