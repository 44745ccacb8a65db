"""Removes the files of a partition that only hold deleted records.

They are removed after the new log start was published and synced, a few at a time, so that no
append waits for thousands of them. Under the lock a file is renamed, so that nothing reads it; its
bytes are freed without the lock. A crash in between leaves files before the log start, which the
next deletion or recovery removes. Another process may remove the same files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from itertools import islice

from pylog.errors import Closed, DeliveryTimeout, TopicNotFound
from pylog.interrupts import own
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.partition.repair import swaps
from pylog.partition.segments import Segments
from pylog.partition.write.leftovers import remove_leftovers
from pylog.partition.write.lock import WriteLock
from pylog.segment.files import free, names_of, retire
from pylog.segment.naming import (
    CLEANED,
    DELETED,
    SEGMENT_KINDS,
    SNAPSHOT,
    SWAP,
    file_name,
    is_leftover,
    offsets_of,
    unfinished_seal,
)

logger = logging.getLogger("pylog.partition")

FILES_AT_ONCE = 32  # half a millisecond
_LISTINGS_MAX = 10  # each after another process has changed the segments


def remove_before(directory: PartitionDirectory, lock: WriteLock, offset: int, timeout_ms: int) -> None:
    """Remove the files that only hold deleted records. Others can append, and compact."""
    try:
        for _ in range(_LISTINGS_MAX):
            state = None if lock.slots is None else lock.slots.read()
            if state is None or _remove_listed(directory, lock, offset, timeout_ms, state.segments_version):
                return
        logger.warning(
            "%r: others change the segments; files of deleted records stay until the next deletion", directory.path
        )
    except own(FileNotFoundError):
        return  # the topic was deleted
    except own(DeliveryTimeout, TopicNotFound, Closed) as error:
        logger.warning("files of deleted records stay until the next deletion: %s", error)


def _remove_listed(directory: PartitionDirectory, lock: WriteLock, offset: int, timeout_ms: int, version: int) -> bool:
    """False if the segments have changed since ``version``, and must be listed again."""
    names = directory.names()
    if swaps.are_under_way(names):  # if its process has died, the next writer finishes it
        lock.holding(timeout_ms, bool)  # a living one finishes it under this lock
        return False
    for number, some in enumerate(at_once(files_before(names, offset))):
        if number:
            lock.give_way()
        is_gone = lock.holding(timeout_ms, partial(_take_away_if_published, some, offset, version))
        if not is_gone:
            return is_gone is None
        free(directory.filesystem, directory.path, some)
    for name in names:  # what a crash during a deletion has left, or one while a segment was sealed that is deleted now
        unfinished = unfinished_seal(name)
        if (name.endswith(DELETED) and is_leftover(name)) or (unfinished is not None and unfinished < offset):
            directory.filesystem.remove(f"{directory.path}/{name}")
    if swaps.unfinished(names, (CLEANED, SWAP)):
        remove_leftovers(directory)
    return True


def _take_away_if_published(names: list[str], offset: int, version: int, grant: Grant) -> bool | None:
    """None if the log of these files is gone, or must be recovered (which removes them too).

    False if the segments are not those that were listed: compaction may have put one with newer
    records in place of some.
    """
    state = grant.slots.read()
    if state is None or state.boot != grant.directory.boot or state.log_start_offset < offset:
        return None
    if state.segments_version != version:
        return False
    retire(grant.directory.filesystem, grant.directory.path, names, grant.check)
    return True


def files_before(names: list[str], offset: int) -> Iterator[str]:
    """The files with nothing at or after ``offset``, oldest first, each log before its side files;
    then side files whose log a process that died has renamed.

    The newest snapshot always stays: it is all that is left of the producers.
    """
    segments, there = Segments.among(names), set(names)
    first = segments.floor(offset)
    if first is None:
        return
    newest = max(segments.snapshots, default=-1)
    for at in segments.snapshots:
        if at < first and at != newest:
            yield file_name(at, SNAPSHOT)
    for base in (base for base in segments.bases if base < first):
        yield from names_of(there, base)
    bases = set(segments.bases)
    for kind in SEGMENT_KINDS:
        yield from (file_name(base, kind) for base in offsets_of(names, kind) if base < first and base not in bases)


def at_once(names: Iterator[str]) -> Iterator[list[str]]:
    """Lists of files to rename under one hold of the lock."""
    return iter(lambda: list(islice(names, FILES_AT_ONCE)), [])
