"""The records taken from an encoder (readable codec)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylog.codec.records import RecordEncoder


class TakenRecords:
    """The records of an encoder, so that ``build_batch`` can repeat after a signal handler raised.

    One call into C moves them from the encoder to this object, so no exception can lose them.
    """

    __slots__ = ("_take", "_taken", "count", "first_timestamp_ms", "max_timestamp_ms")

    def __init__(self, encoder: RecordEncoder) -> None:
        self.count = encoder.count
        self.first_timestamp_ms = encoder.first_timestamp_ms
        self.max_timestamp_ms = encoder.max_timestamp_ms
        self._take = encoder.take_batch
        self._taken: list[bytearray] = []

    def take_batch(self) -> bytearray:
        if not self._taken:
            self._taken.extend(islice(iter(self._take, None), 1))
        return self._taken[0]
