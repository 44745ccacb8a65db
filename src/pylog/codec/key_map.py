"""The newest offset of each key, in memory of a fixed size (readable codec).

One array of entries of 16 bytes. An entry has 80 bits of a hash of the key, and in 48 bits its
newest offset, counted from the first one. It stands in the line of the cache that other bits of the
hash say, or in the next free entry after.

The hash is keyed with a secret of each compaction, so that no sender can make two keys of one hash:
the older of them would be dropped for the newer. By chance two keys share an entry if these 80 bits
agree and one is met in the search for the other: of 10,000,000 keys, in one of 10**16 compactions.
``_key_map.pxi`` is the compiled version, with another hash; the same tests run on both.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from pylog.codec import faults
from pylog.codec.format import INT64_MAX, INT64_MIN, MAX_HEADERS, MIN_HEADER_BYTES, MIN_RECORD_BYTES, Buffer
from pylog.codec.format import KEY_ORDINAL_MASK as ORDINAL_MASK
from pylog.codec.framing import Payload, read_bounds
from pylog.codec.varint import decode_varint

ENTRY_BYTES = 16
SECRET_BYTES = 16
_ENTRIES_IN_A_LINE = 4
_ENTRY = _HASH = Struct("<QQ")


def memory_for(keys: int) -> int:
    """The bytes of memory in which so many keys have room."""
    return (keys * 10 // 9 + 2) * ENTRY_BYTES


class _Found(NamedTuple):
    """Of a key: the index of its entry, or of the free one where it belongs; both parts of its
    hash; its ordinal, 0 if free."""

    slot: int
    hash: int
    tag: int
    ordinal: int


class KeyMap:
    """Of the records from ``first_offset`` on. For one thread."""

    __slots__ = ("_entries", "_first", "_most", "_secret", "_slots", "count")

    def __init__(self, memory_bytes: int, secret: bytes, first_offset: int = 0) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret of {len(secret)} bytes, expected {SECRET_BYTES}")
        self._slots = min(max(memory_bytes // ENTRY_BYTES, 2), 1 << 32)
        self._most = self._slots * 9 // 10
        self._entries = bytearray(self._slots * ENTRY_BYTES)
        self._secret = secret
        self._first = first_offset
        self.count = 0

    def put(self, key: bytes, offset: int) -> bool:
        """Note that a record of ``key`` is at ``offset``. False, and nothing is noted, if there is
        no room."""
        if offset < self._first:
            raise ValueError(f"offset {offset}, the first is {self._first}")
        found = self._find(key)
        ordinal = offset - self._first + 1
        if ordinal > ORDINAL_MASK or (not found.ordinal and self.count >= self._most):
            return False
        if not found.ordinal:
            self.count += 1
        more = found.tag | max(found.ordinal, ordinal)
        _ENTRY.pack_into(self._entries, found.slot * ENTRY_BYTES, found.hash, more)
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of ``key`` is known."""
        ordinal = self._find(key).ordinal
        return ordinal > 0 and ordinal - 1 > offset - self._first

    def put_records(self, payload: Buffer, count: int, base_offset: int, last_offset_delta: int) -> int:
        """``put`` the records of a decompressed batch. Returns the offset of the first that has no
        room, or the batch's end.

        Those without key do not count. ``CorruptRecord``; of headers, only the number is looked at.
        """
        read = _opened(payload, count, base_offset, 0, 0, last_offset_delta)
        position = lowest = 0
        for record in range(count):
            bounds = read_bounds(read, record, position, lowest)
            key, _ = _key_and_value(read.data, record, bounds.key, bounds.end)
            offset = base_offset + bounds.offset_delta
            if key is not None and offset >= self._first and not self.put(key, offset):
                return offset
            position, lowest = bounds.end, bounds.offset_delta + 1
        if position != len(read.data):
            raise faults.trailing_bytes(count, position, len(read.data) - position)
        return base_offset + last_offset_delta + 1

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
        """What is left of a decompressed batch: how many records, whether there are tombstones
        before ``end_offset`` among them, their greatest timestamp, and their bytes, None if all are
        left.

        A record stays if it is at or after ``end_offset``, or has a key of which no later record is
        known, unless it is a tombstone and ``drops_tombstones``. ``CorruptRecord``; of headers,
        only the number is looked at.
        """
        read = _opened(payload, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta)
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
                has_tombstones = has_tombstones or (not has_value and offset < end_offset)
                latest_ms = max(latest_ms, bounds.timestamp_ms)
                left += read.data[position : bounds.end]
            position, lowest = bounds.end, bounds.offset_delta + 1
        if position != len(read.data):
            raise faults.trailing_bytes(count, position, len(read.data) - position)
        return kept, has_tombstones, latest_ms, None if kept == count else left

    def _find(self, key: bytes) -> _Found:
        hashed, low = _HASH.unpack(blake2b(key, digest_size=16, key=self._secret).digest())
        tag = low << 48 & ~ORDINAL_MASK & ~(-1 << 64)
        slot = (low >> 32) * self._slots >> 32 & -_ENTRIES_IN_A_LINE
        while True:
            entry, more = _ENTRY.unpack_from(self._entries, slot * ENTRY_BYTES)
            if not more or (entry == hashed and more & ~ORDINAL_MASK == tag):
                return _Found(slot, hashed, tag, more & ORDINAL_MASK)
            slot = (slot + 1) % self._slots


def _opened(
    payload: Buffer, count: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int, last_offset_delta: int
) -> Payload:
    if not 0 <= count <= len(payload) // MIN_RECORD_BYTES:
        raise faults.impossible_count(count, len(payload))
    highest_delta = min(last_offset_delta, INT64_MAX - base_offset)
    return Payload(bytes(payload), base_timestamp_ms, append_time_ms, highest_delta)


def _key_and_value(data: bytes, record: int, position: int, end: int) -> tuple[bytes | None, bool]:
    """The key of a record, and whether it has a value. Of its headers, only the number is
    checked."""
    size, at = _size(data, record, faults.KEY_LENGTH, position, end)
    key = None if size < 0 else data[at : at + size]
    value_size, at = _size(data, record, faults.VALUE_LENGTH, at + max(size, 0), end)
    headers_count, at = decode_varint(data, at + max(value_size, 0), end, record, faults.HEADERS_COUNT)
    if not 0 <= headers_count <= min((end - at) // MIN_HEADER_BYTES, MAX_HEADERS):
        raise faults.impossible_headers(record, at, headers_count, end - at)
    return key, value_size >= 0


def _size(data: bytes, record: int, field: int, position: int, end: int) -> tuple[int, int]:
    size, at = decode_varint(data, position, end, record, field)
    if not -1 <= size <= end - at:
        raise faults.wrong_size(record, field, at, size, end - at)
    return size, at
