"""Acts on an assessment: cuts what is not whole, makes indexes and producer state again, and syncs what is kept.

For a directory whose slots are lost, torn, wrong or of another boot. The caller holds the partition's lock and publishes
the state returned. A crash or an error in the middle leaves a directory that is assessed to the same answer again, and
slots from which no writer goes on: the next one recovers, too, and makes again what this one has left unfinished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.index import encode_transactions
from pylog.interrupts import own, suppress
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import Place, another_boot
from pylog.partition.epochs import EpochStart, LeaderEpochs
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.assessment import Assessment, assess
from pylog.partition.repair.closed_files import closed_since, sync_closed
from pylog.partition.repair.failed_syncs import Distrust
from pylog.partition.repair.rewrite import rewrite
from pylog.partition.repair.sweeping import sweep
from pylog.partition.segments import Segments
from pylog.segment import SegmentReader, SegmentScan, SegmentWriter
from pylog.segment.naming import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    REWRITE,
    SEAL,
    TIME_INDEX,
    TRANSACTION_INDEX,
    UNSYNCED,
    offsets_of,
    segment_files,
)
from pylog.segment.writer import INDEX_ENTRY_BYTES
from pylog.storage import write_atomically

logger = logging.getLogger("pylog.partition")


class Recovered(NamedTuple):
    """The open active segment, the producers at its end, and the state to publish (the sequence is the old one)."""

    segment: SegmentWriter
    producers: ProducerStates
    state: CommitState


def recover(
    place: Place,
    slots: CommitState | None,
    distrust: Distrust,
    check_held: Callable[[], None],
    publish: Callable[[CommitState], CommitState],
) -> Recovered:
    """``slots`` is the last valid state, of whatever boot: its durable end holds for ever. Syncs that fail here are
    noted in ``distrust``. ``publish`` is told before the first change that a recovery of this boot's slots has begun.

    ``CorruptSegment`` for damage that may not be cut (see ``assessment.py``); the directory is untouched then.
    """
    listed = segments = place.segments()
    start = slots.log_start_offset if slots is not None else segments.bases[0] if segments.bases else 0
    durable = slots.durable_offset if slots is not None else start
    segments = listed.since(start)
    deleted = listed.bases[: len(listed.bases) - len(segments.bases)]  # but a crash has left their files
    found = _assessed(place, segments, start, durable, known_durable=slots is not None)
    if found.problem is not None:
        logger.warning(
            "%r: cut at offset %d (%d bytes, %d later segments): %s",
            place.directory,
            found.log_end_offset,
            found.cut_bytes,
            len(found.dropped),
            found.problem,
        )
    if found.log_end_offset < start:  # deleted up to an offset that the log no longer reaches: begin there, empty
        found = Assessment(start, 0, start, found.cut_bytes, segments.bases, found.problem)
        segments = segments._replace(bases=())  # else those removed would be made again, empty
    check_held()
    if slots is not None and slots.boot == place.boot:
        slots = publish(slots.successor(boot=another_boot(place.boot)))
    sweep(place)
    names = set(place.names())
    for base in deleted:
        remove_segment(place, names, base)
    for base in reversed(found.dropped):  # from the end, so that a crash in between leaves no hole
        remove_segment(place, names, base)
    _remove_orphans(place, segments)
    return _rebuild_from(place, slots, found, segments, start, durable, distrust, check_held)


def _assessed(place: Place, segments: Segments, start: int, durable: int, *, known_durable: bool) -> Assessment:
    if segments.bases:
        return assess(
            place.filesystem,
            place.directory,
            segments,
            durable_offset=durable,
            known_durable=known_durable,
            dense=True,
        )
    if durable > start:
        raise CorruptSegment(
            f"{place.directory} has no segment, but was durable up to offset {durable}; restore it from a copy",
            path=place.directory,
            position=0,
            offset=start,
            durable_offset=durable,
        )
    return Assessment(start, 0, start, 0, (), None)


def _rebuild_from(
    place: Place,
    slots: CommitState | None,
    found: Assessment,
    segments: Segments,
    start: int,
    durable: int,
    distrust: Distrust,
    check_held: Callable[[], None],
) -> Recovered:
    kept = segments.ending_with(found.active_base)
    end = found.log_end_offset
    epochs = _epochs(place, slots, kept, end)
    bases = _bases_to_rebuild(kept, durable)
    torn = snapshots.unsynced(place.filesystem, place.directory, kept, max(durable, start))
    snapshots.remove(place.filesystem, place.directory, torn)
    producers = snapshots.load(place.filesystem, place.directory, kept, bases[0], place.clock.now_ms())
    for base in bases[:-1]:
        _rebuild_closed(place, base, producers, distrust, check_held)
    for base in kept.bases:
        if base < bases[0] and not _has_indexes(place, base):
            _reindex(place, base)
    segment = _rebuild_active(place, found, producers, distrust, check_held)
    place.filesystem.sync_directory(place.directory)
    open_offset = producers.first_open_offset
    version = next_version(slots.segments_version if slots is not None else 0)
    state = CommitState(
        sequence=slots.sequence if slots is not None else 0,
        boot=place.boot,
        leader_epoch=epochs.latest,
        active_base=found.active_base,
        written_end=found.written_end,
        log_end_offset=end,
        durable_offset=end,
        last_stable_offset=end if open_offset is None else min(max(open_offset, start), end),
        log_start_offset=start,
        high_watermark=end,
        segments_version=version,
        least_timestamp_ms=INT64_MIN if found.written_end else INT64_MAX,
    )
    return Recovered(segment, producers, state)


def _remove_orphans(place: Place, segments: Segments) -> None:
    """Remove what belongs to no log file: a later segment of that name would be held to the seal of an earlier one."""
    there = set(segments.bases)
    names = place.names()
    for kind in (SEAL, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, UNSYNCED):
        for base in offsets_of(names, kind):
            if base not in there:
                place.filesystem.remove(place.path(base, kind))


def _epochs(place: Place, slots: CommitState | None, kept: Segments, end: int) -> LeaderEpochs:
    """The leader epochs up to the end, and another one from there on where slots tell of a loss of power. That is durable then.

    Records behind the end may have been read, and their offsets committed, before they were lost. Others will get these
    offsets, and another epoch by which one can tell (as in Kafka since KIP-320). Where slots were removed by hand, nothing tells
    of a loss, and another process may append with those it has open.
    """
    try:
        epochs = LeaderEpochs.load(place.filesystem, place.directory)
    except own(CorruptSegment, FormatVersionError) as damage:
        logger.warning("%s; making it again from the segments", damage)
        epochs = LeaderEpochs([])
    if not epochs.starts:
        epochs = epochs_of(place, kept)
    newest = epochs.latest
    while epochs.starts and _nobody_wrote(place, kept, epochs.starts[-1], end):
        epochs.starts.pop()
    if slots is None:
        epochs.end_at(end)
        epochs.assigned(0, end)
    else:
        epochs.begin_another(end, max(newest, slots.leader_epoch))
    epochs.save(place.filesystem, place.directory, durable=slots is not None)
    return epochs


def _nobody_wrote(place: Place, segments: Segments, start: EpochStart, end: int) -> bool:
    """Whether the batch at the start of this epoch is of an earlier one.

    A recovery that was cut short had begun it, and the next writer did not know of that. Batches decide, and not the file.
    """
    base = segments.floor(start.start_offset)
    if base is None or start.start_offset >= end:
        return False
    reader = SegmentReader(place.filesystem, place.directory, base, closed=False, dense=True)
    try:
        size = reader.size()
        with closing(place.filesystem.open_readable(place.path(base, LOG))) as file:
            position = reader.locate(start.start_offset, size)
            scan = SegmentScan(file, position, size, next_offset=0, dense=False, check_crc=False)
            return any(header.leader_epoch < start.epoch for _, header in islice(scan, 1))
    except own(CorruptSegment):  # below the durable end: who reads there will say so
        return False
    finally:
        reader.close()


def epochs_of(place: Place, segments: Segments) -> LeaderEpochs:
    """The leader epochs of the batches themselves."""
    epochs = LeaderEpochs([])
    for base in segments.bases:
        with suppress(FileNotFoundError), closing(place.filesystem.open_readable(place.path(base, LOG))) as file:
            for _, header in SegmentScan(file, 0, file.size(), next_offset=base, check_crc=False):
                epochs.assigned(max(header.leader_epoch, 0), header.base_offset)
    return epochs


def _bases_to_rebuild(kept: Segments, durable: int) -> list[int]:
    """Segments that were assessed, or whose indexes may not have reached the medium. The active one is the last."""
    return [*closed_since(kept, durable, kept.bases[-1]), kept.bases[-1]]


def _has_indexes(place: Place, base: int) -> bool:
    """Whether both indexes are there and of whole entries: all that is asked of those that were synced."""
    try:
        return all(
            place.filesystem.size(place.path(base, kind)) % size == 0 for kind, size in INDEX_ENTRY_BYTES.items()
        )
    except own(FileNotFoundError):
        return False


def _reindex(place: Place, base: int) -> None:
    """Make a closed segment's offset and time index again."""
    segment = place.segment_writer(base)
    segment.rebuild_start()
    for position, header in SegmentScan(segment.file, 0, segment.file.size(), next_offset=base, check_crc=False):
        segment.adopt(position, header)
    segment.finish()
    following = segment.next_offset
    segment.close()
    sync_closed(place.filesystem, place.directory, base, following)


def remake_side_files(place: Place, base: int, check_held: Callable[[], None]) -> None:
    """Put new indexes, and a new snapshot at its end, in the place of a closed segment's. Durable on return.

    For a segment one of whose syncs has failed. The caller holds the lock. ``StorageError`` where the disk refuses again: then
    each file is the old one or the new one.
    """
    producers = snapshots.load(place.filesystem, place.directory, place.segments(), base, place.clock.now_ms())
    check_held()
    segment = place.segment_writer(base, REWRITE)
    _rebuild(place, segment, segment.file.size(), producers)
    _finish_closed(place, segment, producers, REWRITE)


def _finish_closed(place: Place, segment: SegmentWriter, producers: ProducerStates, index_suffix: str = "") -> None:
    """Make durable what is beside a closed segment whose batches were all taken in."""
    base, following = segment.base_offset, segment.next_offset
    segment.finish()
    segment.close()
    if index_suffix:
        for kind in INDEX_ENTRY_BYTES:
            place.filesystem.replace(place.path(base, kind + index_suffix), place.path(base, kind))
    snapshots.save(place.filesystem, place.directory, producers, following)
    sync_closed(place.filesystem, place.directory, base, following)


def _rebuild_closed(
    place: Place, base: int, producers: ProducerStates, distrust: Distrust, check_held: Callable[[], None]
) -> None:
    segment = place.segment_writer(base)
    end = segment.file.size()
    _rebuild(place, segment, end, producers)
    segment = _make_durable(place, segment, end, segment.next_offset, distrust, check_held)
    _finish_closed(place, segment, producers)


def _rebuild_active(
    place: Place, found: Assessment, producers: ProducerStates, distrust: Distrust, check_held: Callable[[], None]
) -> SegmentWriter:
    segment = place.segment_writer(found.active_base)
    _rebuild(place, segment, found.written_end, producers)
    check_held()
    segment.cut(found.written_end, found.log_end_offset)
    place.filesystem.remove(place.path(found.active_base, SEAL))  # it may have been closed before: it grows again
    return _make_durable(place, segment, found.written_end, found.log_end_offset, distrust, check_held)


def _make_durable(
    place: Place,
    segment: SegmentWriter,
    end: int,
    next_offset: int,
    distrust: Distrust,
    check_held: Callable[[], None],
) -> SegmentWriter:
    """Sync the segment, so that what was cut can't come back behind what is appended now; after a failure, copy it."""
    base = segment.base_offset
    if not distrust.holds(base):
        failure = distrust.try_to_sync(segment.file, base)
        if failure is None:
            return segment
        logger.warning("%s; copying the segment to a new file", failure)
    segment.close()
    rewrite(place, base, end, next_offset, check_held)
    distrust.lift(base)
    segment = place.segment_writer(base)
    segment.attach(end, next_offset)
    return segment


def _rebuild(place: Place, segment: SegmentWriter, end: int, producers: ProducerStates) -> None:
    """Make the indexes of a segment again from its batches, and take those into the producers' state."""
    segment.rebuild_start()
    aborted = []
    for position, header in SegmentScan(segment.file, 0, end, next_offset=segment.base_offset, check_crc=False):
        segment.adopt(position, header)
        transaction = snapshots.fold(producers, header, position, segment.file)
        if transaction is not None:
            aborted.append(transaction)
    path = place.path(segment.base_offset, TRANSACTION_INDEX)
    if aborted:  # in one step: a reader must not take a transaction for committed in between
        write_atomically(place.filesystem, path, encode_transactions(aborted), durable=False)
    else:
        place.filesystem.remove(path)


def remove_segment(place: Place, names: Collection[str], base: int) -> None:
    """Remove a segment's files, the log first: indexes without a log mean nothing, a log without indexes still reads.

    Rename, then remove: a crash in between leaves ``.deleted`` files, which nothing reads.
    """
    for name in sorted(segment_files(names, base), key=lambda name: not name.endswith(LOG)):
        path = f"{place.directory}/{name}"
        place.filesystem.replace(path, path + DELETED)
        place.filesystem.remove(path + DELETED)
