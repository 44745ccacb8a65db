"""Which segments a partition has: an immutable snapshot that readers hold while writers publish a
new one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from pylog.segment.naming import SNAPSHOT, base_offsets, offsets_of


class SegmentInfo(NamedTuple):
    """One segment: ``end_offset`` is the offset after its last record."""

    base_offset: int
    end_offset: int
    size_bytes: int
    path: str


class Segments(NamedTuple):
    """The base offsets, rising, and the offsets of the producer snapshots in the same listing.

    ``swaps`` are the bases whose files a compaction is replacing: open them through
    ``PartitionDirectory.seen_by``.
    """

    bases: tuple[int, ...]
    snapshots: tuple[int, ...] = ()
    swaps: tuple[int, ...] = ()

    @classmethod
    def among(cls, names: Sequence[str]) -> Segments:
        """Of the names in a directory."""
        return cls(tuple(base_offsets(names)), tuple(offsets_of(names, SNAPSHOT)))

    def swapped(self, base: int, next_base: int) -> Segments:
        """With the segment at ``base`` in the place of all up to ``next_base``."""
        bases = {at for at in self.bases if not base < at < next_base} | {base}
        return self._replace(bases=tuple(sorted(bases)), swaps=(*self.swaps, base))

    def floor(self, offset: int) -> int | None:
        """The segment that contains ``offset`` if any does."""
        number = bisect_right(self.bases, offset)
        return self.bases[number - 1] if number else None

    def floor_or_first(self, offset: int) -> int | None:
        return self.bases[max(bisect_right(self.bases, offset) - 1, 0)] if self.bases else None

    def after(self, base: int) -> int | None:
        """The segment that follows the one at ``base``."""
        number = bisect_right(self.bases, base)
        return self.bases[number] if number < len(self.bases) else None

    def since(self, offset: int) -> Segments:
        """Without those wholly before ``offset``: their records were deleted, and a crash has left
        the files."""
        return self._replace(bases=self.bases[max(bisect_right(self.bases, offset) - 1, 0) :])

    def closed_since(self, durable_offset: int, active_base: int) -> Sequence[int]:
        """Closed segments whose bytes or indexes may not be synced: from the one that ends at the
        durable end on."""
        return self.bases[self._first_unsynced(durable_offset) : bisect_left(self.bases, active_base)]

    def is_rebuilt(self, base: int, durable_offset: int) -> bool:
        """Whether a recovery makes the indexes of this segment again: those since the durable end,
        also the active one's."""
        return bool(self.bases) and base >= self.bases[self._first_unsynced(durable_offset)]

    def _first_unsynced(self, durable_offset: int) -> int:
        """The number of the segment that holds the last durable record."""
        return max(bisect_right(self.bases, max(durable_offset - 1, 0)) - 1, 0)

    def ending_with(self, active_base: int) -> Segments:
        """Up to the active segment, whose file may not be there yet: a roll publishes it first."""
        return self._replace(bases=(*self.bases[: bisect_left(self.bases, active_base)], active_base))

    def up_to(self, active_base: int) -> Segments:
        """Without those after the active segment: leftovers that are not published."""
        return self._replace(bases=self.bases[: bisect_right(self.bases, active_base)])
