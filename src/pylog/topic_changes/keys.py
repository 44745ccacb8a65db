"""The partition of a key, as a topic's producers choose it."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from pylog.catalog.topic import MURMUR2 as MURMUR2_NAME
from pylog.codec import choose_partitions
from pylog.codec.format import MURMUR2, MURMUR3


def key_hash(partitioner: str) -> Callable[[bytes, int], int]:
    """Returns a partition of ``count`` for a key: ``(key, count)``."""
    kind = MURMUR2 if partitioner == MURMUR2_NAME else MURMUR3
    chosen = array("i", [0])

    def place(key: bytes, count: int) -> int:
        choose_partitions(kind, [key], 0, chosen, count, -1)
        return chosen[0]

    return place
