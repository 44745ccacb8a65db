"""Whole batches: reads, checks and writes the 61-byte header, and gives access to the records.

A batch is encoded once (``build_batch``). The log later writes its base offset and leader epoch,
which the CRC does not cover (``stamp``). Readers call ``check_header`` and ``check_crc`` first.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from pylog.codec import Columns, RecordDecoder, RecordEncoder, decode_columns, least_timestamp_ms
from pylog.codec.checksum import crc32c
from pylog.codec.columns import Allocate
from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT, compress, decompress
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
    INT64_MIN,
    KNOWN_ATTRIBUTES,
    LEADER_EPOCH_POSITION,
    LEADER_EPOCH_STRUCT,
    LENGTH_POSITION,
    LENGTH_STRUCT,
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
    NO_TIMESTAMP,
    NONE,
    PRODUCER_ID_POSITION,
    PRODUCER_STRUCT,
    TIMESTAMP_STRUCT,
    TRANSACTIONAL_BIT,
    Buffer,
)
from pylog.errors import ConfigError, CorruptRecord
from pylog.model import Record


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
        """When tombstones and markers of a compacted batch may be removed; None if it is not set."""
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
        raise CorruptRecord(
            f"{HEADER_BYTES} bytes of batch header expected at position {position}, but the buffer ends at {len(buffer)}",
            position=position,
        )
    # twice as fast as BatchHeader._make
    return tuple.__new__(BatchHeader, HEADER_STRUCT.unpack_from(buffer, position))


def size_at(buffer: Buffer, position: int) -> int:
    """The size of the batch at a position, from its unchecked header; 0 if the length is cut off."""
    if position + BATCH_OVERHEAD > len(buffer):
        return 0
    return BATCH_OVERHEAD + int(LENGTH_STRUCT.unpack_from(buffer, position + LENGTH_POSITION)[0])


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
        or _check_producer(attributes, header.producer_id, header.producer_epoch, header.base_sequence, count)
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


def _check_producer(attributes: int, producer_id: int, epoch: int, sequence: int, count: int) -> str | None:
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


class BatchView:
    """One whole batch in a buffer, which is neither copied nor changed."""

    __slots__ = ("buffer", "header")

    def __init__(self, buffer: Buffer, header: BatchHeader) -> None:
        if len(buffer) != header.size_bytes or len(buffer) < HEADER_BYTES:
            raise CorruptRecord(
                f"batch of {header.size_bytes} bytes at offset {header.base_offset}, but its buffer has {len(buffer)}",
                offset=header.base_offset,
            )
        self.buffer = buffer
        self.header = header

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta

    def check_crc(self) -> None:
        """``CorruptRecord`` if the CRC-32C does not match the bytes that it covers."""
        found = crc32c(memoryview(self.buffer)[CRC_START:])
        if found != self.header.crc:
            raise CorruptRecord(
                f"batch at offset {self.base_offset}: CRC {found:08x} of its bytes, expected {self.header.crc:08x}",
                offset=self.base_offset,
            )

    def decoder(self, topic: str, partition: int, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> RecordDecoder:
        """A decoder of the records, decompressed to at most ``limit_bytes``.

        The caller has checked header and CRC.
        """
        header = self.header
        return RecordDecoder(
            self.payload(limit_bytes),
            header.count,
            header.base_offset,
            header.base_timestamp_ms,
            self.append_time_ms(),
            topic,
            partition,
            header.last_offset_delta,
        )

    def columns(
        self, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT, with_headers: bool = True, allocate: Allocate = bytearray
    ) -> Columns:
        """The records as columns, in memory from ``allocate``. The caller has checked header and CRC."""
        header = self.header
        return decode_columns(
            self.payload(limit_bytes),
            header.count,
            header.base_offset,
            header.base_timestamp_ms,
            self.append_time_ms(),
            with_headers,
            header.last_offset_delta,
            allocate,
        )

    def least_timestamp_ms(self, limit_bytes: int = 0) -> int:
        """The least timestamp of the records; ``INT64_MAX`` without records, ``INT64_MIN`` if unknown.

        Decompresses up to ``limit_bytes``, by default nothing.
        """
        header = self.header
        if header.is_control or not header.count:
            return INT64_MAX
        if (append_time_ms := self.append_time_ms()) >= 0:
            return append_time_ms
        if header.codec != NONE and not limit_bytes:
            return INT64_MIN
        return least_timestamp_ms(self.payload(limit_bytes), header.count, header.base_timestamp_ms)

    def records(self, topic: str = "", partition: int = 0) -> list[Record]:
        """Check the CRC, and return all records. For tools and tests: all are in memory at once."""
        self.check_crc()
        decoder = self.decoder(topic, partition)
        records: list[Record] = []
        while taken := decoder.take(max(self.header.count, 1)):
            records += taken
        return records

    def payload(self, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT) -> Buffer:
        """The encoded records, decompressed to at most ``limit_bytes``."""
        payload = memoryview(self.buffer)[HEADER_BYTES:]
        return payload if self.header.codec == NONE else decompress(self.header.codec, payload, limit_bytes)

    def append_time_ms(self) -> int:
        """The timestamp of all records of a LogAppendTime batch, else -1."""
        return self.header.max_timestamp_ms if self.header.is_log_append_time else NO_TIMESTAMP


def header_crc(front: bytes | bytearray | memoryview) -> int:
    """The CRC-32C of the first 21 bytes, which the batch's own CRC does not cover."""
    return crc32c(front[:CRC_START])


class TakenRecords:
    """The records of an encoder, so that ``build_batch`` can repeat after a signal handler raised.

    One call into C moves them from the encoder to this object, so no exception can lose them.
    """

    __slots__ = ("_take", "_taken", "count", "first_timestamp_ms", "max_timestamp_ms")

    def __init__(self, encoder: RecordEncoder) -> None:
        self.count = encoder.count
        self.first_timestamp_ms = encoder.first_timestamp_ms
        self.max_timestamp_ms = encoder.max_timestamp_ms
        self._take = encoder.take_batch
        self._taken: list[bytearray] = []

    def take_batch(self) -> bytearray:
        if not self._taken:
            self._taken.extend(islice(iter(self._take, None), 1))
        return self._taken[0]


def build_batch(
    encoder: RecordEncoder | TakenRecords,
    *,
    codec: int = NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """The encoder's records as one batch with base offset 0; the encoder is then empty.

    They are not compressed if that does not make them smaller, or if readers would refuse to
    decompress that much. ``ConfigError`` for an empty encoder, contradicting producer fields, or an
    unknown codec or level; ``MissingCodec``.
    """
    count, first, latest = encoder.count, encoder.first_timestamp_ms, encoder.max_timestamp_ms
    if count == 0:
        raise ConfigError("a batch has at least one record")
    attributes = TRANSACTIONAL_BIT if transactional else 0
    batch = encoder.take_batch()
    if codec != NONE and len(batch) - HEADER_BYTES <= DEFAULT_DECOMPRESSED_LIMIT:
        compressed = compress(codec, memoryview(batch)[HEADER_BYTES:], level)
        if HEADER_BYTES + len(compressed) < len(batch):
            batch = bytearray(HEADER_BYTES) + compressed
            attributes |= codec
    write_header(batch, attributes, count, first, latest, producer_id, producer_epoch, base_sequence)
    return batch


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
    """Fill in the header of ``count`` new records: base offset 0, no leader epoch, and the CRC."""
    # The caller does not choose the other fields.
    reason = _check_producer(attributes, producer_id, producer_epoch, base_sequence, count)
    if reason is not None:
        raise ConfigError(reason)
    HEADER_STRUCT.pack_into(
        batch, 0, 0, len(batch) - BATCH_OVERHEAD, NO_LEADER_EPOCH, MAGIC, 0, attributes, count - 1,
        first_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _write_crc(batch)


def stamp(batch: bytearray, base_offset: int, leader_epoch: int, append_time_ms: int | None = None) -> None:
    """Write a batch's base offset and leader epoch, which the CRC does not cover.

    ``append_time_ms`` makes it a LogAppendTime batch of that time, and the CRC is recomputed.
    """
    BASE_OFFSET_STRUCT.pack_into(batch, BASE_OFFSET_POSITION, base_offset)
    LEADER_EPOCH_STRUCT.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)
    if append_time_ms is not None:
        (attributes,) = ATTRIBUTES_STRUCT.unpack_from(batch, ATTRIBUTES_POSITION)
        ATTRIBUTES_STRUCT.pack_into(batch, ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
        TIMESTAMP_STRUCT.pack_into(batch, MAX_TIMESTAMP_POSITION, append_time_ms)
        _write_crc(batch)


def number(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write a batch's producer fields, and recompute the CRC. The caller has checked the old CRC."""
    PRODUCER_STRUCT.pack_into(batch, PRODUCER_ID_POSITION, producer_id, producer_epoch, base_sequence)
    _write_crc(batch)


def _write_crc(batch: bytearray) -> None:
    CRC_STRUCT.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
