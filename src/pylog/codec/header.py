"""The 61-byte header of a batch: its fields, its rules, and how it is read and written (readable
codec).

``write_header`` is for a new batch. The log later writes its base offset and leader epoch, which
the CRC does not cover (``stamp``). ``_headers.pxi`` has ``read_header``, ``write_header`` and
``stamp`` compiled; the same tests run on both.
"""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec import faults
from pylog.codec.checksum import crc32c
from pylog.codec.format import (
    ATTRIBUTES_POSITION,
    ATTRIBUTES_STRUCT,
    BASE_OFFSET_POSITION,
    BASE_OFFSET_STRUCT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CODEC_NAMES,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    CRC_STRUCT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    INT64_MAX,
    KNOWN_ATTRIBUTES,
    LEADER_EPOCH_POSITION,
    LEADER_EPOCH_STRUCT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_POSITION,
    MIN_BATCH_LENGTH,
    MIN_RECORD_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NONE,
    PRODUCER_ID_POSITION,
    PRODUCER_STRUCT,
    TIMESTAMP_STRUCT,
    TRANSACTIONAL_BIT,
    Buffer,
)
from pylog.errors import ConfigError


class BatchHeader(NamedTuple):
    """A batch header. ``length`` counts the bytes after that field: the batch's size less 12."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def size_bytes(self) -> int:
        return BATCH_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of a compacted batch may be removed; None if it is not
        set."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number (0 follows 2**31 - 1); -1 if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position, unchecked. ``CorruptRecord`` only if fewer than 61 bytes remain."""
    if not 0 <= position <= len(buffer) - HEADER_BYTES:
        raise faults.header_cut_off(position, len(buffer))
    # twice as fast as BatchHeader._make
    return tuple.__new__(BatchHeader, HEADER_STRUCT.unpack_from(buffer, position))


def check_header(header: BatchHeader) -> str | None:
    """Why this can't be a batch header, or None. A batch that passes may still fail its CRC."""
    base_offset, length, leader_epoch, magic, _, attributes, last_offset_delta, *_, count = header
    payload_bytes = length - MIN_BATCH_LENGTH
    if magic != MAGIC:
        return f"magic {magic}, expected {MAGIC}"
    if payload_bytes < 0:
        return f"batch length {length}, expected {MIN_BATCH_LENGTH} or more"
    if base_offset < 0 or last_offset_delta < 0 or base_offset + last_offset_delta > INT64_MAX:
        return f"base offset {base_offset} and last offset delta {last_offset_delta} are not a range of offsets"
    if attributes & ~KNOWN_ATTRIBUTES:
        return f"attributes {attributes:#x}, but only the bits {KNOWN_ATTRIBUTES:#x} are defined"
    codec = attributes & CODEC_MASK
    if codec >= len(CODEC_NAMES):
        return f"compression codec {codec}, expected 0 to {len(CODEC_NAMES) - 1}"
    return (
        _check_count(count, last_offset_delta + 1, payload_bytes, codec != NONE)
        or check_producer(attributes, header.producer_id, header.producer_epoch, header.base_sequence, count)
        or (f"leader epoch {leader_epoch}" if leader_epoch < NO_LEADER_EPOCH else None)
    )


def _check_count(count: int, offsets: int, payload_bytes: int, is_compressed: bool) -> str | None:
    if not 0 <= count <= offsets:
        return f"records count {count}, but the batch has {offsets} offsets"
    if is_compressed:
        return f"{count} compressed records in no bytes" if count and not payload_bytes else None
    if count * MIN_RECORD_BYTES > payload_bytes:
        return f"records count {count}, but {payload_bytes} bytes hold at most {payload_bytes // MIN_RECORD_BYTES}"
    if payload_bytes and not count:
        return f"records count 0, but {payload_bytes} bytes of records"
    return None


def check_producer(attributes: int, producer_id: int, epoch: int, sequence: int, count: int) -> str | None:
    """Why these fields contradict one another, or None."""
    if producer_id < NO_PRODUCER_ID or epoch < NO_PRODUCER_EPOCH or sequence < NO_SEQUENCE:
        return f"producer id {producer_id}, epoch {epoch}, base sequence {sequence}: below -1, which means none"
    if producer_id != NO_PRODUCER_ID and epoch == NO_PRODUCER_EPOCH:
        return f"producer id {producer_id} without an epoch"
    if not attributes & TRANSACTIONAL_BIT:
        return None
    if producer_id == NO_PRODUCER_ID:
        return "a transactional batch without a producer id"
    return (
        f"an end-of-transaction marker with {count} records, expected 1"
        if attributes & CONTROL_BIT and count > 1
        else None
    )


def write_header(
    batch: bytearray,
    attributes: int,
    count: int,
    first_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Fill in the header of ``count`` new records: base offset 0, no leader epoch, and the CRC.

    ``ConfigError`` if the producer's fields contradict one another.
    """
    # The caller does not choose the other fields.
    reason = check_producer(attributes, producer_id, producer_epoch, base_sequence, count)
    if reason is not None:
        raise ConfigError(reason)
    if len(batch) < HEADER_BYTES:
        raise faults.header_cut_off(0, len(batch))
    HEADER_STRUCT.pack_into(
        batch, 0, 0, len(batch) - BATCH_OVERHEAD, NO_LEADER_EPOCH, MAGIC, 0, attributes, count - 1,
        first_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _write_crc(batch)


def stamp(batch: bytearray, base_offset: int, leader_epoch: int, append_time_ms: int | None = None) -> BatchHeader:
    """Write a batch's base offset and leader epoch, which the CRC does not cover. Returns its
    header.

    ``append_time_ms`` makes it a LogAppendTime batch of that time, and the CRC is recomputed.
    """
    if len(batch) < HEADER_BYTES:
        raise faults.header_cut_off(0, len(batch))
    BASE_OFFSET_STRUCT.pack_into(batch, BASE_OFFSET_POSITION, base_offset)
    LEADER_EPOCH_STRUCT.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)
    if append_time_ms is not None:
        (attributes,) = ATTRIBUTES_STRUCT.unpack_from(batch, ATTRIBUTES_POSITION)
        ATTRIBUTES_STRUCT.pack_into(batch, ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
        TIMESTAMP_STRUCT.pack_into(batch, MAX_TIMESTAMP_POSITION, append_time_ms)
        _write_crc(batch)
    return read_header(batch)


def number(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write a batch's producer fields, and recompute the CRC. The caller has checked the old
    CRC."""
    PRODUCER_STRUCT.pack_into(batch, PRODUCER_ID_POSITION, producer_id, producer_epoch, base_sequence)
    _write_crc(batch)


def _write_crc(batch: bytearray) -> None:
    CRC_STRUCT.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
