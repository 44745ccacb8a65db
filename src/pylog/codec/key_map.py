"""The newest offset of each key, in memory of a fixed size (readable codec).

One array of entries, each a hash of the key (16 bytes) and an offset plus one (8 bytes; 0: the entry is free). An entry
stands in the slot that its hash says, or in the next free one. The hash is keyed with a secret of each compaction, so that
no sender can make two keys of one hash: the older of them would be dropped for the newer. ``_records.pyx`` is the compiled
version, with another hash; the same tests run on both.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from pylog.codec import faults
from pylog.codec.format import INT64_MIN, Buffer
from pylog.codec.framing import Payload, read_bounds
from pylog.codec.varint import decode_varint

ENTRY = Struct("<16sQ")
SECRET_BYTES = 16
_NUMBERS = Struct("<QQ")


class KeyMap:
    """Of the keys whose hash is ``part`` of ``parts``: others are neither taken nor found."""

    __slots__ = ("_entries", "_most", "_part", "_parts", "_secret", "_slots", "count")

    def __init__(self, memory_bytes: int, secret: bytes, part: int = 0, parts: int = 1) -> None:
        if len(secret) != SECRET_BYTES or parts < 1:
            raise ValueError(
                f"a secret of {len(secret)} bytes, and {parts} parts; expected {SECRET_BYTES}, and 1 or more"
            )
        self._slots = max(memory_bytes // ENTRY.size, 2)
        self._most = self._slots * 9 // 10
        self._entries = bytearray(self._slots * ENTRY.size)
        self._secret = secret
        self._part, self._parts = part, parts
        self.count = 0

    def put(self, key: bytes, offset: int) -> bool:
        """Note that a record of ``key`` is at ``offset``. False, and nothing is noted, if there is no room."""
        slot, hashed = self._slot(key)
        if slot < 0:
            return True
        _, known = ENTRY.unpack_from(self._entries, slot)
        if not known:
            if self.count >= self._most:
                return False
            self.count += 1
        ENTRY.pack_into(self._entries, slot, hashed, max(known, offset + 1))
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of ``key`` is known."""
        slot, _ = self._slot(key)
        return slot >= 0 and bool(ENTRY.unpack_from(self._entries, slot)[1] > offset + 1)

    def put_records(
        self, payload: Buffer, count: int, base_offset: int, last_offset_delta: int, first_offset: int
    ) -> bool:
        """``put`` the records of a decompressed batch from ``first_offset`` on. False if there is no room for all.

        Those without key do not count. ``CorruptRecord``; headers are not looked at.
        """
        read = Payload(bytes(payload), 0, 0, last_offset_delta)
        position = lowest = 0
        for record in range(count):
            bounds = read_bounds(read, record, position, lowest)
            key, _ = _key_and_value(read.data, record, bounds.key, bounds.end)
            offset = base_offset + bounds.offset_delta
            if key is not None and offset >= first_offset and not self.put(key, offset):
                return False
            position, lowest = bounds.end, bounds.offset_delta + 1
        if position != len(read.data):
            raise faults.trailing_bytes(count, position, len(read.data) - position)
        return True

    def newest(
        self,
        payload: Buffer,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_time_ms: int,
        last_offset_delta: int,
        end_offset: int,
        drops_tombstones: bool,
    ) -> tuple[int, bool, int, bytearray | None]:
        """What is left of a decompressed batch: how many records, whether there are tombstones among them, their greatest
        timestamp, and their bytes, None if all are left.

        A record stays if it is at or after ``end_offset``, or has a key of which no later record is known, unless it is a
        tombstone and ``drops_tombstones``. ``CorruptRecord``; headers are not looked at.
        """
        read = Payload(bytes(payload), base_timestamp_ms, append_time_ms, last_offset_delta)
        left = bytearray()
        position = lowest = kept = 0
        has_tombstones, latest_ms = False, INT64_MIN
        for record in range(count):
            bounds = read_bounds(read, record, position, lowest)
            key, has_value = _key_and_value(read.data, record, bounds.key, bounds.end)
            offset = base_offset + bounds.offset_delta
            if offset >= end_offset or (
                key is not None and not (drops_tombstones and not has_value) and not self.is_superseded(key, offset)
            ):
                kept += 1
                has_tombstones = has_tombstones or not has_value
                latest_ms = max(latest_ms, bounds.timestamp_ms)
                left += read.data[position : bounds.end]
            position, lowest = bounds.end, bounds.offset_delta + 1
        if position != len(read.data):
            raise faults.trailing_bytes(count, position, len(read.data) - position)
        return kept, has_tombstones, latest_ms, None if kept == count else left

    def _slot(self, key: bytes) -> tuple[int, bytes]:
        """The position of the key's entry, or of the free one where it belongs; -1 for a key of another part."""
        hashed = blake2b(key, digest_size=16, key=self._secret).digest()
        of_part, of_slot = _NUMBERS.unpack(hashed)
        if self._parts > 1 and of_part % self._parts != self._part:
            return -1, hashed
        slot = of_slot % self._slots
        while True:
            position = slot * ENTRY.size
            found, known = ENTRY.unpack_from(self._entries, position)
            if not known or found == hashed:
                return position, hashed
            slot = (slot + 1) % self._slots


def _key_and_value(data: bytes, record: int, position: int, end: int) -> tuple[bytes | None, bool]:
    """The key of a record, and whether it has a value."""
    size, at = decode_varint(data, position, end, record, faults.KEY_LENGTH)
    if not -1 <= size <= end - at:
        raise faults.wrong_size(record, faults.KEY_LENGTH, at, size, end - at)
    key = None if size < 0 else data[at : at + size]
    value_size, after = decode_varint(data, at + max(size, 0), end, record, faults.VALUE_LENGTH)
    if not -1 <= value_size <= end - after:
        raise faults.wrong_size(record, faults.VALUE_LENGTH, after, value_size, end - after)
    return key, value_size >= 0
