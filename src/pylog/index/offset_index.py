"""The ``.index`` file: from an offset to the position of a batch at or before it.

Entry: ``int32 offset - base``, ``int32 position``. The offset is the *last* of the batch that
starts at the position. Layout and insertion rule: Kafka's ``OffsetIndex`` and ``LogSegment.append``
(docs/format.md, "Indexes"). A batch gets an entry if it starts more than ``index_interval_bytes``
after the start of the last indexed batch. So the entries depend only on the log, and a rebuild
gives the same bytes.

Kafka preallocates the active index with zeros. No real entry has position 0, so zeros mark the end.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from pylog.index.entries import EntryFile, EntryWriter
from pylog.storage import AppendableFile, ReadableFile

ENTRY = Struct(">ii")


class OffsetPosition(NamedTuple):
    """A batch's last offset and the position in the segment where it starts."""

    offset: int
    position: int


class OffsetIndexReader(EntryFile):
    """Looks up offsets and positions."""

    __slots__ = ("_base_offset",)

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        super().__init__(file, ENTRY)
        self._base_offset = base_offset

    def floor(self, offset: int) -> OffsetPosition:
        """The last indexed batch that ends at or before ``offset``, or the segment's start."""
        relative = offset - self._base_offset
        return self._last_where(lambda entry: entry[1] > 0 and entry[0] <= relative)

    def at(self, position: int) -> OffsetPosition:
        """The last indexed batch that starts at or before ``position``, or the segment's start."""
        return self._last_where(lambda entry: 0 < entry[1] <= position)

    def _last_where(self, holds: Callable[[tuple[Any, ...]], bool]) -> OffsetPosition:
        relative, position = self.last_where(holds) or (0, 0)
        return OffsetPosition(self._base_offset + relative, position)


class OffsetIndexWriter(EntryWriter):
    """Adds entries as batches are appended."""

    __slots__ = ("_base_offset", "last_offset", "last_position")

    def __init__(self, file: AppendableFile, base_offset: int) -> None:
        self._base_offset = base_offset
        super().__init__(file, ENTRY)

    def refresh(self) -> None:
        super().refresh()
        relative, self.last_position = self.last_entry() or (0, 0)
        self.last_offset = self._base_offset + relative

    def append(self, offset: int, position: int) -> None:
        self.add(offset - self._base_offset, position)
        self.last_offset, self.last_position = offset, position

    def cut(self, end_position: int, end_offset: int, most: int | None = None) -> None:
        """Drop invalid entries, those at or after the end of the log, and those after ``most``."""
        limit = end_offset - self._base_offset
        self.drop_while(lambda entry: entry[1] >= end_position or entry[1] <= 0 or not 0 <= entry[0] < limit, most)
        self.refresh()
