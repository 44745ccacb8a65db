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

from pylog.checks import by_partition, require_count
from pylog.codec.format import INT64_MAX
from pylog.codec.messages import INT16, INT32, INT64, hash_code, read_string, read_unsigned, slice_of, string, unsigned
from pylog.errors import ConfigError, CorruptRecord
from pylog.interrupts import own
from pylog.model import OffsetAndMetadata, Offsets, TopicPartition

METADATA_LIMIT_BYTES = 4096  # Kafka's offset.metadata.max.bytes

_KINDS = (0, 1)  # of keys; both have the same layout
_VERSION = 4
_V4 = Struct(">hqi")
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)


class Committed(NamedTuple):
    """``offset`` is the next one to read. ``topic_id`` is empty if unknown."""

    offset: int
    leader_epoch: int
    metadata: str
    timestamp_ms: int
    topic_id: str


def offsets_to_commit(
    offsets: Offsets,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What an application gave to commit; ``ConfigError`` if that is impossible."""
    return {name: _offset(value) for name, value in by_partition("offsets", offsets, "offset").items()}


def _offset(value: object) -> OffsetAndMetadata:
    at = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)  # type: ignore[arg-type]
    metadata: object = at.metadata
    try:
        if isinstance(metadata, str) and len(metadata.encode()) <= METADATA_LIMIT_BYTES:
            return OffsetAndMetadata(require_count("offset", at.offset, 0, INT64_MAX), metadata)
    except own(UnicodeEncodeError):
        pass
    raise ConfigError(
        f"the metadata of a commit is text of at most {METADATA_LIMIT_BYTES} bytes, got {metadata!r:.80}",
        option="metadata", limit_bytes=METADATA_LIMIT_BYTES,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def encode_key(group: str, partition: TopicPartition) -> bytes:
    return INT16.pack(1) + string(group) + string(partition.topic) + INT32.pack(partition.partition)


def encode_value(committed: Committed) -> bytes:
    metadata = committed.metadata.encode()
    topic_id = _id_bytes(committed.topic_id)
    tags = b"\0" if topic_id == _NO_ID else b"\1\0" + bytes([_ID_BYTES]) + topic_id
    return (
        _V4.pack(_VERSION, committed.offset, committed.leader_epoch)
        + unsigned(len(metadata) + 1)
        + metadata
        + INT64.pack(committed.timestamp_ms)
        + tags
    )


def decode_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """The group and partition; None for another kind. ``CorruptRecord`` if cut or not text."""
    try:
        if INT16.unpack_from(key)[0] not in _KINDS:
            return None
        group, at = read_string(key, 2)
        topic, at = read_string(key, at)
        return group, TopicPartition(topic, INT32.unpack_from(key, at)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptRecord(f"the key of a committed offset is damaged: {error}", key=key) from error


def decode_value(value: bytes) -> Committed:
    """Return the commit. ``CorruptRecord`` if it is truncated, not text, or of an unknown
    version."""
    try:
        version = INT16.unpack_from(value)[0]
        if version == _VERSION:
            return _decode_flexible(value)
        if not 0 <= version < _VERSION:
            raise CorruptRecord(f"a committed offset of version {version}, known are 0 to {_VERSION}", version=version)
        offset, at, epoch = INT64.unpack_from(value, 2)[0], 10, -1
        if version == 3:
            epoch, at = INT32.unpack_from(value, at)[0], at + 4
        metadata, at = read_string(value, at)
        return Committed(offset, epoch, metadata, INT64.unpack_from(value, at)[0], "")
    except own(struct.error, UnicodeDecodeError, IndexError) as error:
        raise CorruptRecord(f"a committed offset is damaged: {error}", value=value) from error


def _decode_flexible(value: bytes) -> Committed:
    _, offset, epoch = _V4.unpack_from(value)
    length, at = read_unsigned(value, _V4.size)
    metadata, at = slice_of(value, at, length - 1).decode(), at + length - 1
    timestamp_ms = INT64.unpack_from(value, at)[0]
    count, at = read_unsigned(value, at + 8)
    topic_id = _NO_ID
    for _ in range(min(count, len(value))):
        tag, at = read_unsigned(value, at)
        size, at = read_unsigned(value, at)
        if tag == 0 and size == _ID_BYTES:
            topic_id = slice_of(value, at, size)
        at += size
    return Committed(offset, epoch, metadata, timestamp_ms, "" if topic_id == _NO_ID else _id_text(topic_id))


@lru_cache(maxsize=1024)
def partition_of_group(group: str, partitions: int) -> int:
    """The group's partition of ``__consumer_offsets``: Java's ``String.hashCode``, as Kafka."""
    return hash_code(group) % partitions


@lru_cache(maxsize=1024)
def _id_bytes(topic_id: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4))
    except own(binascii.Error, ValueError):
        return _NO_ID
    return data if len(data) == _ID_BYTES else _NO_ID


def _id_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
