"""A table's entries in a dict; with a directory, also in a snapshot that a later start reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from pylog.errors import ConfigError, CorruptSegment, StorageError
from pylog.interrupts import own
from pylog.model import Record
from pylog.storage import FileSystem
from pylog.tables.snapshot import read_snapshot, write_snapshot
from pylog.tables.store import Entry, Position

logger = logging.getLogger("pylog.tables")

SNAPSHOT = "table.snapshot"
_RECORDS_PER_ENTRY = 4


class MemoryStore:
    """See ``Store``. A snapshot is written after four times as many records as it has entries, at
    least ``snapshot_records``: so writing costs little beside reading, however large the table is.
    One that can't be written is tried again after as many records more: lookups don't need it."""

    def __init__(
        self, filesystem: FileSystem, directory: str | None, *, keeps_values: bool, snapshot_records: int
    ) -> None:
        self._filesystem = filesystem
        self._path = None if directory is None else f"{directory}/{SNAPSHOT}"
        self._keeps_values = keeps_values
        self._snapshot_records = snapshot_records
        self._records_since = 0  # the last snapshot, or the last attempt
        self._is_saved = True
        self._ahead: dict[int, int] = {}  # by partition: a signal handler's exception came before this position
        self.identity = ""
        self.positions: dict[int, Position] = {}
        self._entries: dict[bytes, Entry] = {}
        self.get = self._entries.get
        self.snapshots = 0
        if self._path is not None:
            self._load(self._path)

    def _load(self, path: str) -> None:
        try:
            found = read_snapshot(self._filesystem, path)
        except own(CorruptSegment) as damage:
            logger.warning("%s; the table is made from its topic again", damage)
            return
        if found is not None:
            self.identity, self.positions, self._entries = found
            self.get = self._entries.get

    def apply(self, partition: int, newest: Mapping[bytes, Record], position: Position) -> None:
        """See ``Store``."""
        entries = self._entries
        kept: dict[bytes, Entry] = {
            key: (record[2], partition, record[5] if self._keeps_values else None)
            for key, record in newest.items()
            if record[5] is not None
        }
        self._is_saved = False
        self._ahead[partition] = max(position.offset, self._ahead.get(partition, 0))
        entries.update(kept)
        if len(kept) != len(newest):
            for key in newest.keys() - kept.keys():
                entries.pop(key, None)
        self.positions[partition] = position
        if position.offset >= self._ahead[partition]:
            del self._ahead[partition]
        self._records_since += len(newest)
        if self._path is not None and self._records_since >= max(
            self._snapshot_records, _RECORDS_PER_ENTRY * len(entries)
        ):
            self._try_to_save()

    def forget(self, partition: int, before: int, position: Position) -> None:
        """See ``Store``."""
        entries = self._entries
        self._is_saved = False
        for key in [key for key, (offset, of, _) in entries.items() if of == partition and offset < before]:
            del entries[key]
        self.positions[partition] = position

    def begin(self, identity: str) -> None:
        """See ``Store``."""
        self._is_saved = False
        self.identity = ""
        self.positions = {}
        self._entries.clear()
        self._ahead.clear()
        self.identity = identity

    def items(self) -> Iterator[tuple[bytes, Entry]]:
        """See ``Store``. A copy: other threads may change the dict."""
        return iter(list(self._entries.items()))

    def count(self) -> int:
        """See ``Store``."""
        return len(self._entries)

    def save(self) -> None:
        """Write the snapshot, unless it has all that was applied. ``ConfigError`` without a
        directory."""
        if self._path is None:
            raise ConfigError("this table is only in memory: name a directory= to save it in", option="directory")
        self._records_since = 0
        if not self._is_saved:
            positions, entries = self.positions, list(self._entries.items())
            if ahead := self._ahead:  # the next start reads these partitions again
                positions = {number: position for number, position in positions.items() if number not in ahead}
                entries = [item for item in entries if item[1][1] not in ahead]
            write_snapshot(self._filesystem, self._path, self.identity, positions, entries)
            self._is_saved = True
            self.snapshots += 1

    def _try_to_save(self) -> None:
        try:
            self.save()
        except own(StorageError, ConfigError) as error:
            logger.warning("%s; the table continues without a new snapshot", error)

    def opened(self) -> None:
        """After the first reading, which may have taken long: save it for the next start."""
        if self._path is not None and self._records_since >= self._snapshot_records:
            self.save()

    def close(self) -> None:
        """See ``Store``."""
        try:
            if self._path is not None:
                self.save()
        finally:
            self._path = None

    def abandon(self) -> None:
        """See ``Store``."""
        self._path = None
