"""Chooses the partition of a record. Pure: it knows neither log nor buffer.

    murmur3      (mmh3.hash(key) & 0x7fffffff) % count     keyless: sticky
    murmur2      as Kafka's Java clients place the key     keyless: sticky
    round_robin  each partition in turn, keys ignored
    sticky       one partition until its batch closes, then another at random, keys ignored
    a callable   (key, partition_count) -> number, called for every record; its answer is checked

Each topic records the hash that places its keys, and a producer uses it by default. So a key stays
in its partition, whichever producer sends it, as long as the partition count stays the same. Sticky
is KIP-480 and KIP-794: full batches instead of many small ones, and no partition preferred in the
long run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import count
from random import Random
from typing import NamedTuple, Protocol

import mmh3

from pylog.codec import murmur2
from pylog.codec.format import MURMUR2, MURMUR3
from pylog.errors import ConfigError, InvalidPartition
from pylog.interrupts import own

PartitionFunction = Callable[[bytes | None, int], int]
KeyHash = Callable[[bytes], int]
UNHASHABLE = (TypeError, BufferError, ValueError)  # what a KeyHash raises for a key that is not bytes


class Choice(Protocol):
    """Chooses partitions of one topic for records that no key hash places."""

    def choose(self, key: bytes | None, partition_count: int) -> int:
        """The partition of the next record."""

    def batch_closed(self, partition: int, partition_count: int) -> None:
        """Note that the open batch of ``partition`` takes no more records."""

    def stays_on(self, partition: int) -> bool:
        """Whether all records without a key go to this partition until its batch closes."""


class Sticky:
    """Stays on a partition until its batch closes, then moves to another; each is equally
    likely."""

    __slots__ = ("_current", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._current = -1

    def choose(self, key: bytes | None, partition_count: int) -> int:
        if not 0 <= self._current < partition_count:
            self._current = self._random.randrange(partition_count)
        return self._current

    def batch_closed(self, partition: int, partition_count: int) -> None:
        if partition == self._current and partition_count > 1:
            self._current = (partition + 1 + self._random.randrange(partition_count - 1)) % partition_count

    def stays_on(self, partition: int) -> bool:
        return partition == self._current


class _EachRecord:
    """A choice for each record, whichever batches close."""

    __slots__ = ()

    def batch_closed(self, partition: int, partition_count: int) -> None:
        return None

    def stays_on(self, partition: int) -> bool:
        return False


class RoundRobin(_EachRecord):
    """Each partition in turn, starting anywhere."""

    __slots__ = ("_next",)

    def __init__(self, random: Random) -> None:
        self._next = count(random.randrange(1 << 16))  # next() is atomic, so several threads may call it

    def choose(self, key: bytes | None, partition_count: int) -> int:
        return next(self._next) % partition_count


class Custom(_EachRecord):
    """The application's function. Its answer must be a partition of the topic."""

    __slots__ = ("_function",)

    def __init__(self, function: PartitionFunction) -> None:
        self._function = function

    def choose(self, key: bytes | None, partition_count: int) -> int:
        answer = self._function(key, partition_count)
        try:
            partition = operator.index(answer)
        except own(TypeError):
            partition = -1
        if not 0 <= partition < partition_count:
            raise InvalidPartition(
                f"the partitioner answered {answer!r} for key {key!r}, expected 0 to {partition_count - 1}",
                partition=answer, partition_count=partition_count, key=key,
            )  # fmt: skip
        return partition


class Partitioner(NamedTuple):
    """How a producer chooses: ``key_hash`` places records with a key if it can, else a
    ``Choice``."""

    key_hash: KeyHash | None
    new_choice: Callable[[Random], Choice]


KEY_HASHES: dict[str, KeyHash] = {"murmur3": mmh3.mmh3_32_uintdigest, "murmur2": murmur2}
"""The valid values of a topic's ``partitioner``."""

KINDS: dict[KeyHash, int] = {KEY_HASHES["murmur3"]: MURMUR3, murmur2: MURMUR2}
"""The codec's number for each hash, to hash many keys in one call."""

NAMED_PARTITIONERS = {
    **{name: Partitioner(key_hash, Sticky) for name, key_hash in KEY_HASHES.items()},
    "round_robin": Partitioner(None, RoundRobin),
    "sticky": Partitioner(None, Sticky),
}


class PartitionerOption(NamedTuple):
    """A producer's checked ``partitioner`` (None: follow each topic) and
    ``partitioner_override``."""

    named: str | PartitionFunction | None
    is_override: bool

    def new_choice(self, random: Random) -> Choice:
        """The choice for a topic's records without a key; for all of them if ``key_hash`` is
        None."""
        named = self.named
        if named is None:
            return Sticky(random)
        return NAMED_PARTITIONERS[named].new_choice(random) if isinstance(named, str) else Custom(named)

    @property
    def hashes_keys(self) -> bool:
        """Whether a hash places keys: then a topic with one partition leaves no choice."""
        return self.named is None or (isinstance(self.named, str) and self.named in KEY_HASHES)

    def key_hash(self, topic: str, topic_partitioner: str) -> KeyHash | None:
        """The hash that places the keys of a topic; None leaves them to the ``Choice``.

        Without an override, raises ``ConfigError`` for a hash that is not the topic's. A
        partitioner without a hash then only takes records without a key: the hash returned for it
        raises ``ConfigError`` for every key.
        """
        named = self.named
        if named is None:
            return KEY_HASHES[topic_partitioner]
        if self.is_override:
            return NAMED_PARTITIONERS[named].key_hash if isinstance(named, str) else None
        if named == topic_partitioner:
            return KEY_HASHES[topic_partitioner]
        shown = named if isinstance(named, str) else "a callable"
        refusal = ConfigError(
            f"keys of topic {topic!r} are placed by {topic_partitioner}, and this producer names {shown}: leave partitioner "
            "out to follow the topic, or add partitioner_override=True to place keys where other producers don't",
            option="partitioner", topic=topic, topic_partitioner=topic_partitioner, partitioner=shown,
        )  # fmt: skip
        if self.hashes_keys:
            raise refusal

        def refuse(_: bytes) -> int:
            raise ConfigError(str(refusal), **refusal.facts) from None

        return refuse
