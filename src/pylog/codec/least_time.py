"""The least timestamp of a batch, for the seals of segments (readable codec)."""

from __future__ import annotations

from pylog.codec import faults
from pylog.codec.format import INT64_MAX, INT64_MIN, MIN_RECORD_BYTES, Buffer
from pylog.codec.varint import decode_varint
from pylog.errors import CorruptRecord
from pylog.interrupts import own


def least_timestamp_ms(payload: Buffer, count: int, base_timestamp_ms: int) -> int:
    """The least timestamp of a decompressed CreateTime batch; ``INT64_MIN`` if it is malformed.

    Reads only the length and the time of each record.
    """
    data = payload if type(payload) is bytes else memoryview(payload).tobytes()
    if not 0 <= count <= len(data) // MIN_RECORD_BYTES:
        return INT64_MIN
    position, size, least = 0, len(data), INT64_MAX
    try:
        for index in range(count):
            length, at = decode_varint(data, position, size, index, faults.LENGTH)
            if not 2 <= length <= size - at:
                return INT64_MIN
            position = at + length
            delta, _ = decode_varint(data, at + 1, position, index, faults.TIMESTAMP_DELTA)  # after the attributes
            least = min(least, delta)
    except own(CorruptRecord):
        return INT64_MIN
    found = base_timestamp_ms + least
    return found if position == size and INT64_MIN <= found <= INT64_MAX else INT64_MIN
