"""What an encoder returns for an accepted record (readable codec)."""

from __future__ import annotations

from typing import Any, TypeVar


class Receipt:
    """The batch of a record accepted by ``RecordEncoder.try_append``, its index, and its timestamp."""

    __slots__ = ("batch", "index", "timestamp_ms")

    batch: Any
    index: int
    timestamp_ms: int


R = TypeVar("R", bound=Receipt)
