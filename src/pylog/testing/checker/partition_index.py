"""The sends and reads of one partition, collected in one pass."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from pylog.testing.history import Pair

NO_OFFSET = NO_OPERATION = -1
IS_UNKNOWN, IS_ACKNOWLEDGED, IS_REFUSED = range(3)


class PartitionIndex:
    """One partition. Its values are numbered in the order of sending; arrays are by that number."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: dict[int, int] = {}
        self.values = array("q")
        self.node = array("q")  # the operation that sent it
        self.process = array("q")
        self.outcome = bytearray()
        self.floor = array("q")  # the greatest offset acknowledged before it was sent
        self.acked_at = array("q")
        self.acked_time = array("d")
        self.claimed_at: dict[int, int] = {}  # by number: the offset in a completion that is not certain
        self.first_at = array("q")  # the first offset in a completed send or any poll
        self.read_at = array("q")  # the first offset in a successful poll
        self.final_at = array("q")
        self.at: dict[int, int] = {}  # offset -> the first value seen there
        self.conflicts: set[tuple[int, int]] = set()  # (offset, another value seen there)
        self.repeats: set[tuple[int, int]] = set()  # (value, another offset of it)
        self.altered: set[int] = set()  # offsets of values with a wrong checksum
        self.batches: list[tuple[int, int]] = []  # atomic: first number and count
        self.acked_max = self.read_max = NO_OFFSET
        self.deleted_to = 0
        self.has_final = False
        self.final_from = NO_OFFSET
        self._offsets: list[int] = []

    def id_of(self, value: int) -> int:
        known = self.ids.get(value)
        return self._add(value) if known is None else known

    def _add(self, value: int) -> int:
        number = self.ids[value] = len(self.values)
        self.values.append(value)
        for numbers in (self.node, self.process, self.floor, self.acked_at, self.first_at, self.read_at, self.final_at):
            numbers.append(-1)
        self.acked_time.append(0.0)
        self.outcome.append(IS_UNKNOWN)
        return number

    def send(self, pairs: Sequence[Pair], node: int, process: int, atomic: bool) -> None:
        first = len(self.values)
        for _, value in pairs:
            assert value is not None
            number = self.id_of(value)
            self.floor[number] = self.acked_max
            self.attribute(number, node, process)
        if atomic and len(self.values) - first == len(pairs) > 1:
            self.batches.append((first, len(pairs)))

    def attribute(self, number: int, node: int, process: int) -> None:
        self.node[number], self.process[number] = node, process

    def see(self, number: int, offset: int) -> None:
        if self.at.setdefault(offset, number) != number:
            self.conflicts.add((offset, number))
        first = self.first_at[number]
        if first == NO_OFFSET:
            self.first_at[number] = offset
        elif first != offset:
            self.repeats.add((number, offset))

    def read(self, number: int, offset: int, final: bool) -> None:
        if self.read_at[number] == NO_OFFSET:
            self.read_at[number] = offset
            self.read_max = max(self.read_max, self.first_at[number])
        if final:
            self.final_at[number] = offset

    def gone_to(self) -> int:
        """Records before it may be gone: deleted on request, and not in the final log."""
        return self.deleted_to if self.final_from == NO_OFFSET else min(self.deleted_to, self.final_from)

    def offsets(self) -> list[int]:
        """All offsets with a value, ascending."""
        if len(self._offsets) != len(self.at):
            self._offsets = sorted(self.at)
        return self._offsets
