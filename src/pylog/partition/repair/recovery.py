"""Acts on an assessment: cuts what is not whole, makes indexes and producer state again, and syncs what is kept.

For a directory whose slots are lost, torn, wrong or of another boot. The caller holds the partition's lock and publishes
the state returned. A crash or an error in the middle leaves a directory that is assessed to the same answer again, and
slots from which no writer goes on: the next one recovers, too, and makes again what this one has left unfinished.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError, StorageError
from pylog.index import encode_transactions
from pylog.interrupts import own, suppress
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import PartitionDirectory, another_boot
from pylog.partition.epochs import EpochStart, LeaderEpochs
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.assessment import Assessment, assess
from pylog.partition.repair.closed_files import closed_since, sync_closed
from pylog.partition.repair.failed_syncs import FailedSyncs
from pylog.partition.repair.rewrite import rewrite
from pylog.partition.segments import Segments
from pylog.segment import SegmentReader, SegmentScan
from pylog.segment.naming import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    REWRITE,
    SEAL,
    TIME_INDEX,
    TRANSACTION_INDEX,
    UNSYNCED,
    is_leftover,
    offsets_of,
    segment_files,
)
from pylog.segment.writer import INDEX_ENTRY_BYTES, SegmentWriter
from pylog.storage import write_atomically

logger = logging.getLogger("pylog.partition")


class Recovered(NamedTuple):
    """The open active segment, the producers at its end, and the state to publish (the sequence is the old one)."""

    segment: SegmentWriter
    producers: ProducerStates
    state: CommitState


def recover(grant: Grant, slots: CommitState | None, failed_syncs: FailedSyncs) -> Recovered:
    """``slots`` is the last valid state, of whatever boot: its durable end holds for ever. Syncs that fail here are
    noted in ``failed_syncs``. Before the first change it is published that a recovery of this boot's slots has begun.

    ``CorruptSegment`` for damage that may not be cut (see ``assessment.py``); the directory is untouched then.
    """
    directory = grant.directory
    listed = segments = directory.segments()
    start = slots.log_start_offset if slots is not None else segments.bases[0] if segments.bases else 0
    durable = slots.durable_offset if slots is not None else start
    segments = listed.since(start)
    deleted = listed.bases[: len(listed.bases) - len(segments.bases)]  # but a crash has left their files
    found = _assessed(directory, segments, start, durable, known_durable=slots is not None)
    if found.problem is not None:
        logger.warning(
            "%r: cut at offset %d (%d bytes, %d later segments): %s",
            directory.path,
            found.log_end_offset,
            found.cut_bytes,
            len(found.dropped),
            found.problem,
        )
    if found.log_end_offset < start:  # deleted up to an offset that the log no longer reaches: begin there, empty
        found = Assessment(start, 0, start, found.cut_bytes, segments.bases, found.problem)
        segments = segments._replace(bases=())  # else those removed would be made again, empty
    grant.check()
    if slots is not None and slots.boot == directory.boot:
        slots = grant.publish(slots.successor(boot=another_boot(directory.boot)))
    sweep(directory)
    names = set(directory.names())
    for base in deleted:
        remove_segment(directory, names, base)
    for base in reversed(found.dropped):  # from the end, so that a crash in between leaves no hole
        remove_segment(directory, names, base)
    _remove_orphans(directory, segments)
    return _rebuild_from(grant, slots, found, segments, start, durable, failed_syncs)


def _assessed(
    directory: PartitionDirectory, segments: Segments, start: int, durable: int, *, known_durable: bool
) -> Assessment:
    if segments.bases:
        return assess(
            directory.filesystem,
            directory.path,
            segments,
            durable_offset=durable,
            known_durable=known_durable,
            dense=True,
        )
    if durable > start:
        raise CorruptSegment(
            f"{directory.path} has no segment, but was durable up to offset {durable}; restore it from a copy",
            path=directory.path,
            position=0,
            offset=start,
            durable_offset=durable,
        )
    return Assessment(start, 0, start, 0, (), None)


def _rebuild_from(
    grant: Grant,
    slots: CommitState | None,
    found: Assessment,
    segments: Segments,
    start: int,
    durable: int,
    failed_syncs: FailedSyncs,
) -> Recovered:
    directory = grant.directory
    kept = segments.ending_with(found.active_base)
    end = found.log_end_offset
    epochs = _epochs(directory, slots, kept, end)
    bases = _bases_to_rebuild(kept, durable)
    torn = snapshots.unsynced(directory.filesystem, directory.path, kept, max(durable, start))
    snapshots.remove(directory.filesystem, directory.path, torn)
    producers = snapshots.load(directory.filesystem, directory.path, kept, bases[0], directory.clock.now_ms())
    for base in bases[:-1]:
        _rebuild_closed(grant, base, producers, failed_syncs)
    for base in kept.bases:
        if base < bases[0] and not _has_indexes(directory, base):
            _reindex(grant, base)
    segment = _rebuild_active(grant, found, producers, failed_syncs)
    directory.filesystem.sync_directory(directory.path)
    open_offset = producers.first_open_offset
    version = next_version(slots.segments_version if slots is not None else 0)
    state = CommitState(
        sequence=slots.sequence if slots is not None else 0,
        boot=directory.boot,
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


def sweep(directory: PartitionDirectory) -> list[str]:
    """Remove unfinished copies and files on their way out, which nothing reads; the names of those removed.

    The lock excludes those who rename and copy, but not a process that writes a seal at this moment. It does so under a name
    that no other process uses: if that file is taken from it, it cannot put its seal in place, and the segment is sealed another
    time. What the system refuses to remove stays, with a warning. Nothing is synced: what a power failure brings back is
    swept by the next writer that recovers.
    """
    removed = []
    for name in filter(is_leftover, directory.names()):
        try:
            directory.filesystem.remove(f"{directory.path}/{name}")
            removed.append(name)
        except own(StorageError) as error:
            logger.warning("a leftover of a crash stays: %s", error)
    return removed


def _remove_orphans(directory: PartitionDirectory, segments: Segments) -> None:
    """Remove what belongs to no log file: a later segment of that name would be held to the seal of an earlier one."""
    there = set(segments.bases)
    names = directory.names()
    for kind in (SEAL, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, UNSYNCED):
        for base in offsets_of(names, kind):
            if base not in there:
                directory.filesystem.remove(directory.file_path(base, kind))


def _epochs(directory: PartitionDirectory, slots: CommitState | None, kept: Segments, end: int) -> LeaderEpochs:
    """The leader epochs up to the end, and another one from there on where slots tell of a loss of power. That is durable then.

    Records behind the end may have been read, and their offsets committed, before they were lost. Others will get these
    offsets, and another epoch by which one can tell (as in Kafka since KIP-320). Where slots were removed by hand, nothing tells
    of a loss, and another process may append with those it has open.
    """
    try:
        epochs = LeaderEpochs.load(directory.filesystem, directory.path)
    except own(CorruptSegment, FormatVersionError) as damage:
        logger.warning("%s; making it again from the segments", damage)
        epochs = LeaderEpochs([])
    if not epochs.starts:
        epochs = epochs_of(directory, kept)
    newest = epochs.latest
    while epochs.starts and _nobody_wrote(directory, kept, epochs.starts[-1], end):
        epochs.starts.pop()
    if slots is None:
        epochs.end_at(end)
        epochs.assigned(0, end)
    else:
        epochs.begin_another(end, max(newest, slots.leader_epoch))
    epochs.save(directory.filesystem, directory.path, durable=slots is not None)
    return epochs


def _nobody_wrote(directory: PartitionDirectory, segments: Segments, start: EpochStart, end: int) -> bool:
    """Whether the batch at the start of this epoch is of an earlier one.

    A recovery that was cut short had begun it, and the next writer did not know of that. Batches decide, and not the file.
    """
    base = segments.floor(start.start_offset)
    if base is None or start.start_offset >= end:
        return False
    reader = SegmentReader(directory.filesystem, directory.path, base, closed=False, dense=True)
    try:
        size = reader.size()
        with closing(directory.filesystem.open_readable(directory.file_path(base, LOG))) as file:
            position = reader.locate(start.start_offset, size)
            scan = SegmentScan(file, position, size, next_offset=0, dense=False, check_crc=False)
            return any(header.leader_epoch < start.epoch for _, header in islice(scan, 1))
    except own(CorruptSegment):  # below the durable end: who reads there will say so
        return False
    finally:
        reader.close()


def epochs_of(directory: PartitionDirectory, segments: Segments) -> LeaderEpochs:
    """The leader epochs of the batches themselves."""
    epochs = LeaderEpochs([])
    for base in segments.bases:
        with (
            suppress(FileNotFoundError),
            closing(directory.filesystem.open_readable(directory.file_path(base, LOG))) as file,
        ):
            for _, header in SegmentScan(file, 0, file.size(), next_offset=base, check_crc=False):
                epochs.assigned(max(header.leader_epoch, 0), header.base_offset)
    return epochs


def _bases_to_rebuild(kept: Segments, durable: int) -> list[int]:
    """Segments that were assessed, or whose indexes may not have reached the medium. The active one is the last."""
    return [*closed_since(kept, durable, kept.bases[-1]), kept.bases[-1]]


def _has_indexes(directory: PartitionDirectory, base: int) -> bool:
    """Whether both indexes are there and of whole entries: all that is asked of those that were synced."""
    try:
        return all(
            directory.filesystem.size(directory.file_path(base, kind)) % size == 0
            for kind, size in INDEX_ENTRY_BYTES.items()
        )
    except own(FileNotFoundError):
        return False


def _reindex(grant: Grant, base: int) -> None:
    """Make a closed segment's offset and time index again."""
    segment = grant.segment_writer(base)
    segment.rebuild_start()
    for position, header in SegmentScan(segment.file, 0, segment.file.size(), next_offset=base, check_crc=False):
        segment.adopt(position, header)
    segment.finish()
    following = segment.next_offset
    segment.close()
    sync_closed(grant.directory.filesystem, grant.directory.path, base, following)


def remake_side_files(grant: Grant, base: int) -> None:
    """Put new indexes, and a new snapshot at its end, in the place of a closed segment's. Durable on return.

    For a segment one of whose syncs has failed. ``StorageError`` if the disk refuses again: then
    each file is the old one or the new one.
    """
    directory = grant.directory
    producers = snapshots.load(
        directory.filesystem, directory.path, directory.segments(), base, directory.clock.now_ms()
    )
    segment = grant.segment_writer(base, REWRITE)
    _rebuild(directory, segment, segment.file.size(), producers)
    _finish_closed(directory, segment, producers, REWRITE)


def _finish_closed(
    directory: PartitionDirectory, segment: SegmentWriter, producers: ProducerStates, index_suffix: str = ""
) -> None:
    """Make durable what is beside a closed segment whose batches were all taken in."""
    base, following = segment.base_offset, segment.next_offset
    segment.finish()
    segment.close()
    if index_suffix:
        for kind in INDEX_ENTRY_BYTES:
            directory.filesystem.replace(
                directory.file_path(base, kind + index_suffix), directory.file_path(base, kind)
            )
    snapshots.save(directory.filesystem, directory.path, producers, following)
    sync_closed(directory.filesystem, directory.path, base, following)


def _rebuild_closed(
    grant: Grant,
    base: int,
    producers: ProducerStates,
    failed_syncs: FailedSyncs,
) -> None:
    segment = grant.segment_writer(base)
    end = segment.file.size()
    _rebuild(grant.directory, segment, end, producers)
    segment = _make_durable(grant, segment, end, segment.next_offset, failed_syncs)
    _finish_closed(grant.directory, segment, producers)


def _rebuild_active(
    grant: Grant,
    found: Assessment,
    producers: ProducerStates,
    failed_syncs: FailedSyncs,
) -> SegmentWriter:
    segment = grant.segment_writer(found.active_base)
    _rebuild(grant.directory, segment, found.written_end, producers)
    grant.check()
    segment.cut(found.written_end, found.log_end_offset)
    # The segment may have been closed before: it grows again.
    grant.directory.filesystem.remove(grant.directory.file_path(found.active_base, SEAL))
    return _make_durable(grant, segment, found.written_end, found.log_end_offset, failed_syncs)


def _make_durable(
    grant: Grant,
    segment: SegmentWriter,
    end: int,
    next_offset: int,
    failed_syncs: FailedSyncs,
) -> SegmentWriter:
    """Sync the segment, so that what was cut can't come back behind what is appended now; after a failure, copy it."""
    base = segment.base_offset
    if not failed_syncs.is_marked(base):
        failure = failed_syncs.try_to_sync(segment.file, base)
        if failure is None:
            return segment
        logger.warning("%s; copying the segment to a new file", failure)
    segment.close()
    rewrite(grant, base, end, next_offset)
    failed_syncs.clear(base)
    segment = grant.segment_writer(base)
    segment.attach(end, next_offset)
    return segment


def _rebuild(directory: PartitionDirectory, segment: SegmentWriter, end: int, producers: ProducerStates) -> None:
    """Make the indexes of a segment again from its batches, and take those into the producers' state."""
    segment.rebuild_start()
    aborted = []
    for position, header in SegmentScan(segment.file, 0, end, next_offset=segment.base_offset, check_crc=False):
        segment.adopt(position, header)
        transaction = snapshots.fold(producers, header, position, segment.file)
        if transaction is not None:
            aborted.append(transaction)
    path = directory.file_path(segment.base_offset, TRANSACTION_INDEX)
    if aborted:  # in one step: a reader must not take a transaction for committed in between
        write_atomically(directory.filesystem, path, encode_transactions(aborted), durable=False)
    else:
        directory.filesystem.remove(path)


def remove_segment(directory: PartitionDirectory, names: Collection[str], base: int) -> None:
    """Remove a segment's files, the log first: indexes without a log mean nothing, a log without indexes still reads.

    Rename, then remove: a crash in between leaves ``.deleted`` files, which nothing reads.
    """
    for name in sorted(segment_files(names, base), key=lambda name: not name.endswith(LOG)):
        path = f"{directory.path}/{name}"
        directory.filesystem.replace(path, path + DELETED)
        directory.filesystem.remove(path + DELETED)
