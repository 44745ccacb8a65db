"""Reads one partition: lock-free, without write permission, up to the visible end.

Keeps a snapshot of the segment list and a few open segments, and takes a new one when the published
version of the list changes. A file that vanishes was deleted: the list is read again, and the
answer is records or ``OffsetOutOfRange``, never an ``OSError``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import TypeVar

from pylog.codec.batch import BatchView
from pylog.codec.format import HEADER_BYTES, TRANSACTIONAL_BIT
from pylog.errors import CorruptSegment, OffsetOutOfRange
from pylog.index import AbortedTransaction
from pylog.interrupts import own, suppress
from pylog.limits import FETCH_BYTES
from pylog.model import OffsetAndTimestamp
from pylog.partition.commit_slots import CommitState
from pylog.partition.directory import PartitionDirectory
from pylog.partition.read.aborted import AbortedTransactions
from pylog.partition.read.cursor import Cursor, Fetched
from pylog.partition.read.published import Published
from pylog.partition.read.resync import next_whole
from pylog.partition.read.split_points import cuts, size_bytes
from pylog.partition.read.tail import Tail
from pylog.partition.read.times import Times
from pylog.partition.read.undecided import AskOutcome, OpenTransaction, Outcome, Undecided
from pylog.partition.read.visibility import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    WITH_MARKERS,
    WRITTEN,
    aborted_among,
    out_of_range,
    readable,
    visible_end,
)
from pylog.partition.segments import SegmentInfo, Segments
from pylog.segment import SegmentReader
from pylog.segment.naming import LOG, offset_of

T = TypeVar("T")

_OPEN_SEGMENTS_MAX = 16  # closed ones: random seeks return to them, and opening one reads its seal
_REREADS_MAX = 5


class PartitionReader:
    """Reads what ``published`` says is there."""

    def __init__(
        self,
        directory: PartitionDirectory,
        published: Published,
        ask_outcome: AskOutcome | None = None,
        aborted: tuple[AbortedTransaction, ...] = (),
    ) -> None:
        """Without ``ask_outcome``, ``read_committed`` ends at the last stable offset, as in Kafka.

        ``aborted``: transactions before it that have no marker.
        """
        self._directory = directory
        self._path = directory.path
        self.topic_partition = directory.topic_partition
        self._home = directory.home
        self.published = published
        self._decided = Undecided(0, aborted, False)
        self._tail = None if ask_outcome is None else Tail(self, published, ask_outcome)
        # Threads share this object: each is replaced whole; files close with their last user.
        self._listed: tuple[tuple[int, int], Segments] | None = None
        self._seen = directory  # as the listed segments are to be opened: compaction may be replacing some
        self._kept_for = (-1, -1)  # the active segment and version of the list that the next two belong to
        self._open: dict[tuple[int, bool, int], SegmentReader] = {}
        self._aborted = AbortedTransactions(directory)

    def segments(self, state: CommitState) -> Segments:
        """The segment list that belongs to ``state``."""
        wanted = (state.active_base, state.segments_version)
        listed = self._listed
        if listed is not None and listed[0] == wanted:
            return listed[1]
        try:
            segments = self._directory.segments().ending_with(state.active_base)
        except own(FileNotFoundError) as error:
            raise self._directory.gone() from error
        self._keep_for(wanted)
        if segments.swaps or self._seen is not self._directory:
            self._seen, self._open = self._directory.seen_by(segments), {}
            self._aborted = AbortedTransactions(self._seen)
        self._listed = wanted, segments
        return segments

    def _keep_for(self, wanted: tuple[int, int]) -> None:
        """Close segments opened before the list changed: some may be deleted or replaced."""
        if self._kept_for != wanted:
            self._open, self._aborted, self._kept_for = {}, AbortedTransactions(self._directory), wanted

    def segment_infos(self) -> tuple[SegmentInfo, ...]:
        """The segments as they stand."""
        return self._reread(self._segment_infos)

    def _reread(self, look: Callable[[], T]) -> T:
        """Call ``look``, again with a new list if what it looked for was deleted or replaced."""
        for number in range(_REREADS_MAX):
            version = self.published.current().segments_version
            try:
                return look()
            except own(FileNotFoundError, OffsetOutOfRange, CorruptSegment) as error:
                is_same = version == self.published.current().segments_version
                if isinstance(error, CorruptSegment) and number and is_same:
                    raise
                self.close()
        raise self._directory.missing(FileNotFoundError("a segment"))

    def _segment_infos(self) -> tuple[SegmentInfo, ...]:
        state = self.published.current()
        segments = self.segments(state)
        found = []
        for base in segments.bases:
            path = self._directory.file_path(base, LOG)
            following = segments.after(base)
            size = state.written_end if following is None else self._seen.filesystem.size(path)
            found.append(SegmentInfo(base, state.log_end_offset if following is None else following, size, path))
        return tuple(found)

    def cuts(self, start: int, end: int, piece_bytes: int) -> list[int]:
        """Offsets that cut the range into pieces of this size: see ``split_points.py``."""
        return list(cuts(*self._indexed(start), start, end, piece_bytes))

    def first_cut(self, start: int, end: int, piece_bytes: int) -> int:
        """The first of them, else ``end``. Reads nothing after it."""
        return next(cuts(*self._indexed(start), start, end, piece_bytes), end)

    def size_bytes(self, start: int, end: int, enough: int | None = None) -> int:
        """About how many bytes contain this range. ``enough``: stop counting there."""
        return size_bytes(*self._indexed(start), start, end, enough)

    def _indexed(self, start: int) -> tuple[PartitionDirectory, Segments, CommitState]:
        state = self.published.current()
        segments = self._segments_since(state, start)
        return self._seen, segments, state

    def _segments_since(self, state: CommitState, offset: int) -> Segments:
        """Segments that may contain the offset or later ones, without listing if it is the last."""
        if offset < state.active_base:
            return self.segments(state)
        self._keep_for((state.active_base, state.segments_version))
        return Segments((state.active_base,))

    # Fetching

    def fetch(
        self, cursor: Cursor, *, max_bytes: int, isolation_level: str, visibility: str, quiet_token: object = None
    ) -> Fetched:
        """The next batches at ``cursor.offset``, about ``max_bytes``; none at the visible end.

        None either, without a read, while the change token is the ``quiet_token``. The first batch
        may begin before the offset. ``OffsetOutOfRange``; ``CorruptSegment`` for damage at the
        offset.
        """
        is_reopened = False
        for _ in range(_REREADS_MAX):
            state, token = self.published.current_with_token()
            if token is not None and token == quiet_token:
                return Fetched([], cursor, cursor.offset, token)
            if not state.log_start_offset <= cursor.offset <= state.log_end_offset:
                raise out_of_range(self.topic_partition, cursor.offset, state)
            end = limit = visible_end(state, isolation_level, visibility)
            undecided = self._decided
            try:
                if isolation_level == READ_COMMITTED and limit == state.last_stable_offset < state.high_watermark:
                    if cursor.offset < limit:
                        end = limit if self._tail is None else visible_end(state, READ_UNCOMMITTED, visibility)
                    elif self._tail is not None:
                        undecided = self._tail.look(state, visibility, cursor.offset)
                        end = limit = undecided.end
                batches, cursor = self._fetch(
                    cursor, state, max_bytes, limit, isolation_level, undecided.aborted, is_reopened
                )
                return Fetched(batches, cursor, end, token, undecided.is_blocked, undecided.is_unmarked)
            except own(FileNotFoundError):
                cursor = Cursor(cursor.offset)  # deleted meanwhile: read what is left
            except own(CorruptSegment) as damage:
                if not f"{damage.facts.get('path', self._path)}/".startswith(f"{self._path}/"):
                    raise  # of the table of transactions
                if is_reopened and self.published.current().segments_version == state.segments_version:
                    resumes_at = damage.facts.get("next_offset")
                    if resumes_at is not None and resumes_at <= cursor.offset:  # a wrong seal must not lead backwards
                        damage.facts.update(next_position=None, next_offset=None)
                    damage.facts.update(self.topic_partition._asdict(), offset=cursor.offset)
                    raise
                is_reopened = True  # a copy, or compaction, may have replaced it: reopen it
                cursor = Cursor(cursor.offset, cursor.base)
            self.close()
        missing = self._directory.missing(FileNotFoundError(f"the segment that holds offset {cursor.offset}"))
        missing.facts.update(offset=cursor.offset, **self.topic_partition._asdict())
        raise missing

    def batches(self, start: int, end: int, isolation_level: str = READ_UNCOMMITTED) -> Iterator[BatchView]:
        """The batches that hold offsets from ``start`` to ``end``, at most to the visible end."""
        for fetched in self.fetches(start, end, isolation_level=isolation_level):
            yield from fetched.batches

    def fetches(
        self, start: int | Cursor, end: int, *, max_bytes: int = FETCH_BYTES, isolation_level: str = READ_UNCOMMITTED
    ) -> Iterator[Fetched]:
        """The same in the pieces that are read. One may be empty, without records left."""
        cursor = start if isinstance(start, Cursor) else Cursor(start)
        while cursor.offset < end:
            fetched = self.fetch(cursor, max_bytes=max_bytes, isolation_level=isolation_level, visibility=WRITTEN)
            yield fetched
            if fetched.cursor.offset <= cursor.offset:
                return
            cursor = fetched.cursor

    def after_damage(self, damage: CorruptSegment, offset: int) -> Cursor:
        """Where whole batches continue after ``damage`` at ``offset``: at most the next segment."""
        state = self.published.current()
        segments = self.segments(state)
        path = damage.facts.get("path", "")
        base = offset_of(path.rpartition("/")[2], LOG)
        if base is None:  # the segment is missing
            base = segments.floor(offset)
        following = None if base is None else segments.after(base)
        end_offset = state.log_end_offset if following is None else following
        if base is not None and path == self._directory.file_path(base, LOG):
            with suppress(FileNotFoundError), closing(self._seen.filesystem.open_readable(path)) as file:
                segment, end = self.segment(base, state, following)
                found = next_whole(segment, file, damage, offset, end, end_offset)
                if found is not None:
                    return Cursor(found[1], base, found[0], segment.number)
        return Cursor(max(end_offset, offset + 1))

    def _fetch(
        self, cursor: Cursor, state: CommitState, max_bytes: int, limit: int, isolation_level: str,
        unmarked: tuple[AbortedTransaction, ...], is_reopened: bool,
    ) -> tuple[list[BatchView], Cursor]:  # fmt: skip
        while cursor.offset < limit:
            batches, cursor = self.read_at(cursor, state, max_bytes, is_reopened)
            if not batches:
                break
            aborted = self._aborted_among(batches, state, unmarked) if isolation_level == READ_COMMITTED else set()
            if isolation_level == WITH_MARKERS:
                visible = [view for view in batches if view.header.base_offset < limit]
            else:
                visible = readable(batches, limit, aborted)
            if batches[-1].header.base_offset >= limit:  # the visible end, not the file's
                ends = [b.header.last_offset + 1 for b in batches if b.header.base_offset < limit]
                cursor = Cursor(max(ends, default=limit))
            if visible or cursor.offset >= limit:
                return visible, cursor
        return [], cursor

    def read_at(
        self, cursor: Cursor, state: CommitState, max_bytes: int, is_reopened: bool = False
    ) -> tuple[list[BatchView], Cursor]:
        """Checked batches at the cursor, from its segment or the first later one that has any.

        ``is_reopened``: damage was met there. In Kafka's segments neither checksum nor seal covers
        a base offset, and the offset may be one that a damaged batch led to. So the search begins
        at the start of the segment that the cursor was in: it meets the damage again, and no index
        leads it over batches that were not read.
        """
        offset = cursor.offset
        since = cursor.base if is_reopened and self._directory.is_kafka and cursor.base >= 0 else offset
        segments = self._segments_since(state, since)
        base = self._first_at(segments, since)
        while base is not None:
            following = segments.after(base)
            if 0 <= cursor.base < base:
                self._leave(cursor, state)
            if following is None and not state.written_end:
                break  # its file may be missing: a roll publishes it first
            segment, end = self.segment(base, state, following)
            known = cursor.file_number == segment.number and 0 <= cursor.position <= end
            expected = offset if known else None if offset > base else base
            position = cursor.position if known else 0
            if expected is None:
                position = segment.locate(offset, end, 0 if is_reopened and not segment.dense else None)
            batches: list[BatchView] | None = None
            while batches is None:
                try:
                    batches = segment.read(position, end, max_bytes=max_bytes, next_offset=expected)
                except own(CorruptSegment) as damage:
                    resumes_at = damage.facts.get("next_offset")
                    if known or resumes_at is None or offset < resumes_at or damage.next_position <= position:
                        raise
                    # A damaged batch claimed to contain the offset, which is after it.
                    position = segment.locate(offset, end, damage.next_position)
            if batches:
                if batches[0].header.base_offset > offset and segment.dense:
                    raise self._missing(base, position, offset, batches[0].header.base_offset)
                for view in batches:
                    position += len(view.buffer)
                return batches, Cursor(batches[-1].header.last_offset + 1, base, position, segment.number)
            if following is not None and offset < following and (known_end := segment.gap_end(offset)) < following:
                raise self._missing(base, position, known_end, following)
            cursor, base = Cursor(max(offset, following or 0), base), following
            offset = cursor.offset
        return [], cursor

    def _first_at(self, segments: Segments, offset: int) -> int | None:
        """The segment that has the offset. The first one may begin later only in Kafka's logs."""
        base = segments.floor_or_first(offset)
        if base is not None and base > offset and not self._directory.is_kafka:
            raise self._missing(base, 0, offset, base)  # retention deleted it after the log start was read
        return base

    def _leave(self, cursor: Cursor, state: CommitState) -> None:
        """Close the segment that was read to its end. In Kafka's, batches that are left have other
        offsets than they should."""
        key = (cursor.base, True, state.segments_version)
        segment = self._open.get(key)
        if segment is not None and segment.number == cursor.file_number and not segment.dense:
            segment.read(cursor.position, segment.size(), max_bytes=HEADER_BYTES, next_offset=cursor.offset)
        self._open = {key: segment for key, segment in self._open.items() if key[0] != cursor.base}

    def _missing(self, base: int, position: int, offset: int, found: int) -> CorruptSegment:
        path = self._directory.file_path(base, LOG)
        return CorruptSegment(
            f"{path}: offsets {offset} to {found - 1} are missing at position {position}",
            path=path, position=position, problem="missing offsets", next_offset=found, next_position=None,
        )  # fmt: skip

    def segment(self, base: int, state: CommitState, following: int | None) -> tuple[SegmentReader, int]:
        """The open segment and the position where its visible part ends."""
        closed = following is not None
        key = (base, closed, state.segments_version)
        opened = self._open
        segment = opened.get(key)
        if segment is None:
            segment = SegmentReader(
                self._seen.filesystem, self._path, base, closed=closed, dense=not self._directory.is_kafka,
                home=self._home, end_offset=following,
                batch_limit_bytes=lambda: self._directory.settings().max_message_bytes,
            )  # fmt: skip
            segment.close_when_idle()
        if next(reversed(opened), None) != key:  # the last one used is the last
            others = [item for item in opened.items() if item[0] != key]
            self._open = dict([*others[1 - _OPEN_SEGMENTS_MAX :], (key, segment)])
        return segment, segment.size() if closed else state.written_end

    # Transactions

    def end_offset(self, isolation_level: str, visibility: str) -> int:
        """The offset after the last record that such a reader may see."""
        state = self.published.current()
        end = visible_end(state, isolation_level, visibility)
        if isolation_level == READ_COMMITTED and end == state.last_stable_offset < state.high_watermark:
            return self.undecided(visibility).end
        return end

    def undecided(self, visibility: str = WRITTEN, state: CommitState | None = None) -> Undecided:
        """What ``read_committed`` may read after the last stable offset of ``state``, or now."""

        def look() -> Undecided:
            now = state or self.published.current()
            if self._tail is None:
                return Undecided(visible_end(now, READ_COMMITTED, visibility), (), False)
            return self._tail.look(now, visibility)

        return self._reread(look)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that have no marker here, by their first offsets."""
        tail = self._tail or Tail(self, self.published, lambda *_: Outcome.UNDECIDED)
        return self._reread(lambda: tail.scanned(self.published.current()).all())

    def aborted_since(self, offset: int) -> Generator[AbortedTransaction, None, None]:
        """The aborted transactions that may reach ``offset``, in order; last those without one."""
        state = self.published.current()
        segments = self.segments(state)  # first: a new list drops what is known of the old one
        with closing(self._aborted.since(offset, state, segments)) as transactions:
            yield from chain(transactions, self._decided.aborted)

    def _aborted_among(
        self, batches: list[BatchView], state: CommitState, unmarked: tuple[AbortedTransaction, ...]
    ) -> set[int]:
        if not any([view.header.attributes & TRANSACTIONAL_BIT for view in batches]):  # noqa: C419 - half the calls
            return set()
        segments = self.segments(state)  # first: a new list drops what is known of the old one
        with closing(self._aborted.since(batches[0].base_offset, state, segments)) as transactions:
            return aborted_among(batches, chain(transactions, unmarked))

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record whose timestamp is at or after ``timestamp_ms``, or None."""
        return self._reread(lambda: Times(self).first_since(timestamp_ms))

    def spans_of_times(self, start: int, end: int, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
        """Rising spans of offsets that contain every record of these times: see ``times.py``."""
        return Times(self).spans(start, end, first_ms, last_ms)

    def close(self) -> None:
        """Drop the files and their list, until they are needed again. A read under way ends."""
        self._listed, self._open = None, {}
