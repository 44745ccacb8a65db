"""Brings producer state up to the end of a partition: the newest good snapshot, then the headers
after it.

Snapshots are written at each roll, and in between (``is_due``), which bounds the headers that
opening a partition reads. The snapshot at a segment's base is synced with the segments before it;
without the others, a replay takes longer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pylog.codec.batch import BatchHeader, BatchView
from pylog.codec.control import ControlType, Marker, read_marker
from pylog.errors import CorruptRecord, CorruptSegment, FormatVersionError, MissingCodec
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.partition.producers.state import ProducerStates
from pylog.partition.segments import Segments
from pylog.segment import SegmentReader
from pylog.segment.naming import SNAPSHOT, file_path, is_unfinished_snapshot, offsets_of
from pylog.storage import FileSystem, ReadableFile, read_whole, write_atomically

logger = logging.getLogger("pylog.partition")

INTERVAL_BYTES = 8 << 20
INTERVAL_BATCHES = 1500  # to read so many headers takes 4 ms
PRODUCER_EXPIRATION_MS = 86_400_000

_PRODUCERS_PER_BATCH = 64
_MARKER_LIMIT_BYTES = 64 << 10
_FRONT_BYTES = 16
_LIMIT_BYTES = 64 << 20  # more than a million producers


def fold(states: ProducerStates, header: BatchHeader, position: int, file: ReadableFile) -> AbortedTransaction | None:
    """Take one batch of the log into the states; the transaction it aborted, if it is an abort
    marker.

    A control batch without a marker ends nothing: a transaction stays open, so that read_committed
    shows none of it. Reading and ``verify`` report it. Kafka cuts the log there, or takes the
    directory offline.
    """
    if header.producer_id < 0 or not header.is_control:
        states.add(header)
        return None
    states.batches_since_snapshot += 1
    marker = _marker(header, position, file)
    if marker is None or marker.type not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    return states.end_transaction(
        header, committed=marker.type == ControlType.COMMIT, coordinator_epoch=marker.coordinator_epoch
    )


def _marker(header: BatchHeader, position: int, file: ReadableFile) -> Marker | None:
    if not header.count:
        return None  # compaction has emptied it
    try:
        if header.size_bytes > _MARKER_LIMIT_BYTES:
            raise CorruptRecord(f"{header.size_bytes} bytes, a marker has at most {_MARKER_LIMIT_BYTES}")
        return read_marker(BatchView(file.pread(header.size_bytes, position), header))
    except own(CorruptRecord, MissingCodec) as damage:
        logger.warning(
            "%r: the control batch at position %d, offset %d, is no marker and is skipped: %s",
            file.path,
            position,
            header.base_offset,
            damage,
        )
        return None


def load(filesystem: FileSystem, directory: str, segments: Segments, end_offset: int, now_ms: int) -> ProducerStates:
    """The state of every producer at ``end_offset``."""
    states, at = _newest(filesystem, directory, segments, end_offset)
    states.expire(now_ms - PRODUCER_EXPIRATION_MS, segments.bases[-2] if len(segments.bases) > 1 else 0)
    base = segments.floor(at)
    if base is None:
        base = segments.bases[0] if segments.bases else None
    while base is not None and max(at, base) < end_offset:
        following = segments.after(base)
        reader = SegmentReader(filesystem, directory, base, closed=False, dense=False)
        try:
            scan = reader.headers_from(at)
            for position, header in scan:
                if header.base_offset >= end_offset:
                    break
                fold(states, header, position, scan.file)
        finally:
            reader.close()
        base, at = following, following if following is not None else end_offset
    return states


def _newest(filesystem: FileSystem, directory: str, segments: Segments, end_offset: int) -> tuple[ProducerStates, int]:
    for offset in sorted((at for at in segments.snapshots if at <= end_offset), reverse=True):
        try:
            return read(filesystem, directory, offset), offset
        except own(CorruptSegment, FormatVersionError) as damage:
            logger.warning("%s; going back to an older snapshot", damage)
        except own(FileNotFoundError):
            continue  # removed meanwhile: readers and sealers hold no lock
    return ProducerStates(), 0


def read(filesystem: FileSystem, directory: str, offset: int) -> ProducerStates:
    """The snapshot of this offset. ``CorruptSegment`` if it is damaged, or names later offsets."""
    path = file_path(directory, offset, SNAPSHOT)
    wanted = ProducerStates.snapshot_bytes(read_whole(filesystem, path, _FRONT_BYTES))
    states = ProducerStates.decode(read_whole(filesystem, path, min(wanted + 1, _LIMIT_BYTES)), path)
    if states.greatest_offset < offset:
        return states
    for producer_id, entry in states.entries.items():
        last_offset = entry.batches[-1].last_offset if entry.batches else -1
        transaction_start = -1 if entry.transaction_start is None else entry.transaction_start
        if max(last_offset, transaction_start) >= offset:
            what = "its last batch ends" if last_offset >= offset else "its open transaction begins"
            raise CorruptSegment(
                f"{path} is of offset {offset}, but says of producer {producer_id} that {what} at "
                f"{max(last_offset, transaction_start)}; it may be removed, to be made again from the segments",
                path=path,
                position=0,
                offset=offset,
                producer_id=producer_id,
                last_offset=last_offset,
                transaction_start=transaction_start,
            )
    return states


def is_due(states: ProducerStates, size_bytes: int) -> bool:
    """Whether to take a snapshot, ``size_bytes`` after the last one that was taken or tried.

    With many producers it is taken after more batches, so that each batch pays for the bytes of a
    few producers.
    """
    batches = states.batches_since_snapshot
    return size_bytes >= INTERVAL_BYTES or (
        batches >= INTERVAL_BATCHES and batches * _PRODUCERS_PER_BATCH >= len(states)
    )


def save(filesystem: FileSystem, directory: str, states: ProducerStates, end_offset: int) -> None:
    write_atomically(filesystem, file_path(directory, end_offset, SNAPSHOT), states.encode(), durable=False)


def make_durable(filesystem: FileSystem, directory: str, offset: int) -> None:
    """Make the snapshot of this offset durable in a new file: after a failed sync, another one
    proves nothing.

    For the snapshot that will be all that is left of earlier producers. Nothing happens if none can
    be read.
    """
    states = _read_if_whole(filesystem, directory, offset)
    if states is not None:
        write_atomically(filesystem, file_path(directory, offset, SNAPSHOT), states.encode())


def unsynced(filesystem: FileSystem, directory: str, segments: Segments, synced_end: int) -> list[int]:
    """Snapshots that a power failure may have torn, and that a recovery removes: all but those at
    the bases of segments before ``synced_end``.

    Those were synced with the segments before them, or before those were deleted, as may be the one
    at ``synced_end``. If that may have been taken since, it may even be whole, and an older one:
    what a removed file left.
    """
    keep = {base for base in segments.bases if base < synced_end}
    if not keep and is_whole(filesystem, directory, synced_end):
        keep.add(synced_end)
    return [at for at in offsets_of(filesystem.names(directory), SNAPSHOT) if at not in keep]


def is_whole(filesystem: FileSystem, directory: str, offset: int) -> bool:
    """Whether there is a snapshot of this offset that can be read."""
    return _read_if_whole(filesystem, directory, offset) is not None


def _read_if_whole(filesystem: FileSystem, directory: str, offset: int) -> ProducerStates | None:
    try:
        return read(filesystem, directory, offset)
    except own(CorruptSegment, FormatVersionError, FileNotFoundError):
        return None


def remove(filesystem: FileSystem, directory: str, offsets: Iterable[int]) -> None:
    for at in offsets:
        filesystem.remove(file_path(directory, at, SNAPSHOT))


def remove_unfinished(filesystem: FileSystem, directory: str, names: Iterable[str]) -> None:
    """Remove, of these names, the snapshots that writers began and did not finish. The caller holds
    the lock."""
    for name in filter(is_unfinished_snapshot, names):
        filesystem.remove(f"{directory}/{name}")
