"""Offsets that were committed inside of transactions which have no marker yet. Pure.

The last record of a key counts, in the order of the log, whatever the order of the decisions. So a
later commit of the same group and partition, in a transaction or not, supersedes an earlier pending
one, as in Kafka's ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import NamedTuple

from pylog.group.offset_records import Committed
from pylog.model import TopicPartition

Transaction = tuple[int, int]
"""Producer id and epoch."""

Key = tuple[str, TopicPartition]
"""Group and partition."""


class PendingOffset(NamedTuple):
    """``at`` is the offset of its record; ``committed`` is None for a tombstone."""

    at: int
    committed: Committed | None


class PendingOffsets:
    """The pending offsets of one partition of ``__consumer_offsets``."""

    def __init__(self) -> None:
        self._transactions: dict[Transaction, dict[Key, PendingOffset]] = {}

    def add(self, transaction: Transaction, key: Key, offset: PendingOffset) -> None:
        self._transactions.setdefault(transaction, {})[key] = offset

    def supersede(self, key: Key, at: int) -> None:
        """A record of this key counts: drop pending ones before it."""
        for transaction, offsets in tuple(self._transactions.items()):
            if key in offsets and offsets[key].at < at:
                del offsets[key]
                if not offsets:
                    del self._transactions[transaction]

    def end(self, transaction: Transaction) -> dict[Key, PendingOffset]:
        """Remove a transaction that is decided. Returns what it has committed, if that is the
        decision."""
        return self._transactions.pop(transaction, {})

    def of_producer(self, producer_id: int, epoch: int) -> list[Transaction]:
        """The transactions that a marker with this epoch ends: a marker may have a later epoch than
        its transaction."""
        return [known for known in self._transactions if known[0] == producer_id and known[1] <= epoch]

    def transactions(self, group: str | None = None) -> list[Transaction]:
        """The transactions with pending offsets of this group, or of any."""
        return [
            known for known, keys in self._transactions.items() if group is None or any(k[0] == group for k in keys)
        ]

    def partitions(self, group: str, transactions: list[Transaction] | None = None) -> set[TopicPartition]:
        """The partitions with pending offsets of this group, in these transactions or in any."""
        chosen = self._transactions if transactions is None else transactions
        return {key[1] for known in chosen for key in self._transactions.get(known, ()) if key[0] == group}

    def names(self) -> set[Key]:
        """Every group and partition with a pending offset."""
        return set[Key]().union(*self._transactions.values())

    @property
    def first_offset(self) -> int | None:
        """The offset of the first record that is pending."""
        return min((pending.at for keys in self._transactions.values() for pending in keys.values()), default=None)
