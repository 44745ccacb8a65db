"""The ``.txnindex`` file: the aborted transactions whose markers stand in this segment. Exists only if there are any.

Entry: ``int16 version = 0``, ``int64 producer id``, ``int64 first offset``, ``int64 last offset`` (the marker's), ``int64 last
stable offset`` at that moment. Layout: Kafka's ``AbortedTxn`` (format.md, section 5).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.errors import FormatVersionError
from pylog.index.entries import EntryFile, EntryWriter
from pylog.storage import AppendableFile, ReadableFile

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of ``producer_id`` from ``first_offset`` up to the marker at ``last_offset`` were never committed."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndexReader:
    """Reads aborted transactions, in the order of their markers."""

    __slots__ = ("_entries",)

    def __init__(self, file: ReadableFile) -> None:
        self._entries = EntryFile(file, ENTRY)

    def entries(self) -> list[AbortedTransaction]:
        found = []
        for version, *fields in self._entries.entries():
            if version != VERSION:
                raise FormatVersionError(
                    f"transaction index entry of version {version} in {self._entries.file.path}, expected {VERSION}",
                    path=self._entries.file.path,
                    version=version,
                    expected=VERSION,
                )
            found.append(AbortedTransaction(*fields))
        return found

    def close(self) -> None:
        self._entries.close()


class TransactionIndexWriter:
    """Adds an entry for each abort marker."""

    __slots__ = ("_entries",)

    def __init__(self, file: AppendableFile) -> None:
        self._entries = EntryWriter(file, ENTRY)

    def append(self, aborted: AbortedTransaction) -> None:
        self._entries.append(VERSION, *aborted)

    def cut(self, end_offset: int) -> None:
        """Drop entries whose marker stands at or beyond the end of the log."""
        self._entries.drop_while(lambda entry: entry[3] >= end_offset)

    def close(self) -> None:
        self._entries.close()
