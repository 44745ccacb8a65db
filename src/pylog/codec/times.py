"""The timestamps of the records in an encoder."""

from __future__ import annotations

from pylog.codec.varint import varint


class Times:
    """The first, least, greatest and last timestamp of an encoder's records; the last one encoded.

    Immutable, so that an encoder replaces all of them in one step.
    """

    __slots__ = ("encoded", "first_ms", "last_ms", "max_ms", "min_ms")

    def __init__(self, first_ms: int, min_ms: int, max_ms: int, last_ms: int | None, encoded: bytes) -> None:
        self.first_ms = first_ms
        self.min_ms = min_ms
        self.max_ms = max_ms
        self.last_ms = last_ms
        self.encoded = encoded

    def then(self, timestamp_ms: int) -> Times:
        """The times after one more record with this timestamp."""
        first_ms, min_ms = (timestamp_ms,) * 2 if self.last_ms is None else (self.first_ms, self.min_ms)
        return Times(
            first_ms,
            min(min_ms, timestamp_ms),
            max(self.max_ms, timestamp_ms),
            timestamp_ms,
            b"\x00" + varint(timestamp_ms - first_ms),
        )


NO_TIMES = Times(-1, -1, -1, None, b"")
