"""A table as a mapping that only reads. ``writable.py`` adds the writes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING, Any

from pylog.checks import OfOneProcess, require_timeout
from pylog.errors import Closed, ConfigError, ForkedHandle, PylogError
from pylog.model import Record, RecordMetadata, TopicPartition
from pylog.storage import FileLock, after_fork_in_child
from pylog.tables.follower import FollowedPartition, Follower
from pylog.tables.own_records import OwnRecords
from pylog.tables.serializers import Serializers
from pylog.tables.store import Entry, Store
from pylog.turn import Turn

if TYPE_CHECKING:
    from typing_extensions import Self

    from pylog.manager.manager import LogManager

_LOOK_EVERY_S = 0.1  # what a dead producer's transaction has decided shows without a change


class Table(OfOneProcess, Mapping[Any, Any]):
    """The newest value of each key of a topic. Made by ``pylog.table``.

    A lookup first reads what is new in the topic (``auto_refresh``), so it sees every record that
    was visible before it. With ``auto_refresh=False`` it sees what ``refresh`` has read. Threads
    may share a table. A forked child can't use it (``ForkedHandle``).

    Lookups raise as ``refresh``, and ``SerializationError``.
    """

    _instead = "open a table in each process, with a directory of its own"

    def __init__(
        self,
        manager: LogManager,
        topic: str,
        store: Store,
        follower: Follower,
        serializers: Serializers,
        lock: FileLock | None,
        *,
        auto_refresh: bool,
    ) -> None:
        """``lock`` is held, and released by ``close``."""
        self._manager = manager
        self.topic = topic
        self._store = store
        self._follower = follower
        self._serializers = serializers
        self._lock = lock
        self._auto_refresh = auto_refresh
        self._turn = Turn()
        self._refusal: PylogError | None = None
        self._own = OwnRecords()
        after_fork_in_child(self._abandon)

    # Looking up

    def __getitem__(self, key: Any) -> Any:
        """The newest value of a key. ``KeyError`` if it has none."""
        found = self._look_up(key)
        if found is None:
            raise KeyError(key)
        return self._serializers.value_of(found[0])

    def get_with_offset(self, key: Any) -> tuple[Any, int | None]:
        """The newest value of a key and the offset of its record; (None, None) without one.
        Raises as ``refresh``, and ``SerializationError``."""
        found = self._look_up(key)
        return (None, None) if found is None else (self._serializers.value_of(found[0]), found[1])

    def __contains__(self, key: object) -> bool:
        data = self._serializers.key_bytes(key)
        self._follow()
        return self._entry(data) is not None

    def __iter__(self) -> Iterator[Any]:
        """All keys at this moment, in no order."""
        self._follow()
        entries = self._entries()
        return (self._serializers.key_of(key) for key, _ in entries)

    def __len__(self) -> int:
        """The number of keys. With ``store="rocksdict"`` this reads all of them."""
        self._follow()
        with self._turn.lock:
            return self._count()

    def _count(self) -> int:
        own = self._own.unread(self._store.positions)
        stored = sum(self._store.get(key) is not None for key in own)
        return self._store.count() - stored + sum(entry[2] is not None for entry in own.values())

    def items(self) -> ItemsView[Any, Any]:
        """Keys and values, in no order: those of the moment at which an iteration of them
        begins."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Values, in no order, as of ``items``."""
        return _Values(self)

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        self._follow()
        partitions = self._follower.partitions
        return self._converted(self._entries(), partitions)

    def _converted(
        self, entries: Iterator[tuple[bytes, Entry]], partitions: Mapping[int, FollowedPartition]
    ) -> Iterator[tuple[Any, Any]]:
        for key, entry in entries:
            found = self._value(key, entry, partitions)
            if found is not None:
                yield self._serializers.key_of(key), self._serializers.value_of(found[0])

    def _entries(self) -> Iterator[tuple[bytes, Entry]]:
        """All entries of this moment. ``Closed`` if the table is closed before their end."""
        with self._turn.lock:
            self._check()
            own, stored = self._own.unread(self._store.positions), self._store.items()
        return _merged(stored, own)

    def _look_up(self, key: object) -> tuple[bytes, int] | None:
        data = self._serializers.key_bytes(key)
        self._follow()
        partitions = self._follower.partitions
        return self._value(data, self._entry(data), partitions)

    def _entry(self, key: bytes) -> Entry | None:
        before = self._follower.refills
        entry = self._entry_now(key)
        if entry is None and (before & 1 or self._follower.refills != before):
            with self._turn.lock:  # until another thread has filled the table again
                entry = self._entry_now(key)
        return entry

    def _entry_now(self, key: bytes) -> Entry | None:
        if self._own:
            own = self._own.get(key, self._store.positions)
            if own is not None:
                return None if own[2] is None else own
        return self._store.get(key)

    def _value(
        self, key: bytes, entry: Entry | None, partitions: Mapping[int, FollowedPartition]
    ) -> tuple[bytes, int] | None:
        """The value of an entry and its offset. None if the record, which compaction or retention
        has removed from the log, has no successor.

        ``partitions`` were the topic's before the entry was: another topic of this name, for
        example after ``repartition``, may have an older record of the key at the same place.
        """
        while entry is not None:
            value, resets = entry[2], self._follower.resets
            if value is None:
                value = self._follower.value(key, entry, partitions)
            if value is not None:
                return value, entry[0]
            self.refresh()
            were, partitions = partitions, self._follower.partitions
            before, entry = entry, self._entry(key)
            if entry == before and partitions is were and self._follower.resets == resets:
                return None
        return None

    # Following

    def refresh(self) -> int:
        """Read what is new in the topic. Returns the number of records.

        ``Closed``, ``TopicNotFound``, ``CorruptRecord`` (the table stays before the damage),
        ``MissingCodec``, ``StorageError``, ``OffsetOutOfRange``. A signal handler that has
        interrupted this reads nothing: it sees the table before that.
        """
        self._check()
        if self._follower.is_current() or self._turn.is_mine():
            return 0
        with self._turn.lock:
            return self._catch_up()

    def _catch_up(self) -> int:
        self._check()  # another thread may have closed it
        count = self._follower.catch_up()
        if self._own:
            self._own.prune(self._store.positions, self._follower.history)
        return count

    def wait_for(self, record: RecordMetadata | Record, timeout: float | None = None) -> bool:
        """Wait until the table has read this record, for example what ``Delivery.result`` returned.

        Waits up to ``timeout`` seconds (None: no limit). Returns whether it was read. A record of a
        transaction counts as read when the transaction has ended. Raises as ``refresh``;
        ``ConfigError`` if the record has no offset (``acks=0``).
        """
        require_timeout(timeout)
        if not isinstance(record, RecordMetadata | Record):
            raise ConfigError(f"wait_for takes a record or its metadata, not {type(record).__name__}", option="record")
        if record.topic != self.topic:
            raise ConfigError(
                f"a record of {record.topic!r}, and this table is of {self.topic!r}",
                option="record",
                topic=record.topic,
            )
        if record.offset < 0:
            raise ConfigError("a record that was sent with acks=0 has no offset to wait for", option="record")
        clock = self._manager.clock
        deadline_s = clock.monotonic() + (float("inf") if timeout is None else timeout)
        while True:
            tokens = self._follower.tokens()
            self.refresh()
            position = self._store.positions.get(record.partition)
            if position is not None and position.offset > record.offset:
                return True
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                return False
            self._wait_for_change(tokens, left_s)

    def _wait_for_change(self, tokens: list[object], left_s: float) -> None:
        self._manager.wait_for_change(lambda: self._follower.tokens() != tokens, min(left_s, _LOOK_EVERY_S))

    def _follow(self) -> None:
        if self._auto_refresh:
            self.refresh()
        else:
            self._check()

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition."""
        self._check()
        found = sorted(self._store.positions.items())
        return {TopicPartition(self.topic, number): position.offset for number, position in found}

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition has after what the table has read. Reads no records.
        ``TopicNotFound``."""
        self._check()
        return self._follower.lag()

    def metrics(self) -> dict[str, int]:
        """Counts since the table was opened.

        ``records``: those read; ``records_without_key``: those of them that belong to no table;
        ``resets``: how often it began again with a partition, or with the topic.
        """
        follower = self._follower
        return {
            "records": follower.records,
            "records_without_key": follower.records_without_key,
            "resets": follower.resets,
        }

    # One life

    def save(self) -> None:
        """Make what was read durable in the table's directory. Durable on return.

        ``ConfigError`` without a ``directory``. ``StorageFull``, ``StorageError``.
        """
        self._check()
        with self._turn.lock:
            self._store.save()

    def close(self) -> None:
        """Save the table, if it has a directory, and close its files. Closing twice is allowed.

        ``StorageFull``, ``StorageError``: the table is closed, and the next start reads more of the
        topic. Close the table before the log.
        """
        if not isinstance(self._refusal, ForkedHandle):
            with self._turn.lock:
                self._close()

    def _close(self) -> None:
        """May be repeated: a signal handler's exception may have ended an earlier one."""
        if self._refusal is None:
            self._refusal = Closed(f"the table of {self.topic!r} has been closed", topic=self.topic)
        try:
            self._store.close()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _abandon(self) -> None:
        self._turn = Turn()
        self._refusal = ForkedHandle(
            f"the table of {self.topic!r} belongs to the parent process: {self._instead}", topic=self.topic
        )
        self._store.abandon()
        if self._lock is not None:
            self._lock.abandon()

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "" if self._refusal is None else f": {type(self._refusal).__name__}"
        return f"<{type(self).__name__} of {self.topic}{state}>"


def _merged(stored: Iterator[tuple[bytes, Entry]], own: dict[bytes, Entry]) -> Iterator[tuple[bytes, Entry]]:
    for item in stored:
        if item[0] not in own:
            yield item
    yield from (item for item in own.items() if item[1][2] is not None)


class _Items(ItemsView[Any, Any]):
    _mapping: Table

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._pairs()


class _Values(ValuesView[Any]):
    _mapping: Table

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping._pairs())

    def __contains__(self, value: object) -> bool:
        """Not a lookup for each key, as ``collections.abc`` has it: others may delete keys
        meanwhile."""
        return any(found is value or found == value for found in self)
