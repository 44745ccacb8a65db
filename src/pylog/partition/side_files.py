"""Whether the indexes beside a segment agree with its batches. For ``verify.py``; reads only.

Each check is told of every good batch in order, and of what damage was passed over, and walks its file alongside: memory
does not grow with segment or index. It collects at most one finding a file: the first wrong entry, and how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from pylog.codec.batch import BatchHeader
from pylog.codec.format import HEADER_BYTES
from pylog.index import AbortedTransaction, offset_index, time_index, transaction_index
from pylog.storage import FileSystem, ReadableFile

_ENTRIES_AT_ONCE = 4096


class Finding(NamedTuple):
    """What is wrong in one file. ``first_offset`` to ``end_offset`` (exclusive) are the offsets it concerns, if it says."""

    path: str
    position: int
    first_offset: int | None
    end_offset: int | None
    problem: str


class Findings:
    """The first thing wrong with one file, and how many follow."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._first: Finding | None = None
        self._more = 0

    def add(self, position: int, first_offset: int | None, end_offset: int | None, problem: str) -> None:
        if self._first is None:
            self._first = Finding(self.path, position, first_offset, end_offset, problem)
        else:
            self._more += 1

    def result(self) -> Iterator[Finding]:
        if self._first is not None:
            more = f" (and {self._more} more like it)" if self._more else ""
            yield self._first._replace(problem=self._first.problem + more)


class OffsetIndexCheck:
    """``.index``: each entry names the position where a batch starts, and its last offset.

    ``exact=False`` is Kafka up to 4.0, whose entries have the last offset of the chunk of batches that begins there.
    """

    def __init__(
        self, filesystem: FileSystem, path: str, base_offset: int, segment_bytes: int, *, closed: bool, exact: bool
    ) -> None:
        self._base_offset = base_offset
        self._exact = exact
        self._closed = closed
        self.findings = Findings(path)
        self._entries = _entries(filesystem, self.findings, offset_index.ENTRY, segment_bytes, closed=closed)
        self._advance()

    def _advance(self) -> None:
        self._ended = True
        for self._at, (relative, self._position) in self._entries:
            self._offset = self._base_offset + relative
            if self._position > 0:
                self._ended = False
                return
            self._wrong(f"points to position {self._position}: the first batch is never indexed")

    def batch(self, position: int, header: BatchHeader) -> None:
        self._refuse_entries_before(position)
        if not self._ended and self._position == position:
            wrong = self._offset != header.last_offset if self._exact else self._offset < header.last_offset
            if wrong:
                self._wrong(f"says that the batch at position {position} ends at offset {self._offset}, it is {header.last_offset}")
            self._advance()

    def damage(self, position: int, next_position: int) -> None:
        """Entries that point into damage are neither right nor wrong."""
        self._refuse_entries_before(position)
        while not self._ended and self._position < next_position:
            self._advance()

    def finish(self, end: int) -> Iterator[Finding]:
        self._refuse_entries_before(end)
        if self._closed:
            while not self._ended:
                self._wrong(f"points to position {self._position}, beyond the segment's end {end}")
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
    """``.timeindex``: each entry names a new greatest timestamp, and the batch that brought it."""

    def __init__(
        self, filesystem: FileSystem, path: str, base_offset: int, segment_bytes: int, *, closed: bool, exact: bool
    ) -> None:
        self._base_offset = base_offset
        self._exact = exact
        self._closed = closed
        self._greatest_ms = -1
        self._last_entry_ms = -1
        self._passed_damage = False
        self.findings = Findings(path)
        self._entries = _entries(filesystem, self.findings, time_index.ENTRY, segment_bytes, closed=closed)
        self._advance()

    def _advance(self) -> None:
        self._ended = True
        for self._at, (self._timestamp_ms, relative) in self._entries:
            self._offset = self._base_offset + relative
            self._ended = False
            return

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
        self._greatest_ms = max(self._greatest_ms, header.max_timestamp_ms)

    def damage(self, next_offset: int) -> None:
        """Entries of damaged batches are neither right nor wrong."""
        self._passed_damage = True
        while not self._ended and self._offset < next_offset:
            self._take()

    def finish(self, end_offset: int, end_position: int) -> Iterator[Finding]:
        self._refuse_entries_before(end_offset)
        if self._closed:
            while not self._ended:
                self._wrong(f"is beyond the segment's end at offset {end_offset}")
                self._take()
            if not self._passed_damage and self._last_entry_ms < self._greatest_ms:
                self.findings.add(
                    self._at, None, None,
                    f"the last entry says {self._last_entry_ms}, but the greatest timestamp in the {end_position} bytes of the "
                    f"segment is {self._greatest_ms}",
                )  # fmt: skip
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
    filesystem: FileSystem, findings: Findings, layout: Struct, segment_bytes: int, *, closed: bool
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Positions and entries of an index, a few at a time, without the zeros that Kafka allocates behind them.

    A missing file is wrong, and of a closed segment a torn entry and more entries than the segment can have batches.
    """
    try:
        file = filesystem.open_readable(findings.path)
    except FileNotFoundError:
        findings.add(0, None, None, "is missing; lookups read the segment instead")
        return
    try:
        size = file.size()
        most = (segment_bytes // HEADER_BYTES + 1) * layout.size
        if closed and (size % layout.size or size > most):
            findings.add(size, None, None, f"has {size} bytes, expected entries of {layout.size} bytes, {most} at most")
        whole = min(size - size % layout.size, most)
        zeros_at = None
        for start in range(0, whole, layout.size * _ENTRIES_AT_ONCE):
            data = file.pread(min(layout.size * _ENTRIES_AT_ONCE, whole - start), start)
            for number, (first, second) in enumerate(layout.iter_unpack(data[: len(data) // layout.size * layout.size])):
                at = start + number * layout.size
                if first == second == 0:
                    zeros_at = at if zeros_at is None else zeros_at
                    continue
                if zeros_at is not None:
                    findings.add(zeros_at, None, None, f"zeros at position {zeros_at}, but entries go on at {at}")
                    zeros_at = None
                yield at, (first, second)
    finally:
        file.close()


def check_aborted(
    filesystem: FileSystem,
    path: str,
    *,
    end_offset: int,
    segment_bytes: int,
    aborts: dict[int, int],
    expected: list[AbortedTransaction] | None,
    passed_damage: bool,
) -> Iterator[Finding]:
    """``.txnindex``: the aborted transactions whose markers stand in this segment.

    ``aborts`` are its abort markers, offset to producer id; ``expected`` the entries it must have, where that is known.
    """
    findings = Findings(path)
    size = transaction_index.ENTRY.size
    try:
        file = filesystem.open_readable(path)
    except FileNotFoundError:
        entries: list[tuple[int, AbortedTransaction]] = []
    else:
        entries = list(_aborted_entries(file, findings, limit=segment_bytes // HEADER_BYTES + 1))
    seen = [entry for _, entry in entries if entry.last_offset < end_offset]
    for at, entry in entries:
        if entry.last_offset >= end_offset:
            continue  # not published yet
        if aborts.get(entry.last_offset) != entry.producer_id:
            if not passed_damage:
                problem = f"says that producer {entry.producer_id} aborted at offset {entry.last_offset}, where it has no abort marker"
                findings.add(at, entry.first_offset, entry.last_offset + 1, problem)
        elif expected is not None and entry not in expected:
            findings.add(at, entry.first_offset, entry.last_offset + 1, f"says {_words(entry)}, the batches say otherwise")
    for entry in expected or ():
        if entry not in seen:
            problem = f"lacks {_words(entry)}: read_committed would show it"
            findings.add(len(entries) * size, entry.first_offset, entry.last_offset + 1, problem)
    yield from findings.result()


def _aborted_entries(file: ReadableFile, findings: Findings, limit: int) -> Iterator[tuple[int, AbortedTransaction]]:
    """At most ``limit`` entries: more can't be right, whatever the file's size."""
    layout = transaction_index.ENTRY
    try:
        count = file.size() // layout.size
        if count > limit:
            findings.add(limit * layout.size, None, None, f"has {count} entries, more than its segment can have batches")
        data = file.pread(min(count, limit) * layout.size, 0)
    finally:
        file.close()
    for number, (version, *fields) in enumerate(layout.iter_unpack(data[: len(data) // layout.size * layout.size])):
        if version != transaction_index.VERSION:
            findings.add(number * layout.size, None, None, f"entry of version {version}, expected {transaction_index.VERSION}")
        else:
            yield number * layout.size, AbortedTransaction(*fields)


def _words(entry: AbortedTransaction) -> str:
    return f"the transaction of producer {entry.producer_id} from offset {entry.first_offset} to its abort at {entry.last_offset}"
