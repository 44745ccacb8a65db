"""A table whose changes are records of its topic.

Compare-and-set across processes: the table reads its partition to the end n, compares the offset of
the key's newest record, and appends only if the log still ends at n (``expected_offset`` of
``Partition.append``). If another record came in between, it reads that one and compares again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from pylog.checks import require_count
from pylog.codec.format import POSITIVE
from pylog.errors import ConfigError, DeliveryTimeout, OffsetConflict, OffsetOutOfRange, OutcomeUnknown
from pylog.interrupts import own
from pylog.model import AppendResult, ProducerRecord, RecordMetadata
from pylog.partition.partition import Partition
from pylog.producer.partitioner import KEY_HASHES
from pylog.tables.mapping import Table

_RECORD_BYTES = 64  # at most, of a record besides its key and value
_BATCH_RECORDS_MAX = 10_000

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

    Writes raise a kind of ``NotAppended`` (nothing changed), or ``OutcomeUnknown``.
    """

    def __init__(self, *args: Any, acks: str | int, delivery_timeout_ms: int, **options: Any) -> None:
        """The rest as of ``Table``."""
        super().__init__(*args, **options)
        if isinstance(acks, bool) or acks not in ("all", 1, -1):
            raise ConfigError(f"acks={acks!r:.80}, expected 'all' or 1", option="acks", value=acks)
        self._is_durable = acks != 1
        self._timeout_ms = require_count("delivery_timeout_ms", delivery_timeout_ms, 0)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        """``KeyError`` if the key has no value."""
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
        ``DeliveryTimeout``.
        """
        return self._write_one(
            (self._serializers.key_bytes(key), self._serializers.value_bytes(value)), expected_offset
        )

    def delete(self, key: Any, *, expected_offset: int | _Anything | None = ANY_OFFSET) -> RecordMetadata:
        """Remove a key: append a tombstone, also if the key has no value. As ``put`` otherwise."""
        return self._write_one((self._serializers.key_bytes(key), None), expected_offset)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Remove a key and return its value, which no other ``pop`` returns."""
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
        """The value of a key. Without one, set it to ``default`` first, if it still has none."""
        while True:
            value, offset = self.get_with_offset(key)
            if offset is not None:
                return value
            try:
                self.put(key, default, expected_offset=None)
                return default
            except own(OffsetConflict):
                self.refresh()

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set many values: in few batches, and one sync for each partition. Not all or none."""
        pairs = other.items() if isinstance(other, Mapping) else other
        serializers = self._serializers
        self._write([(serializers.key_bytes(k), serializers.value_bytes(v)) for k, v in [*pairs, *more.items()]])

    def clear(self) -> None:
        """Remove every key that there is now."""
        self._follow()
        self._write([(key, None) for key, _ in self._entries()])

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

    def _write(self, changes: list[Change]) -> None:
        self._check()
        limit_bytes = self._manager.describe_topic(self.topic).config.max_message_bytes
        of: dict[int, tuple[Partition, list[Change]]] = {}
        partitions = self._partition_of([key for key, _ in changes])
        for partition, change in zip(partitions, changes, strict=True):
            of.setdefault(partition.number, (partition, []))[1].append(change)
        for partition, its in of.values():
            results = [self._append(partition, batch, None) for batch in _batches(its, limit_bytes)]
            self._make_durable(partition, results[-1])

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
        with self._turn.lock:
            return self._append_here(partition, changes, expected_offset)

    def _append_here(self, partition: Partition, changes: list[Change], expected_offset: int | None) -> AppendResult:
        self._check()
        records = [ProducerRecord(value, key) for key, value in changes]
        result = partition.append(records, acks=1, expected_offset=expected_offset, timeout_ms=self._timeout_ms)
        for place, (key, value) in enumerate(changes, result.base_offset):
            self._own[key] = (place, partition.number, value)
        return result

    def _append_if(self, partition: Partition, change: Change, expected_offset: int | None) -> AppendResult:
        clock = self._manager.clock
        deadline_s = clock.monotonic() + self._timeout_ms / 1000
        while True:
            tokens = self._follower.tokens()
            end = self._read_to()
            with self._turn.lock:
                result = self._append_if_unchanged(partition, change, expected_offset)
            if result is not None:
                return result
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                raise DeliveryTimeout(
                    f"{self.topic}-{partition.number}: nothing was written in {self._timeout_ms} ms: each time there were "
                    "records after what could be read, of other writers or of an open transaction; try again",
                    topic=self.topic, partition=partition.number, timeout_ms=self._timeout_ms,
                )  # fmt: skip
            if self._read_to() == end:  # a transaction is open
                self._wait_for_change(tokens, left_s)

    def _read_to(self) -> list[int]:
        return [*self.positions().values()]

    def _append_if_unchanged(
        self, partition: Partition, change: Change, expected_offset: int | None
    ) -> AppendResult | None:
        """None if the log has grown since it was read. ``OffsetConflict`` if the key is not as expected."""
        self._catch_up()
        entry = self._entry(change[0])
        found = None if entry is None else entry[0]
        if entry is not None and entry[1] != partition.number:
            raise ConfigError(
                f"{self.topic}: the newest record of the key {change[0]!r:.80} is in partition {entry[1]}, and producers "
                f"place it in {partition.number}: partitions were added since; append a tombstone there "
                "first",
                topic=self.topic, partition=entry[1], expected_partition=partition.number, option="expected_offset",
            )  # fmt: skip
        if found != expected_offset:
            raise OffsetConflict(
                f"{self.topic}-{partition.number}: the newest record of the key {change[0]!r:.80} is at offset {found}, expected "
                f"{expected_offset}; read it with get_with_offset, then decide again",
                topic=self.topic, partition=partition.number, expected_offset=expected_offset, offset=found,
            )  # fmt: skip
        try:
            return self._append_here(partition, [change], self._store.positions[partition.number].offset)
        except own(OffsetConflict):
            return None

    def _make_durable(self, partition: Partition, result: AppendResult) -> None:
        if not self._is_durable:
            return
        try:
            partition.log.sync(result.last_offset + 1)
        except own(OffsetOutOfRange) as error:
            raise OutcomeUnknown(f"appended, and cut again by a failed sync: {error}", **error.facts) from error


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
