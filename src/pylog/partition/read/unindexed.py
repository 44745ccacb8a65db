"""Aborted transactions by their markers, where a transaction index may lack entries.

Transaction indexes are synced when their segment is closed. So after a power failure they may be
missing although the markers are there. The next writer makes them again; a reader that comes before
it, or that may not write, reads the markers themselves.
"""

from __future__ import annotations

from contextlib import closing

from pylog.index import AbortedTransaction
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.producers import snapshots
from pylog.partition.segments import Segments
from pylog.segment import SegmentScan, rising_seal
from pylog.segment.naming import LOG


def is_assessed(directory: PartitionDirectory, state: CommitState) -> bool:
    """Whether ``state`` is of the segments of another boot, and no writer has repaired them."""
    return state.sequence == 0 and state.leader_epoch < 0 and not directory.is_kafka


def aborted_by_markers(
    directory: PartitionDirectory, segments: Segments, state: CommitState
) -> list[AbortedTransaction]:
    """Those whose markers are in segments that the next writer indexes again, in the order of the markers."""
    found: list[AbortedTransaction] = []
    bases = [base for base in segments.bases if segments.is_rebuilt(base, state.durable_offset)]
    if not bases:
        return found
    filesystem = directory.filesystem
    producers = snapshots.load(filesystem, directory.path, segments, bases[0], now_ms=0)
    for base in bases:
        with closing(filesystem.open_readable(directory.file_path(base, LOG))) as file:
            end = file.size() if base != state.active_base else state.written_end
            dense = rising_seal(filesystem, directory.path, base) is None
            for position, header in SegmentScan(file, 0, end, next_offset=base, dense=dense, check_crc=False):
                aborted = snapshots.fold(producers, header, position, file)
                if aborted is not None:
                    found.append(aborted)
    return found
