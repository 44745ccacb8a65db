"""The files of a segment, and when each is synced, made again and removed. ``SegmentWriter``
appends and cuts.

Compaction (``partition/compact/swap.py``) and the copy after a failed sync replace a segment as a
whole.

    file        derived from         synced                 made again                 removed
    .log        nothing              before ``acks="all"``  copied after a failed sync first
    .index      .log                 once it is closed      by a recovery, if missing, with .log
    .timeindex  .log                 once it is closed        not as the seal records, with .log
    .txnindex   .log, producers      once it is closed        or not synced yet; after with .log
                                                              a failed sync
    .snapshot   .log, all before it  with the log it ends   the same                   if outdated
    .unsynced   a failed sync        never                  never                      with the copy
    .seal       .log, once closed    before it is named     by the sealer              last

    suffix      of a file that                                        it ends as
    .deleted    was retired: nothing reads it                         removed
    .rewrite    is made again, a log or an index                      the file of that name
    .cleaned    compaction writes                                     .swap
    .swap       compaction has written; read while a seal has it too  the file of that name

``derived``, ``sync_derived`` and ``free`` need no lock of the partition, the others do. A crash
between two steps leaves files that nothing reads, and that ``sweep`` removes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from pylog.errors import StorageError
from pylog.index import AbortedTransaction, encode_transactions
from pylog.interrupts import own, suppress
from pylog.segment.naming import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    REWRITE,
    SEAL,
    SEGMENT_KINDS,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    file_path,
    is_leftover,
    offsets_of,
)
from pylog.segment.scan import SegmentScan
from pylog.segment.seal import rising_seal
from pylog.storage import AppendableFile, FileSystem, ReadableFile, write_atomically

logger = logging.getLogger("pylog.segment")

_PIECE_BYTES = 1 << 20


class SegmentFiles(NamedTuple):
    """Those of the segment at ``base``."""

    filesystem: FileSystem
    directory: str
    base: int

    def path(self, kind: str) -> str:
        return file_path(self.directory, self.base, kind)

    def derived(self, following: int) -> Iterator[AppendableFile]:
        """A closed segment's indexes, and the snapshot at offset ``following``, one by one. Missing
        files are left out.

        They must be durable with the segment: a recovery makes only later indexes again, and once
        older segments are deleted, only the snapshot has the producers' state.
        """
        paths = [*map(self.path, (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX))]
        for path in (*paths, file_path(self.directory, following, SNAPSHOT)):
            try:
                file = self.filesystem.open_appendable(path, create=False)
            except own(FileNotFoundError):
                continue
            try:
                yield file
            finally:
                file.close()

    def sync_derived(self, following: int) -> None:
        """Sync these files; their names are durable once the directory is synced.

        ``StorageError`` if one is refused: then it must not be synced again, but made again.
        """
        for file in self.derived(following):
            file.sync()

    def replace_log(self, end: int, next_offset: int, check: Callable[[], object]) -> None:
        """Replace the log by a synced copy of its first ``end`` bytes, which reach ``next_offset``.
        Durable on return.

        The answer to a failed sync: the system may count the lost pages as clean, so another sync
        of the same file proves nothing, but the page cache still has them. Each batch is checked.
        ``StorageError`` if the page cache has lost them too, as on btrfs. ``check`` is called
        before the copy takes the log's place.
        """
        path = self.path(LOG)
        source = self.filesystem.open_readable(path)
        target = self.filesystem.open_appendable(path + REWRITE)
        try:
            target.truncate(0)
            seal = rising_seal(self.filesystem, self.directory, self.base)
            scan = SegmentScan(source, 0, end, next_offset=self.base, dense=seal is None)
            for position, header in scan:
                for at in range(position, position + header.size_bytes, _PIECE_BYTES):
                    target.pwrite(source.pread(min(_PIECE_BYTES, position + header.size_bytes - at), at), at)
            reached = scan.next_offset if seal is None else seal.gap_end(scan.next_offset)
            if scan.problem is not None or reached != next_offset:
                problem = scan.problem or f"it ends at offset {reached}, expected {next_offset}"
                raise StorageError(
                    f"{path} could not be copied after a failed sync: damaged at position {scan.position}: {problem}",
                    path=path,
                    position=scan.position,
                    next_offset=scan.next_offset,
                    expected=next_offset,
                )
            target.sync()
        except own(StorageError):
            self.filesystem.remove(path + REWRITE)  # the disk may be full of it
            raise
        finally:
            source.close()
            target.close()
        check()
        self.filesystem.replace(path + REWRITE, path)
        self.filesystem.sync_directory(self.directory)

    def headers(self, file: ReadableFile, end: int) -> SegmentScan:
        """The batches before ``end``, without a look at their checksums."""
        dense = rising_seal(self.filesystem, self.directory, self.base) is None
        return SegmentScan(file, 0, end, next_offset=self.base, dense=dense, check_crc=False)

    def gap_end(self, offset: int) -> int:
        """The next segment's base, if the last batch ends before ``offset`` and its seal says that
        none is missing."""
        seal = rising_seal(self.filesystem, self.directory, self.base)
        return offset if seal is None else seal.gap_end(offset)

    def replace_indexes(self) -> None:
        """Put the indexes that were made under the suffix ``.rewrite`` in place."""
        for path in (self.path(OFFSET_INDEX), self.path(TIME_INDEX)):
            self.filesystem.replace(path + REWRITE, path)

    def replace_aborted(self, aborted: Collection[AbortedTransaction]) -> None:
        """Make the transaction index again in one step: no reader may take a transaction for
        committed in between."""
        path = self.path(TRANSACTION_INDEX)
        if aborted:
            write_atomically(self.filesystem, path, encode_transactions(aborted), durable=False)
        else:
            self.filesystem.remove(path)

    def unseal(self) -> None:
        """Remove the seal: the segment grows again, or the seal is of an earlier segment of this
        name."""
        if self.filesystem.exists(self.path(SEAL)):
            self.filesystem.remove(self.path(SEAL))
            self.filesystem.sync_directory(self.directory)  # else a power failure could put it back


def names_of(names: Collection[str], base: int) -> Iterator[str]:
    """Those of ``names`` that belong to one segment, the log first: a log without indexes can be
    read, indexes without a log mean nothing. The seal is always the last: it may have been written
    after the names were listed."""
    yield from (name for kind in SEGMENT_KINDS if (name := file_name(base, kind)) in names)
    yield file_name(base, SEAL)


def retire(filesystem: FileSystem, directory: str, names: Iterable[str], check: Callable[[], object]) -> None:
    """Rename these files, so that nothing reads them. Snapshots are removed. ``check``, before
    each, raises in a forked child."""
    for name in names:
        check()
        path = f"{directory}/{name}"
        if name.endswith(SNAPSHOT):
            filesystem.remove(path)
            continue
        with suppress(FileNotFoundError):  # another process has done it
            filesystem.replace(path, path + DELETED)


def free(filesystem: FileSystem, directory: str, names: Iterable[str]) -> None:
    """Remove what ``retire`` has left of these. Needs no lock: nothing else has such names, in
    whatever directory."""
    for name in names:
        if not name.endswith(SNAPSHOT):
            filesystem.remove(f"{directory}/{name}{DELETED}")


def remove_orphans(filesystem: FileSystem, directory: str, bases: Collection[int], check: Callable[[], object]) -> None:
    """Remove what belongs to no log file: a later segment of that name would be checked against an
    earlier one's seal. ``check`` as for ``retire``."""
    names = filesystem.names(directory)
    for kind in SEGMENT_KINDS:
        for base in offsets_of(names, kind) if kind != LOG else ():
            if base not in bases:
                check()
                filesystem.remove(file_path(directory, base, kind))


def sweep(filesystem: FileSystem, directory: str) -> list[str]:
    """Remove unfinished copies and retired files, which nothing reads; the names of those removed.

    The lock excludes the processes that rename and copy, but not one that writes a seal. It uses a
    name of its own: if that file is removed, it cannot put its seal in place, and the segment is
    sealed later. What the system refuses to remove stays, with a warning. Nothing is synced: the
    next recovery sweeps what a power failure brings back.
    """
    removed = []
    for name in filter(is_leftover, filesystem.names(directory)):
        try:
            filesystem.remove(f"{directory}/{name}")
            removed.append(name)
        except own(StorageError) as error:
            logger.warning("a leftover of a crash stays: %s", error)
    return removed
