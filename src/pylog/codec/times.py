"""The timestamps of the records in an encoder, and of those to be encoded."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from pylog.codec import faults
from pylog.codec.faults import check_timestamp
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


def times_of(timestamp_ms: int | array[int], start: int, stop: int) -> Callable[[int], int]:
    """The timestamp of the record at an index. Raises for one timestamp that no record can have."""
    if type(timestamp_ms) is array:
        if timestamp_ms.typecode != "q" or not 0 <= start <= stop <= len(timestamp_ms):
            raise faults.unusable_times(timestamp_ms.typecode, len(timestamp_ms), start, stop)
        return timestamp_ms.__getitem__
    check_timestamp(timestamp_ms)  # type: ignore[arg-type]
    return lambda _: timestamp_ms  # type: ignore[return-value]
