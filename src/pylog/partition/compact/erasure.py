"""Erases all records of some keys from one partition, at once. Docs: docs/design.md, "Erasing
keys".

Under the cleaner's lock, so that no compaction runs meanwhile; others append and read. A segment
with such a record is written again without it and takes its place by compaction's swap. A batch
that loses all its records keeps its header, so producers, transactions and offsets stay as they
were. A crash leaves each segment as it was, or erased: repeat the call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from pylog.codec.batch import BatchView
from pylog.codec.without_keys import Split, may_hold, split
from pylog.errors import CorruptRecord, MissingCodec, PylogError, StorageError, StorageFull
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.model import ProducerRecord
from pylog.partition.commit_slots import CommitState
from pylog.partition.compact.batches import emptied, made
from pylog.partition.compact.cleaned import CleanedSegment
from pylog.partition.compact.segment_batches import batches_of
from pylog.partition.compact.swap import SegmentsChanged, swap_in
from pylog.partition.grant import Grant
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.aborted import AbortedTransactions
from pylog.partition.repair.swaps import remove_unfinished
from pylog.segment.naming import CLEANED, CLEANER_LOCK, LOG, SWAP, is_leftover, may_hold_records
from pylog.storage import holding, same_process

_CHANGES_MAX = 100  # of the segments by others, during one erasure


class ErasedPartition(NamedTuple):
    """What was done in one partition. No record of the keys before ``end_offset`` is left, but for
    tombstones.

    ``tombstones``: how many were appended. ``segments`` of ``segments_read`` had such records:
    ``bytes_before`` of them became ``bytes_after``.
    """

    topic: str
    partition: int
    end_offset: int
    records: int = 0
    tombstones: int = 0
    segments: int = 0
    segments_read: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def erase(
    log: PartitionLog,
    keys: frozenset[bytes],
    *,
    tombstones: bool,
    timeout_ms: int,
    progress: Callable[[int], object] = bool,
) -> ErasedPartition:
    """Erase the records of these keys that are in the partition now. Durable on return.

    ``tombstones``: first append one for each key found; a key of which only tombstones are left is
    not found. ``progress`` gets the number of bytes read since its last call. ``LogLocked`` if a
    compaction takes longer than ``timeout_ms``; ``CorruptRecord``, ``MissingCodec`` after all that
    can be read was erased; ``ReadOnlyLog``, ``StorageError``.
    """
    log.writable()
    directory = log.directory
    path = f"{directory.path}/{CLEANER_LOCK}"
    try:
        with closing(directory.filesystem.lock(path)) as lock:

            def run() -> ErasedPartition:
                if not lock.is_in_place():
                    raise directory.gone()
                return _Erasure(log, keys, tombstones, progress).run()

            return holding(lock, path, directory.filesystem, directory.clock, run, timeout_ms / 1000)
    except own(FileNotFoundError) as error:
        raise directory.missing(error) from error


class _Segment(NamedTuple):
    base: int
    end: int
    size_bytes: int
    is_active: bool


class _Erasure:
    """One run, under the cleaner's lock."""

    def __init__(
        self, log: PartitionLog, keys: frozenset[bytes], tombstones: bool, progress: Callable[[int], object]
    ) -> None:
        self._log = log
        self._directory = log.directory
        self._keys = keys
        self._tombstones = tombstones
        self._progress = progress
        filesystem, path = log.directory.filesystem, log.directory.path
        self._process_id = filesystem.process_id()
        self._check_process = same_process(filesystem, f"keys were being erased from {path}", path=path)
        self._found: set[bytes] = set()
        self._without: set[int] = set()  # closed segments, by their bases, that need not be read again
        self._unread: PylogError | None = None  # the first damage: what is there is unknown
        self._read = 0

    def run(self) -> ErasedPartition:
        directory = self._directory
        state = self._free_leftovers()
        try:
            report = self._erase(state)
        except own(StorageError):
            # The disk may be full of it.
            remove_unfinished(directory.filesystem, directory.path, self._check_process, (CLEANED,))
            raise
        self._free_leftovers()
        directory.filesystem.sync_directory(directory.path)
        if self._unread is not None:
            raise self._unread
        return report._replace(segments_read=self._read)

    def _free_leftovers(self) -> CommitState:
        """Remove what others have retired, or a crash has left, if it may hold records. Finishes a
        swap first."""
        return self._log.writable().change_segments(_free_leftovers, DEFAULT_TIMEOUT_MS)

    def _erase(self, state: CommitState) -> ErasedPartition:
        log, end = self._log, state.log_end_offset
        is_in_active = self._search(state)
        keys, appended = frozenset(self._found), 0
        if not keys:
            return ErasedPartition(log.topic, log.number, end)
        if self._tombstones:
            records = [ProducerRecord(None, key=key) for key in sorted(keys)]
            result = log.append_records(
                records, expected_offset=None, timeout_ms=DEFAULT_TIMEOUT_MS, process_id=self._process_id
            )
            end, appended = result.base_offset, len(records)
        if is_in_active or appended:
            log.roll()
        log.sync(log.current().active_base)
        return self._rewrite_all(keys, end)._replace(end_offset=state.log_end_offset, tombstones=appended)

    # Searching

    def _search(self, state: CommitState) -> bool:
        """Look for the keys in every segment of ``state``. Whether the active one has some."""
        is_in_active, done = False, -1
        for _ in range(_CHANGES_MAX):
            try:
                for segment in self._segments(state):
                    if segment.base <= done:
                        continue
                    has_some = self._holds_some(segment)
                    if segment.is_active:
                        is_in_active = has_some
                    elif not has_some:
                        self._without.add(segment.base)
                    done = segment.base
                return is_in_active
            except own(FileNotFoundError):  # deleted meanwhile
                state = self._log.current()
        raise self._too_many_changes()

    def _holds_some(self, segment: _Segment) -> bool:
        has_some = False
        self._read += 1
        try:
            with closing(self._views(segment)) as views:
                for view in views:
                    if not may_hold(view, self._keys):
                        continue
                    for taken in split(view, self._keys, segment.end).taken:
                        if not (self._tombstones and taken.is_bare):
                            self._found.add(taken.key)
                        has_some = True
        except own(CorruptRecord, MissingCodec) as error:
            self._unread = self._unread or error
            return False
        return has_some

    # Writing again

    def _rewrite_all(self, keys: frozenset[bytes], end: int) -> ErasedPartition:
        """Every closed segment that begins before ``end``: all of them that can have such
        records."""
        report, done = ErasedPartition(self._log.topic, self._log.number, end), -1
        for _ in range(_CHANGES_MAX):
            try:
                for segment in self._segments(self._log.current()):
                    if done < segment.base < end and not segment.is_active and segment.base not in self._without:
                        report = self._rewrite(segment, keys, report)
                    done = max(done, segment.base)
                return report
            except own(FileNotFoundError, SegmentsChanged):  # deleted meanwhile, or copied after a failed sync
                self._free_leftovers()
        raise self._too_many_changes()

    def _rewrite(self, segment: _Segment, keys: frozenset[bytes], report: ErasedPartition) -> ErasedPartition:
        directory, end = self._directory, report.end_offset
        try:
            self._log.writable().copy_if_sync_failed(segment.base, DEFAULT_TIMEOUT_MS)
        except own(StorageFull):
            raise
        except own(StorageError) as error:  # its bytes are lost
            self._unread = self._unread or error
            return report
        records = 0
        with closing(CleanedSegment(directory, segment.base, directory.settings(), self._check_process)) as copy:
            try:
                with closing(self._views(segment)) as views:
                    for view in views:
                        left = split(view, keys, end) if may_hold(view, keys) else None
                        if left is None or not left.taken:
                            copy.add(view.buffer)
                            continue
                        copy.add(_without(view, left))
                        records += len(left.taken)
            except own(CorruptRecord, MissingCodec) as error:
                self._unread = self._unread or error
                records = 0
            if records:
                for aborted in self._aborted(segment):
                    copy.add_aborted(aborted)
                copy.finish(segment.end)
            size_bytes = copy.size_bytes
        if not records:
            remove_unfinished(directory.filesystem, directory.path, self._check_process, (CLEANED,))
            return report
        swap_in(directory, self._log.writable(), [segment.base], segment.end, size_bytes, self._check_process)
        return report._replace(
            records=report.records + records, segments=report.segments + 1,
            bytes_before=report.bytes_before + segment.size_bytes, bytes_after=report.bytes_after + size_bytes,
        )  # fmt: skip

    def _aborted(self, segment: _Segment) -> Iterator[AbortedTransaction]:
        """The aborted transactions whose markers are in the segment: no marker goes."""
        state = self._log.current()
        segments = self._directory.segments().up_to(state.active_base)
        for aborted in AbortedTransactions(self._directory).since(segment.base, state, segments):
            if aborted.last_offset >= segment.end:
                return
            yield aborted

    # Reading

    def _segments(self, state: CommitState) -> Iterator[_Segment]:
        """Those of ``state``, also before its log start; the active one is the last."""
        directory = self._directory
        for base, end in pairwise(directory.segments().ending_with(state.active_base).bases):
            yield _Segment(base, end, directory.filesystem.size(directory.file_path(base, LOG)), False)
        if state.written_end:  # else its file may not be there yet: a roll publishes it first
            yield _Segment(state.active_base, state.log_end_offset, state.written_end, True)

    def _views(self, segment: _Segment) -> Generator[BatchView, None, None]:
        """A loop that leaves early closes it. ``CorruptRecord``."""
        is_closed = not segment.is_active
        found = batches_of(self._directory, segment.base, segment.end, segment.size_bytes, closed=is_closed)
        with closing(found):
            for views in found:
                self._check_process()
                yield from views
                self._progress(sum(view.header.size_bytes for view in views))
        self._check_process()

    def _too_many_changes(self) -> StorageError:
        path = self._directory.path
        return StorageError(f"segments of {path} keep being changed by others; erase the keys again", path=path)


def _without(view: BatchView, left: Split) -> bytearray:
    header = view.header
    if not left.kept:
        return emptied(header)
    latest_ms = header.max_timestamp_ms if header.is_log_append_time else left.latest_ms
    return made(header, left.payload, header.attributes, header.base_timestamp_ms, latest_ms, left.kept)


def _free_leftovers(grant: Grant, state: CommitState) -> CommitState:
    directory = grant.directory
    for name in directory.names():
        if is_leftover(name) and (may_hold_records(name) or name.endswith((CLEANED, SWAP))):
            grant.check()
            directory.filesystem.remove(f"{directory.path}/{name}")
    return state
