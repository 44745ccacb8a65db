"""A table's entries in RocksDB, for tables that outgrow memory. Needs the extra ``table``.

Changes and the position go in one WriteBatch, so RocksDB keeps both or neither. Its write-ahead log
is not synced for each batch: after a power failure the store is what it was somewhat earlier, and
the table reads on from there.

Keys, one byte before each: ``i`` the version and the identity; ``p`` and the partition (int32): a
position (int64 offset, int32 leader epoch, int64 log start, int64 clean to); ``k`` and a record's
key: int64 offset, int32 partition, one byte (1: the value follows; 0: the log has it), and the
value.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from pylog.errors import Closed, ConfigError, CorruptSegment, ForkedHandle, PylogError, StorageError, StorageFull
from pylog.interrupts import WeakSet, own, suppress
from pylog.model import Record
from pylog.tables.store import IDENTITY_BYTES_MAX, Entry, Position

logger = logging.getLogger("pylog.tables")

T = TypeVar("T")

VERSION = b"2 "
_IDENTITY, _POSITION, _KEY = b"i", b"p", b"k"
_NEXT = {_POSITION: b"q", _KEY: b"l"}  # the first key after all of a kind
_ENTRY = struct.Struct(">qi?")
_PARTITION = struct.Struct(">i")
_PLACE = struct.Struct(">qiqq")

# Memory: two write buffers, and a cache that indexes and filters share with the data.
_WRITE_BUFFER_BYTES = 16 << 20
_CACHE_BYTES = 32 << 20
_OPEN_FILES_MAX = 256
_FILTER_BITS = 10
_LEVELS, _PLAIN_LEVELS = 7, 2
_FORGOTTEN_AT_ONCE = 10_000
_COLUMN_FAMILY = "default"


class RocksStore:
    """See ``Store``."""

    def __init__(self, path: str, *, keeps_values: bool, process_id: int) -> None:
        """Opens or creates the database. The caller's lock excludes other processes.

        ``ForkedHandle`` in a child of a process that has used RocksDB: its threads are missing
        there.
        """
        from pylog.storage.never_freed import never_free  # ctypes; a child imports nothing right after the fork

        self._never_free = never_free
        self._rocks = rocks = _package()
        if not _USED_IN:
            _USED_IN.append(process_id)
        if _USED_IN[0] != process_id:
            raise ForkedHandle(
                f"{path}: RocksDB was used in process {_USED_IN[0]}, and can't be used in its forked child {process_id}: "
                "fork before the first table with store='rocksdict', or start the child with spawn",
                path=path, process_id=process_id,
            )  # fmt: skip
        self._path = path
        self._keeps_values = keeps_values
        self._scans: WeakSet[_Scan] = WeakSet()
        options = self._options()
        # Named again for the column family: else it would get those that the directory remembers.
        self._db: Any = self._asked(lambda: rocks.Rdict(path, options, {_COLUMN_FAMILY: options}))
        try:
            self.identity, self.positions = self._asked(self._loaded)
        except BaseException:
            self._db.close()
            raise

    def _options(self) -> Any:
        rocks = self._rocks
        blocks = rocks.BlockBasedOptions()
        blocks.set_block_cache(rocks.Cache(_CACHE_BYTES))
        blocks.set_bloom_filter(_FILTER_BITS, False)
        blocks.set_cache_index_and_filter_blocks(True)
        # In small blocks: whole ones of a large file would evict one another from the cache.
        blocks.set_index_type(rocks.BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_pin_top_level_index_and_filter(True)
        options = rocks.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        # The upper levels are read and rewritten most often, and have little of the data.
        kinds = rocks.DBCompressionType
        options.set_compression_per_level([kinds.none()] * _PLAIN_LEVELS + [kinds.lz4()] * (_LEVELS - _PLAIN_LEVELS))
        options.set_max_open_files(_OPEN_FILES_MAX)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        return options

    def _loaded(self) -> tuple[str, dict[int, Position]]:
        """The identity and the positions. Unreadable ones count as missing: the store begins
        again."""
        identity = self._db.get(_IDENTITY)
        if identity is None:
            return "", {}
        if not identity.startswith(VERSION) or len(identity) > IDENTITY_BYTES_MAX:
            return "", {}  # of another version: made again
        positions = {}
        try:
            for key, value in self._scan(_POSITION):
                (partition,) = _PARTITION.unpack(key)
                positions[partition] = Position(*_PLACE.unpack(value)).check(self._path)
        except own(struct.error, CorruptSegment) as damage:
            logger.warning("%r: %s; the table is made from its topic again", self._path, damage)
            return "", {}
        return identity[len(VERSION) :].decode("ascii", "replace"), positions

    def get(self, key: bytes) -> Entry | None:
        """See ``Store``."""
        try:
            data = self._db.get(_KEY + key)
        except own(Exception) as error:
            raise self._failure(error) from error
        return None if data is None else self._entry(data)

    def _entry(self, data: bytes) -> Entry:
        try:
            offset, partition, has_value = _ENTRY.unpack_from(data)
        except own(struct.error) as error:
            raise self._damage(f"an entry of {len(data)} bytes") from error
        return offset, partition, data[_ENTRY.size :] if has_value else None

    def apply(self, partition: int, newest: Mapping[bytes, Record], position: Position) -> None:
        """See ``Store``."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        put, pack, keeps_values = batch.put, _ENTRY.pack, self._keeps_values
        for key in sorted(newest):  # RocksDB inserts neighbours faster
            record = newest[key]
            value = record[5]
            if value is None:
                batch.delete(_KEY + key)
            elif keeps_values:
                put(_KEY + key, pack(record[2], partition, True) + value)
            else:
                put(_KEY + key, pack(record[2], partition, False))
        self._write(batch, partition, position)

    def _write(self, batch: Any, partition: int, position: Position) -> None:
        batch.put(_POSITION + _PARTITION.pack(partition), _PLACE.pack(*position))
        self._asked(partial(self._db.write, batch))
        self.positions[partition] = position

    def forget(self, partition: int, before: int, position: Position) -> None:
        """See ``Store``. The position changes last: after a crash this is done again."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key, (offset, of, _) in self.items():
            if of == partition and offset < before:
                batch.delete(_KEY + key)
                if batch.len() == _FORGOTTEN_AT_ONCE:
                    self._asked(partial(self._db.write, batch))
                    batch = self._rocks.WriteBatch(raw_mode=True)
        self._write(batch, partition, position)

    def begin(self, identity: str) -> None:
        """See ``Store``."""
        batch = self._rocks.WriteBatch(raw_mode=True)
        for kind, after in _NEXT.items():
            batch.delete_range(kind, after)
        batch.put(_IDENTITY, VERSION + identity.encode())
        self._asked(partial(self._db.write, batch))
        self.identity, self.positions = identity, {}

    def items(self) -> Iterator[tuple[bytes, Entry]]:
        """See ``Store``. RocksDB's iterator shows the moment at which it began."""
        return ((key, self._entry(data)) for key, data in self._scan(_KEY))

    def count(self) -> int:
        """See ``Store``. Reads all keys: RocksDB does not count them."""
        return sum(1 for _ in self._scan(_KEY, with_values=False))

    def _scan(self, kind: bytes, *, with_values: bool = True) -> _Scan:
        scan = self._asked(lambda: _Scan(self._db.iter(), kind, self._failure, with_values=with_values))
        self._scans.add(scan)
        return scan

    def save(self) -> None:
        """Sync RocksDB's write-ahead log."""
        self._asked(lambda: self._db.flush_wal(True))

    def close(self) -> None:
        """See ``Store``. Iterators that are not at their end raise ``Closed`` then."""
        for scan in self._scans:
            scan.end()
        with suppress(Closed):  # it was closed before
            self._asked(self._db.close)

    def abandon(self) -> None:
        """See ``Store``. The database's threads are not in the child, so closing or freeing it
        would wait forever."""
        for found in (self._db, *(iterator for scan in self._scans for iterator in scan.end())):
            self._never_free(found)

    def _asked(self, work: Callable[[], T]) -> T:
        """What ``work`` returns. ``StorageError`` for RocksDB's errors, ``CorruptSegment`` for bad
        bytes."""
        try:
            return work()
        except own(struct.error) as error:
            raise self._damage(str(error)) from error
        except own(PylogError):
            raise
        except own(Exception) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> PylogError:
        if isinstance(error, self._rocks.DbClosedError):
            return Closed(f"{self._path} has been closed", path=self._path)
        if "No space left on device" in str(error):
            return StorageFull(f"{self._path}: RocksDB: {error}", path=self._path)
        return StorageError(
            f"{self._path}: RocksDB: {error}; if its files are damaged, delete the directory: the table is made again",
            path=self._path,
        )  # fmt: skip

    def _damage(self, what: str) -> CorruptSegment:
        return CorruptSegment(
            f"{self._path} is no store of a table: {what}; delete the directory: the table is made again",
            path=self._path, position=0,
        )  # fmt: skip


class _Scan:
    """Keys of one kind, without its byte, and their values, as they were when the scan was made.

    Not RocksDB's ``items()``: it takes damage for the end.
    """

    __slots__ = ("__weakref__", "_failure", "_found", "_kind", "_with_values")

    def __init__(
        self, found: Any, kind: bytes, failure: Callable[[Exception], PylogError], *, with_values: bool
    ) -> None:
        self._found = [found]  # RocksDB stays open as long as its iterators live
        self._kind = kind
        self._failure = failure
        self._with_values = with_values
        found.seek(kind)

    def __iter__(self) -> _Scan:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        try:
            item = self._next(self._found[0])
        except own(IndexError):
            raise Closed("the table has been closed while it was iterated") from None
        except own(Exception) as error:
            raise self._failure(error) from error
        if item is None:
            raise StopIteration
        return item

    def _next(self, found: Any) -> tuple[bytes, bytes] | None:
        if not found.valid():
            found.status()
            return None
        key = found.key()
        if not key.startswith(self._kind):
            return None
        value = found.value() if self._with_values else b""
        found.next()
        return key[1:], value

    def end(self) -> list[Any]:
        """Let RocksDB close, once what this returns is dropped: its iterator, unless that was done
        before."""
        found, self._found = self._found, []
        return found


_USED_IN: list[int] = []


def _package() -> Any:
    try:
        import rocksdict
    except ModuleNotFoundError as error:
        raise ConfigError(
            "store='rocksdict' needs the package rocksdict: pip install 'pylog-embedded[table]'", option="store"
        ) from error
    return rocksdict
