"""The transactions in a history: their records, and which of them are aborted.

A transaction that has begun is undecided until its process asks for the commit; without that it is
aborted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pylog.testing.checker.partition_index import IS_ACKNOWLEDGED, IS_REFUSED, IS_UNKNOWN, NO_OFFSET, PartitionIndex
from pylog.testing.history import Pair

Records = list[tuple[str, int]]


class TransactionIndex:
    """All transactions, by operation. Collected in one pass."""

    def __init__(self, partitions: Mapping[str, PartitionIndex]) -> None:
        self._partitions = partitions
        self.records: dict[int, Records] = {}  # operation -> partition, number
        self.deleted_to: dict[int, dict[str, int]] = {}  # operation -> what was deleted before it
        self.undecided: set[int] = set()

    def send(self, node: int, sent: Mapping[str, Sequence[Pair]], *, begins: bool) -> None:
        """Take the records of an invocation. ``begins``: the commit has an invocation of its
        own."""
        self.records[node] = [
            (name, self._partitions[name].id_of(value))
            for name, pairs in sent.items()
            for _, value in pairs
            if value is not None
        ]
        self.deleted_to[node] = {name: self._partitions[name].deleted_to for name in sent}
        if begins:
            self.undecided.add(node)

    def decide(self, node: int) -> None:
        """From now on it may be committed."""
        self.undecided.discard(node)

    def refuse(self, node: int) -> None:
        for name, number in self.records.get(node, ()):
            self._partitions[name].outcome[number] = IS_REFUSED

    def end(self) -> None:
        """The history is over."""
        for node in self.undecided:
            self.refuse(node)
        for records in self.records.values():
            self._conclude(records)

    def _conclude(self, records: Records) -> None:
        """If one record was read, the transaction is committed, and its offsets are certain."""
        there = [(self._partitions[name], number) for name, number in records]
        if any(partition.read_at[number] != NO_OFFSET for partition, number in there):
            for partition, number in there:
                offset = partition.claimed_at.get(number)
                if offset is not None and partition.outcome[number] == IS_UNKNOWN:
                    partition.see(number, offset)
                    partition.outcome[number], partition.acked_at[number] = IS_ACKNOWLEDGED, offset
