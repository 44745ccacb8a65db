"""Checks and encodes the parts of a record, for the readable encoder; framing.py is the reverse.

Raises ``InvalidTimestamp``, ``SerializationError`` and ``RecordTooLarge``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pylog.codec import faults
from pylog.codec.format import MAX_HEADERS
from pylog.codec.varint import VARINTS, encode_varint, varint
from pylog.errors import SerializationError
from pylog.interrupts import own
from pylog.model import GivenHeaders

_NULL = encode_varint(-1)
NO_HEADERS_ENCODED = encode_varint(0)


def bytes_of(field: str, value: object) -> bytes:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise faults.not_bytes(field, value)
    try:
        return memoryview(value).tobytes()
    except own(ValueError) as error:  # a released memoryview
        raise SerializationError(f"{field}: {error}", field=field) from error


def _sized(field: str, value: object) -> bytes:
    if value is None:
        return _NULL
    data = bytes_of(field, value)
    return varint(len(data)) + data


def encode_headers(headers: GivenHeaders) -> bytes:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        len(pairs)  # what has none may be read only once, and a record that a full batch did not take is encoded again
        listed = list(pairs)
    except own(TypeError):
        raise faults.unusable_headers(headers) from None
    if len(listed) > MAX_HEADERS:
        raise faults.headers_too_many(len(listed))
    parts = [varint(len(listed))]
    for header in listed:
        try:
            name, value = header
        except own(TypeError, ValueError):
            raise faults.unusable_header(header, "not a pair") from None
        if not isinstance(name, str):
            raise faults.unusable_header(header, f"key is {type(name).__name__}")
        try:
            encoded = str.encode(name)
        except UnicodeEncodeError:
            raise faults.unusable_header(header, "key is not UTF-8") from None
        parts += varint(len(encoded)), encoded, _sized("header value", value)
    return b"".join(parts)


def encode_record(time: bytes, offset_delta: int, key: bytes | None, value: bytes | None, headers: bytes) -> bytes:
    """One record after its length. ``time``: the attributes (none are defined) and timestamp
    delta."""
    try:
        fields = b"".join(
            (
                time,
                VARINTS[offset_delta],
                _NULL if key is None else VARINTS[len(key)],
                key or b"",
                _NULL if value is None else VARINTS[len(value)],
                value or b"",
                headers,
            )
        )
        return VARINTS[len(fields)] + fields
    except own(IndexError):  # a number is not in the table
        fields = b"".join((time, varint(offset_delta), _sized("key", key), _sized("value", value), headers))
        return varint(len(fields)) + fields
