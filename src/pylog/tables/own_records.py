"""What a table has written and not read yet: a transaction that began before it hides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pylog.tables.store import Entry, Position

History = tuple[str, int]
"""The topic's id and the partition's leader epoch at an append: under others the record may be
gone."""


class OwnRecords:
    """By key, the newest record of this table's own. Not thread-safe, except ``get``."""

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] = {}  # without a value: deleted
        self._histories: dict[int, History] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, history: History, entries: Iterable[tuple[bytes, Entry]]) -> None:
        """Take in the records of one append. Another thread's later append may have come first."""
        for key, entry in entries:
            self._forget_others(entry[1], history)
            before = self._entries.get(key)
            if before is None or before[1] != entry[1] or before[0] < entry[0]:
                self._entries[key] = entry

    def get(self, key: bytes, positions: Mapping[int, Position]) -> Entry | None:
        """The record of a key, unless the table has read as far as it."""
        entry = self._entries.get(key)
        return entry if entry is not None and _is_unread(entry, positions) else None

    def unread(self, positions: Mapping[int, Position]) -> dict[bytes, Entry]:
        """All of them that the table has not read."""
        return {key: entry for key, entry in list(self._entries.items()) if _is_unread(entry, positions)}

    def prune(self, positions: Mapping[int, Position], history_of: Callable[[int], History | None]) -> None:
        """Forget what was read, and what was written to another topic, or under another leader
        epoch."""
        for partition in list(self._histories):
            history = history_of(partition)
            if history is None:
                self.forget(partition)
            else:
                self._forget_others(partition, history)
        self._entries = self.unread(positions)

    def forget(self, partition: int) -> None:
        """Forget the records of a partition: reading shows what became of them."""
        self._histories.pop(partition, None)
        self._entries = {key: entry for key, entry in list(self._entries.items()) if entry[1] != partition}

    def _forget_others(self, partition: int, history: History) -> None:
        if self._histories.get(partition, history) != history:
            self.forget(partition)
        self._histories[partition] = history


def _is_unread(entry: Entry, positions: Mapping[int, Position]) -> bool:
    position = positions.get(entry[1])
    return position is None or position.offset <= entry[0]
