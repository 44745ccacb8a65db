"""What an encoder returns for an accepted record (readable codec)."""

from __future__ import annotations

from typing import Any, TypeVar


class Receipt:
    """The batch of a record accepted by ``RecordEncoder.try_append``, its index, and its
    timestamp."""

    __slots__ = ("batch", "index", "timestamp_ms")

    batch: Any
    index: int
    timestamp_ms: int

    def __eq__(self, other: object) -> bool:
        """Whether both are of the same place in one batch. ``Deliveries`` make new ones at each
        access."""
        if not isinstance(other, Receipt):
            return NotImplemented
        return self.batch is other.batch and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.batch), self.index))


R = TypeVar("R", bound=Receipt)
