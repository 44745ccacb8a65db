"""Record framing once more, written straight from docs/format.md, slowly: what the codecs are
compared with.

It shares nothing with the package but the Record type and the numbers the package chose itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from crc32c import crc32c

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchHeader, check_header, read_header
from pylog.codec.format import HEADER_BYTES, MAX_HEADERS, Buffer
from pylog.model import Record

TS0 = 1_700_000_000_000
INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)


class Raw(NamedTuple):
    """The fields of a record as they are written. A size of None is the right one; bytes are
    written as they are."""

    timestamp_delta: Any = 0  # as the sizes: an int or bytes
    offset_delta: Any = 0
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    attributes: bytes = b"\x00"
    length: int | bytes | None = None
    key_size: int | bytes | None = None
    value_size: int | bytes | None = None
    headers_count: int | bytes | None = None
    header_key_size: int | bytes | None = None
    header_value_size: int | bytes | None = None
    rest: bytes = b""


def varint(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    bits = (value << 1) ^ (value >> 70)
    out = b""
    while True:
        bits, low = bits >> 7, bits & 0x7F
        if not bits:
            return out + bytes([low])
        out += bytes([low | 0x80])


def padded(value: int, size: int) -> bytes:
    """A varint with zero groups behind it, up to so many bytes."""
    out = varint(value)
    while len(out) < size:
        out = out[:-1] + bytes([out[-1] | 0x80, 0])
    return out


def sized(data: bytes | None, size: int | bytes | None) -> bytes:
    right = -1 if data is None else len(data)
    return varint(right if size is None else size) + (data or b"")


def encode(raw: Raw) -> bytes:
    body = raw.attributes + varint(raw.timestamp_delta) + varint(raw.offset_delta)
    body += sized(raw.key, raw.key_size) + sized(raw.value, raw.value_size)
    body += varint(len(raw.headers) if raw.headers_count is None else raw.headers_count)
    for name, value in raw.headers:
        body += sized(name, raw.header_key_size) + sized(value, raw.header_value_size)
    body += raw.rest
    return varint(len(body) if raw.length is None else raw.length) + body


class Corrupt(Exception):
    pass


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data):
            raise Corrupt
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def varint(self, bits: int = 32) -> int:
        value = 0
        for shift in range(0, bits, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << bits:
                    raise Corrupt
                return (value >> 1) ^ -(value & 1)
        raise Corrupt

    def nullable(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


def decode(
    payload: bytes, count: int, base_offset: int = 0, base_timestamp: int = TS0, append_time: int = -1
) -> list[Record]:
    """All records, or Corrupt."""
    batch = Reader(payload)
    records: list[Record] = []
    for _ in range(count):
        record = Reader(batch.take(batch.varint()))
        record.take(1)
        timestamp = base_timestamp + record.varint(64)
        timestamp = append_time if append_time >= 0 else timestamp
        delta = record.varint()
        offset = base_offset + delta
        in_order = offset > records[-1].offset if records else delta >= 0
        if not in_order or offset > INT64[1] or not INT64[0] <= timestamp <= INT64[1]:
            raise Corrupt
        key, value = record.nullable(), record.nullable()
        headers = []
        headers_count = record.varint()
        if not 0 <= headers_count <= MAX_HEADERS:
            raise Corrupt
        for _ in range(headers_count):
            name = record.take(record.varint())
            try:
                headers.append((name.decode(), record.nullable()))
            except UnicodeDecodeError:
                raise Corrupt from None
        if record.data:
            raise Corrupt
        records.append(Record("topic", 7, offset, timestamp, key, value, tuple(headers)))
    if batch.data:
        raise Corrupt
    return records


HEADER_FIELDS = {  # name: (position, struct code)
    "base_offset": (0, "q"),
    "length": (8, "i"),
    "leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp_ms": (27, "q"),
    "max_timestamp_ms": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "count": (57, "i"),
}


def batch_of(payload: bytes, count: int, **fields: int) -> bytearray:
    """A batch around a payload: the given header fields, ordinary others, and a CRC that is right
    unless given."""
    batch = bytearray(61) + payload
    values = {
        "base_offset": 0,
        "length": len(batch) - 12,
        "leader_epoch": -1,
        "magic": 2,
        "last_offset_delta": max(count - 1, 0),
        "base_timestamp_ms": TS0,
        "max_timestamp_ms": TS0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    } | fields
    return set_fields(batch, **values)


def set_fields(batch: bytearray, **fields: int) -> bytearray:
    for name, value in fields.items():
        position, code = HEADER_FIELDS[name]
        struct.pack_into(f">{code}", batch, position, value)
    if "crc" not in fields:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def scan_headers(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """The position and the header of each whole batch in ``data``. CRCs are not checked."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        assert check_header(header) is None
        if position + header.size_bytes > len(data):
            return
        yield position, header
        position += header.size_bytes


def payload_of(records: Iterable[Raw]) -> bytes:
    return b"".join(map(encode, records))


def take_payload(encoder: RecordEncoder) -> bytes:
    """The records of an encoder, which is then empty."""
    return bytes(encoder.take_batch()[HEADER_BYTES:])
