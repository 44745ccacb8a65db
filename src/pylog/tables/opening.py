"""``pylog.table``: checks the options, and opens a table with its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from pylog.catalog import check_topic_name
from pylog.checks import refuses_other_options, require_bools, require_count
from pylog.errors import ConfigError, LogLocked, UnsafeDirectory
from pylog.manager.access import LogFace, manager_of
from pylog.partition.read.visibility import READ_COMMITTED, check_isolation
from pylog.storage import PRIVATE_MODE, FileLock, FileSystem, fspath, make_directory_durably
from pylog.tables.follower import Follower
from pylog.tables.mapping import Table
from pylog.tables.memory_store import MemoryStore
from pylog.tables.rocks_store import RocksStore
from pylog.tables.serializers import Convert, Serializers
from pylog.tables.store import Store
from pylog.tables.writable import WritableTable

if TYPE_CHECKING:
    from pathlib import Path

    from pylog.manager.manager import LogManager

MEMORY, ROCKSDICT = _STORES = ("memory", "rocksdict")
STORED, POSITIONS = _VALUES = ("stored", "positions")
_LOCK = "table.lock"
_ROCKSDB = "rocksdb"

_OPTIONS = (
    *("topic", "store", "directory", "values", "isolation_level", "auto_refresh", "key_serializer", "key_deserializer"),
    *("value_serializer", "value_deserializer", "snapshot_records", "changelog", "acks", "delivery_timeout_ms"),
)
_MEANT = {
    "group_id": "a table reads all partitions, without a group; leave it out",
    "name": "name a directory= instead",
    "path": "name a directory= instead",
    "state_dir": "it is called directory here",
}


@overload
def table(
    log: LogFace[LogManager], topic: str, *, store: str = ..., directory: str | Path | None = ..., values: str = ...,
    isolation_level: str = ..., auto_refresh: bool = ..., key_serializer: Convert | None = ...,
    key_deserializer: Convert | None = ..., value_serializer: Convert | None = ...,
    value_deserializer: Convert | None = ..., snapshot_records: int = ..., changelog: Literal[False] = ...,
) -> Table: ...  # fmt: skip
@overload
def table(
    log: LogFace[LogManager], topic: str, *, store: str = ..., directory: str | Path | None = ..., values: str = ...,
    isolation_level: str = ..., auto_refresh: bool = ..., key_serializer: Convert | None = ...,
    key_deserializer: Convert | None = ..., value_serializer: Convert | None = ...,
    value_deserializer: Convert | None = ..., snapshot_records: int = ..., changelog: Literal[True],
    acks: str | int = ..., delivery_timeout_ms: int = ...,
) -> WritableTable: ...  # fmt: skip
@refuses_other_options("table", _OPTIONS, _MEANT)
def table(
    log: LogFace[LogManager],
    topic: str,
    *,
    store: str = MEMORY,
    directory: str | Path | None = None,
    values: str = STORED,
    isolation_level: str = READ_COMMITTED,
    auto_refresh: bool = True,
    key_serializer: Convert | None = None,
    key_deserializer: Convert | None = None,
    value_serializer: Convert | None = None,
    value_deserializer: Convert | None = None,
    snapshot_records: int = 100_000,
    changelog: bool = False,
    acks: str | int = "all",
    delivery_timeout_ms: int = 120_000,
) -> Table:
    """Open a table: the newest value of each key of ``topic``. On return it has read all of it.

    - ``store``: ``"memory"``, a dict; or ``"rocksdict"``, RocksDB, which needs little memory
      (extra ``table``).
    - ``directory``: where the table is saved, so that the next start reads only what is new; one
      open table at a time. RocksDB needs it. Without it, each start reads the whole topic.
    - ``values``: ``"stored"``; or ``"positions"``: the store keeps offsets, and a lookup reads the
      value from the log.
    - ``isolation_level``: ``"read_committed"`` or ``"read_uncommitted"``, as of ``Consumer``.
    - ``auto_refresh``: each lookup first reads what is new.
    - ``key_serializer``, ``key_deserializer``, ``value_serializer``, ``value_deserializer``:
      functions between the application's objects and bytes.
    - ``snapshot_records``: the snapshot of a table in memory is written after this many records,
      but not more often than after four times as many as it has keys; on ``save`` and ``close``.
    - ``changelog``: return a ``WritableTable``. ``acks`` (``"all"``: synced; 1: in the page cache)
      and ``delivery_timeout_ms`` are of its writes.

    Records without a key are left out; a record without a value removes its key. A key belongs in
    one partition; of a key in several, the table shows the record that it has read last.

    ``ConfigError`` (also without the package rocksdict), ``TopicNotFound``, ``LogLocked`` (another
    table has the directory open), ``UnsafeDirectory``, ``StorageError``; ``CorruptRecord``.
    """
    manager = manager_of(log, "table")
    check_topic_name(topic)
    check_isolation(isolation_level)
    require_bools(auto_refresh=auto_refresh, changelog=changelog)
    require_count("snapshot_records", snapshot_records, 1)
    _require_one_of("store", store, _STORES)
    _require_one_of("values", values, _VALUES)
    serializers = Serializers(key_serializer, key_deserializer, value_serializer, value_deserializer)
    serializers.checked(writes=changelog)
    if changelog:
        manager.require_writable()
        manager.topic_to_send_to(topic)
    else:
        manager.describe_topic(topic)
    place = _absolute(manager.filesystem, directory)
    if place is not None and f"{place}/".startswith(f"{manager.layout.root}/"):
        raise ConfigError(
            f"directory={place!r} is in the log {manager.layout.root!r}: choose one outside of it",
            option="directory", value=place, path=manager.layout.root,
        )  # fmt: skip
    if store == ROCKSDICT and place is None:
        raise ConfigError("store='rocksdict' needs a directory=", option="directory")
    lock = None if place is None else _locked(manager.filesystem, place)
    opened: Store | None = None
    try:
        keeps_values = values == STORED
        if store == ROCKSDICT:
            path = f"{place}/{_ROCKSDB}"
            make_directory_durably(manager.filesystem, path, PRIVATE_MODE)
            opened = RocksStore(path, keeps_values=keeps_values, process_id=manager.filesystem.process_id())
        else:
            opened = MemoryStore(
                manager.filesystem, place, keeps_values=keeps_values, snapshot_records=snapshot_records
            )
        follower = Follower(manager, topic, opened, isolation_level, values)
        made: Table
        if changelog:
            made = WritableTable(
                manager, topic, opened, follower, serializers, lock,
                auto_refresh=auto_refresh, acks=acks, delivery_timeout_ms=delivery_timeout_ms,
            )  # fmt: skip
        else:
            made = Table(manager, topic, opened, follower, serializers, lock, auto_refresh=auto_refresh)
        made.refresh()
        if isinstance(opened, MemoryStore):
            opened.opened()
    except BaseException:
        try:
            if opened is not None:
                opened.abandon() if store == MEMORY else opened.close()
        finally:
            if lock is not None:
                lock.close()
        raise
    return made


def _require_one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(
            f"{option}={value!r:.80}, expected {' or '.join(map(repr, allowed))}", option=option, value=value
        )


def _absolute(filesystem: FileSystem, directory: object) -> str | None:
    if directory is None:
        return None
    path = fspath(directory) if hasattr(directory, "__fspath__") else directory
    if not isinstance(path, str) or not path or "\0" in path:
        raise ConfigError(f"directory={directory!r:.80}, expected a path", option="directory", value=directory)
    return filesystem.absolute(path).rstrip("/") or "/"


def _locked(filesystem: FileSystem, directory: str) -> FileLock:
    make_directory_durably(filesystem, directory, PRIVATE_MODE)
    if filesystem.is_open_to_all(directory):
        raise UnsafeDirectory(
            f"any user may replace files in {directory}: remove that permission, or choose another directory",
            path=directory,
        )
    lock = filesystem.lock(f"{directory}/{_LOCK}")
    if not lock.try_acquire():
        lock.close()
        raise LogLocked(
            f"another table has {directory} open: give each table a directory of its own", path=f"{directory}/{_LOCK}"
        )
    return lock
