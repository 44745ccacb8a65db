"""Compacts the closed segments of one partition. Docs: docs/design.md, "Compaction".

One process at a time does, by a lock of its own; others append and read meanwhile. The partition's
lock is held only to put a finished segment in the place of those that it was made of. A crash
leaves the old segments or the new one, and perhaps files that nothing reads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, pairwise
from typing import NamedTuple

from pylog.codec import KeyMap
from pylog.codec.batch import BatchView
from pylog.codec.key_map import SECRET_BYTES, memory_for
from pylog.codec.newest import put_keys
from pylog.errors import StorageError
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.partition.cleaner_checkpoint import CleanerCheckpoint, read_cleaned, write_cleaned
from pylog.partition.commit_slots import CommitState
from pylog.partition.compact.batches import LastOfProducer, Rules, clean
from pylog.partition.compact.cleaned import CleanedSegment
from pylog.partition.compact.options import CompactionOptions, CompactionReport
from pylog.partition.compact.plan import ClosedSegment, Plan, groups, plan
from pylog.partition.compact.segment_batches import batches_of
from pylog.partition.compact.swap import changed, swap_in
from pylog.partition.compact.transactions import TransactionsInOrder
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.partition.producers import snapshots
from pylog.partition.read.aborted import AbortedTransactions
from pylog.partition.repair.swaps import remove_unfinished
from pylog.partition.write.writer import PartitionWriter
from pylog.segment import read_seal
from pylog.segment.naming import CLEANED, CLEANER_LOCK, DELETED, LOG, OFFSET_INDEX
from pylog.storage import same_process

IS_BUSY = "a compaction, an erasure or a backup of the partition is under way"


def compact(log: PartitionLog, options: CompactionOptions | None = None) -> CompactionReport:
    """Compact what is closed, durable and old enough, whatever share of it is dirty. Durable on
    return.

    What could not be done is in the report, with the reason. ``ReadOnlyLog``, ``DeliveryTimeout``
    if the partition's lock is not free in time, ``SegmentsChanged`` if others have deleted what was
    read, ``StorageError`` if the disk refuses, or has lost a segment whose sync had failed,
    ``TopicNotFound`` if the partition is gone, ``CorruptRecord`` for damage: then the damaged
    segment stays.
    """
    writer = log.writable()
    directory = log.directory
    try:
        with closing(directory.filesystem.lock(f"{directory.path}/{CLEANER_LOCK}")) as lock:
            if not lock.try_acquire():
                return CompactionReport(0, skipped=(IS_BUSY,))
            if not lock.is_in_place():
                raise directory.gone()
            return _compacted(log, writer, options or CompactionOptions())
    except own(FileNotFoundError) as error:
        raise directory.missing(error) from error


def _compacted(log: PartitionLog, writer: PartitionWriter, options: CompactionOptions) -> CompactionReport:
    directory, log_start = log.directory, log.current().log_start_offset
    compaction = _Compaction(directory, writer, options)
    try:
        return compaction.run()
    except own(StorageError, FileNotFoundError) as error:
        # The disk may be full of it.
        remove_unfinished(directory.filesystem, directory.path, compaction.check_process, (CLEANED,))
        if isinstance(error, FileNotFoundError) and log.current().log_start_offset > log_start:
            raise changed(directory, log_start) from error  # others have deleted it
        raise


def planned(log: PartitionLog, options: CompactionOptions) -> Plan:
    """What could be compacted now, after a sync."""
    state = log.current()
    first_dirty = read_cleaned(log.directory).first_dirty
    return _plan(log.directory, state._replace(durable_offset=state.log_end_offset), first_dirty, options)


def _plan(directory: PartitionDirectory, state: CommitState, first_dirty: int, options: CompactionOptions) -> Plan:
    segments = directory.segments().since(state.log_start_offset)  # those before it may go at any time
    seen = directory.seen_by(segments)
    closed = [_closed(seen, base, end) for base, end in pairwise(segments.up_to(state.active_base).bases)]
    return plan(state, closed, first_dirty, options, directory.clock.now_ms())


def _closed(directory: PartitionDirectory, base: int, end: int) -> ClosedSegment:
    filesystem = directory.filesystem
    size = filesystem.size(directory.file_path(base, LOG))
    try:
        index_bytes = filesystem.size(directory.file_path(base, OFFSET_INDEX))
    except own(FileNotFoundError):
        index_bytes = 0
    seal = read_seal(filesystem, directory.path, base, size)
    greatest_ms = seal.greatest_ms[-1] if seal is not None and seal.greatest_ms else -1
    if greatest_ms < 0:  # a segment without seal, or records without times: as in Kafka, the time of the last append
        greatest_ms = filesystem.modified_ns(directory.file_path(base, LOG)) // 1_000_000
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
        self.check_process = same_process(
            directory.filesystem, f"{directory.path} was being compacted", path=directory.path
        )
        self._secret = directory.filesystem.random_bytes(SECRET_BYTES)

    def run(self) -> CompactionReport:
        directory = self._directory
        # This finishes what earlier compactions have left.
        state = self._state = self._writer.change_segments(lambda _, state: state, DEFAULT_TIMEOUT_MS)
        remove_unfinished(directory.filesystem, directory.path, self.check_process)
        before_this = read_cleaned(directory)
        found = _plan(directory, state, before_this.first_dirty, self._options)
        skipped = [found.reason] if found.reason else []
        if not found.dirty:
            return CompactionReport(found.first_dirty, skipped=(*skipped, "nothing is dirty"))
        for segment in found.segments:  # the writer whose sync failed may have died
            self._writer.copy_if_sync_failed(segment.base, DEFAULT_TIMEOUT_MS)
        # What was never closed was never compacted, also if the checkpoint is lost.
        self._cleaned = CleanerCheckpoint(found.first_dirty, min(before_this.dropped_to, state.active_base))
        if self._cleaned.dropped_to < before_this.dropped_to:  # it was unknown: tables may rely on it from here on
            self._write(self._cleaned)
        before = sum(segment.size_bytes for segment in found.segments)
        producers = self._producers(found.end)
        part, counts = found, _Counts()
        dropped = passes = 0
        while part.first_dirty < found.end:
            end, counts = self._clean_part(part, producers)
            self._write(self._cleaned._replace(first_dirty=end))
            dropped, passes = dropped + counts.dropped, passes + 1
            segments = self._segments_of(found)
            if not segments:
                break  # others have deleted the rest
            part = found._replace(first_dirty=max(end, segments[0].base), segments=segments)
        return CompactionReport(
            found.end, before, counts.bytes_after, counts.kept, dropped, counts.segments_after, passes, tuple(skipped)
        )  # fmt: skip

    def _write(self, cleaned: CleanerCheckpoint) -> None:
        write_cleaned(self._directory, cleaned)
        self._cleaned = cleaned

    def _segments_of(self, found: Plan) -> tuple[ClosedSegment, ...]:
        """Those that the range has now."""
        first = found.segments[0].base
        bases = [base for base in self._directory.segments().bases if first <= base <= found.end]
        return tuple(_closed(self._directory, base, end) for base, end in pairwise(bases))

    def _producers(self, end: int) -> Mapping[int, LastOfProducer]:
        directory = self._directory
        states = snapshots.load(
            directory.filesystem, directory.path, directory.segments(), end, directory.clock.now_ms()
        )
        return {
            producer_id: LastOfProducer(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in states.entries.items()
        }

    def _clean_part(self, part: Plan, producers: Mapping[int, LastOfProducer]) -> tuple[int, _Counts]:
        """Clean as much of the dirty range as there is memory for. Its end, and the counts of all
        segments before."""
        keys, end = self._keys(part)
        # Horizons count from now, Kafka's from the beginning of the compaction. The time of the
        # swap is not known when the segment is written.
        rules = Rules(keys, end, self._directory.clock.now_ms(), self._options.delete_retention_ms, producers)
        return end, self._rewrite([segment for segment in part.segments if segment.base < end], rules)

    # The first pass

    def _keys(self, part: Plan) -> tuple[KeyMap, int]:
        """The newest offset of each key of the dirty range, and the end of what there was memory
        for."""
        memory_bytes = min(self._options.memory_bytes, memory_for(part.end - part.first_dirty))
        keys = KeyMap(memory_bytes, self._secret, part.first_dirty)
        transactions = TransactionsInOrder(self._aborted(part.first_dirty))
        for segment in part.dirty:
            with closing(self._views(segment)) as views:
                for view in views:
                    if (
                        transactions.judge(view).is_unneeded
                        or view.header.is_control
                        or view.last_offset < part.first_dirty
                    ):
                        continue
                    end = put_keys(keys, view)
                    if end <= view.last_offset:  # inside a batch only if its keys alone are too many
                        return keys, view.base_offset if view.base_offset > part.first_dirty else end
        return keys, part.end

    # The second pass

    def _rewrite(self, segments: Sequence[ClosedSegment], rules: Rules) -> _Counts:
        settings = self._directory.settings()
        transactions = TransactionsInOrder(self._aborted(segments[0].base))
        counts = _Counts()
        for group in groups(segments, settings.segment_bytes, settings.segment_index_bytes):
            stays = self._stays(group[0], rules, transactions) if len(group) == 1 else None
            of_group = self._rewrite_group(group, rules, transactions) if stays is None else stays
            counts = _Counts(*map(sum, zip(counts, of_group, strict=True)))
        return counts

    def _stays(self, segment: ClosedSegment, rules: Rules, transactions: TransactionsInOrder) -> _Counts | None:
        """The counts of a segment of which nothing changes; None, at the first change, for
        another."""
        kept, ahead = 0, transactions.copy()
        with closing(self._all_views([segment])) as views:
            for view in views:
                cleaned = clean(view, ahead.judge(view), rules)
                if cleaned.batch is not view.buffer:
                    return None
                kept += cleaned.kept
        transactions.follow(ahead)
        return _Counts(kept, 0, segment.size_bytes, 1)

    def _rewrite_group(
        self, group: Sequence[ClosedSegment], rules: Rules, transactions: TransactionsInOrder
    ) -> _Counts:
        directory = self._directory
        kept = dropped = dropped_to = 0
        base, end = group[0].base, group[-1].end
        with closing(CleanedSegment(directory, base, directory.settings(), self.check_process)) as made:
            for view in self._all_views(group):
                judged = transactions.judge(view)
                cleaned = clean(view, judged, rules)
                kept, dropped = kept + cleaned.kept, dropped + cleaned.dropped
                if cleaned.drops_tombstones:
                    dropped_to = view.last_offset + 1
                if cleaned.batch is not None:
                    made.add(cleaned.batch)
                if cleaned.keeps_marker and judged.aborted is not None:
                    made.add_aborted(judged.aborted)
            made.finish(end)
            size_bytes = made.size_bytes
        if dropped_to > self._cleaned.dropped_to:  # before readers can miss them
            self._write(self._cleaned._replace(dropped_to=dropped_to))
        bases = [segment.base for segment in group]
        swap_in(directory, self._writer, bases, end, size_bytes, self.check_process)
        remove_unfinished(directory.filesystem, directory.path, self.check_process, (DELETED,))
        return _Counts(kept, dropped, size_bytes, 1)

    # Reading. A loop that leaves early closes its generator: Python would lose an interrupt that
    # comes while it does.

    def _all_views(self, group: Iterable[ClosedSegment]) -> Generator[BatchView, None, None]:
        for segment in group:
            with closing(self._views(segment)) as views:
                for view in views:
                    self.check_process()
                    yield view
        self.check_process()

    def _views(self, segment: ClosedSegment) -> Generator[BatchView, None, None]:
        """Yield the batches of a segment. Raises ``CorruptRecord``."""
        with closing(batches_of(self._directory, segment.base, segment.end, segment.size_bytes)) as batches:
            yield from chain.from_iterable(batches)

    def _aborted(self, offset: int) -> Iterator[AbortedTransaction]:
        """The aborted transactions whose markers are at or after ``offset``, in whatever segment,
        as readers see them.

        ``CorruptSegment`` if an index is not the one that its seal records, and cannot be made
        again: what is dropped or kept by a wrong one would be so forever.
        """
        aborted = AbortedTransactions(self._directory)
        return aborted.since(offset, self._state, self._directory.segments().up_to(self._state.active_base))
