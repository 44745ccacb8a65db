"""Which files of a partition hold only records that were deleted, and how they go.

They go after the new log start was published and synced, and a few at a time, so that no append waits for thousands of them.
Under the lock a file gets the name of one that nothing reads; its bytes are freed without the lock. A crash in between
leaves files before the log start, which the next deletion removes, or the next recovery. Another process may remove the
same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from pylog.interrupts import suppress
from pylog.partition.directory import Place
from pylog.partition.segments import Segments
from pylog.segment.naming import DELETED, LOG, SEAL, SNAPSHOT, file_name, is_leftover, segment_files

FILES_AT_ONCE = 32  # half a millisecond


def files_before(names: list[str], offset: int) -> Iterator[str]:
    """The files that hold nothing at or after ``offset``, oldest first, each log before what belongs to it.

    Of the snapshots the newest stays in any case: it is all that is left of the producers.
    """
    segments, there = Segments.among(names), set(names)
    first = segments.floor(offset)
    if first is None:
        return
    newest = max(segments.snapshots, default=-1)
    for at in segments.snapshots:
        if at < first and at != newest:
            yield file_name(at, SNAPSHOT)
    for base in segments.bases:
        if base >= first:
            return
        yield file_name(base, LOG)
        yield from (name for name in segment_files(there, base) if not name.endswith((LOG, SEAL)))
        yield file_name(base, SEAL)  # it may have been written since the names were listed


def at_once(names: Iterator[str]) -> Iterator[list[str]]:
    """As many together as may be taken away under one hold of the lock."""
    return iter(lambda: list(islice(names, FILES_AT_ONCE)), [])


def take_away(place: Place, names: Sequence[str]) -> None:
    """Take the names of these files from them. The caller holds the lock."""
    for name in names:
        path = f"{place.directory}/{name}"
        if name.endswith(SNAPSHOT):
            place.filesystem.remove(path)
            continue
        with suppress(FileNotFoundError):  # another process has done it
            place.filesystem.replace(path, path + DELETED)


def free(place: Place, names: Sequence[str]) -> None:
    """Remove what ``take_away`` has left of these. Needs no lock: nothing else has such names, in whatever directory."""
    for name in names:
        if not name.endswith(SNAPSHOT):
            place.filesystem.remove(f"{place.directory}/{name}{DELETED}")


def free_leftovers(place: Place, names: Sequence[str]) -> None:
    """Remove what a crash in the midst of a deletion has left of files whose names were taken away."""
    for name in names:
        if name.endswith(DELETED) and is_leftover(name):
            place.filesystem.remove(f"{place.directory}/{name}")
