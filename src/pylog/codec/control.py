"""Control batches: the markers that end a transaction. Applications never see them.

Key and value: Kafka's ``EndTransactionMarker``. A later version is read like the latest known
version.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, write_header
from pylog.codec.format import (
    CONTROL_BIT,
    CONTROL_KEY_STRUCT,
    CONTROL_KEY_VERSION,
    MARKER_VALUE_STRUCT,
    MARKER_VALUE_VERSION,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from pylog.errors import ConfigError, CorruptRecord

_MARKER_LIMIT_BYTES = 128  # a marker's batch takes 78
_CONTROL_LIMIT_BYTES = 1 << 20  # a batch that decompresses to more is not a control batch


class ControlType(IntEnum):
    """The type of a control record. Readers skip UNKNOWN, a type of a later version."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Marker(NamedTuple):
    """A control record. ``coordinator_epoch`` is -1 if the type is neither ABORT nor COMMIT."""

    type: ControlType
    coordinator_epoch: int


_MARKERS = (ControlType.ABORT, ControlType.COMMIT)
_TYPES = frozenset(ControlType)


def build_marker(
    type: ControlType, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytearray:
    """The batch that ends a transaction, with base offset 0: ``stamp`` it like any other batch."""
    if type not in _MARKERS:
        raise ConfigError(f"control type {type!r} does not end a transaction, expected ABORT or COMMIT")
    encoder = RecordEncoder(_MARKER_LIMIT_BYTES)
    key = CONTROL_KEY_STRUCT.pack(CONTROL_KEY_VERSION, type)
    encoder.append(timestamp_ms, key, MARKER_VALUE_STRUCT.pack(MARKER_VALUE_VERSION, coordinator_epoch), ())
    batch = encoder.take_batch()
    attributes = CONTROL_BIT | TRANSACTIONAL_BIT
    write_header(batch, attributes, 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE)
    return batch


def read_marker(view: BatchView) -> Marker:
    """The record of a control batch. The caller has checked the CRC, and the count: compaction may
    have emptied the batch.

    ``CorruptRecord`` if it is not a control batch, is empty, or its key or value is too short.
    """
    records = view.decoder("", 0, _CONTROL_LIMIT_BYTES).take(1) if view.header.is_control else []
    if not records:
        raise CorruptRecord(
            f"batch at offset {view.base_offset} with {view.header.count} records and attributes "
            f"{view.header.attributes:#x} has no control record",
            offset=view.base_offset,
        )
    key, value = records[0].key, records[0].value
    number = _second_field(CONTROL_KEY_STRUCT, "key", key, view)
    kind = ControlType(number) if number in _TYPES else ControlType.UNKNOWN
    if kind not in _MARKERS:
        return Marker(kind, -1)
    return Marker(kind, _second_field(MARKER_VALUE_STRUCT, "value", value, view))


def _second_field(layout: Struct, name: str, data: bytes | None, view: BatchView) -> int:
    """The field after the version. Later versions may add fields after it."""
    if data is None or len(data) < layout.size:
        raise CorruptRecord(
            f"control record at offset {view.base_offset}: {name} {data!r:.40}, expected {layout.size} bytes or more",
            offset=view.base_offset,
        )
    version, field = layout.unpack_from(data)
    if version < 0:
        raise CorruptRecord(
            f"control record at offset {view.base_offset}: {name} version {version}, expected 0 or more",
            offset=view.base_offset,
        )
    return int(field)
