"""Whether the indexes beside a segment agree with its batches. Reads only.

Each check gets every good batch and all damage in order, and reads its file alongside: memory does
not grow with segment or index. It collects at most one finding per file: the first wrong entry, and
the number of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import Struct
from typing import NamedTuple

from pylog.codec.batch import BatchHeader
from pylog.codec.format import HEADER_BYTES
from pylog.errors import StorageError
from pylog.index import AbortedTransaction, offset_index, time_index, transaction_index
from pylog.index.entries import EntryFile
from pylog.interrupts import own
from pylog.partition.verify.findings import Finding, FirstFinding
from pylog.storage import FileSystem, ReadableFile


class OffsetIndexCheck:
    """``.index``: each entry names the position where a batch starts, and its last offset.

    ``exact=False`` is Kafka up to 4.0, whose entries have the last offset of the chunk of batches
    that begins there.
    """

    def __init__(
        self, filesystem: FileSystem, path: str, base_offset: int, segment_bytes: int, *, closed: bool, exact: bool
    ) -> None:
        self._base_offset = base_offset
        self._exact = exact
        self._closed = closed
        self._ended = False
        self._at = self._offset = self._position = 0
        self.findings = FirstFinding("index", path)
        self._entries = _entries(filesystem, self.findings, offset_index.ENTRY, segment_bytes, closed=closed)
        self._advance()

    def _advance(self) -> None:
        self._ended = True
        for at, (relative, position) in self._entries:
            self._at, self._position, self._offset = at, position, self._base_offset + relative
            if position > 0:
                self._ended = False
                return
            self._wrong(f"points to position {position}: the first batch is never indexed")

    def batch(self, position: int, header: BatchHeader) -> None:
        self._refuse_entries_before(position)
        if not self._ended and self._position == position:
            wrong = self._offset != header.last_offset if self._exact else self._offset < header.last_offset
            if wrong:
                self._wrong(f"points to position {position}, where a batch ends at {header.last_offset}")
            self._advance()

    def damage(self, position: int, next_position: int) -> None:
        """Entries that point into damage are not judged."""
        self._refuse_entries_before(position)
        while not self._ended and self._position < next_position:
            self._advance()

    def finish(self, end: int) -> Iterator[Finding]:
        """The findings. At the end of an active segment's index there may be entries that are not
        published yet."""
        self._refuse_entries_before(end)
        while not self._ended:
            if self._closed or self._position < end:
                what = f"beyond the segment's end {end}" if self._position >= end else "after later ones"
                self._wrong(f"points to position {self._position}, {what}")
            self._advance()
        self._entries.close()
        yield from self.findings.result()

    def _refuse_entries_before(self, position: int) -> None:
        while not self._ended and self._position < position:
            self._wrong(f"points to position {self._position}, where no batch starts")
            self._advance()

    def _wrong(self, problem: str) -> None:
        self.findings.add(self._at, self._offset, self._offset + 1, f"the entry for offset {self._offset} {problem}")


class TimeIndexCheck:
    """``.timeindex``: each entry names a new greatest timestamp, and the batch that brought it.

    Kafka's may name a marker, too.
    """

    def __init__(
        self, filesystem: FileSystem, path: str, base_offset: int, segment_bytes: int, *, closed: bool, exact: bool
    ) -> None:
        self._base_offset = base_offset
        self._exact = exact
        self._closed = closed
        self._greatest_ms, self._greatest_offset = -1, base_offset
        self._last_entry_ms = -1
        self._passed_damage = False
        self._ended = False
        self._at = self._offset = self._timestamp_ms = 0
        self.findings = FirstFinding("timeindex", path)
        self._entries = _entries(filesystem, self.findings, time_index.ENTRY, segment_bytes, closed=closed)
        self._advance()

    def _advance(self) -> None:
        following = next(self._entries, None)
        self._ended = following is None
        if following is not None:
            self._at, (self._timestamp_ms, relative) = following
            self._offset = self._base_offset + relative

    def batch(self, header: BatchHeader) -> None:
        self._refuse_entries_before(header.base_offset)
        while not self._ended and self._offset <= header.last_offset:
            if self._timestamp_ms != header.max_timestamp_ms:
                self._wrong(f"says {self._timestamp_ms}, the batch there has {header.max_timestamp_ms}")
            elif self._timestamp_ms <= self._greatest_ms:
                self._wrong(f"says {self._timestamp_ms} is new, but {self._greatest_ms} came before")
            elif self._exact and self._offset != header.last_offset:
                self._wrong(f"is in the middle of a batch that ends at {header.last_offset}")
            self._take()
        if header.max_timestamp_ms > self._greatest_ms and not header.is_control:
            self._greatest_ms, self._greatest_offset = header.max_timestamp_ms, header.last_offset

    def damage(self, next_offset: int) -> None:
        """Entries of damaged batches are not judged."""
        self._passed_damage = True
        while not self._ended and self._offset < next_offset:
            self._take()

    def finish(self, end_offset: int) -> Iterator[Finding]:
        self._refuse_entries_before(end_offset)
        while not self._ended:
            if self._closed or self._offset < end_offset:
                is_beyond = self._offset >= end_offset
                self._wrong(f"is beyond the segment's end {end_offset}" if is_beyond else "stands after later ones")
            self._take()
        is_whole = self._closed and self.findings.is_empty and not self._passed_damage
        has_entry = self._greatest_ms or self._greatest_offset != self._base_offset  # one of zeros is none
        if is_whole and has_entry and self._last_entry_ms < self._greatest_ms:
            problem = f"the last entry says {self._last_entry_ms}, but the segment reaches {self._greatest_ms}"
            self.findings.add(self._at, None, None, problem)
        self._entries.close()
        yield from self.findings.result()

    def _refuse_entries_before(self, offset: int) -> None:
        while not self._ended and self._offset < offset:
            self._wrong("belongs to no batch in its place")
            self._take()

    def _take(self) -> None:
        self._last_entry_ms = max(self._last_entry_ms, self._timestamp_ms)
        self._advance()

    def _wrong(self, problem: str) -> None:
        self.findings.add(self._at, self._offset, self._offset + 1, f"the entry for offset {self._offset} {problem}")


def _entries(
    filesystem: FileSystem, findings: FirstFinding, layout: Struct, segment_bytes: int, *, closed: bool
) -> Generator[tuple[int, tuple[int, int]], None, None]:
    """Positions and entries of an index, a few at a time, without the zeros that Kafka allocates
    after them.

    A missing file is wrong; in a closed segment so is a torn entry, or more entries than it can
    have batches.
    """
    try:
        file = filesystem.open_readable(findings.path)
    except own(FileNotFoundError):
        if segment_bytes:  # an empty segment has none yet
            findings.add(0, None, None, "is missing; lookups read the segment instead")
        return
    except own(StorageError) as error:
        findings.add(0, None, None, str(error))
        return
    try:
        size = file.size()
        most = (segment_bytes // HEADER_BYTES + 1) * layout.size
        if closed and (size % layout.size or size > most):
            findings.add(size, None, None, f"has {size} bytes, expected entries of {layout.size} bytes, {most} at most")
        zeros_at = None
        entries = EntryFile(file, layout).entries(end=min(size, most) // layout.size)
        for number, (first, second) in enumerate(entries):
            at = number * layout.size
            if first == second == 0:
                zeros_at = at if zeros_at is None else zeros_at
                continue
            if zeros_at is not None:
                findings.add(zeros_at, None, None, f"zeros at position {zeros_at}, but entries continue at {at}")
                zeros_at = None
            yield at, (first, second)
    except own(StorageError) as error:
        findings.add(0, None, None, str(error))
    finally:
        file.close()


class Abort(NamedTuple):
    """An abort marker, and the offset of the same producer's marker before it (-1 without one)."""

    producer_id: int
    before: int


def check_aborted(
    filesystem: FileSystem,
    path: str,
    *,
    end_offset: int,
    segment_bytes: int,
    aborts: dict[int, Abort],
    expected: list[AbortedTransaction] | None,
    passed_damage: bool,
    exact: bool,
    is_rebuilt: bool,
) -> Iterator[Finding]:
    """``.txnindex``: the aborted transactions whose markers stand in this segment.

    ``aborts`` are its abort markers by offset; ``expected`` the transactions with records that they
    end, if that is known. ``exact=False`` if compaction may have removed a transaction's records,
    all or the first. ``is_rebuilt``: readers do not read the index before the next writer has made
    it again.
    """
    findings = FirstFinding("txnindex", path)
    wanted_by_end = {(entry.producer_id, entry.last_offset): entry for entry in expected or ()}
    starts: dict[tuple[int, int], int] = {}
    end_before, limit = -1, 0
    try:
        for at, entry in _aborted_entries(
            filesystem.open_readable(path), findings, limit=segment_bytes // HEADER_BYTES + 1
        ):
            limit = at + transaction_index.ENTRY.size
            if entry.last_offset >= end_offset:  # not published yet
                if not is_rebuilt and not (transaction_index.is_possible(entry) and entry.last_offset > end_before):
                    findings.add(
                        at, entry.first_offset, entry.last_offset + 1,
                        f"says {_words(entry)}, with the last stable offset {entry.last_stable_offset}",
                    )  # fmt: skip
                end_before = entry.last_offset
                continue
            key = (entry.producer_id, entry.last_offset)
            if key in wanted_by_end:
                starts[key] = entry.first_offset
            abort = aborts.get(entry.last_offset)
            problem = _about_entry(entry, end_before, abort, passed_damage=passed_damage)
            is_judged = exact and expected is not None and abort is not None and abort.producer_id == entry.producer_id
            if problem is None and is_judged:
                problem = (
                    None if wanted_by_end.get(key) == entry else f"says {_words(entry)}, the batches say otherwise"
                )
            if problem is not None:
                findings.add(at, entry.first_offset, entry.last_offset + 1, problem)
            end_before = entry.last_offset
    except own(FileNotFoundError):
        pass  # as it should be, unless an abort is expected
    except own(StorageError) as error:
        yield Finding("txnindex", path, 0, None, None, str(error))
        return
    for end, wanted in wanted_by_end.items():
        if starts.get(end, wanted.last_offset) > wanted.first_offset:
            problem = f"lacks {_words(wanted)}: read_committed would show it"
            findings.add(limit, wanted.first_offset, wanted.last_offset + 1, problem)
    yield from findings.result()


def _about_entry(entry: AbortedTransaction, end_before: int, abort: Abort | None, *, passed_damage: bool) -> str | None:
    """What is wrong with an entry, given the marker at its end and where the entry before it
    ends."""
    if entry.last_offset <= end_before:
        return f"says {_words(entry)}, after an abort at {end_before}"
    if abort is None or abort.producer_id != entry.producer_id:
        problem = f"says that producer {entry.producer_id} aborted at {entry.last_offset}: it has no marker there"
        return None if passed_damage else problem
    if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
        return f"says {_words(entry)}, with the last stable offset {entry.last_stable_offset}"
    if not abort.before < entry.first_offset <= entry.last_offset:
        return f"says {_words(entry)}; its transaction before that ended at {abort.before}"
    return None


def _aborted_entries(
    file: ReadableFile, findings: FirstFinding, limit: int
) -> Iterator[tuple[int, AbortedTransaction]]:
    """At most ``limit`` entries, a few at a time: more cannot be right."""
    layout = transaction_index.ENTRY
    try:
        entries = EntryFile(file, layout)
        count = entries.count()
        if count > limit:
            findings.add(
                limit * layout.size, None, None, f"has {count} entries, more than its segment can have batches"
            )
        for number, (version, *fields) in enumerate(entries.entries(end=min(count, limit))):
            if version == transaction_index.VERSION:
                yield number * layout.size, AbortedTransaction(*fields)
            else:
                problem = f"entry of version {version}, expected {transaction_index.VERSION}"
                findings.add(number * layout.size, None, None, problem)
    finally:
        file.close()


def _words(entry: AbortedTransaction) -> str:
    return f"the transaction of producer {entry.producer_id} from offset {entry.first_offset} to its abort at {entry.last_offset}"
