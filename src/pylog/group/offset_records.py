"""Records of ``__consumer_offsets``: Kafka's own layout of a committed offset, key and value.

Key: ``int16 1, string group, string topic, int32 partition``; a string is an int16 length and
UTF-8. Value, version 4: ``int16 4, int64 offset, int32 leader epoch, compact string metadata, int64
time of the commit``, then tagged fields; 0 is the topic's id (16 bytes). A null value removes the
offset. Versions 0 to 3 are read as well; other keys (group metadata of Kafka's coordinator) are
skipped.

Source: ``OffsetCommitKey.json``, ``OffsetCommitValue.json`` of Kafka 4.3; its protocol guide.
"""

from __future__ import annotations

import base64
import binascii
import struct
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from pylog.errors import CorruptRecord
from pylog.interrupts import own
from pylog.model import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
METADATA_LIMIT_BYTES = 4096  # Kafka's offset.metadata.max.bytes

_KINDS = (0, 1)  # of keys; both have the same layout
_VERSION = 4
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_V4 = Struct(">hqi")
_INT64 = Struct(">q")
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)


class Committed(NamedTuple):
    """``offset`` is the next one to read. ``topic_id`` is empty if unknown."""

    offset: int
    leader_epoch: int
    metadata: str
    timestamp_ms: int
    topic_id: str


@lru_cache(maxsize=1024)
def encode_key(group: str, partition: TopicPartition) -> bytes:
    return _INT16.pack(1) + _string(group) + _string(partition.topic) + _INT32.pack(partition.partition)


def encode_value(committed: Committed) -> bytes:
    metadata = committed.metadata.encode()
    topic_id = _id_bytes(committed.topic_id)
    tags = b"\0" if topic_id == _NO_ID else b"\1\0" + bytes([_ID_BYTES]) + topic_id
    return (
        _V4.pack(_VERSION, committed.offset, committed.leader_epoch)
        + _unsigned(len(metadata) + 1)
        + metadata
        + _INT64.pack(committed.timestamp_ms)
        + tags
    )


def decode_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """The group and partition; None for another kind. ``CorruptRecord`` if cut or not text."""
    try:
        if _INT16.unpack_from(key)[0] not in _KINDS:
            return None
        group, at = _read_string(key, 2)
        topic, at = _read_string(key, at)
        return group, TopicPartition(topic, _INT32.unpack_from(key, at)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptRecord(f"the key of a committed offset is damaged: {error}", key=key) from error


def decode_value(value: bytes) -> Committed:
    """``CorruptRecord`` if it is truncated, not text, or of an unknown version."""
    try:
        version = _INT16.unpack_from(value)[0]
        if version == _VERSION:
            return _decode_flexible(value)
        if not 0 <= version < _VERSION:
            raise CorruptRecord(f"a committed offset of version {version}, known are 0 to {_VERSION}", version=version)
        offset, at, epoch = _INT64.unpack_from(value, 2)[0], 10, -1
        if version == 3:
            epoch, at = _INT32.unpack_from(value, at)[0], at + 4
        metadata, at = _read_string(value, at)
        return Committed(offset, epoch, metadata, _INT64.unpack_from(value, at)[0], "")
    except own(struct.error, UnicodeDecodeError, IndexError) as error:
        raise CorruptRecord(f"a committed offset is damaged: {error}", value=value) from error


def _decode_flexible(value: bytes) -> Committed:
    _, offset, epoch = _V4.unpack_from(value)
    length, at = _read_unsigned(value, _V4.size)
    metadata, at = _slice(value, at, length - 1).decode(), at + length - 1
    timestamp_ms = _INT64.unpack_from(value, at)[0]
    count, at = _read_unsigned(value, at + 8)
    topic_id = _NO_ID
    for _ in range(min(count, len(value))):
        tag, at = _read_unsigned(value, at)
        size, at = _read_unsigned(value, at)
        if tag == 0 and size == _ID_BYTES:
            topic_id = _slice(value, at, size)
        at += size
    return Committed(offset, epoch, metadata, timestamp_ms, "" if topic_id == _NO_ID else _id_text(topic_id))


@lru_cache(maxsize=1024)
def partition_of_group(group: str, partitions: int) -> int:
    """The group's partition of ``__consumer_offsets``: Java's ``String.hashCode``, as Kafka."""
    number = 0
    for (unit,) in Struct("<H").iter_unpack(group.encode("utf-16-le", "surrogatepass")):
        number = (number * 31 + unit) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = ((1 << 32) - number) & 0x7FFFFFFF  # the absolute value; 0 for INT32_MIN
    return number % partitions


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    length: int = _INT16.unpack_from(data, at)[0]
    return _slice(data, at + 2, length).decode(), at + 2 + length


def _slice(data: bytes, at: int, length: int) -> bytes:
    if not 0 <= length <= len(data) - at:
        raise struct.error(f"{length} bytes at {at} of {len(data)}")
    return data[at : at + length]


def _unsigned(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 28:
            raise struct.error(f"a number of more than 5 bytes at {at}")


@lru_cache(maxsize=1024)
def _id_bytes(topic_id: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4))
    except own(binascii.Error, ValueError):
        return _NO_ID
    return data if len(data) == _ID_BYTES else _NO_ID


def _id_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
