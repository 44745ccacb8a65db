"""The ``.timeindex`` file: from a time to an offset; all records before the offset should be older.

Entry: ``int64 timestamp``, ``int32 offset - base``. Up to the batch that ends at this offset, this
is the greatest timestamp. An entry is written together with one of the offset index, if the
timestamp has grown, and when the segment is closed. Layout: Kafka's ``TimeIndex`` (docs/format.md,
"Indexes"). Zeros after the entries are Kafka's preallocation. Kafka reads this file;
``segment/time_lookup.py`` describes what pylog uses instead, and when it needs this file.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from pylog.index.entries import EntryFile, EntryWriter
from pylog.storage import AppendableFile, ReadableFile

ENTRY = Struct(">qi")


class TimestampOffset(NamedTuple):
    """The greatest timestamp so far, and the last offset of its batch."""

    timestamp_ms: int
    offset: int


class TimeIndexReader(EntryFile):
    """Looks up times."""

    __slots__ = ("_base_offset",)

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        super().__init__(file, ENTRY)
        self._base_offset = base_offset

    def before(self, timestamp_ms: int) -> TimestampOffset | None:
        """The last entry older than ``timestamp_ms``, which claims that all before it is older."""
        found = self.last_where(lambda entry: entry != (0, 0) and entry[0] < timestamp_ms)
        return None if found is None else TimestampOffset(found[0], self._base_offset + found[1])

    def last(self) -> TimestampOffset | None:
        """The entry with the greatest timestamp; in a closed segment, of the whole segment."""
        return self.before(1 << 63)


class TimeIndexWriter(EntryWriter):
    """Adds entries as the greatest timestamp grows."""

    __slots__ = ("_base_offset", "last")

    def __init__(self, file: AppendableFile, base_offset: int) -> None:
        self._base_offset = base_offset
        super().__init__(file, ENTRY)

    def refresh(self) -> None:
        super().refresh()
        timestamp_ms, relative = self.last_entry() or (-1, 0)
        self.last = TimestampOffset(timestamp_ms, self._base_offset + relative)

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        relative = offset - self._base_offset
        is_end_mark = not timestamp_ms and not relative  # zeros end the file
        if timestamp_ms > self.last.timestamp_ms and not is_end_mark:
            self.add(timestamp_ms, relative)
            self.last = TimestampOffset(timestamp_ms, offset)

    def cut(self, end_offset: int, most: int | None = None) -> None:
        """Drop entries of offsets at or after the end of the log, and those after ``most``."""
        limit = end_offset - self._base_offset
        self.drop_while(lambda entry: not 0 <= entry[1] < limit or entry == (0, 0), most)
        self.refresh()
