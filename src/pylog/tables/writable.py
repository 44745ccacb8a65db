"""A table whose changes are records of its topic.

Compare-and-set across processes: the table reads its partition to the end n, compares the offset of
the key's newest record, and appends only if the log still ends at n (``expected_offset`` of
``Partition.append``). If another record came in between, it reads that one and compares again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import chain, islice
from typing import Any

from pylog.checks import require_count
from pylog.codec.format import POSITIVE
from pylog.errors import ConfigError, DeliveryTimeout, OffsetConflict, TopicChanged
from pylog.interrupts import own
from pylog.model import AppendResult, ProducerRecord, RecordMetadata
from pylog.partition.partition import Partition
from pylog.producer.partitioner import KEY_HASHES
from pylog.tables.mapping import Table

_RECORD_BYTES = 64  # at most, of a record besides its key and value
_BATCH_RECORDS_MAX = 10_000
_OWN_RECORDS = 10_000  # before they are looked for in the topic, so that they can be forgotten here

Change = tuple[bytes, bytes | None]


class _Anything:
    def __repr__(self) -> str:
        return "ANY_OFFSET"


ANY_OFFSET = _Anything()
_MISSING = object()


class WritableTable(Table, MutableMapping[Any, Any]):
    """A table that is written, too: ``pylog.table(log, topic, changelog=True)``.

    ``table[key] = value`` and ``del table[key]`` append a record. On return it is as durable as
    ``acks`` promises, and this table's lookups see it. Other tables, and consumers, see it after
    transactions that began before it in its partition.

    Writes raise a kind of ``NotAppended`` (nothing changed), or ``OutcomeUnknown``;
    ``SerializationError``, ``TopicNotFound``.
    """

    def __init__(self, *args: Any, acks: str | int, delivery_timeout_ms: int, **options: Any) -> None:
        """The rest as of ``Table``."""
        super().__init__(*args, **options)
        if isinstance(acks, bool) or acks not in ("all", 1, -1):
            raise ConfigError(f"acks={acks!r:.80}, expected 'all' or 1", option="acks", value=acks)
        self._is_durable = acks != 1
        self._timeout_ms = require_count("delivery_timeout_ms", delivery_timeout_ms, 0)
        self._own_max = _OWN_RECORDS

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        """Append a tombstone. Raises ``KeyError`` if the key has no value."""
        data = self._serializers.key_bytes(key)
        self._follow()
        if self._entry(data) is None:
            raise KeyError(key)
        self._write_one((data, None), ANY_OFFSET)

    def put(self, key: Any, value: Any, *, expected_offset: int | _Anything | None = ANY_OFFSET) -> RecordMetadata:
        """Set the value of a key. Returns the place of the record.

        With ``expected_offset`` only if the key's newest record has this offset, as
        ``get_with_offset`` returned it (None: if the key has no value); else ``OffsetConflict``. No
        other record of the key, of any process, comes in between. This needs the partition's end,
        so it waits for transactions that are open there, up to ``delivery_timeout_ms``, then raises
        ``DeliveryTimeout``. It also raises as ``refresh``, ``TopicChanged`` if the topic was
        repartitioned meanwhile, and ``ConfigError`` if partitions were added, and the key's record
        is in another one. Any call raises a kind of ``NotAppended``, ``OutcomeUnknown``,
        ``SerializationError``, ``TopicNotFound``.
        """
        return self._write_one(
            (self._serializers.key_bytes(key), self._serializers.value_bytes(value)), expected_offset
        )

    def delete(self, key: Any, *, expected_offset: int | _Anything | None = ANY_OFFSET) -> RecordMetadata:
        """Remove a key: append a tombstone, also if the key has no value. As ``put`` otherwise."""
        return self._write_one((self._serializers.key_bytes(key), None), expected_offset)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Remove a key and return its value, which no other ``pop`` returns. Without one, return
        ``default``; ``KeyError`` if none is given. Raises as ``put`` with ``expected_offset``, but
        no ``OffsetConflict``."""
        while True:
            value, offset = self.get_with_offset(key)
            if offset is None:
                if default is _MISSING:
                    raise KeyError(key)
                return default
            try:
                self.delete(key, expected_offset=offset)
                return value
            except own(OffsetConflict):
                self.refresh()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key. Without one, set it to ``default`` first, if it still has none.
        Raises as ``pop``, but no ``KeyError``."""
        while True:
            value, offset = self.get_with_offset(key)
            if offset is not None:
                return value
            try:
                self.put(key, default, expected_offset=None)
                return default
            except own(OffsetConflict):
                self.refresh()

    def popitem(self) -> tuple[Any, Any]:
        """Remove any key, and return it and its value, which no other ``pop`` returns. ``KeyError``
        if there is none. As ``pop`` otherwise."""
        gone = object()
        for key in self:
            value = self.pop(key, gone)
            if value is not gone:
                return key, value
        raise KeyError("the table has no keys")

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set many values: in few batches, and one sync for each partition. Not all or none.
        A kind of ``NotAppended``, ``OutcomeUnknown``, ``SerializationError``,
        ``TopicNotFound``."""
        if isinstance(other, Mapping):
            pairs: Iterable[tuple[Any, Any]] = other.items()
        elif hasattr(other, "keys"):  # as for ``dict.update``: a row of a database, for example
            pairs = ((key, other[key]) for key in other.keys())  # noqa: SIM118 - iterating it gives values
        else:
            pairs = other
        serializers = self._serializers
        self._write(
            (serializers.key_bytes(key), serializers.value_bytes(value)) for key, value in chain(pairs, more.items())
        )

    def clear(self) -> None:
        """Remove every key that there is now. As ``update`` otherwise, and as ``refresh``."""
        self._follow()
        self._write((key, None) for key, _ in self._entries())

    # Appending

    def _write_one(self, change: Change, expected_offset: int | _Anything | None) -> RecordMetadata:
        self._check()
        partition = self._partition_of([change[0]])[0]
        if isinstance(expected_offset, _Anything):
            result = self._append(partition, [change], None)
        else:
            if expected_offset is not None:
                require_count("expected_offset", expected_offset, 0)
            result = self._append_if(partition, change, expected_offset)
        self._make_durable(partition, result)
        return RecordMetadata(self.topic, partition.number, result.last_offset, result.timestamp_ms)

    def _write(self, changes: Iterable[Change]) -> None:
        self._check()
        rest = iter(changes)
        last: dict[int, tuple[Partition, AppendResult]] = {}
        while some := list(islice(rest, _BATCH_RECORDS_MAX)):
            last.update(self._write_some(some))
        for partition, result in last.values():
            self._make_durable(partition, result)

    def _write_some(self, changes: list[Change]) -> dict[int, tuple[Partition, AppendResult]]:
        """The last append to each partition."""
        limit_bytes = self._manager.describe_topic(self.topic).config.max_message_bytes
        of: dict[int, tuple[Partition, list[Change]]] = {}
        partitions = self._partition_of([key for key, _ in changes])
        for partition, change in zip(partitions, changes, strict=True):
            of.setdefault(partition.number, (partition, []))[1].append(change)
        last = {}
        for partition, its in of.values():
            for batch in _batches(its, limit_bytes):
                last[partition.number] = partition, self._append(partition, batch, None)
        return last

    def _partition_of(self, keys: list[bytes]) -> list[Partition]:
        """Where producers of the topic place these keys."""
        described = self._manager.describe_topic(self.topic)
        key_hash, count = KEY_HASHES[described.config.partitioner], described.partitions
        opened = {}
        numbers = [(key_hash(key) & POSITIVE) % count if count > 1 else 0 for key in keys]
        for number in set(numbers):
            opened[number] = Partition(self._manager.partition(self.topic, number))
        return [opened[number] for number in numbers]

    def _append(self, partition: Partition, changes: list[Change], expected_offset: int | None) -> AppendResult:
        """Not in the table's turn: another process may hold up the append, but not lookups."""
        self._check()
        if len(self._own) >= self._own_max:
            self.refresh()
            self._own_max = max(_OWN_RECORDS, 2 * len(self._own))
        history = partition.log.topic_id, partition.log.leader_epoch
        records = [ProducerRecord(value, key) for key, value in changes]
        result = partition.append(records, acks=1, expected_offset=expected_offset, timeout_ms=self._timeout_ms)
        number = partition.number
        entries = [(key, (place, number, value)) for place, (key, value) in enumerate(changes, result.base_offset)]
        with self._turn.lock:
            self._own.add(history, entries)
        return result

    def _append_if(self, partition: Partition, change: Change, expected_offset: int | None) -> AppendResult:
        if self._turn.is_mine():
            raise DeliveryTimeout(
                f"the table of {self.topic!r} is being read by this very thread: it was interrupted by a signal handler, "
                "which cannot compare here; try again when the handler has returned",
                topic=self.topic, partition=partition.number, timeout_ms=0,
            )  # fmt: skip
        clock = self._manager.clock
        deadline_s = clock.monotonic() + self._timeout_ms / 1000
        while True:
            tokens = self._follower.tokens()
            with self._turn.lock:
                end = self._end_if_unchanged(partition, change[0], expected_offset)
            try:
                return self._append(partition, [change], end)
            except own(OffsetConflict):  # other records came first, or a transaction is open
                pass
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                raise DeliveryTimeout(
                    f"{self.topic}-{partition.number}: nothing was written in {self._timeout_ms} ms: each time there were "
                    "records after what could be read, of other writers or of an open transaction; try again",
                    topic=self.topic, partition=partition.number, timeout_ms=self._timeout_ms,
                )  # fmt: skip
            self.refresh()
            position = self._store.positions.get(partition.number)
            if position is not None and position.offset == end:  # a transaction is open
                self._wait_for_change(tokens, left_s)

    def _end_if_unchanged(self, partition: Partition, key: bytes, expected_offset: int | None) -> int:
        """The offset up to which the partition was read, and the key's newest record was the
        expected one there.

        ``OffsetConflict`` if it was not; ``TopicChanged`` if the topic has other partitions since.
        """
        self._catch_up()
        if not self._follower.follows(partition.log):
            raise TopicChanged.since(self.topic)
        entry = self._entry(key)
        found = None if entry is None else entry[0]
        if entry is not None and entry[1] != partition.number:
            raise ConfigError(
                f"{self.topic}: the newest record of the key {key!r:.80} is in partition {entry[1]}, and producers "
                f"place it in {partition.number}: partitions were added since; append a tombstone there "
                "first",
                topic=self.topic, partition=entry[1], expected_partition=partition.number, option="expected_offset",
            )  # fmt: skip
        if found != expected_offset:
            raise OffsetConflict(
                f"{self.topic}-{partition.number}: the newest record of the key {key!r:.80} is at offset {found}, expected "
                f"{expected_offset}; read it with get_with_offset, then decide again",
                topic=self.topic, partition=partition.number, expected_offset=expected_offset, offset=found,
            )  # fmt: skip
        return self._store.positions[partition.number].offset

    def _make_durable(self, partition: Partition, result: AppendResult) -> None:
        if self._is_durable:
            partition.log.sync_appended(result)


def _batches(changes: list[Change], limit_bytes: int) -> Iterator[list[Change]]:
    batch: list[Change] = []
    size_bytes = 0
    for change in changes:
        more_bytes = len(change[0]) + len(change[1] or b"") + _RECORD_BYTES
        if batch and (size_bytes + more_bytes + _RECORD_BYTES > limit_bytes or len(batch) == _BATCH_RECORDS_MAX):
            yield batch
            batch, size_bytes = [], 0
        batch.append(change)
        size_bytes += more_bytes
    if batch:
        yield batch
