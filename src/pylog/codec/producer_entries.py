"""Reads all entries of a producer snapshot in one call (readable codec): there may be 100,000.

``entries`` is a sequence of entries of 46 bytes (docs/format.md).
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from pylog.codec.format import Buffer

PRODUCER_ENTRY = Struct(">qhiqiqiq")
PRODUCER_ENTRY_BYTES = PRODUCER_ENTRY.size
_PRODUCER_ID = Struct(">q")


class ProducerFields(NamedTuple):
    """One entry: the producer, its last batch, the start of its open transaction; -1 means none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int

    @property
    def is_possible(self) -> bool:
        return (
            self.producer_id >= 0
            and min(self.epoch, self.last_sequence, self.last_offset, self.transaction_start) >= -1
            and 0 <= self.offset_delta <= max(self.last_offset, 0)
        )


def check_producers(entries: Buffer) -> tuple[int, bool, int, list[int]]:
    """The index of the first impossible entry, or -1; whether the ids rise; the greatest offset
    named, or -1; the producers with an open transaction."""
    rise, greatest, before = True, -1, -1
    with_transaction: list[int] = []
    for index, fields in enumerate(map(ProducerFields._make, PRODUCER_ENTRY.iter_unpack(entries))):
        if not fields.is_possible:
            return index, rise, greatest, with_transaction
        rise = rise and fields.producer_id > before
        before = fields.producer_id
        greatest = max(greatest, fields.last_offset, fields.transaction_start)
        if fields.transaction_start >= 0:
            with_transaction.append(fields.producer_id)
    return -1, rise, greatest, with_transaction


def find_producer(entries: Buffer, producer_id: int) -> int:
    """The index of a producer's entry, if the ids rise; ``~index`` of its place if there is
    none."""

    def id_at(index: int) -> int:
        found: int = _PRODUCER_ID.unpack_from(entries, index * PRODUCER_ENTRY_BYTES)[0]
        return found

    count = len(entries) // PRODUCER_ENTRY_BYTES
    index = bisect_left(range(count), producer_id, key=id_at)
    return index if index < count and id_at(index) == producer_id else ~index


def without_expired(entries: Buffer, before_ms: int, before_offset: int) -> Buffer:
    """Drop producers without an open transaction whose last batch, if any, is before both limits.

    Returns ``entries`` itself if there are none.
    """
    left = bytearray()
    for at in range(0, len(entries), PRODUCER_ENTRY_BYTES):
        fields = ProducerFields._make(PRODUCER_ENTRY.unpack_from(entries, at))
        is_old = fields.timestamp_ms < before_ms and fields.last_offset < before_offset
        if fields.transaction_start >= 0 or (fields.last_offset >= 0 and not is_old):
            left += entries[at : at + PRODUCER_ENTRY_BYTES]
    return left if len(left) < len(entries) else entries
