"""Takes the records of some keys out of a batch whose header and CRC were checked. Those that stay
keep their bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pylog.codec import RecordDecoder, faults
from pylog.codec.batch import BatchView
from pylog.codec.format import INT64_MIN
from pylog.codec.framing import Payload, RecordBounds, read_bounds
from pylog.codec.varint import decode_varint
from pylog.errors import CorruptRecord
from pylog.interrupts import own
from pylog.limits import RECORDS_AT_ONCE

_SOUGHT_AS_BYTES = 16  # so many keys are found faster as bytes than as keys of decoded records


class TakenOut(NamedTuple):
    """A record of one of the keys. ``is_bare``: it has no value and no headers."""

    key: bytes
    offset: int
    is_bare: bool


class Split(NamedTuple):
    """``payload`` has the bytes of the ``kept`` records, not compressed; ``latest_ms`` is their
    greatest timestamp."""

    kept: int
    latest_ms: int
    payload: bytes
    taken: list[TakenOut]


def may_hold(view: BatchView, keys: Collection[bytes]) -> bool:
    """Whether ``split`` may take out a record: fast, and never false if it does. ``MissingCodec``,
    ``CorruptRecord``."""
    header = view.header
    if header.is_control or not header.count:
        return False
    payload = view.payload()
    if len(keys) <= _SOUGHT_AS_BYTES:
        data = bytes(payload)
        if not any(key in data for key in keys):
            return False
    decoder = RecordDecoder(
        payload, header.count, header.base_offset, header.base_timestamp_ms, view.append_time_ms(), "", 0,
        header.last_offset_delta,
    )  # fmt: skip
    try:
        while records := decoder.take(RECORDS_AT_ONCE):
            if any(record.key in keys for record in records):
                return True
    except own(CorruptRecord):
        return True  # ``split`` looks at less
    return False


def split(view: BatchView, keys: Collection[bytes], end_offset: int) -> Split:
    """Take out the records of these keys that are before ``end_offset``.

    ``CorruptRecord``; headers are not looked at. ``MissingCodec``.
    """
    header = view.header
    read = Payload(bytes(view.payload()), header.base_timestamp_ms, view.append_time_ms(), header.last_offset_delta)
    left, taken = bytearray(), list[TakenOut]()
    position = lowest = kept = 0
    latest_ms = INT64_MIN
    for record in range(header.count):
        bounds = read_bounds(read, record, position, lowest)
        offset = header.base_offset + bounds.offset_delta
        key, after = _key(read.data, record, bounds)
        if key is not None and key in keys and offset < end_offset:
            taken.append(TakenOut(key, offset, _is_bare(read.data, record, after, bounds.end)))
        else:
            kept += 1
            latest_ms = max(latest_ms, bounds.timestamp_ms)
            left += read.data[position : bounds.end]
        position, lowest = bounds.end, bounds.offset_delta + 1
    if position != len(read.data):
        raise faults.trailing_bytes(header.count, position, len(read.data) - position)
    return Split(kept, latest_ms, bytes(left), taken)


def _key(data: bytes, record: int, bounds: RecordBounds) -> tuple[bytes | None, int]:
    """The key, and the position after it."""
    size, at = decode_varint(data, bounds.key, bounds.end, record, faults.KEY_LENGTH)
    if not -1 <= size <= bounds.end - at:
        raise faults.wrong_size(record, faults.KEY_LENGTH, at, size, bounds.end - at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _is_bare(data: bytes, record: int, position: int, end: int) -> bool:
    """Whether the rest of a record says: no value, no headers."""
    size, at = decode_varint(data, position, end, record, faults.VALUE_LENGTH)
    return size == -1 and data[at:end] == b"\0"
