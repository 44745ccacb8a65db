"""What compaction leaves of one batch. Pure; Kafka's rules: ``Cleaner.cleanInto`` and
``MemoryRecords.filterTo``.

A batch keeps its first and last offset, its producer's fields and its codec, whatever it loses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pylog.codec import KeyMap
from pylog.codec.batch import BatchHeader, BatchView
from pylog.codec.checksum import crc32c
from pylog.codec.compression import compress
from pylog.codec.fields import encode_headers, encode_record
from pylog.codec.format import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CRC_POSITION,
    CRC_START,
    CRC_STRUCT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    NO_TIMESTAMP,
    NONE,
    Buffer,
)
from pylog.codec.newest import NewestRecords, decoder_of, newest_records
from pylog.codec.varint import encode_varint
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import Record
from pylog.partition.compact.transactions import Judged

_ATTRIBUTES = b"\0"


class LastOfProducer(NamedTuple):
    """Of a producer that is remembered: the last offset of its last batch, -1 if only its markers
    are left; its epoch."""

    last_offset: int
    epoch: int


class Rules(NamedTuple):
    """What decides, but for the batches. ``end`` is the offset before which ``newest`` knows all
    keys: the rest stays."""

    newest: KeyMap
    end: int
    time_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastOfProducer]


class Cleaned(NamedTuple):
    """``batch`` is what is written; None if nothing is. ``keeps_marker``: it still is the marker of
    a transaction.

    ``drops_tombstones``: some that are the newest of their keys, since their horizon has come.
    """

    batch: Buffer | None
    kept: int
    dropped: int
    keeps_marker: bool = False
    drops_tombstones: bool = False


def clean(view: BatchView, judged: Judged, rules: Rules) -> Cleaned:
    """What is left of a batch whose checksum was checked. ``CorruptRecord``, ``MissingCodec``."""
    header = view.header
    horizon_ms = header.delete_horizon_ms
    is_past = horizon_ms is not None and rules.time_ms >= horizon_ms
    is_discarded = judged.is_unneeded and (is_past or not header.is_control)
    if is_discarded:
        left = NewestRecords(0, False, NO_TIMESTAMP, b"")
    else:  # of a marker, all
        left = newest_records(rules.newest, view, 0 if header.is_control else rules.end, drops_tombstones=is_past)
    dropped = header.count - left.kept
    drops_tombstones = is_past and dropped > 0 and not is_discarded and _has_needed(view, left, rules)
    if not left.kept:
        batch = emptied(header) if _is_kept_empty(header, rules) else None
        return Cleaned(batch, 0, dropped, drops_tombstones=drops_tombstones)
    if horizon_ms is None and (left.has_tombstones or (judged.is_unneeded and header.is_control)):
        batch = _with_horizon(view, left, rules.time_ms + rules.delete_retention_ms)
    elif dropped:  # Kafka writes the time of the first record that is left; readers see no difference
        latest_ms = header.max_timestamp_ms if header.is_log_append_time else left.latest_ms
        batch = made(header, left.payload, header.attributes, header.base_timestamp_ms, latest_ms, left.kept)
    else:
        return Cleaned(view.buffer, left.kept, 0, header.is_control)
    return Cleaned(batch, left.kept, dropped, header.is_control, drops_tombstones)


def _has_needed(view: BatchView, left: NewestRecords, rules: Rules) -> bool:
    """Whether more would be left of the batch before its horizon: tombstones."""
    return newest_records(rules.newest, view, rules.end, drops_tombstones=False).kept > left.kept


def _is_kept_empty(header: BatchHeader, rules: Rules) -> bool:
    """Whether the header alone has to stay: for a producer's last sequence, or its epoch, or as the
    end of the range."""
    if header.last_offset + 1 == rules.end:
        return True
    last = rules.producers.get(header.producer_id)
    if last is None:
        return False
    if last.last_offset >= 0:
        return header.last_offset == last.last_offset
    return header.is_control and header.producer_epoch == last.epoch


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records: its header stays."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return made(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp_ms, 0)


def _with_horizon(view: BatchView, left: NewestRecords, horizon_ms: int) -> bytearray:
    """The batch with the records that are left. The horizon stands where the first record's time
    stood."""
    header, records = view.header, list[Record]()
    decoder = decoder_of(view, left)
    while taken := decoder.take(RECORDS_AT_ONCE):
        records += taken
    payload = b"".join(
        encode_record(
            _ATTRIBUTES + encode_varint(record.timestamp_ms - horizon_ms),
            record.offset - header.base_offset,
            record.key,
            record.value,
            encode_headers(record.headers),
        )
        for record in records
    )
    latest_ms = header.max_timestamp_ms
    if not header.is_log_append_time:
        latest_ms = max(record.timestamp_ms for record in records)
    attributes = header.attributes | DELETE_HORIZON_BIT
    return made(header, payload, attributes, horizon_ms, latest_ms, len(records))


def made(header: BatchHeader, payload: Buffer, attributes: int, base_ms: int, latest_ms: int, count: int) -> bytearray:
    """A batch of this payload, which is compressed here, with the offsets and the producer of
    ``header``."""
    batch = bytearray(HEADER_BYTES) + (
        payload if attributes & CODEC_MASK == NONE else compress(header.codec, payload, None)
    )
    HEADER_STRUCT.pack_into(
        batch, 0,
        *header._replace(
            length=len(batch) - BATCH_OVERHEAD, crc=0, attributes=attributes, base_timestamp_ms=base_ms,
            max_timestamp_ms=latest_ms, count=count,
        ),
    )  # fmt: skip
    CRC_STRUCT.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch
