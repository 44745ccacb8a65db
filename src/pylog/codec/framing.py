"""Reads one record field by field, and checks every bound first: the specification of a record.

The decoders return the same values and errors faster. Each function raises ``CorruptRecord``.
"""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec import faults
from pylog.codec.format import INT64_MAX, INT64_MIN, MAX_HEADERS, MIN_HEADER_BYTES
from pylog.codec.varint import decode_varint
from pylog.model import Header, Headers


class Payload(NamedTuple):
    """The decompressed records of a batch, and the header fields that decoding needs."""

    data: bytes
    base_timestamp_ms: int
    append_time_ms: int
    highest_delta: int


class RecordBounds(NamedTuple):
    """The start of a record: times, and the payload positions of its body, its key and its end."""

    timestamp_ms: int
    offset_delta: int
    body: int
    key: int
    end: int


def read_bounds(payload: Payload, record: int, position: int, lowest_delta: int) -> RecordBounds:
    data, size = payload.data, len(payload.data)
    length, at = decode_varint(data, position, size, record, faults.LENGTH)
    if not 0 <= length <= size - at:
        raise faults.wrong_size(record, faults.LENGTH, at, length, size - at)
    body, end = at, at + length
    if length == 0:
        raise faults.truncated(record, faults.ATTRIBUTES, body, end)
    start = body + 1  # after the attributes: none are defined, and Kafka's readers ignore them
    delta, at = decode_varint(data, start, end, record, faults.TIMESTAMP_DELTA)
    timestamp_ms = payload.base_timestamp_ms + delta if payload.append_time_ms < 0 else payload.append_time_ms
    if not INT64_MIN <= timestamp_ms <= INT64_MAX:
        raise faults.timestamp_overflow(record, start, payload.base_timestamp_ms, delta)
    start = at
    delta, at = decode_varint(data, start, end, record, faults.OFFSET_DELTA)
    if not lowest_delta <= delta <= payload.highest_delta:
        raise faults.offset_out_of_order(record, start, delta, lowest_delta, payload.highest_delta)
    return RecordBounds(timestamp_ms, delta, body, at, end)


def read_fields(payload: Payload, record: int, bounds: RecordBounds) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers, which must end at the record's end."""
    data, end = payload.data, bounds.end
    key, at = _read_bytes(data, record, faults.KEY_LENGTH, bounds.key, end)
    value, at = _read_bytes(data, record, faults.VALUE_LENGTH, at, end)
    headers, at = read_headers(data, record, at, end)
    if at != end:
        raise faults.wrong_end(record, at, end - bounds.body, at - bounds.body)
    return key, value, headers


def read_headers(data: bytes, record: int, position: int, end: int) -> tuple[Headers, int]:
    count, at = decode_varint(data, position, end, record, faults.HEADERS_COUNT)
    if not 0 <= count <= min((end - at) // MIN_HEADER_BYTES, MAX_HEADERS):
        raise faults.impossible_headers(record, at, count, end - at)
    headers: list[Header] = []
    for _ in range(count):
        length, start = decode_varint(data, at, end, record, faults.HEADER_KEY_LENGTH)
        if not 0 <= length <= end - start:
            raise faults.wrong_size(record, faults.HEADER_KEY_LENGTH, start, length, end - start)
        try:
            name = data[start : start + length].decode()
        except UnicodeDecodeError:
            raise faults.not_utf8(record, start) from None
        value, at = _read_bytes(data, record, faults.HEADER_VALUE_LENGTH, start + length, end)
        headers.append((name, value))
    return tuple(headers), at


def _read_bytes(data: bytes, record: int, field: int, position: int, end: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(data, position, end, record, field)
    if not -1 <= length <= end - at:
        raise faults.wrong_size(record, field, at, length, end - at)
    if length == -1:
        return None, at
    return data[at : at + length], at + length
