"""The partitions of keys, as a topic's producers choose them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pylog.catalog import TopicDescription
from pylog.catalog import topic as topics
from pylog.codec import choose_partitions
from pylog.codec.format import MURMUR2, MURMUR3

_KINDS = {topics.MURMUR2: MURMUR2, topics.MURMUR3: MURMUR3}


class KeyHash:
    """Places keys among the partitions of one topic."""

    def __init__(self, topic: TopicDescription) -> None:
        self._kind = _KINDS[topic.config.partitioner]
        self._count = topic.partitions

    def places(self, keys: Sequence[bytes | None], keyless: int) -> array[int]:
        """For each key its partition; without a key ``keyless``, modulo their number."""
        found = array("i", bytes(4 * len(keys)))
        choose_partitions(self._kind, keys, 0, found, self._count, keyless % self._count)
        return found
