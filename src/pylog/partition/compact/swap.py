"""Puts a finished ``.cleaned`` segment in the place of those that it was made of.

Before the partition's lock is taken, its files get the suffix ``.swap``, durably; nothing reads
them yet. Under the lock the seal gets the name ``<base>.seal.swap``, which decides.
``repair/swaps.py`` does the rest, here or after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.partition.commit_slots import CommitState, next_version
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.partition.repair import swaps
from pylog.partition.write.writer import PartitionWriter
from pylog.segment.naming import CLEANED, CLEANED_KINDS, LOG, SEAL, SWAP, UNSYNCED


class SegmentsChanged(StorageError):
    """Others have changed the segments meanwhile: nothing is wrong, and nothing was replaced."""


def swap_in(
    directory: PartitionDirectory,
    writer: PartitionWriter,
    bases: Sequence[int],
    end: int,
    size_bytes: int,
    check_process: Callable[[], None],
) -> None:
    """Replace the segments at ``bases``, which end before ``end``, by one of this size. Durable on
    return.

    As in Kafka, the new log gets the file time of the last one: when that was last appended to.
    Retention counts from it. ``SegmentsChanged`` if others have changed them meanwhile.
    ``check_process`` raises in a forked child.
    """
    filesystem, base = directory.filesystem, bases[0]
    try:
        appended_ns = filesystem.modified_ns(directory.file_path(bases[-1], LOG))
        check_process()
        filesystem.set_modified_ns(directory.file_path(base, LOG) + CLEANED, appended_ns)
        for kind in CLEANED_KINDS:
            check_process()
            path = directory.file_path(base, kind)
            filesystem.replace(path + CLEANED, path + SWAP)
        filesystem.sync_directory(directory.path)
        check_process()
    except own(FileNotFoundError) as error:
        raise changed(directory, base) from error

    def decide(grant: Grant, state: CommitState) -> None:
        _require_unchanged(directory, bases, end, size_bytes, state)
        state = grant.publish(state.successor(segments_version=next_version(state.segments_version)))
        path = directory.file_path(base, SEAL)
        filesystem.replace(path + CLEANED, path + SWAP)
        swaps.finish_published(grant, state)

    writer.change_segments(decide, DEFAULT_TIMEOUT_MS)


def _require_unchanged(
    directory: PartitionDirectory, bases: Sequence[int], end: int, size_bytes: int, state: CommitState
) -> None:
    """The segments are those that were read, and what was made of them is there. A recovery removes
    it."""
    filesystem, base = directory.filesystem, bases[0]
    segments = directory.segments().up_to(state.active_base)
    at = segments.bases.index(base) if base in segments.bases else 0
    made = [directory.file_path(base, kind) + SWAP for kind in CLEANED_KINDS]
    made.append(directory.file_path(base, SEAL) + CLEANED)
    if (
        list(segments.bases[at : at + len(bases) + 1]) != [*bases, end]
        or end > min(state.durable_offset, state.active_base)
        or not all(map(filesystem.exists, made))
        or filesystem.size(directory.file_path(base, LOG) + SWAP) != size_bytes
        or any(filesystem.exists(directory.file_path(each, UNSYNCED)) for each in bases)
    ):
        raise changed(directory, base)


def changed(directory: PartitionDirectory, base: int) -> SegmentsChanged:
    """The error for segments from ``base`` on that others have changed."""
    path = directory.path
    return SegmentsChanged(
        f"segments of {path} from offset {base} on were changed while they were compacted; they stay as they are, and the next "
        "compaction begins again",
        path=path, offset=base,
    )  # fmt: skip
