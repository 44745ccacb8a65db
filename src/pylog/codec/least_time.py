"""The least timestamp of a batch, readable: for seals, which say what times can't be in a segment (segment/seal.py)."""

from __future__ import annotations

from pylog.codec import faults
from pylog.codec.format import INT64_MAX, INT64_MIN, MIN_RECORD_BYTES, Buffer
from pylog.codec.varint import decode_varint
from pylog.errors import CorruptRecord
from pylog.interrupts import own


def least_timestamp_ms(payload: Buffer, count: int, base_timestamp_ms: int) -> int:
    """The least timestamp of one decompressed batch of ``count`` records, whose producer gave the times.

    It goes from record to record and looks at nothing else. The least number there is where it does not come out even.
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
            delta, _ = decode_varint(data, at + 1, position, index, faults.TIMESTAMP_DELTA)  # behind the attributes
            least = min(least, delta)
    except own(CorruptRecord):
        return INT64_MIN
    found = base_timestamp_ms + least
    return found if position == size and INT64_MIN <= found <= INT64_MAX else INT64_MIN
