"""What compaction leaves of one batch. Pure; Kafka's rules: ``Cleaner.cleanInto`` and ``MemoryRecords.filterTo``.

A batch keeps its first and last offset, its producer's fields and its codec, whatever it loses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

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
from pylog.codec.varint import encode_varint
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import Record
from pylog.partition.compact.transactions import Judged

_ATTRIBUTES = b"\0"


class NewestKeys(Protocol):
    """What is known of the keys of the dirty range."""

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of ``key`` is known."""


class LastOfProducer(NamedTuple):
    """Of a producer that is remembered: the last offset of its last batch, -1 if only its markers are left; its epoch."""

    last_offset: int
    epoch: int


class Rules(NamedTuple):
    """What decides, but for the batches. ``end`` is the offset before which ``newest`` knows all keys."""

    newest: NewestKeys
    end: int
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastOfProducer]


class Cleaned(NamedTuple):
    """``batch`` is what is written; None if nothing is. ``keeps_marker``: it still is the marker of a transaction."""

    batch: Buffer | None
    kept: int
    dropped: int
    keeps_marker: bool = False


def clean(view: BatchView, judged: Judged, rules: Rules) -> Cleaned:
    """What is left of a batch whose checksum was checked. ``CorruptRecord``, ``MissingCodec``."""
    header = view.header
    horizon_ms = header.delete_horizon_ms
    is_past = horizon_ms is not None and rules.now_ms >= horizon_ms
    is_discarded = judged.is_unneeded and (is_past or not header.is_control)
    kept: list[Record] = []
    if not is_discarded:
        kept = [record for record in _records(view) if header.is_control or _stays(record, is_past, rules)]
    dropped = header.count - len(kept)
    if not kept:
        return Cleaned(_emptied(header) if _is_kept_empty(header, rules) else None, 0, dropped)
    needs_horizon = horizon_ms is None and (
        (judged.is_unneeded and header.is_control) or any(record.value is None for record in kept)
    )
    if needs_horizon:
        horizon_ms = rules.now_ms + rules.delete_retention_ms
    elif not dropped:
        return Cleaned(view.buffer, len(kept), 0, header.is_control)
    return Cleaned(_rewritten(header, kept, horizon_ms), len(kept), dropped, header.is_control)


def _records(view: BatchView) -> list[Record]:
    decoder = view.decoder("", 0)
    records: list[Record] = []
    while taken := decoder.take(RECORDS_AT_ONCE):
        records += taken
    return records


def _stays(record: Record, is_past: bool, rules: Rules) -> bool:
    """Whether a record is the newest of its key, or not compared, and not a tombstone past its horizon."""
    if record.offset >= rules.end:
        return True
    if record.key is None or rules.newest.is_superseded(record.key, record.offset):
        return False
    return record.value is not None or not is_past


def _is_kept_empty(header: BatchHeader, rules: Rules) -> bool:
    """Whether the header alone has to stay: for a producer's last sequence, or its epoch, or as the end of the range."""
    if header.last_offset + 1 == rules.end:
        return True
    last = rules.producers.get(header.producer_id)
    if last is None:
        return False
    if last.last_offset >= 0:
        return header.last_offset == last.last_offset
    return header.is_control and header.producer_epoch == last.epoch


def _emptied(header: BatchHeader) -> bytearray:
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _with_crc(header, bytearray(HEADER_BYTES), attributes, NO_TIMESTAMP, header.max_timestamp_ms, 0)


def _rewritten(header: BatchHeader, kept: list[Record], horizon_ms: int | None) -> bytearray:
    """The batch with these records only. With a horizon, its time stands where the first record's stood."""
    base_ms = header.base_timestamp_ms if horizon_ms is None else horizon_ms
    payload = b"".join(
        encode_record(
            _ATTRIBUTES + encode_varint(record.timestamp_ms - base_ms),
            record.offset - header.base_offset,
            record.key,
            record.value,
            encode_headers(record.headers),
        )
        for record in kept
    )
    if header.codec != NONE:
        payload = compress(header.codec, payload, None)
    latest_ms = header.max_timestamp_ms
    if not header.is_log_append_time:
        latest_ms = max(record.timestamp_ms for record in kept)
    attributes = header.attributes | (0 if horizon_ms is None else DELETE_HORIZON_BIT)
    return _with_crc(header, bytearray(HEADER_BYTES) + payload, attributes, base_ms, latest_ms, len(kept))


def _with_crc(
    header: BatchHeader, batch: bytearray, attributes: int, base_ms: int, latest_ms: int, count: int
) -> bytearray:
    HEADER_STRUCT.pack_into(
        batch, 0,
        *header._replace(
            length=len(batch) - BATCH_OVERHEAD, crc=0, attributes=attributes, base_timestamp_ms=base_ms,
            max_timestamp_ms=latest_ms, count=count,
        ),
    )  # fmt: skip
    CRC_STRUCT.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch
