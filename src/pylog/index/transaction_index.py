"""The ``.txnindex`` file: the transactions with abort markers in this segment. Absent if none.

Entry: ``int16 version = 0``; ``int64`` producer id, first offset, last offset (the marker's), last
stable offset at that moment. Layout: Kafka's ``AbortedTxn`` (docs/format.md, "Indexes").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from pylog.errors import CorruptSegment, FormatVersionError
from pylog.index.entries import EntryFile, EntryWriter
from pylog.storage import AppendableFile, ReadableFile

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of a producer from ``first_offset`` to the marker at ``last_offset`` were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_transactions(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Encode an index with these entries."""
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


class TransactionIndexReader:
    """Reads the aborted transactions in the index at its opening, in the order of their markers."""

    __slots__ = ("_count", "_entries")

    def __init__(self, file: ReadableFile) -> None:
        self._entries = EntryFile(file, ENTRY)
        self._count = self._entries.count()

    def refuse_more_than(self, limit: int) -> None:
        """Raises ``CorruptSegment``, before any read, for more entries than markers fit in the
        segment."""
        if self._count > limit:
            path = self._entries.file.path
            raise CorruptSegment(
                f"{path} has {self._count} entries, but its segment has room for {limit} markers at most",
                path=path,
                position=limit * ENTRY.size,
                entries=self._count,
                limit=limit,
            )

    def entries(self, offset: int = 0) -> Iterator[AbortedTransaction]:
        """The transactions with markers at or after ``offset``, read a few thousand at a time.

        ``CorruptSegment`` for an entry that cannot follow the one before; ``FormatVersionError``.
        """
        start, before = self._entries.search(lambda fields: self._checked(fields).last_offset < offset)
        end_before = -1 if before is None else self._checked(before).last_offset
        for number, fields in enumerate(self._entries.entries(start, self._count), start):
            entry = self._checked(fields)
            if entry.last_offset <= end_before:
                raise self._impossible(entry, f"it is entry {number}, after an abort at {end_before}")
            end_before = entry.last_offset
            yield entry

    def last(self) -> AbortedTransaction | None:
        """The transaction with the last marker."""
        fields = self._entries.entry(self._count - 1) if self._count else None
        return None if fields is None else self._checked(fields)

    def _checked(self, fields: tuple[int, ...]) -> AbortedTransaction:
        version, *rest = fields
        if version != VERSION:
            raise FormatVersionError(
                f"transaction index entry of version {version} in {self._entries.file.path}, expected {VERSION}",
                path=self._entries.file.path,
                version=version,
                expected=VERSION,
            )
        entry = AbortedTransaction(*rest)
        if not is_possible(entry):
            raise self._impossible(entry, f"with the last stable offset {entry.last_stable_offset}")
        return entry

    def _impossible(self, entry: AbortedTransaction, reason: str) -> CorruptSegment:
        path = self._entries.file.path
        return CorruptSegment(
            f"{path} is damaged: it says that producer {entry.producer_id} aborted offsets {entry.first_offset} to "
            f"{entry.last_offset}; {reason}",
            path=path,
            position=0,
            **entry._asdict(),
        )

    def close(self) -> None:
        self._entries.close()


def is_possible(entry: AbortedTransaction) -> bool:
    """Whether any log may have such an entry. None has one of zeros."""
    producer_id, first, last, stable = entry
    return producer_id >= 0 and 0 <= first < last and 0 <= stable <= last + 1


class TransactionIndexWriter(EntryWriter):
    """Adds an entry for each abort marker."""

    __slots__ = ()

    def __init__(self, file: AppendableFile) -> None:
        super().__init__(file, ENTRY)

    def append(self, aborted: AbortedTransaction) -> None:
        self.add(VERSION, *aborted)

    def cut(self, end_offset: int) -> None:
        """Drop entries with markers at or after the end of the log."""
        self.drop_while(lambda entry: entry[3] >= end_offset)
