"""What a store keeps of a topic: an entry for each key, and a position for each partition.

The entries and the position of a partition change together, in memory and on the disk. So after a
crash a store is what the topic was at its positions, and reading continues there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from pylog.errors import CorruptSegment
from pylog.model import Record

Entry = tuple[int, int, bytes | None]
"""Offset and partition of the newest record of a key, and its value; None: the log has the value.
A plain tuple: one is made for each key that is read."""

IDENTITY_BYTES_MAX = 1024


class Position(NamedTuple):
    """Where a store continues in a partition. What it has is all before ``offset``."""

    offset: int
    leader_epoch: int
    """Of the partition when it was read; -1 if unknown. An older one is the safe one."""
    log_start: int
    """No entry is older: the log's start, when the store last removed what is before it."""
    clean_to: int
    """Up to where the partition was compacted before the store began with it: no entry is older
    than a tombstone of its key before this offset."""

    def check(self, path: str) -> Position:
        """This position; ``CorruptSegment`` if no store can have written it."""
        if self.offset < 0 or self.leader_epoch < -1 or not 0 <= self.log_start <= self.offset:
            raise CorruptSegment(f"{path}: impossible position {tuple(self)} of a table", path=path, position=0)
        return self


class Store(Protocol):
    """The state of one table. One thread changes it; others may read meanwhile."""

    identity: str
    """What the entries are of: the topic's id and what was read how. "" of a new store."""
    positions: dict[int, Position]

    def get(self, key: bytes) -> Entry | None:
        """The entry of a key; None if it has none."""

    def apply(self, partition: int, newest: Mapping[bytes, Record], position: Position) -> None:
        """Take in the newest records of these keys in a partition: without a value the key goes."""

    def forget(self, partition: int, before: int, position: Position) -> None:
        """Remove the entries of a partition that are older than this offset. May be repeated."""

    def begin(self, identity: str) -> None:
        """Remove everything, and be of this identity."""

    def items(self) -> Iterator[tuple[bytes, Entry]]:
        """All entries as they are at one moment."""

    def count(self) -> int:
        """How many keys there are."""

    def save(self) -> None:
        """Make what was applied durable."""

    def close(self) -> None:
        """Write what must be written, and close all files. May be repeated."""

    def abandon(self) -> None:
        """In a forked child: the files are the parent's."""
