"""Acts on an assessment: cuts what is not whole, makes indexes and producer state again, and syncs
what is kept.

For a directory whose slots are lost, torn, wrong or of another boot. The caller holds the
partition's lock and publishes the state returned. After a crash or an error the assessment is the
same, and no writer continues from the slots: the next one recovers again and finishes what was
left.
"""

from __future__ import annotations

import logging
from contextlib import closing
from itertools import islice, pairwise

from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError, StorageError
from pylog.interrupts import own, suppress
from pylog.partition.cleaner_checkpoint import read_cleaned, write_cleaned
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import PartitionDirectory, another_boot
from pylog.partition.epochs import EpochStart, LeaderEpochs
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.aborted import aborted_again, differing_digest
from pylog.partition.read.assessment import Assessment, assess
from pylog.partition.repair import swaps
from pylog.partition.repair.failed_syncs import FailedSyncs
from pylog.partition.segments import Segments
from pylog.segment import SegmentReader, rising_seal
from pylog.segment.files import SegmentFiles, free, names_of, remove_orphans, retire, sweep
from pylog.segment.naming import LOG, REWRITE
from pylog.segment.writer import INDEX_ENTRY_BYTES, SegmentWriter
from pylog.storage import AppendableFile

logger = logging.getLogger("pylog.partition")


def recover(
    grant: Grant, slots: CommitState | None, failed_syncs: FailedSyncs
) -> tuple[SegmentWriter, ProducerStates, CommitState]:
    """Returns the open active segment, the producers at its end, and the state to publish, with the
    old sequence.

    ``slots`` is the last valid state, of whatever boot: its durable end always holds. Syncs that
    fail here are recorded in ``failed_syncs``. Before the first change, slots of this boot are
    published as those of an unfinished recovery. ``CorruptSegment`` for damage that may not be cut
    (see ``assessment.py``); then nothing was changed.
    """
    directory = grant.directory
    if swaps.are_under_way(directory.names()):
        if slots is not None and slots.boot == directory.boot:
            slots = swaps.finish_published(grant, slots)
        else:
            swaps.finish(grant)
    listed = segments = directory.segments()
    start = slots.log_start_offset if slots is not None else segments.bases[0] if segments.bases else 0
    durable = slots.durable_offset if slots is not None else start
    segments = listed.since(start)
    deleted = listed.bases[: len(listed.bases) - len(segments.bases)]  # a crash has left their files
    found = assess(directory, segments, start=start, durable_offset=durable, known_durable=slots is not None)
    if found.problem is not None:
        logger.warning(
            "%r: cut at offset %d (%d bytes, %d later segments): %s",
            directory.path,
            found.log_end_offset,
            found.cut_bytes,
            len(found.dropped),
            found.problem,
        )
    if found.log_end_offset < start:  # the log no longer reaches its start: begin there, empty
        found = Assessment(start, 0, start, found.cut_bytes, segments.bases, found.problem)
        segments = segments._replace(bases=())  # else those removed would be made again, empty
    grant.check()
    if slots is not None and slots.boot == directory.boot:
        slots = grant.publish(slots.successor(boot=another_boot(directory.boot)))
    sweep(directory.filesystem, directory.path)
    names = set(directory.names())
    for base in (*deleted, *reversed(found.dropped)):  # from the end, so that a crash in between leaves no hole
        files = list(names_of(names, base))
        retire(directory.filesystem, directory.path, files, grant.check)
        free(directory.filesystem, directory.path, files)
    remove_orphans(directory.filesystem, directory.path, segments.bases, grant.check)
    return _rebuild_from(grant, slots, found, segments, start, durable, failed_syncs)


def _rebuild_from(
    grant: Grant,
    slots: CommitState | None,
    found: Assessment,
    segments: Segments,
    start: int,
    durable: int,
    failed_syncs: FailedSyncs,
) -> tuple[SegmentWriter, ProducerStates, CommitState]:
    directory = grant.directory
    kept = segments.ending_with(found.active_base)
    end = found.log_end_offset
    epochs = _epochs(grant, slots, kept, end)
    bases = _bases_to_rebuild(kept, durable)
    torn = snapshots.unsynced(directory.filesystem, directory.path, kept, max(durable, start))
    grant.check()
    snapshots.remove(directory.filesystem, directory.path, torn)
    producers = snapshots.load(directory.filesystem, directory.path, kept, bases[0], directory.clock.now_ms())
    for base, following in pairwise(bases):
        _rebuild_closed(grant, base, following, producers, failed_syncs)
    for base, following in pairwise(kept.bases):
        if base < bases[0]:
            if not _has_indexes(directory, base):
                _reindex(grant, base)
            _remake_aborted(grant, kept, base, following)
    segment = _rebuild_active(grant, found, producers, failed_syncs)
    grant.check()
    _lower_cleaned(directory, end)
    directory.filesystem.sync_directory(directory.path)
    open_offset = producers.first_open_offset()
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
    return segment, producers, state


def _lower_cleaned(directory: PartitionDirectory, end: int) -> None:
    """Else what gets the offsets after ``end`` would count as compacted."""
    try:
        cleaned = read_cleaned(directory)
    except own(StorageError) as error:
        logger.warning("%s; no compaction will read it either", error)
        return
    if cleaned.first_dirty > end:
        write_cleaned(directory, cleaned._replace(first_dirty=end))


def _epochs(grant: Grant, slots: CommitState | None, kept: Segments, end: int) -> LeaderEpochs:
    """The leader epochs up to the end, and a new, durable one from there if slots show that power
    may have failed.

    Lost records after the end may have been read, and their offsets committed. Other records will
    get these offsets, with another epoch (as in Kafka since KIP-320). If slots were removed by
    hand, nothing shows a loss, and another process may append with those it has open.
    """
    directory = grant.directory
    try:
        epochs = LeaderEpochs.load(directory.filesystem, directory.path)
    except own(CorruptSegment, FormatVersionError) as damage:
        logger.warning("%s; making it again from the segments", damage)
        epochs = LeaderEpochs([])
    if not epochs.starts:
        epochs = epochs_of(directory, kept)
    newest = epochs.latest
    while epochs.starts and _is_unused(directory, kept, epochs.starts[-1], end):
        epochs.starts.pop()
    if slots is None:
        epochs.end_at(end)
        epochs.assigned(0, end)
    else:
        epochs.begin_another(end, max(newest, slots.leader_epoch))
    grant.check()
    epochs.save(directory.filesystem, directory.path, durable=slots is not None)
    return epochs


def _is_unused(directory: PartitionDirectory, segments: Segments, start: EpochStart, end: int) -> bool:
    """Whether the batch at the start of this epoch is of an earlier one. Batches decide, not the
    file.

    Then a recovery that was cut short began it, and the next writer did not know.
    """
    base = segments.floor(start.start_offset)
    if base is None or start.start_offset >= end:
        return False
    is_closed = base != segments.bases[-1]
    reader = SegmentReader(directory.filesystem, directory.path, base, closed=is_closed)
    try:
        first = islice(reader.headers_from(start.start_offset), 1)
        return any(header.leader_epoch < start.epoch for _, header in first)
    except own(CorruptSegment):  # below the durable end: a reader of it reports the damage
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
            files = SegmentFiles(directory.filesystem, directory.path, base)
            for _, header in files.headers(file, file.size()):
                epochs.assigned(max(header.leader_epoch, 0), header.base_offset)
    return epochs


def _bases_to_rebuild(kept: Segments, durable: int) -> list[int]:
    """Segments that were assessed, or whose indexes may not be on the disk. The active one is the
    last."""
    return [*kept.closed_since(durable, kept.bases[-1]), kept.bases[-1]]


def _has_indexes(directory: PartitionDirectory, base: int) -> bool:
    """Whether both indexes are there and have whole entries, which is enough for those that were
    synced."""
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
    for position, header in grant.segment_files(base).headers(segment.file, segment.file.size()):
        segment.adopt(position, header)
    segment.finish()
    following = segment.next_offset
    segment.close()
    files = grant.segment_files(base)
    files.sync_derived(files.gap_end(following))


def _remake_aborted(grant: Grant, kept: Segments, base: int, following: int) -> None:
    """Make a closed segment's transaction index again if it is not the one that the seal records.

    The next segment begins at ``following``.
    """
    try:
        digest = differing_digest(grant.directory, base)
        if digest is None:
            return
        aborted = aborted_again(grant.directory, kept, base, digest)
    except own(CorruptSegment) as damage:  # a reader of it reports the damage
        logger.warning("%s", damage)
        return
    files = grant.segment_files(base)
    files.replace_aborted(aborted)
    files.sync_derived(following)


def remake_derived(grant: Grant, base: int, producers: ProducerStates) -> None:
    """Put new indexes, and a new snapshot at its end, in the place of a closed segment's. Durable
    on return.

    ``producers`` are those at its base, and then those at its end. ``StorageError`` if the disk
    refuses: then each file is the old one or the new one.
    """
    files, segment = grant.segment_files(base), grant.segment_writer(base, REWRITE)
    _rebuild(grant, segment, segment.file.size(), producers)
    segment.finish()
    segment.close()
    files.replace_indexes()
    following = files.gap_end(segment.next_offset)
    snapshots.save(files.filesystem, files.directory, producers, following)
    files.sync_derived(following)


def _rebuild_closed(
    grant: Grant, base: int, following: int, producers: ProducerStates, failed_syncs: FailedSyncs
) -> None:
    path = grant.directory.file_path(base, LOG)
    with closing(grant.directory.filesystem.open_appendable(path, create=False)) as file:
        _make_durable(grant, file, base, file.size(), following, failed_syncs)
    remake_derived(grant, base, producers)


def _rebuild_active(
    grant: Grant, found: Assessment, producers: ProducerStates, failed_syncs: FailedSyncs
) -> SegmentWriter:
    base, end, next_offset = found.active_base, found.written_end, found.log_end_offset
    segment = grant.segment_writer(base)
    _rebuild(grant, segment, end, producers)
    grant.check()
    segment.cut(end, next_offset)
    grant.segment_files(base).unseal()
    if _make_durable(grant, segment.file, base, end, next_offset, failed_syncs):
        segment.close()
        segment = grant.segment_writer(base)
        segment.attach(end, next_offset)
    return segment


def _make_durable(
    grant: Grant, file: AppendableFile, base: int, end: int, next_offset: int, failed_syncs: FailedSyncs
) -> bool:
    """Sync the log, so that what was cut cannot come back after what is appended now. After a
    failure, copy it: True."""
    if not failed_syncs.is_marked(base):
        failure = failed_syncs.try_to_sync(file, base)
        if failure is None:
            return False
        logger.warning("%s; copying the segment to a new file", failure)
    grant.segment_files(base).replace_log(end, next_offset, grant.check)
    failed_syncs.clear(base)
    return True


def _rebuild(grant: Grant, segment: SegmentWriter, end: int, producers: ProducerStates) -> None:
    """Make the indexes of a segment again from its batches, and take those into the producers'
    state."""
    segment.rebuild_start()
    aborted = []
    files = grant.segment_files(segment.base_offset)
    for position, header in files.headers(segment.file, end):
        segment.adopt(position, header)
        transaction = snapshots.fold(producers, header, position, segment.file)
        if transaction is not None:
            aborted.append(transaction)
    if (
        rising_seal(files.filesystem, files.directory, files.base) is None
    ):  # compaction has dropped the batches of aborts
        files.replace_aborted(aborted)
