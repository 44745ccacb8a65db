"""The ``.index`` file: from an offset to the position of a batch at or before it.

Entry: ``int32 offset - base``, ``int32 position``. The offset is the *last* of the batch that
starts at the position. Layout and insertion rule: Kafka's ``OffsetIndex`` and ``LogSegment.append``
(format.md, section 5). A batch gets an entry if it starts more than ``index_interval_bytes`` after
the start of the last indexed batch. So the entries depend only on the log, and a rebuild gives the
same bytes.

Kafka preallocates the active index with zeros. No real entry has position 0, so zeros mark the end.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.index.entries import EntryFile, EntryWriter
from pylog.storage import AppendableFile, ReadableFile

ENTRY = Struct(">ii")


class OffsetPosition(NamedTuple):
    """A batch's last offset and the position in the segment where it starts."""

    offset: int
    position: int


class OffsetIndexReader:
    """Looks up offsets and positions."""

    __slots__ = ("_base_offset", "_entries")

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        self._entries = EntryFile(file, ENTRY)
        self._base_offset = base_offset

    def floor(self, offset: int) -> OffsetPosition:
        """The last indexed batch that ends at or before ``offset``, or the segment's start."""
        relative = offset - self._base_offset
        found = self._entries.last_where(lambda entry: entry[1] > 0 and entry[0] <= relative)
        if found is None:
            return OffsetPosition(self._base_offset, 0)
        return OffsetPosition(self._base_offset + found[0], found[1])

    def at(self, position: int) -> OffsetPosition:
        """The last indexed batch that starts at or before ``position``, or the segment's start."""
        found = self._entries.last_where(lambda entry: 0 < entry[1] <= position)
        if found is None:
            return OffsetPosition(self._base_offset, 0)
        return OffsetPosition(self._base_offset + found[0], found[1])

    def close(self) -> None:
        self._entries.close()


class OffsetIndexWriter:
    """Adds entries as batches are appended."""

    __slots__ = ("_base_offset", "entries", "last_offset", "last_position")

    def __init__(self, file: AppendableFile, base_offset: int) -> None:
        self.entries = EntryWriter(file, ENTRY)
        self._base_offset = base_offset
        self.last_offset = base_offset
        self.last_position = 0
        self.refresh()

    def refresh(self) -> None:
        self.entries.refresh()
        last = self.entries.last()
        relative, self.last_position = last or (0, 0)
        self.last_offset = self._base_offset + relative

    def append(self, offset: int, position: int) -> None:
        self.entries.append(offset - self._base_offset, position)
        self.last_offset, self.last_position = offset, position

    def cut(self, end_position: int, end_offset: int, most: int | None = None) -> None:
        """Drop invalid entries, those at or after the end of the log, and those after ``most``."""
        limit = end_offset - self._base_offset
        self.entries.drop_while(
            lambda entry: entry[1] >= end_position or entry[1] <= 0 or not 0 <= entry[0] < limit, most
        )
        self.refresh()

    def clear(self) -> None:
        self.entries.cut(0)
        self.refresh()

    def close(self) -> None:
        self.entries.close()
