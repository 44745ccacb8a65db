"""Kafka's zig-zag varints, for the readable codec: 0, -1, 1, -2 … become 0, 1, 2, 3 …

Then seven bits a byte, low group first; the top bit is set if more bytes follow.
"""

from __future__ import annotations

from pylog.codec import faults
from pylog.codec.format import MAX_VARINT_BYTES, MAX_VARLONG_BYTES


def encode_varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


VARINTS = tuple(encode_varint(n) for n in range(8192))  # non-negative, one or two bytes
SECOND_BYTE = tuple((n << 7) - 0x80 for n in range(128))  # added to the first byte, if it is the last
UNZIGZAG = tuple(n >> 1 ^ -(n & 1) for n in range(16384))  # the values of one and two bytes


def varint(n: int) -> bytes:
    """``encode_varint`` with a table for small numbers."""
    return VARINTS[n] if 0 <= n < len(VARINTS) else encode_varint(n)


def decode_varint(data: bytes, position: int, end: int, record: int, field: int) -> tuple[int, int]:
    """The value and the position after it. Accepts padding (``80 00`` for 0), as Kafka does.

    ``CorruptRecord`` if it does not end before ``end`` or does not fit its type.
    """
    if position < end and data[position] < 0x80:
        return UNZIGZAG[data[position]], position + 1
    is_long = field == faults.TIMESTAMP_DELTA
    widest = MAX_VARLONG_BYTES if is_long else MAX_VARINT_BYTES
    top_bits = 0x01 if is_long else 0x0F  # of the last byte, after 9 or 4 groups of seven bits
    bits = 0
    for index in range(widest):  # pragma: no branch - the widest one ends inside
        if position + index >= end:
            raise faults.truncated(record, field, position, end)
        byte = data[position + index]
        if index == widest - 1 and byte > top_bits:
            break
        bits |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return bits >> 1 ^ -(bits & 1), position + index + 1
    raise faults.overlong(record, field, position)


def long_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint of up to nine bytes, bounds unchecked; IndexError for a longer one."""
    bits = 0
    for index in range(9):
        byte = data[position + index]
        bits |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return bits >> 1 ^ -(bits & 1), position + index + 1
    raise IndexError
