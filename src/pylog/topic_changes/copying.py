"""Copies the records of a topic to other partitions, in the order of each key.

A key is in one partition, and its records are copied in the order of that partition to the partition
that the topic's hash gives it among the new ones. Several partitions are merged by time, a piece at a
time. Records without a key continue in one partition for each that they were in, so they keep their
order, too. Aborted transactions and markers are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pylog.catalog import TopicDescription
from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchView, build_batch
from pylog.codec.format import INT32_MAX
from pylog.errors import ConfigError, RecordTooLarge
from pylog.group.offset_records import Committed
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES, RECORDS_AT_ONCE
from pylog.manager.manager import LogManager
from pylog.model import Record, TopicPartition
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.partition.producers.state import is_named
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN
from pylog.topic_changes.keys import key_hash

_PIECES_BYTES = 64 << 20  # one piece of each partition is in memory
_PIECE_BYTES_MIN = 64 << 10

Progress = Callable[[int], object]
"""Called with the bytes that were read since the last call."""


class _Step(NamedTuple):
    """One piece of a source: its offsets, and the first offset and number of its records by new partition."""

    start: int
    end: int
    copied: Mapping[int, tuple[int, int]]


class _Source:
    """One partition of the topic as it is, and how far it is copied."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.state = log.current()  # before the first read
        self.next_offset = self.state.log_start_offset
        self.steps: list[_Step] = []
        self.piece: list[BatchView] = []
        self.piece_end = self.next_offset

    def fetch(self, max_bytes: int) -> bool:
        """Have a piece, if there is one."""
        while not self.piece and self.next_offset < self.log.latest_offset:
            found = self.log.fetch(
                Cursor(self.next_offset), max_bytes=max_bytes, isolation_level=READ_COMMITTED, visibility=WRITTEN
            )
            if found.cursor.offset <= self.next_offset:
                break  # a transaction is under way
            self.piece, self.piece_end = list(found.batches), found.cursor.offset
            if not self.piece:
                self.next_offset = self.piece_end
        return bool(self.piece)

    def is_as_it_was(self) -> bool:
        """Whether nothing that was copied has been deleted or compacted since: segments were only added."""
        now, bases = self.log.current(), self.log.directory.segments().bases
        rolls = sum(base > self.state.active_base for base in bases)
        changes = (now.segments_version - self.state.segments_version) % (1 << 32)
        return changes == rolls and now.log_start_offset == self.state.log_start_offset


class TopicCopy:
    """A topic with other partitions, while it is made. ``after`` is the topic as it will be."""

    def __init__(
        self, manager: LogManager, before: TopicDescription, after: TopicDescription, progress: Progress
    ) -> None:
        self._manager = manager
        self._after = after
        self._progress = progress
        self._hash = key_hash(before.config.partitioner)
        self._sources = [_Source(manager.partition(before.name, number)) for number in before.numbers]
        self._piece_bytes = max(_PIECE_BYTES_MIN, min(FETCH_BYTES, _PIECES_BYTES // before.partitions))
        self._batch_bytes = min(FETCH_BYTES, before.config.max_message_bytes)
        self._config = before.config._replace(
            message_timestamp_type="CreateTime", max_message_bytes=INT32_MAX, writable=True
        )  # what is in the topic stays as it is
        for number in range(after.partitions):
            path = manager.layout.copy(after.name, number, after.id)
            manager.filesystem.make_directory(path)
            PartitionDirectory.create(manager.filesystem, path, after.id, manager.boot)
        self._targets = self._opened()

    def _opened(self) -> list[PartitionLog]:
        manager, after = self._manager, self._after
        directories = [
            PartitionDirectory(
                manager.filesystem, manager.clock, manager.layout.copy(after.name, number, after.id),
                TopicPartition(after.name, number), lambda: self._config, manager.boot, after.id,
            )
            for number in range(after.partitions)
        ]  # fmt: skip
        return [
            PartitionLog(
                directory,
                topic_id=after.id,
                log_start=0,
                notify=bool,
                sync_catalog=lambda: None,
                why_read_only=None,
            )
            for directory in directories
        ]

    def copy(self) -> int:
        """Copy what can be read now. Returns the bytes that were read."""
        ends = [source.log.latest_offset for source in self._sources]
        copied_bytes = 0
        while True:
            ready = [
                source
                for source, end in zip(self._sources, ends, strict=True)
                if source.next_offset < end and source.fetch(self._piece_bytes)
            ]
            if not ready:
                return copied_bytes
            oldest = min(ready, key=lambda source: source.piece[0].header.base_timestamp_ms)
            copied_bytes += self._copy_piece(oldest)

    def is_complete(self) -> bool:
        """With the locks of the topic's partitions: whether everything is copied."""
        return all(source.next_offset == source.log.latest_offset for source in self._sources)

    def is_outdated(self) -> bool:
        """Whether something that was copied may be gone from the topic."""
        return not all(source.is_as_it_was() for source in self._sources)

    def _copy_piece(self, source: _Source) -> int:
        encoders: dict[int, RecordEncoder] = {}
        copied: dict[int, tuple[int, int]] = {}
        codec = source.piece[0].header.codec
        for record in self._records(source, source.piece, source.next_offset):
            target = self._target(source.log.number, record)
            encoder = encoders.get(target)
            if encoder is None:
                encoder = encoders[target] = RecordEncoder(self._batch_bytes)
                copied[target] = (self._targets[target].latest_offset, 0)
            if not self._put(encoder, record):
                self._append(target, encoder, codec)
                encoder = encoders[target] = RecordEncoder(self._batch_bytes)
                if not self._put(encoder, record):
                    encoder = encoders[target] = RecordEncoder(INT32_MAX)  # compressed, it is less
                    self._put(encoder, record)
            copied[target] = (copied[target][0], copied[target][1] + 1)
        for target, encoder in encoders.items():
            self._append(target, encoder, codec)
        source.steps.append(_Step(source.next_offset, source.piece_end, copied))
        size_bytes = sum(len(view.buffer) for view in source.piece)
        source.next_offset, source.piece = source.piece_end, []
        self._progress(size_bytes)
        return size_bytes

    def _put(self, encoder: RecordEncoder, record: Record) -> bool:
        try:
            return encoder.append(record.timestamp_ms, record.key, record.value, record.headers)
        except own(RecordTooLarge):
            return False

    def _append(self, target: int, encoder: RecordEncoder, codec: int) -> None:
        if encoder.count:
            least_ms = encoder.min_timestamp_ms
            self._targets[target].append_batch(build_batch(encoder, codec=codec), min_timestamp_ms=least_ms)

    def _records(self, source: _Source, piece: list[BatchView], start: int) -> Iterator[Record]:
        for view in piece:
            if is_named(view.header.producer_id):
                topic, number = source.log.topic_partition
                raise ConfigError(
                    f"{topic}-{number} has records of a named producer at offset {view.base_offset}: it numbers its batches by "
                    "partition, and would send them again to others; the topic keeps its partitions",
                    option="partitions", topic=topic, partition=number, offset=view.base_offset,
                )  # fmt: skip
            decoder = view.decoder(source.log.topic, source.log.number)
            decoder.skip_to(start)
            while records := decoder.take(RECORDS_AT_ONCE):
                yield from records

    def _target(self, number: int, record: Record) -> int:
        count = self._after.partitions
        return number % count if record.key is None else self._hash(record.key, count)

    # The end

    def sync(self) -> None:
        """Make the copy durable, and close it. ``copy`` may continue it."""
        for target in self._targets:
            target.sync(target.latest_offset)
        self.close()
        self._targets = self._opened()
        for target in self._targets:
            self._manager.filesystem.sync_directory(target.directory.path)
        self._manager.filesystem.sync_directory(self._manager.layout.root)

    def close(self) -> None:
        for target in self._targets:
            target.close()

    def translated(self, positions: Mapping[int, Committed]) -> dict[int, Committed]:
        """For each new partition, the first record that the group has not committed. A partition in which it has
        committed nothing counts from its beginning. To be called before ``sync``."""
        first: dict[int, int] = {target.number: target.latest_offset for target in self._targets}
        for source in self._sources:
            committed = positions.get(source.log.number)
            for target, offset in self._first_since(source, 0 if committed is None else committed.offset):
                first[target] = min(first[target], offset)
        now_ms = self._manager.clock.now_ms()
        return {
            target: Committed(offset, self._targets[target].leader_epoch, "", now_ms, self._after.id)
            for target, offset in first.items()
        }

    def _first_since(self, source: _Source, offset: int) -> Iterator[tuple[int, int]]:
        """By new partition, where the source's first record at or after ``offset`` is."""
        found: set[int] = set()
        index = max(bisect_right(source.steps, offset, key=lambda step: step.start) - 1, 0)
        for step in source.steps[index:]:
            before = self._counts(source, step, offset) if step.start < offset < step.end else {}
            for target, (base, count) in step.copied.items():
                skipped = count if offset >= step.end else before.get(target, 0)
                if target not in found and skipped < count:
                    found.add(target)
                    yield target, base + skipped

    def _counts(self, source: _Source, step: _Step, end: int) -> dict[int, int]:
        """The records of a step before the offset ``end``, by new partition."""
        counts: dict[int, int] = {}
        batches = list(source.log.batches(step.start, end, READ_COMMITTED))
        for record in self._records(source, batches, step.start):
            if record.offset < end:
                target = self._target(source.log.number, record)
                counts[target] = counts.get(target, 0) + 1
        return counts
