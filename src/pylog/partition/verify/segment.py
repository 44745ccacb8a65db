"""Checks one segment: every batch, the seal, the indexes. Damage is reported, and the check
continues after it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from operator import attrgetter
from typing import NamedTuple

from pylog.codec import COMPILED
from pylog.codec.batch import BatchHeader, BatchView, check_header, read_header
from pylog.codec.control import ControlType, Marker, read_marker
from pylog.codec.format import HEADER_BYTES, INT64_MAX, NONE
from pylog.errors import CorruptRecord, CorruptSegment, FormatVersionError, MissingCodec, StorageError
from pylog.index import AbortedTransaction
from pylog.interrupts import own
from pylog.limits import RECORDS_AT_ONCE
from pylog.partition.read.resync import resume_after
from pylog.partition.verify.findings import UNCHECKED, Finding, FirstFinding, VerifyReport
from pylog.partition.verify.history import History
from pylog.partition.verify.indexes import Abort, OffsetIndexCheck, TimeIndexCheck, check_aborted
from pylog.partition.verify.times import KnownTimesCheck
from pylog.segment import AbortedDigest, Seal, SegmentReader, check_home, read_seal
from pylog.segment.naming import COMMIT_SLOTS, LOG, OFFSET_INDEX, SEAL, TIME_INDEX, TRANSACTION_INDEX, file_path
from pylog.storage import FileSystem, ReadableFile

_READ_BYTES = 1 << 20
_NO_OFFSET = 1 << 63  # beyond all
_TIMESTAMP_MS = attrgetter("timestamp_ms")


class CheckedSegment(NamedTuple):
    """One segment of a partition, and how far to check it.

    Its published part ends at position ``end`` and before ``end_offset``, which is None if it is
    unknown. ``may_end_early(offset, nothing_behind)`` tells whether a batch at this offset may be
    torn. ``is_rebuilt``: the next writer makes the indexes again, whatever they contain.
    ``least_ms``: the commit slots record that no record is before it.
    """

    base_offset: int
    end: int
    end_offset: int | None
    closed: bool
    is_kafka: bool
    home: str
    may_end_early: Callable[[int, bool], bool]
    batch_limit_bytes: int
    is_rebuilt: bool
    least_ms: int


class SegmentCheck:
    """The check of one segment. ``expected`` is the offset at which the next batch must begin."""

    def __init__(
        self, filesystem: FileSystem, directory: str, segment: CheckedSegment, history: History,
        report: VerifyReport, progress: Callable[[int], object],
    ) -> None:  # fmt: skip
        self._filesystem = filesystem
        self._directory = directory
        self._segment = segment
        self._history = history
        self._report = report
        self._progress = progress
        self._path = file_path(directory, segment.base_offset, LOG)
        self._epochs = FirstFinding("epochs", self._path)
        self._aborts: dict[int, Abort] = {}
        self._aborted: list[AbortedTransaction] = []
        self._passed_damage = False
        self._knew_producers = history.knows_producers
        self._missing_codecs: set[str] = set()
        self.expected = segment.base_offset
        self.ended_early = False

    def run(self) -> Iterator[Finding]:
        """Yield every finding. ``FileNotFoundError`` if the segment was deleted meanwhile."""
        segment = self._segment
        seal = wrong_seal = None
        if segment.closed and not segment.is_kafka:
            try:
                seal = self._read_seal()
            except own(CorruptSegment, FormatVersionError, StorageError) as damage:
                wrong_seal = self._finding("seal", 0, segment.base_offset, None, str(damage), SEAL)
        self._dense = not segment.is_kafka and (seal is None or seal.is_dense)
        if seal is not None and not seal.is_dense:
            self._history.begin_compacted(segment.base_offset, seal.next_base)
        reader = SegmentReader(
            self._filesystem, self._directory, segment.base_offset, closed=seal is not None, dense=not segment.is_kafka,
            batch_limit_bytes=lambda: segment.batch_limit_bytes,
        )  # fmt: skip
        file = self._filesystem.open_readable(self._path)
        try:
            self._report.segments += 1
            base, kept = segment.base_offset, {"closed": segment.closed, "exact": not segment.is_kafka}
            self._offsets = OffsetIndexCheck(self._filesystem, self._beside(OFFSET_INDEX), base, segment.end, **kept)
            self._times = TimeIndexCheck(self._filesystem, self._beside(TIME_INDEX), base, segment.end, **kept)
            slots = f"{self._directory}/{COMMIT_SLOTS}"
            self._known_times = KnownTimesCheck(seal, self._beside(SEAL), segment.least_ms, slots)
            yield from self._batches(reader, file)
            beside = [*([wrong_seal] if wrong_seal is not None else []), *self._side_files(seal)]
            is_deleted = not self._filesystem.exists(self._path)  # since it was opened, with its other files
            if not self.ended_early and not is_deleted:  # ended early: a recovery makes the other files again
                yield from beside
            if seal is not None:
                self.expected = seal.gap_end(self.expected)
                if not seal.is_dense:
                    self._history.end_compacted(seal.next_base)
        finally:
            reader.close()
            file.close()

    def _read_seal(self) -> Seal | None:
        """The seal that the batches are held to, if there is one."""
        seal = read_seal(self._filesystem, self._directory, self._segment.base_offset, self._segment.end)
        self._report.unsealed_segments += seal is None
        if seal is not None:
            check_home(seal.home, self._segment.home, self._beside(SEAL))
        return seal

    def _batches(self, reader: SegmentReader, file: ReadableFile) -> Iterator[Finding]:
        position, end = 0, self._segment.end
        while position < end:
            try:
                views = reader.read(position, end, max_bytes=_READ_BYTES, next_offset=self.expected)
            except own(CorruptRecord) as damage:
                view = self._intact(reader, position)
                if self._may_end_here(file, position):
                    self.ended_early = True
                    self._report.unfinished_bytes += end - position
                    return
                if view is None:
                    position = yield from self._damage(damage, file, position)
                    continue
                view = yield from self._misplaced(view, file, position)
                views = [view]
            for view in views:
                yield from self._batch(view, position)
                position += view.header.size_bytes
        falls_short = self._segment.end_offset is not None and self.expected < self._segment.end_offset
        self.ended_early = falls_short and self._dense and self._segment.may_end_early(self.expected, False)

    # Damage

    def _intact(self, reader: SegmentReader, position: int) -> BatchView | None:
        """The batch, if nothing but its offset is wrong."""
        try:
            return reader.read(position, self._segment.end, max_bytes=1)[0]
        except own(CorruptRecord):
            return None

    def _misplaced(self, view: BatchView, file: ReadableFile, position: int) -> Generator[Finding, None, BatchView]:
        """A batch whose offset does not follow; returns it with the offset that it must have had.

        The next batch shows whether offsets are missing or repeated, or whether its own offset is
        damaged.
        """
        header = view.header
        expected, found = self.expected, header.base_offset
        following = self._header_at(file, position + header.size_bytes)
        follows = expected + header.last_offset_delta + 1
        end_offset = self._segment.end_offset if following is None else following.base_offset
        if end_offset == follows:
            problem = f"base offset {found}, but {expected} follows the batch before and precedes the next"
            yield self._finding("batch", position, expected, follows, problem)
            return BatchView(view.buffer, header._replace(base_offset=expected))
        self._passed_damage = True
        self._history.forget()
        self._times.damage(found)
        self.expected = found
        if found > expected:
            yield self._finding("offsets", position, expected, found, f"offsets {expected} to {found - 1} are missing")
        else:
            problem = f"base offset {found} again, expected {expected}"
            yield self._finding("offsets", position, found, expected, problem)
        return view

    def _header_at(self, file: ReadableFile, position: int) -> BatchHeader | None:
        if position + HEADER_BYTES > self._segment.end:
            return None
        header = read_header(file.pread(HEADER_BYTES, position))
        return header if check_header(header) is None else None

    def _may_end_here(self, file: ReadableFile, position: int) -> bool:
        """Whether a crash may leave this: the rule of ``assessment.py``."""
        may_end_early, expected = self._segment.may_end_early, self.expected
        if not may_end_early(expected, True):
            return False
        if may_end_early(expected, False):
            return True
        try:
            return resume_after(file, position, self._segment.end, expected)[1] is None
        except own(CorruptSegment):
            return False  # a recovery gives up there, too, and cuts nothing

    def _damage(self, damage: CorruptRecord, file: ReadableFile, position: int) -> Generator[Finding, None, int]:
        """Report it; returns the position after it."""
        end = self._segment.end
        next_position, next_offset = damage.facts.get("next_position"), damage.facts.get("next_offset")
        given_up = None
        if next_position is None or next_position <= position:
            try:
                next_position, next_offset = resume_after(file, position, end, self.expected)
            except own(CorruptSegment) as error:
                next_position, given_up = end, error
        if next_offset is None:
            next_offset = self._segment.end_offset
        elif next_offset < self.expected:  # then the batch after the damage is wrong, too
            next_offset = self.expected
        next_position = min(next_position, end)
        nothing = "nothing whole follows" if given_up is None else str(given_up)
        after = nothing if next_position >= end else f"whole batches follow at position {next_position}"
        yield self._finding(
            "batch", position, self.expected, next_offset, f"{damage.facts.get('problem', damage)}; {after}"
        )
        self._passed_damage = True
        self._history.forget()
        self._offsets.damage(position, next_position)
        self._times.damage(_NO_OFFSET if next_offset is None else next_offset)
        self.expected = self.expected if next_offset is None else next_offset
        self._progress(next_position - position)
        return next_position

    # Good batches

    def _batch(self, view: BatchView, position: int) -> Iterator[Finding]:
        header = view.header
        self._report.batches += 1
        self._report.size_bytes += header.size_bytes
        self._progress(header.size_bytes)
        yield from self._history.reach(header.base_offset)
        try:
            marker = self._decoded(view, position)
        except own(CorruptRecord) as damage:
            yield self._finding("records", position, header.base_offset, header.last_offset + 1, str(damage))
            self._history.forget()
            marker = None
        except own(MissingCodec) as missing:
            marker = None
            if str(missing) not in self._missing_codecs:
                self._missing_codecs.add(str(missing))
                yield self._finding(UNCHECKED, position, header.base_offset, header.last_offset + 1, str(missing))
        if (wrong := self._history.epoch_problem(header)) is not None:
            self._epochs.add(position, header.base_offset, header.last_offset + 1, wrong)
        if marker is not None and marker.type == ControlType.ABORT:
            before = self._history.last_marker(header.producer_id)
            self._aborts[header.base_offset] = Abort(header.producer_id, before)
        self._history.producer_ids.add(
            header.producer_id, self._path, position, header.base_offset, header.last_offset + 1
        )
        aborted = self._history.take(header, marker)
        if aborted is not None:
            self._aborted.append(aborted)
        self._offsets.batch(position, header)
        self._times.batch(header)
        self.expected = max(self.expected, header.last_offset + 1) if self._dense else header.last_offset + 1

    def _decoded(self, view: BatchView, position: int) -> Marker | None:
        """Decode every record; the marker of a control batch."""
        decoder, least_ms = view.decoder("", 0), INT64_MAX
        is_compared = not view.header.is_control and self._known_times.has_least
        if is_compared and COMPILED and view.header.codec == NONE:  # ten times as fast as decoding the records
            least_ms, is_compared = view.least_timestamp_ms(), False
        while taken := decoder.take(RECORDS_AT_ONCE):
            self._report.records += len(taken)
            if is_compared:
                least_ms = min(least_ms, *map(_TIMESTAMP_MS, taken))
        self._known_times.batch(position, view.header, least_ms)
        return read_marker(view) if view.header.is_control and view.header.count else None

    # The other files of the segment

    def _side_files(self, seal: Seal | None) -> Iterator[Finding]:
        segment = self._segment
        if seal is not None and seal.size_bytes != segment.end:
            problem = f"the segment has {segment.end} bytes, its seal says {seal.size_bytes}"
            yield self._finding("segment", min(segment.end, seal.size_bytes), None, None, problem)
        found = sealed = (segment.base_offset, self.expected - 1)
        if seal is not None and seal.positions:
            sealed = (seal.first_offset if self._dense else segment.base_offset, seal.last_offset)
        if sealed != found and not self._passed_damage:
            problem = f"says offsets {sealed[0]} to {sealed[1]}, the batches are {found[0]} to {found[1]}"
            yield self._finding("seal", 0, segment.base_offset, self.expected, problem, SEAL)
        yield from self._epochs.result()
        indexes = [*self._offsets.finish(segment.end), *self._times.finish(self.expected)]
        if not segment.is_rebuilt:
            yield from indexes
        yield from self._known_times.result()
        knows = self._knew_producers and self._history.knows_producers
        found_in_index = list(check_aborted(
            self._filesystem, self._beside(TRANSACTION_INDEX), end_offset=self.expected, segment_bytes=segment.end,
            aborts=self._aborts, expected=self._aborted if knows else None, passed_damage=self._passed_damage, exact=self._dense,
            is_rebuilt=segment.is_rebuilt,
        ))  # fmt: skip
        yield from found_in_index
        if seal is not None and seal.aborted is not None and not found_in_index:
            is_judged = knows and self._dense and not self._passed_damage
            yield from self._check_digest(seal.aborted, AbortedDigest.of(self._aborted) if is_judged else None)

    def _check_digest(self, sealed: AbortedDigest, found: AbortedDigest | None) -> Iterator[Finding]:
        """Whether seal, batches and transaction index agree. The index was compared with the
        batches, if they are known."""
        base = self._segment.base_offset
        if found is not None and found != sealed:
            problem = f"records {sealed.entries} aborted transactions, not the {found.entries} of the batches"
            yield self._finding("seal", 0, base, self.expected, problem, SEAL)
        elif not self._segment.is_rebuilt and not sealed.matches_index(self._filesystem, self._directory, base):
            problem = f"is not the index that the seal records, of {sealed.entries} aborted transactions"
            yield self._finding("txnindex", 0, base, self.expected, problem, TRANSACTION_INDEX)

    def _beside(self, kind: str) -> str:
        return file_path(self._directory, self._segment.base_offset, kind)

    def _finding(
        self, kind: str, position: int, first_offset: int | None, end_offset: int | None, problem: str, file: str = LOG
    ) -> Finding:
        return Finding(kind, self._beside(file), position, first_offset, end_offset, problem)
