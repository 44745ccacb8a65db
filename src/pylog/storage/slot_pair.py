"""Two slots of one file, written in turn; the later valid slot is the published one.

A slot starts with a checksum (uint32) and a sequence (uint32, wraps). The slot with the even
sequence is first. While a writer writes one slot, the other stays valid, so readers need no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TypeVar

T = TypeVar("T")

_SEQUENCE = Struct(">4xI")
SEQUENCES = 1 << 32  # the sequence after the last one is 0


def latest_slot(data: bytes, slot_bytes: int, decode: Callable[[bytes], T | None]) -> T | None:
    """Decode the later slot, or the other one if the later is invalid (None); None if both are.

    The sequences of two valid slots differ by one. An invalid slot may appear to be the later one.
    """
    first, second = data[:slot_bytes], data[slot_bytes : 2 * slot_bytes]
    if len(second) == slot_bytes:
        ahead = (_SEQUENCE.unpack_from(first)[0] - _SEQUENCE.unpack_from(second)[0]) % SEQUENCES
        if ahead >= SEQUENCES // 2:
            first, second = second, first
    return decode(first) or decode(second)
