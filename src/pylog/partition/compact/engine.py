"""Compacts the closed segments of one partition. Docs: docs/design.md, "Compaction".

One process at a time does, by a lock of its own; others append and read meanwhile. The partition's lock is held only to put a
finished segment in the place of those that it was made of. A crash leaves the old segments or the new one, and perhaps files
that nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from pylog.codec import KeyMap
from pylog.codec.batch import BatchView
from pylog.codec.key_map import SECRET_BYTES
from pylog.codec.newest import put_keys
from pylog.errors import ForkedHandle, StorageError
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS, FETCH_BYTES
from pylog.partition.commit_slots import CommitState
from pylog.partition.compact.batches import LastOfProducer, Rules, clean
from pylog.partition.compact.checkpoint import read_first_dirty, write_first_dirty
from pylog.partition.compact.cleaned import CleanedSegment, remove_unfinished
from pylog.partition.compact.options import CompactionOptions, CompactionReport
from pylog.partition.compact.plan import ClosedSegment, Plan, groups, plan
from pylog.partition.compact.swap import changed, swap_in
from pylog.partition.compact.transactions import TransactionsInOrder
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.partition.producers import snapshots
from pylog.partition.read.aborted import AbortedTransactions
from pylog.partition.repair.swaps import free_replaced
from pylog.partition.write.writer import PartitionWriter
from pylog.segment import SegmentReader, read_seal
from pylog.segment.naming import CLEANED, CLEANER_LOCK, DELETED, LOG, OFFSET_INDEX, SWAP, UNSYNCED

_PARTS_MAX = 1 << 16


def compact(log: PartitionLog, options: CompactionOptions | None = None) -> CompactionReport:
    """Compact what is closed, durable and old enough, whatever share of it is dirty. Durable on return.

    What could not be done is in the report, with the reason. ``ReadOnlyLog``, ``DeliveryTimeout`` if the partition's lock is
    not free in time, ``SegmentsChanged`` if others have deleted what was read, ``StorageError`` if the disk refuses,
    ``CorruptRecord`` for damage: then the damaged segment stays.
    """
    writer = log.writable()
    directory = log.directory
    lock = directory.filesystem.lock(f"{directory.path}/{CLEANER_LOCK}")
    try:
        if not lock.try_acquire() or not lock.is_in_place():
            return CompactionReport(0, 0, skipped=("another process is compacting the partition",))
        log_start = log.current().log_start_offset
        try:
            return _Compaction(directory, writer, options or CompactionOptions()).run()
        except own(StorageError, FileNotFoundError) as error:
            remove_unfinished(directory.filesystem, directory.path, (CLEANED,))  # the disk may be full of it
            if isinstance(error, FileNotFoundError) and log.current().log_start_offset > log_start:
                raise changed(directory, log_start) from error  # others have deleted it
            raise
    except own(FileNotFoundError) as error:
        raise directory.missing(error) from error
    finally:
        lock.release()
        lock.close()


def planned(log: PartitionLog, options: CompactionOptions) -> Plan:
    """What could be compacted now, after a sync."""
    state = log.current()
    return _plan(log.directory, state._replace(durable_offset=state.log_end_offset), options)


def _plan(directory: PartitionDirectory, state: CommitState, options: CompactionOptions) -> Plan:
    segments = directory.segments().since(state.log_start_offset)  # those before it may go at any time
    seen = directory.seen_by(segments)
    closed = [_closed(seen, base, end) for base, end in pairwise(segments.up_to(state.active_base).bases)]
    return plan(state, closed, read_first_dirty(directory), options, directory.clock.now_ms())


def _closed(directory: PartitionDirectory, base: int, end: int) -> ClosedSegment:
    filesystem = directory.filesystem
    size = filesystem.size(directory.file_path(base, LOG))
    try:
        index_bytes = filesystem.size(directory.file_path(base, OFFSET_INDEX))
    except own(FileNotFoundError):
        index_bytes = 0
    seal = read_seal(filesystem, directory.path, base, size)
    greatest_ms = max(seal.greatest_ms[-1], -1) if seal is not None and seal.greatest_ms else -1
    return ClosedSegment(base, end, size, index_bytes, greatest_ms)


class _Counts(NamedTuple):
    kept: int = 0
    dropped: int = 0
    bytes_after: int = 0
    segments_after: int = 0


class _Compaction:
    """One run, under the cleaner's lock."""

    def __init__(self, directory: PartitionDirectory, writer: PartitionWriter, options: CompactionOptions) -> None:
        self._directory = directory
        self._writer = writer
        self._options = options
        self._time_ms = directory.clock.now_ms()
        self._process_id = directory.filesystem.process_id()

    def run(self) -> CompactionReport:
        directory = self._directory
        # This finishes what earlier compactions have left.
        state = self._state = self._writer.change_segments(lambda _, state: state, DEFAULT_TIMEOUT_MS)
        remove_unfinished(directory.filesystem, directory.path, (CLEANED, SWAP, DELETED))
        found = _plan(directory, state, self._options)
        skipped = [found.reason] if found.reason else []
        if not found.dirty:
            return CompactionReport(found.first_dirty, found.first_dirty, skipped=(*skipped, "nothing is dirty"))
        unsynced = [
            s.base for s in found.segments if directory.filesystem.exists(directory.file_path(s.base, UNSYNCED))
        ]
        if unsynced:
            reason = f"a sync of the segment at {unsynced[0]} has failed; the next sync of the partition copies it"
            return CompactionReport(found.first_dirty, found.first_dirty, skipped=(*skipped, reason))
        before, segments, dropped = sum(s.size_bytes for s in found.segments), found.segments, 0
        counts, secret = _Counts(), directory.filesystem.random_bytes(SECRET_BYTES)
        part, parts = 0, 1
        while part < parts:  # what one part has dropped stays dropped if it is done again
            found = self._again(found)
            keys = self._keys(found, KeyMap(self._options.memory_bytes, secret, part, parts))
            if keys is None:
                part, parts = 0, self._more(parts)
                continue
            counts = self._rewrite(found, keys)
            keys = None  # before the next map takes as much memory
            dropped += counts.dropped
            part += 1
        write_first_dirty(directory, found.end)
        return CompactionReport(
            found.first_dirty, found.end, before, counts.bytes_after, counts.kept, dropped,
            len(segments), counts.segments_after, parts, tuple(skipped),
        )  # fmt: skip

    def _again(self, found: Plan) -> Plan:
        """The same range, in the segments that it has now."""
        first = found.segments[0].base
        bases = self._directory.segments().since(first).bases
        closed = [_closed(self._directory, base, end) for base, end in pairwise(bases)]
        return found._replace(segments=tuple(s for s in closed if first <= s.base and s.end <= found.end))

    # The first pass

    def _more(self, parts: int) -> int:
        """Into how many parts to divide the keys, after so many were too few."""
        if parts > _PARTS_MAX:
            raise MemoryError(f"{self._options.memory_bytes} bytes are too few to compact {self._directory.path}")
        return parts + max(parts // 2, 1)

    def _keys(self, found: Plan, keys: KeyMap) -> KeyMap | None:
        """``keys`` with the newest offset of each key of the dirty range; None if its memory is too small."""
        transactions = TransactionsInOrder(self._aborted(found.first_dirty))
        for segment in found.dirty:
            for view in self._views(segment):
                if transactions.judge(view).is_unneeded or view.header.is_control:
                    continue
                if view.last_offset >= found.first_dirty and not put_keys(keys, view, found.first_dirty):
                    return None
        return keys

    # The second pass

    def _rewrite(self, found: Plan, keys: KeyMap) -> _Counts:
        directory, settings = self._directory, self._directory.settings()
        states = snapshots.load(directory.filesystem, directory.path, directory.segments(), found.end, self._time_ms)
        producers = {
            producer_id: LastOfProducer(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in states.entries.items()
        }
        rules = Rules(keys, found.end, self._time_ms, self._options.delete_retention_ms, producers)
        transactions = TransactionsInOrder(self._aborted(found.segments[0].base))
        counts = _Counts()
        for group in groups(found.segments, settings.segment_bytes, settings.segment_index_bytes):
            of_group = self._rewrite_group(group, rules, transactions)
            counts = _Counts(*map(sum, zip(counts, of_group, strict=True)))
        return counts

    def _rewrite_group(
        self, group: Sequence[ClosedSegment], rules: Rules, transactions: TransactionsInOrder
    ) -> _Counts:
        directory = self._directory
        kept = dropped = 0
        is_changed = len(group) > 1
        base, end = group[0].base, group[-1].end
        with closing(CleanedSegment(directory, base, directory.settings(), self._check_process)) as made:
            for view in self._all_views(group):
                judged = transactions.judge(view)
                cleaned = clean(view, judged, rules)
                is_changed = is_changed or cleaned.batch is not view.buffer
                kept, dropped = kept + cleaned.kept, dropped + cleaned.dropped
                if cleaned.batch is not None:
                    made.add(cleaned.batch)
                if cleaned.keeps_marker and judged.aborted is not None:
                    made.add_aborted(judged.aborted)
            if is_changed:
                made.finish(end)
            size_bytes = made.size_bytes
        if is_changed:
            bases = [segment.base for segment in group]
            swap_in(directory, self._writer, bases, end, size_bytes, self._check_process)
            free_replaced(directory.filesystem, directory.path, directory.names())
        else:
            remove_unfinished(directory.filesystem, directory.path, (CLEANED,))
        return _Counts(kept, dropped, size_bytes, 1)

    # Reading

    def _all_views(self, group: Iterable[ClosedSegment]) -> Iterator[BatchView]:
        for segment in group:
            for view in self._views(segment):
                self._check_process()
                yield view
        self._check_process()

    def _check_process(self) -> None:
        """``ForkedHandle`` in a child that returned from a signal handler: the parent continues, in the same files."""
        if self._directory.filesystem.process_id() != self._process_id:
            path = self._directory.path
            raise ForkedHandle(
                f"{path} was being compacted when a signal handler forked; the child must not continue", path=path
            )

    def _views(self, segment: ClosedSegment) -> Iterator[BatchView]:
        """The batches of a segment, checked. ``CorruptRecord``."""
        directory = self._directory
        reader = SegmentReader(
            directory.filesystem, directory.path, segment.base, closed=True, home=directory.home, end_offset=segment.end,
            batch_limit_bytes=lambda: directory.settings().max_message_bytes,
        )  # fmt: skip
        with closing(reader):
            position, offset = 0, segment.base
            while views := reader.read(position, segment.size_bytes, max_bytes=FETCH_BYTES, next_offset=offset):
                yield from views
                position += sum(view.header.size_bytes for view in views)
                offset = views[-1].last_offset + 1
            if reader.gap_end(offset) != segment.end:
                raise StorageError(
                    f"{reader.path} ends at offset {offset}, but the next segment begins at {segment.end}; it was not compacted",
                    path=reader.path, offset=offset, next_offset=segment.end,
                )  # fmt: skip

    def _aborted(self, offset: int) -> Iterator[AbortedTransaction]:
        """The aborted transactions whose markers are at or after ``offset``, in whatever segment, as readers see them.

        ``CorruptSegment`` if an index is not the one that its seal records, and cannot be made again: what is dropped or
        kept by a wrong one would be so forever.
        """
        aborted = AbortedTransactions(self._directory)
        return aborted.since(offset, self._state, self._directory.segments().up_to(self._state.active_base))
