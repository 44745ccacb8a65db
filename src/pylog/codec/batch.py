"""Whole batches: access to their records, and encoding. header.py has the header.

A batch is encoded once (``build_batch``). Readers call ``check_header`` and ``check_crc`` first.
"""

from __future__ import annotations

from pylog.codec import (
    Columns,
    RecordDecoder,
    RecordEncoder,
    TakenRecords,
    decode_columns,
    least_timestamp_ms,
    read_header,
    stamp,
    write_header,
)
from pylog.codec.checksum import crc32c
from pylog.codec.columns import Allocate
from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT, compress, decompress
from pylog.codec.format import (
    BATCH_OVERHEAD,
    CRC_START,
    HEADER_BYTES,
    INT64_MAX,
    INT64_MIN,
    LENGTH_POSITION,
    LENGTH_STRUCT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NONE,
    TRANSACTIONAL_BIT,
    Buffer,
)
from pylog.codec.header import BatchHeader, check_header
from pylog.errors import ConfigError, CorruptRecord
from pylog.model import Record

__all__ = [
    "BatchHeader",
    "BatchView",
    "build_batch",
    "check_header",
    "header_crc",
    "read_header",
    "size_at",
    "stamp",
    "write_header",
]


def size_at(buffer: Buffer, position: int) -> int:
    """The size of the batch at a position, from its unchecked header; 0 if the length is cut
    off."""
    if position + BATCH_OVERHEAD > len(buffer):
        return 0
    return BATCH_OVERHEAD + int(LENGTH_STRUCT.unpack_from(buffer, position + LENGTH_POSITION)[0])


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
        """Raises ``CorruptRecord`` if the CRC-32C does not match the bytes that it covers."""
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
        """The records as columns, in memory from ``allocate``. The caller has checked header and
        CRC."""
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
        """The least timestamp of the records; ``INT64_MAX`` without records, ``INT64_MIN`` if
        unknown.

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
