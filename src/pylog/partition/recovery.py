"""Acts on an assessment: cuts what is not whole, makes indexes and producer state again, and syncs what is kept.

For a directory whose slots are lost, torn or of another boot. The caller holds the partition's lock and publishes the
state returned. A crash in the middle leaves a directory that is assessed to the same answer again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from pylog.errors import CorruptSegment
from pylog.partition import snapshots
from pylog.partition.assessment import Assessment, assess
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.place import Place
from pylog.partition.producer_state import ProducerStates
from pylog.partition.segments import Segments
from pylog.segment import SegmentScan, SegmentWriter
from pylog.segment.naming import DELETED, LOG, SEAL, segment_files

logger = logging.getLogger("pylog.partition")


class Recovered(NamedTuple):
    """The open active segment, the producers at its end, and the state to publish (the sequence is the old one)."""

    segment: SegmentWriter
    producers: ProducerStates
    state: CommitState


def recover(place: Place, slots: CommitState | None) -> Recovered:
    """``slots`` is the last valid state, of whatever boot: its durable end holds for ever.

    ``CorruptSegment`` for damage that may not be cut (see ``assessment.py``); the directory is untouched then.
    """
    segments = place.segments()
    start = slots.log_start_offset if slots is not None else segments.bases[0] if segments.bases else 0
    durable = slots.durable_offset if slots is not None else start
    if not segments.bases and durable > start:
        raise CorruptSegment(
            f"{place.directory} has no segment, but was durable up to offset {durable}; restore it from a copy",
            path=place.directory,
            position=0,
            offset=start,
            durable_offset=durable,
        )
    if segments.bases:
        found = assess(
            place.filesystem,
            place.directory,
            segments,
            durable_offset=durable,
            known_durable=slots is not None,
            dense=True,
        )
    else:
        found = Assessment(start, 0, start, 0, (), None)
    if found.problem is not None:
        logger.warning(
            "%s: cut at offset %d (%d bytes, %d later segments): %s",
            place.directory,
            found.log_end_offset,
            found.cut_bytes,
            len(found.dropped),
            found.problem,
        )
    names = place.names()
    for base in reversed(found.dropped):  # from the end, so that a crash in between leaves no hole
        remove_segment(place, names, base)
    return _rebuild_from(place, slots, found, segments, max(start, 0), durable)


def _rebuild_from(
    place: Place, slots: CommitState | None, found: Assessment, segments: Segments, start: int, durable: int
) -> Recovered:
    kept = segments.up_to(found.active_base)
    first = kept.floor(durable) or 0
    for base in kept.bases:
        if first <= base < found.active_base:
            _rebuild_closed(place, base)
    segment = _rebuild_active(place, found)
    end = found.log_end_offset
    snapshots.remove_stray(place.filesystem, place.directory, kept, end)
    epochs = LeaderEpochs.load(place.filesystem, place.directory)
    if epochs.cut(end) or not epochs.starts:
        epochs.assigned(0, 0)
        epochs.save(place.filesystem, place.directory)
    producers = snapshots.load(place.filesystem, place.directory, kept, end, place.clock.now_ms())
    place.filesystem.sync_directory(place.directory)
    open_offset = producers.first_open_offset
    version = next_version(slots.segments_version if slots is not None else 0)
    state = CommitState(
        slots.sequence if slots is not None else 0,
        place.boot,
        max(epochs.latest, 0),
        found.active_base,
        found.written_end,
        end,
        end,
        end if open_offset is None else open_offset,
        min(start, end),
        end,
        version,
    )
    return Recovered(segment, producers, state)


def _rebuild_closed(place: Place, base: int) -> None:
    segment = place.segment_writer(base)
    segment.rebuild_start()
    _adopt_all(segment, base, segment.file.size())
    segment.finish()
    segment.file.sync()
    segment.close()


def _rebuild_active(place: Place, found: Assessment) -> SegmentWriter:
    segment = place.segment_writer(found.active_base)
    segment.rebuild_start()
    _adopt_all(segment, found.active_base, found.written_end)
    segment.cut(found.written_end, found.log_end_offset)
    segment.file.sync()
    place.filesystem.remove(place.path(found.active_base, SEAL))  # it may have been closed before: it grows again
    return segment


def _adopt_all(segment: SegmentWriter, base: int, end: int) -> None:
    for position, header in SegmentScan(segment.file, 0, end, next_offset=base, check_crc=False):
        segment.adopt(position, header)


def remove_segment(place: Place, names: list[str], base: int) -> None:
    """Remove a segment's files, the log first: indexes without a log mean nothing, a log without indexes still reads.

    Rename, then remove: a crash in between leaves ``.deleted`` files, which nothing reads.
    """
    for name in sorted(segment_files(names, base), key=lambda name: not name.endswith(LOG)):
        path = f"{place.directory}/{name}"
        place.filesystem.replace(path, path + DELETED)
        place.filesystem.remove(path + DELETED)
