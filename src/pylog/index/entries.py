"""Files of fixed-size entries in ascending order: the base of the three indexes.

A binary search with ``pread`` takes about fifteen small reads from the page cache, and keeps
nothing in memory, at any size. Indexes have no checksum: callers verify what entries point at. A
crash leaves at most a torn last entry, which counts as absent; the next append overwrites it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from pylog.storage import AppendableFile, ReadableFile

_AT_ONCE = 4096  # entries per read


class EntryFile:
    """Fixed-size entries over an open file."""

    __slots__ = ("_entry", "file")

    def __init__(self, file: ReadableFile, entry: Struct) -> None:
        self.file = file
        self._entry = entry

    def count(self) -> int:
        return self.file.size() // self._entry.size

    def entry(self, number: int) -> tuple[Any, ...] | None:
        """The entry of this number; None if the file ends before it, as after a truncation."""
        size = self._entry.size
        data = self.file.pread(size, number * size)
        return self._entry.unpack(data) if len(data) == size else None

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[tuple[Any, ...]]:
        """The entries from ``start`` to before ``end``, read a few thousand at a time."""
        size = self._entry.size
        end = self.count() if end is None else end
        for first in range(start, end, _AT_ONCE):
            data = self.file.pread(min(_AT_ONCE, end - first) * size, first * size)
            yield from self._entry.iter_unpack(data[: len(data) // size * size])

    def last_where(self, holds: Callable[[tuple[Any, ...]], bool]) -> tuple[Any, ...] | None:
        """The last entry for which ``holds`` is true. All such entries must come first."""
        return self.search(holds)[1]

    def search(self, holds: Callable[[tuple[Any, ...]], bool]) -> tuple[int, tuple[Any, ...] | None]:
        """The number of entries for which ``holds`` is true, and the last. They must come first."""
        low, high, found = 0, self.count(), None
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is not None and holds(entry):
                low, found = middle + 1, entry
            else:
                high = middle
        return low, found

    def close(self) -> None:
        self.file.close()


class EntryWriter:
    """Appends entries after the last complete one. ``count`` entries are known here."""

    __slots__ = ("_entry", "count", "file", "reader")

    def __init__(self, file: AppendableFile, entry: Struct) -> None:
        self.file = file
        self._entry = entry
        self.reader = EntryFile(file, entry)
        self.refresh()

    def refresh(self) -> None:
        """Include the entries that another process appended."""
        self.count = self.reader.count()

    def has_changed(self) -> bool:
        """Whether the file has another size than its known entries.

        Another process appended entries, or left bytes that it could not remove.
        """
        return self.file.size() != self.count * self._entry.size

    def last_entry(self) -> tuple[Any, ...] | None:
        return self.reader.entry(self.count - 1) if self.count else None

    def add(self, *fields: int) -> None:
        self.file.pwrite(self._entry.pack(*fields), self.count * self._entry.size)
        self.count += 1

    def drop_while(self, unwanted: Callable[[tuple[Any, ...]], bool], most: int | None = None) -> None:
        """Remove entries from the end while they are ``unwanted``, and a torn entry after them.

        Entries after the first ``most`` are removed unread: a sparse file can claim any number.
        """
        kept = self.count if most is None else min(self.count, most)
        while kept and ((last := self.reader.entry(kept - 1)) is None or unwanted(last)):
            first = max(kept - _AT_ONCE, 0)
            entries = list(self.reader.entries(first, kept))
            while entries and unwanted(entries[-1]):
                entries.pop()
            kept = first + len(entries)
            if entries:
                break
        self.keep(kept)

    def keep(self, count: int) -> None:
        """Keep the first ``count`` entries and truncate the file after them."""
        self.count = count
        if self.file.size() != count * self._entry.size:
            self.file.truncate(count * self._entry.size)

    def clear(self) -> None:
        self.keep(0)
        self.refresh()

    def close(self) -> None:
        self.file.close()
