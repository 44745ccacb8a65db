"""Which records of a batch are the newest of their keys: ``KeyMap`` for whole batches, whose header
and CRC were checked."""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec import KeyMap, RecordDecoder
from pylog.codec.batch import BatchView
from pylog.codec.format import Buffer


class NewestRecords(NamedTuple):
    """What is left of a batch. ``payload`` has their bytes, not compressed; ``latest_ms`` is their
    greatest timestamp."""

    kept: int
    has_tombstones: bool
    latest_ms: int
    payload: Buffer


def put_keys(keys: KeyMap, view: BatchView) -> int:
    """Note the keys of the records. The offset of the first that has no room, or the batch's end.
    ``CorruptRecord``."""
    header = view.header
    return keys.put_records(view.payload(), header.count, header.base_offset, header.last_offset_delta)


def newest_records(keys: KeyMap, view: BatchView, end_offset: int, *, drops_tombstones: bool) -> NewestRecords:
    """The records that ``KeyMap.newest`` leaves of a batch. ``CorruptRecord``."""
    header, payload = view.header, view.payload()
    kept, has_tombstones, latest_ms, left = keys.newest(
        payload, header.count, header.base_offset, header.base_timestamp_ms, view.append_time_ms(),
        header.last_offset_delta, end_offset, drops_tombstones,
    )  # fmt: skip
    return NewestRecords(kept, has_tombstones, latest_ms, payload if left is None else left)


def decoder_of(view: BatchView, left: NewestRecords) -> RecordDecoder:
    """A decoder of the records that are left of a batch."""
    header = view.header
    return RecordDecoder(
        left.payload, left.kept, header.base_offset, header.base_timestamp_ms, view.append_time_ms(), "", 0,
        header.last_offset_delta,
    )  # fmt: skip
