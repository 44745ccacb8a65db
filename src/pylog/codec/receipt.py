"""What an encoder gives for a record it took, readable. The compiled codec has its own, with the same fields."""

from __future__ import annotations

from typing import Any, TypeVar


class Receipt:
    """Which record of which batch, and its timestamp: what ``RecordEncoder.enter`` gives for a record it took."""

    __slots__ = ("batch", "index", "timestamp_ms")

    batch: Any
    index: int
    timestamp_ms: int


R = TypeVar("R", bound=Receipt)
