"""Checks everything that stands in a partition directory, names what is wrong, and goes on behind it. Reads only.

Of every batch: framing, checksum, decompression, every record, its offset against the one before (also from segment to
segment), its leader epoch against the checkpoint. Of closed segments the seal. Beside them the three indexes
(``side_files.py``), producer snapshots and the epoch checkpoint against what the batches say. Needs no lock: of the active
segment it looks at what was published when it began.

What a crash leaves behind the published end is not damage: the next writer adopts or cuts it. It is counted as
``unfinished_bytes``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c

from pylog.codec.batch import BatchHeader, BatchView, check_header, read_header
from pylog.codec.control import ControlType, read_marker
from pylog.codec.format import HEADER_BYTES
from pylog.errors import CorruptRecord, CorruptSegment, FormatVersionError, MissingCodec
from pylog.index import AbortedTransaction
from pylog.model import TopicPartition
from pylog.partition.commit_slots import FILE_BYTES, CommitState, latest
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.producer_state import ProducerStates
from pylog.partition.segments import Segments
from pylog.partition.side_files import Finding, Findings, OffsetIndexCheck, TimeIndexCheck, check_aborted
from pylog.segment import Seal, SegmentReader, find_next_batch, read_seal
from pylog.segment.naming import (
    COMMIT_SLOTS,
    EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    SEAL,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_path,
    offset_of,
)
from pylog.storage import FileSystem, ReadableFile, read_whole

_READ_BYTES = 1 << 20
_RECORDS_AT_ONCE = 1024
_SNAPSHOT_LIMIT_BYTES = 256 << 20

Progress = Callable[[int], None]


class Problem(NamedTuple):
    """One thing that is wrong, and where. Offsets from ``first_offset`` up to ``end_offset`` (exclusive) are concerned."""

    topic: str
    partition: int
    kind: str
    path: str
    position: int
    first_offset: int | None
    end_offset: int | None
    problem: str

    def __str__(self) -> str:
        offsets = f", offsets {self.first_offset} to {self.end_offset}" if self.first_offset is not None else ""
        return f"{self.topic}-{self.partition}: {self.path}, position {self.position}{offsets}: {self.problem}"


@dataclass
class VerifyReport:
    """What was checked, and what is wrong with it."""

    problems: list[Problem] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    unsealed_segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    unfinished_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify_partition(
    filesystem: FileSystem,
    directory: str,
    topic_partition: TopicPartition,
    *,
    dense: bool,
    progress: Progress | None = None,
    report: VerifyReport | None = None,
) -> Iterator[Problem]:
    """Every problem of one partition, as it is found. ``dense=False`` for Kafka's directories: offsets may leave gaps there.

    ``progress`` is told how many bytes of segments were checked since the last time. ``report``'s counts are added to; its
    list of problems is left to the caller. Raises only what the system itself refuses (``StorageError``).
    """
    report = VerifyReport() if report is None else report
    report.partitions += 1
    check = _PartitionCheck(filesystem, directory, dense, progress or (lambda _: None), report)
    for kind, finding in check.run():
        yield Problem(*topic_partition, kind, *finding)


def resume_behind(file: ReadableFile, position: int, end: int, minimum_offset: int) -> tuple[int, int | None]:
    """Where whole batches go on behind damage at ``position``, and at which offset; ``end`` and None if nowhere."""
    front = file.pread(HEADER_BYTES, position) if position + HEADER_BYTES <= end else b""
    if len(front) == HEADER_BYTES and check_header(header := read_header(front)) is None:
        following = position + header.size_bytes  # as long as it says, perhaps: then only its content is damaged
        if following + HEADER_BYTES <= end:
            header = read_header(file.pread(HEADER_BYTES, following))
            if check_header(header) is None and header.base_offset >= minimum_offset:
                return following, header.base_offset
    found = find_next_batch(file, position + 1, end, minimum_offset)
    return (end, None) if found is None else (found[0], found[1].base_offset)


Found = Iterator[tuple[str, Finding]]


class _PartitionCheck:
    """One pass over a partition. ``_expected`` is the offset at which the next batch must begin, None if unknown."""

    def __init__(
        self, filesystem: FileSystem, directory: str, dense: bool, progress: Progress, report: VerifyReport
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._dense = dense
        self._progress = progress
        self._report = report
        self._state: CommitState | None = None
        self._is_of_this_boot = False
        self._expected: int | None = None
        self._finished = False
        self._epochs: list[tuple[int, int]] = []
        self._epoch_findings = Findings(f"{directory}/{EPOCH_CHECKPOINT}")
        self._producers: ProducerStates | None = None  # None from the first damage on: nobody knows what it held
        self._snapshots: dict[int, ProducerStates] = {}
        self._missing_codecs: set[str] = set()

    def run(self) -> Found:
        if not self._filesystem.is_directory(self._directory):
            yield "directory", Finding(self._directory, 0, None, None, "the partition's directory is missing")
            return
        self._read_published()
        yield from self._read_epochs()
        names = self._filesystem.names(self._directory)
        yield from self._read_snapshots(names)
        bases = Segments.list(self._filesystem, self._directory).bases
        if self._is_of_this_boot and self._state is not None:
            bases = Segments(bases).up_to(self._state.active_base).bases
        yield from self._check_beginning(bases)
        for number, base in enumerate(bases):
            if self._finished:
                self._report.unfinished_bytes += self._size(base)
                continue
            yield from self._check_place(base)
            if not self._finished:
                yield from self._segment(base, closed=number + 1 < len(bases))
        yield from self._check_end()

    # What the small files say

    def _read_published(self) -> None:
        """The commit slots of a directory that has valid ones."""
        if self._dense:
            try:
                data = read_whole(self._filesystem, f"{self._directory}/{COMMIT_SLOTS}", FILE_BYTES)
            except FileNotFoundError:
                return
            self._state = latest(data)
            boot = crc32c.crc32c(self._filesystem.boot_id().encode())
            self._is_of_this_boot = self._state is not None and self._state.boot == boot

    def _read_epochs(self) -> Found:
        path = self._epoch_findings.path
        if self._dense and not self._filesystem.exists(path):
            yield "epochs", Finding(path, 0, None, None, "is missing")
        try:
            starts = LeaderEpochs.load(self._filesystem, self._directory).starts
        except (CorruptSegment, FormatVersionError) as damage:
            yield "epochs", Finding(path, 0, None, None, str(damage))
            return
        for before, after in zip(starts, starts[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                yield "epochs", Finding(path, 0, after.start_offset, None, f"{tuple(after)} follows {tuple(before)}")
                return
        self._epochs = [(start.start_offset, start.epoch) for start in starts]

    def _read_snapshots(self, names: list[str]) -> Found:
        for name in names:
            offset = offset_of(name, SNAPSHOT)
            if offset is not None:
                path = f"{self._directory}/{name}"
                try:
                    data = read_whole(self._filesystem, path, _SNAPSHOT_LIMIT_BYTES)
                    self._snapshots[offset] = ProducerStates.decode(data, path)
                except FileNotFoundError:
                    continue  # replaced by a newer one meanwhile
                except (CorruptSegment, FormatVersionError) as damage:
                    yield "snapshot", Finding(path, 0, None, offset, str(damage))

    # From segment to segment

    def _check_beginning(self, bases: tuple[int, ...]) -> Found:
        state = self._state
        first = bases[0] if bases else None
        if first == 0 or not self._dense:
            self._producers = ProducerStates() if first == 0 and self._dense else None
        elif first is not None:
            self._producers = self._snapshots.get(first)
        if state is not None and (first is None or first > state.log_start_offset):
            end = state.log_end_offset if first is None else first
            if end > state.log_start_offset:
                problem = f"offsets {state.log_start_offset} to {end - 1} are missing: there is no segment for them"
                yield "segments", Finding(self._directory, 0, state.log_start_offset, end, problem)
        if state is not None and self._is_of_this_boot and bases and bases[-1] < state.active_base < state.log_end_offset:
            problem = f"the active segment {state.active_base} is missing"
            yield "segments", Finding(self._directory, 0, state.active_base, state.log_end_offset, problem)

    def _check_place(self, base: int) -> Found:
        """Whether a segment begins where the one before it ended."""
        expected = self._expected
        if expected is not None and base != expected and (self._dense or base < expected):
            if self._is_unfinished(expected):
                self._finished = True
                self._report.unfinished_bytes += self._size(base)
                return
            path = file_path(self._directory, base, LOG)
            lack = f"offsets {expected} to {base - 1} are missing" if base > expected else f"offsets from {base} on are there twice"
            yield "segments", Finding(path, 0, min(expected, base), max(expected, base), f"{lack}: the segment before ends at {expected}")
            self._producers = None
        self._expected = base

    def _is_unfinished(self, offset: int) -> bool:
        """Whether what stands from ``offset`` on may go: another boot's, and not known to be durable."""
        return self._state is not None and not self._is_of_this_boot and offset >= self._state.durable_offset

    def _check_end(self) -> Found:
        state = self._state
        end = self._expected
        if state is not None and self._is_of_this_boot and end is not None and end != state.log_end_offset:
            problem = f"says that the log ends at offset {state.log_end_offset}, its batches end at {end}"
            yield "slots", Finding(f"{self._directory}/{COMMIT_SLOTS}", 0, min(end, state.log_end_offset), None, problem)
        if end is not None and not self._finished:
            for offset, states in sorted(self._snapshots.items()):
                if offset == end:
                    yield from self._check_snapshot(offset, states)
        for finding in self._epoch_findings.result():
            yield "epochs", finding

    def _size(self, base: int) -> int:
        try:
            return self._filesystem.size(file_path(self._directory, base, LOG))
        except FileNotFoundError:
            return 0

    # One segment

    def _segment(self, base: int, *, closed: bool) -> Found:
        try:
            size = self._size(base)
            seal = None
            if closed and self._dense:
                try:
                    seal = read_seal(self._filesystem, self._directory, base, size)
                    self._report.unsealed_segments += seal is None
                except (CorruptSegment, FormatVersionError) as damage:
                    yield "seal", Finding(file_path(self._directory, base, SEAL), 0, base, None, str(damage))
            reader = SegmentReader(
                self._filesystem, self._directory, base, closed=seal is not None, dense=self._dense
            )
        except FileNotFoundError:
            self._expected = None  # deleted since the names were read
            return
        try:
            yield from _SegmentCheck(self, reader, seal, closed).run()
        finally:
            reader.close()

    # What batches say, in order

    def take(self, view: BatchView, path: str, position: int) -> Iterator[tuple[str, Finding] | AbortedTransaction]:
        """Decode the batch, and fold it into what is known of producers and epochs."""
        header = view.header
        self._report.batches += 1
        try:
            decoder = view.decoder("", 0)
            while taken := decoder.take(_RECORDS_AT_ONCE):
                self._report.records += len(taken)
            marker = read_marker(view) if header.is_control and header.count else None
        except CorruptRecord as damage:
            yield "records", Finding(path, position, header.base_offset, header.last_offset + 1, str(damage))
            self._producers = None
            return
        except MissingCodec as missing:
            if str(missing) not in self._missing_codecs:
                self._missing_codecs.add(str(missing))
                yield "records", Finding(path, position, header.base_offset, header.last_offset + 1, f"not checked: {missing}")
            marker = None
        self._check_epoch(header)
        if self._producers is not None:
            if (snapshot := self._snapshots.get(header.base_offset)) is not None:
                yield from self._check_snapshot(header.base_offset, snapshot)
            if header.producer_id >= 0 and not header.is_control:
                self._producers.update(header)
            elif marker is not None and marker.type in (ControlType.COMMIT, ControlType.ABORT):
                aborted = self._producers.end_transaction(
                    header, committed=marker.type == ControlType.COMMIT, coordinator_epoch=marker.coordinator_epoch
                )
                if aborted is not None:
                    yield aborted

    def _check_epoch(self, header: BatchHeader) -> None:
        if self._dense and self._epochs:
            number = bisect_right(self._epochs, (header.base_offset, 1 << 31))
            epoch = self._epochs[number - 1][1] if number else None
            if header.leader_epoch != epoch:
                problem = f"has epoch {epoch} at offset {header.base_offset}, the batch there has {header.leader_epoch}"
                self._epoch_findings.add(0, header.base_offset, header.last_offset + 1, problem)

    def _check_snapshot(self, offset: int, snapshot: ProducerStates) -> Found:
        """Whether a snapshot says of each producer what the batches before it say. Idle ones may be left out of it."""
        if self._producers is None:
            return
        findings = Findings(file_path(self._directory, offset, SNAPSHOT))
        for producer_id, entry in self._producers.entries.items():
            if entry.transaction_start is not None and producer_id not in snapshot.entries:
                findings.add(0, entry.transaction_start, offset, f"lacks producer {producer_id}, whose transaction is open")
        for producer_id, entry in snapshot.entries.items():
            known = self._producers.entries.get(producer_id)
            if (
                known is None
                or (known.epoch, known.transaction_start) != (entry.epoch, entry.transaction_start)
                or known.batches[-1:] != entry.batches[-1:]
            ):
                findings.add(0, None, offset, f"says of producer {producer_id} other than the batches before offset {offset}")
        for finding in findings.result():
            yield "snapshot", finding

    # For _SegmentCheck

    @property
    def expected(self) -> int | None:
        return self._expected

    def go_on_at(self, offset: int | None) -> None:
        self._expected = offset
