"""Two slots of one file, written in turn; the later valid slot is the published one.

A slot starts with a CRC-32C of the rest (uint32) and a sequence (uint32, wraps), big-endian. The
slot with the even sequence is first. While a writer writes one slot, the other stays valid, so
readers need no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Generic, TypeVar

from pylog.codec.checksum import crc32c

T = TypeVar("T")

_CRC = Struct(">I")
_HEAD = Struct(">II")
SEQUENCES = 1 << 32
"""The sequence after the last one is 0."""

_TORN_READS_MAX = 100


class SlotPair(Generic[T]):
    """Where the two slots of a kind of file are, and what they say."""

    __slots__ = ("_decode", "slot_bytes", "start")

    def __init__(self, start: int, slot_bytes: int, decode: Callable[[bytes], T | None]) -> None:
        """``decode`` gets a slot without its checksum, which was right. It returns None for an
        impossible one."""
        self._decode = decode
        self.start = start
        self.slot_bytes = slot_bytes

    def latest(self, data: bytes) -> T | None:
        """What the later slot in the bytes of a file says; the other one if the later is torn,
        empty or impossible; None if both are.

        The sequences of two valid slots differ by one. An invalid slot may appear to be the later.
        """
        slot_bytes, middle = self.slot_bytes, self.start + self.slot_bytes
        first, second = data[self.start : middle], data[middle : middle + slot_bytes]
        if len(second) == slot_bytes:
            ahead = (_HEAD.unpack_from(first)[1] - _HEAD.unpack_from(second)[1]) % SEQUENCES
            if ahead >= SEQUENCES // 2:
                first, second = second, first
        for slot in (first, second):
            # A slot of zeros has a wrong checksum: CRC-32C of zeros is not zero.
            body = slot[_CRC.size :]
            if len(slot) == slot_bytes and _CRC.unpack_from(slot)[0] == crc32c(body):
                found = self._decode(body)
                if found is not None:
                    return found
        return None

    def each(self, data: bytes) -> list[tuple[int, int, T | None]]:
        """The start and the end of each slot in the bytes of a file, and what it says."""
        middle, end = self.start + self.slot_bytes, self.start + 2 * self.slot_bytes
        places = ((self.start, middle), (middle, end))
        return [(at, end, self.latest(bytes(at) + data[at:end])) for at, end in places]  # without the other slot

    def slot(self, body: bytes) -> tuple[bytes, int]:
        """The bytes of a slot and their position. ``body``, which starts with the sequence, is all
        but the checksum."""
        is_odd = body[3] & 1
        return _CRC.pack(crc32c(body)) + body, self.start + self.slot_bytes * is_odd


def read_again_if_torn(
    data: bytes, least_bytes: int, latest: Callable[[bytes], T | None], read: Callable[[], bytes]
) -> tuple[bytes, T | None]:
    """The bytes of a file, and what ``latest`` finds in them. ``data`` is what was read.

    Both slots are torn if two publications came during one read. Then the file is read again.
    Nothing was published if it has fewer than ``least_bytes``.
    """
    found = latest(data)
    for _ in range(_TORN_READS_MAX):
        if found is not None or len(data) < least_bytes:
            break
        data = read()
        found = latest(data)
    return data, found
