"""One record, field by field, every bound looked at before it is used: the specification of what a record is.

Owns the order of the fields and of the checks. The decoders are faster ways to the same values and the same errors.
Every function raises CorruptRecord, which names record and field.
"""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec import faults
from pylog.codec.format import INT64_MAX, INT64_MIN, MAX_HEADERS, MIN_HEADER_BYTES
from pylog.codec.varint import decode_varint
from pylog.model import Header, Headers


class Payload(NamedTuple):
    """The decompressed records of a batch, and what of its header they refer to."""

    data: bytes
    base_timestamp_ms: int
    append_time_ms: int
    highest_delta: int


class Place(NamedTuple):
    """Where a record stands: in time, in the log, and in the payload: what its length counts, its key, its end."""

    timestamp_ms: int
    offset_delta: int
    body: int
    key: int
    end: int


def read_place(payload: Payload, record: int, position: int, lowest_delta: int) -> Place:
    data, size = payload.data, len(payload.data)
    length, at = decode_varint(data, position, size, record, faults.LENGTH)
    if not 0 <= length <= size - at:
        raise faults.wrong_size(record, faults.LENGTH, at, length, size - at)
    body, end = at, at + length
    if length == 0:
        raise faults.truncated(record, faults.ATTRIBUTES, body, end)
    start = body + 1  # behind the attributes: none are defined, and Kafka's readers pass over them
    delta, at = decode_varint(data, start, end, record, faults.TIMESTAMP_DELTA)
    timestamp_ms = payload.base_timestamp_ms + delta if payload.append_time_ms < 0 else payload.append_time_ms
    if not INT64_MIN <= timestamp_ms <= INT64_MAX:
        raise faults.timestamp_overflow(record, start, payload.base_timestamp_ms, delta)
    start = at
    delta, at = decode_varint(data, start, end, record, faults.OFFSET_DELTA)
    if not lowest_delta <= delta <= payload.highest_delta:
        raise faults.offset_out_of_order(record, start, delta, lowest_delta, payload.highest_delta)
    return Place(timestamp_ms, delta, body, at, end)


def read_fields(payload: Payload, record: int, place: Place) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers, which must end where the record does."""
    data, end = payload.data, place.end
    key, at = _read_bytes(data, record, faults.KEY_LENGTH, place.key, end)
    value, at = _read_bytes(data, record, faults.VALUE_LENGTH, at, end)
    headers, at = read_headers(data, record, at, end)
    if at != end:
        raise faults.wrong_end(record, at, end - place.body, at - place.body)
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
