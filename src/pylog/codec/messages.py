"""Fields of Kafka's messages, as they stand in the keys and values of its internal topics.

https://kafka.apache.org/protocol#protocol_types. Reading raises ``struct.error`` beyond the end.
"""

from __future__ import annotations

import struct
from struct import Struct

INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")


def string(text: str) -> bytes:
    """A STRING: its length in 16 bits, then UTF-8."""
    data = text.encode()
    return INT16.pack(len(data)) + data


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """The STRING at a position, and the position after it. ``UnicodeDecodeError``."""
    length: int = INT16.unpack_from(data, at)[0]
    return slice_of(data, at + 2, length).decode(), at + 2 + length


def slice_of(data: bytes, at: int, length: int) -> bytes:
    if not 0 <= length <= len(data) - at:
        raise struct.error(f"{length} bytes at {at} of {len(data)}")
    return data[at : at + length]


def unsigned(number: int) -> bytes:
    """An UNSIGNED_VARINT."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """The UNSIGNED_VARINT at a position, and the position after it. ``IndexError`` beyond the
    end."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 28:
            raise struct.error(f"a number of more than 5 bytes at {at}")


def hash_code(text: str) -> int:
    """Java's ``String.hashCode`` without its sign, by which Kafka divides groups and transactional
    ids."""
    number = 0
    for (unit,) in Struct("<H").iter_unpack(text.encode("utf-16-le", "surrogatepass")):
        number = (number * 31 + unit) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = ((1 << 32) - number) & 0x7FFFFFFF  # the absolute value; 0 for INT32_MIN
    return number
