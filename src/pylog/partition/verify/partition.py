"""The check of one partition: its published state, its small files, and its segments in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from pylog.codec.format import INT32_MAX, INT64_MIN
from pylog.errors import FormatVersionError, StorageError
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitSlotsReader, CommitState
from pylog.partition.directory import boot_of, home_of, segments_in
from pylog.partition.producers import snapshots
from pylog.partition.segments import Segments
from pylog.partition.verify.findings import Finding, Problem, VerifyReport
from pylog.partition.verify.history import History
from pylog.partition.verify.producer_ids import ProducerIdCheck, ProducerIdRange
from pylog.partition.verify.segment import CheckedSegment, SegmentCheck
from pylog.segment import BATCH_LIMIT_BYTES
from pylog.segment.naming import COMMIT_SLOTS, LOG, OFFSET_INDEX, base_offsets, file_path, offset_of
from pylog.segment.swap_view import seen_through
from pylog.storage import FileSystem


def verify_partition(
    filesystem: FileSystem,
    directory: str,
    topic_partition: TopicPartition,
    *,
    is_kafka: bool = False,
    progress: Callable[[int], object] = bool,
    report: VerifyReport | None = None,
    batch_limit_bytes: int = BATCH_LIMIT_BYTES,
    topic_id: str = "",
    producer_ids: ProducerIdCheck | None = None,
) -> Iterator[Problem]:
    """Yield every problem of one partition when it is found. ``is_kafka``: Kafka wrote the
    directory.

    ``progress`` gets the bytes of segments that were checked since its last call. The counts of
    ``report`` are increased; its list of problems is left to the caller. A file that the system
    refuses to read is a problem, too, and is skipped. Batches of more than 128 MiB are decoded up
    to ``batch_limit_bytes``, the topic's ``max_message_bytes``. With ``topic_id``, a seal of
    another topic's id or another partition is a problem; with ``producer_ids``, so is a producer id
    that the log will give out again.
    """
    report = VerifyReport() if report is None else report
    report.partitions += 1
    producer_ids = producer_ids or ProducerIdCheck(lambda: None, ProducerIdRange())
    history = History(filesystem, directory, producer_ids, strict=not is_kafka)
    check = _PartitionCheck(
        filesystem, directory, home_of(topic_id, topic_partition.partition), is_kafka, report,
        progress, batch_limit_bytes, history,
    )  # fmt: skip
    for finding in check.run():
        yield Problem(topic_partition.topic, topic_partition.partition, **finding._asdict())
    report.open_transactions += [(topic_partition, found) for found in history.open_transactions()]


@dataclass
class _PartitionCheck:
    """``_expected`` is the offset at which the next segment must begin, None if it is unknown."""

    _filesystem: FileSystem
    _directory: str
    _home: str
    _is_kafka: bool
    _report: VerifyReport
    _progress: Callable[[int], object]
    _batch_limit_bytes: int
    _history: History
    _state: CommitState | None = None
    _is_of_this_boot: bool = False
    _segments: Segments = field(default_factory=lambda: Segments(()))
    _sizes: dict[int, int] = field(default_factory=dict)
    _expected: int | None = None
    _ended_early: bool = False
    _is_last: bool = False

    def run(self) -> Iterator[Finding]:
        try:
            self._filesystem.names(self._directory)
        except own(FileNotFoundError):
            yield Finding("directory", self._directory, 0, None, None, "the partition's directory is missing")
            return
        except own(StorageError) as error:  # no permission, a link: the other partitions are checked all the same
            yield Finding("directory", self._directory, 0, None, None, str(error))
            return
        yield from self._read_published()  # first, so that the rest is at least as new
        if self._is_kafka:
            segments = Segments.among(self._filesystem.names(self._directory))
        else:
            segments = segments_in(self._filesystem, self._directory)
            self._filesystem = seen_through(self._filesystem, self._directory, segments.swaps)
        if self._state is not None:
            segments = segments.since(self._state.log_start_offset)
            if self._is_of_this_boot:
                segments = segments.up_to(self._state.active_base)
        self._segments = segments
        self._sizes = self._sizes_of(segments.bases)
        yield from self._history.read_files(self._unsynced_snapshots())
        yield from self._check_beginning(segments)
        for base in segments.bases:
            if self._ended_early:
                self._add_unfinished(base)
                continue
            yield from self._unless_replaced(base, self._check_base(base))
            if not self._ended_early:
                self._is_last = segments.after(base) is None
                yield from self._unless_replaced(base, self._check_segment(base, segments.after(base)))
        yield from self._check_end()
        yield from self._history.producer_ids.result()
        if self._is_kafka or self._state is None:
            yield from self._orphans()

    def _read_published(self) -> Iterator[Finding]:
        if not self._is_kafka:
            try:
                self._state = self._published()
            except own(StorageError, FormatVersionError) as error:
                yield Finding("slots", f"{self._directory}/{COMMIT_SLOTS}", 0, None, None, str(error))
                return
            self._is_of_this_boot = self._state is not None and self._state.boot == boot_of(self._filesystem)

    def _published(self) -> CommitState | None:
        try:
            with closing(self._filesystem.open_readable(f"{self._directory}/{COMMIT_SLOTS}")) as file:
                return CommitSlotsReader(file).read()
        except own(FileNotFoundError):
            return None

    def _needs_recovery(self) -> bool:
        """Whether the next writer recovers: after a power failure, or because a recovery has not
        finished."""
        return not self._is_kafka and not self._is_of_this_boot

    def _durable_offset(self) -> int:
        """The durable end that a recovery assumes."""
        if self._state is not None:
            return max(self._state.durable_offset, self._state.log_start_offset)
        return self._segments.bases[0] if self._segments.bases else 0

    def _unsynced_snapshots(self) -> list[int] | None:
        if not self._needs_recovery():
            return None
        return snapshots.unsynced(self._filesystem, self._directory, self._segments, self._durable_offset())

    def _is_rebuilt(self, base: int) -> bool:
        return self._needs_recovery() and self._segments.is_rebuilt(base, self._durable_offset())

    def _check_beginning(self, segments: Segments) -> Iterator[Finding]:
        """Whether the segments begin where the log does, and the published one is among them."""
        bases, state = segments.bases, self._state
        if bases:
            self._history.begin(bases[0])
        if state is None:
            return
        now = self._published() or state  # the list is younger than the state: segments may have been deleted since
        start = max(state.log_start_offset, now.log_start_offset)
        first = bases[0] if bases else max(state.durable_offset, state.log_end_offset if self._is_of_this_boot else 0)
        if first > start:
            yield self._lost(start, first, "there is no segment for them")
        is_new = state.active_base == state.log_end_offset  # a roll is published before its file is there
        if self._is_of_this_boot and bases and bases[-1] != state.active_base and not is_new:
            yield self._lost(state.active_base, state.log_end_offset, "the active segment is not there")

    def _lost(self, first: int, end: int, reason: str) -> Finding:
        return Finding("segment", self._directory, 0, first, end, f"offsets {first} to {end - 1} are missing: {reason}")

    def _check_base(self, base: int) -> Iterator[Finding]:
        """Whether a segment begins where the one before it ended."""
        expected = self._expected
        if expected is not None and (base < expected or (base > expected and not self._is_kafka)):
            if self._may_end_early(expected, False):
                self._ended_early = True
                self._add_unfinished(base)
                return
            self._history.forget()
            path = file_path(self._directory, base, LOG)
            if base > expected:
                yield Finding(
                    "offsets", path, 0, expected, base, f"offsets {expected} to {base - 1} are missing before it"
                )
            else:
                yield Finding(
                    "offsets", path, 0, base, expected, f"offsets {base} to {expected - 1} were in the segment before"
                )

    def _may_end_early(self, offset: int, nothing_behind: bool) -> bool:
        """Whether a crash may have left a torn batch at ``offset``: the rule of
        ``assessment.py``."""
        if self._is_of_this_boot or self._is_kafka:
            return False
        if self._state is not None:
            return offset >= self._state.durable_offset
        return nothing_behind and self._is_last

    def _check_segment(self, base: int, following: int | None) -> Iterator[Finding]:
        state = self._state
        is_published = state is not None and self._is_of_this_boot and base == state.active_base
        try:
            size = self._filesystem.size(file_path(self._directory, base, LOG))
            end, end_offset = size, following
            if state is not None and is_published:
                end, end_offset = min(size, state.written_end), state.log_end_offset
                self._report.unfinished_bytes += size - end
            if end > INT32_MAX:
                yield self._too_long(base, following, end)
                return
            segment = CheckedSegment(
                base, end, end_offset, following is not None, self._is_kafka, self._home,
                self._may_end_early, self._batch_limit_bytes, self._is_rebuilt(base),
                state.least_timestamp_ms if state is not None and is_published else INT64_MIN,
            )  # fmt: skip
            check = SegmentCheck(
                self._filesystem, self._directory, segment, self._history, self._report, self._progress
            )
            yield from check.run()
        except own(FileNotFoundError):
            self._expected = None
            self._history.forget()
            if not self._was_deleted(base, following):
                path = file_path(self._directory, base, LOG)
                yield Finding("segment", path, 0, base, following, "is named in the directory, but cannot be opened")
            return
        except own(StorageError) as error:  # a failing disk: the other segments may be readable
            self._expected = following
            self._history.forget()
            yield Finding("segment", file_path(self._directory, base, LOG), 0, base, following, str(error))
            return
        self._expected, self._ended_early = check.expected, check.ended_early
        if state is not None and is_published and size < state.written_end:
            path = file_path(self._directory, base, LOG)
            problem = f"the segment has {size} bytes, {state.written_end} were published"
            yield Finding("segment", path, size, check.expected, state.log_end_offset, problem)
            self._expected = None

    def _too_long(self, base: int, following: int | None, end: int) -> Finding:
        """No segment has that many bytes. The search for batches in them might never end: a sparse
        file claims any size."""
        self._expected = following
        self._history.forget()
        problem = f"the file has {end} bytes, a segment has at most {INT32_MAX}; it was not looked into"
        return Finding("segment", file_path(self._directory, base, LOG), INT32_MAX, base, following, problem)

    def _unless_replaced(self, base: int, findings: Iterator[Finding]) -> Iterator[Finding]:
        """None of them if the segment was replaced: then nothing is known of what is before the
        next."""
        first = next(findings, None)
        if first is not None and self._is_replaced(base, first):
            self._expected, self._ended_early = None, False
            self._history.forget()
        elif first is not None:
            yield first
            yield from findings

    def _is_replaced(self, base: int, finding: Finding) -> bool:
        """Whether a segment, or one beside it, is another file since they were listed: then a
        finding may be of two files.

        Compaction and erasing replace segments. A roll changes the list too, but no segment before
        it.
        """
        state, now = self._state, None if self._is_kafka else self._published()
        if (
            not self._is_of_this_boot
            or state is None
            or now is None
            or now.boot != state.boot
            or now.segments_version == state.segments_version
            or finding.end_offset is None
            or finding.end_offset > state.active_base
        ):
            return False
        listed = self._segments.since(now.log_start_offset)
        there = segments_in(self._filesystem, self._directory).since(now.log_start_offset)
        if base not in listed.bases or _beside(base, there) != _beside(base, listed):
            return True
        closed = [at for at in _beside(base, listed) if at <= base]
        return self._sizes_of(closed) != {at: self._sizes.get(at) for at in closed}

    def _sizes_of(self, bases: Iterable[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for base in bases:
            with suppress(FileNotFoundError):  # it is being replaced, or was deleted
                found[base] = self._filesystem.size(file_path(self._directory, base, LOG))
        return found

    def _was_deleted(self, base: int, following: int | None) -> bool:
        """Whether a segment that was there a moment ago was deleted in order: the log start is
        after it now."""
        if self._filesystem.exists(file_path(self._directory, base, LOG)):
            return False
        now = None if self._is_kafka else self._published()
        return now is None or (following is not None and following <= now.log_start_offset)

    def _orphans(self) -> Iterator[Finding]:
        """Indexes without their segment: the only sign of a lost one if gaps are allowed or the
        log's start is unknown."""
        names = self._filesystem.names(self._directory)
        segments = Segments(tuple(base_offsets(names)))
        for name in names:
            base = offset_of(name, OFFSET_INDEX)
            if base is not None and base not in segments.bases:
                path = f"{self._directory}/{name}"
                yield Finding("segment", path, 0, base, segments.after(base), "the segment of this index is missing")

    def _add_unfinished(self, base: int) -> None:
        try:
            self._report.unfinished_bytes += self._filesystem.size(file_path(self._directory, base, LOG))
        except own(FileNotFoundError):  # pragma: no cover - cut off meanwhile
            return

    def _check_end(self) -> Iterator[Finding]:
        state, end = self._state, self._expected
        if end is not None:
            yield from self._history.reach(end)
        if state is not None and self._is_of_this_boot and end is not None and end != state.log_end_offset:
            problem = f"says that the log ends at offset {state.log_end_offset}, its batches end at {end}"
            yield Finding(
                "slots", f"{self._directory}/{COMMIT_SLOTS}", 0, min(end, state.log_end_offset), None, problem
            )


def _beside(base: int, segments: Segments) -> list[int]:
    """The segment before, this one and the next one."""
    return [at for at in (segments.floor(base - 1), segments.floor(base), segments.after(base)) if at is not None]
