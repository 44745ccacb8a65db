"""Copies the records of a topic to other partitions, in the order of each key.

The partitions are merged by time (``merging.py``), and each record goes to the partition that the
topic's hash gives its key among the new ones. Records without a key continue in one partition for
each that they were in, so they keep their order, too. Aborted transactions and markers are left
out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pylog.catalog import TopicDescription
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.format import INT32_MAX, INT64_MAX, NONE
from pylog.errors import OffsetOutOfRange, RecordTooLarge
from pylog.group.offset_records import Committed
from pylog.interrupts import own
from pylog.limits import FETCH_BYTES
from pylog.manager.manager import LogManager
from pylog.model import Record, TopicPartition
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.topic_changes.keys import KeyHash
from pylog.topic_changes.merging import Stream, merged

_READ_BYTES = 32 << 20  # of all partitions together, at once
_READ_BYTES_MIN = 16 << 10  # of one
# The records of a step are in memory, and a group that has committed inside it costs reading it
# again. Notes of every piece would save that, and took 43 kB for each MB of a topic that gets 300
# partitions.
_STEP_BYTES = 8 << 20
_REACHED_BITS = 1 << 17  # to note for a step; with fewer, a group's position costs reading more steps

Progress = Callable[[int], object]
"""Called with the bytes that were copied since the last call."""


class OutdatedCopyError(Exception):
    """Records that were copied, or were to be, are gone from the topic."""


class _Step(NamedTuple):
    """Some MiB of the copy: up to where the next step begins, in the order of ``merged``."""

    starts: Sequence[int]
    """By source, its first offset."""
    bases: Sequence[int]
    """By new partition, its first offset."""
    reached: Sequence[int]
    """The new partitions that got some of its records, as bits: by source, modulo their number
    here."""


class _Source:
    """One partition of the topic as it is, and how far it is copied."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.state = log.current()  # before the first read
        self.next_offset = self.state.log_start_offset

    def is_as_it_was(self) -> bool:
        """Whether nothing that was copied has been deleted or compacted since: segments were only
        added."""
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
        self._hash, self._hash_after = KeyHash(before), KeyHash(after)
        self._sources = [_Source(manager.partition(before.name, number)) for number in before.numbers]
        self._steps: list[_Step] = []
        self.is_blocked = False
        """Whether ``copy`` has left records, since a transaction was open."""
        self._read_bytes = max(_READ_BYTES_MIN, min(FETCH_BYTES, _READ_BYTES // before.partitions))
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

    def copy(self, most_bytes: int = INT64_MAX) -> int:
        """Copy what can be read now, but not much more than ``most_bytes``. Returns the bytes that
        were copied."""
        streams = [self._stream(source.log, source.next_offset, source.log.latest_offset) for source in self._sources]
        parts, copied_bytes = merged(streams), 0
        try:
            while copied_bytes < most_bytes and (step_bytes := self._copy_step(streams, parts)):
                copied_bytes += step_bytes
        except own(OffsetOutOfRange) as error:
            raise OutdatedCopyError from error
        self.is_blocked = any(stream.is_blocked for stream in streams)
        return copied_bytes

    def _stream(self, log: PartitionLog, start: int, end: int) -> Stream:
        return Stream(log, start, end, now=self._hash, after=self._hash_after, max_bytes=self._read_bytes)

    def is_complete(self) -> bool:
        """With the locks of the topic's partitions: whether everything is copied."""
        return all(source.next_offset == source.log.latest_offset for source in self._sources)

    def is_outdated(self) -> bool:
        """Whether something that was copied may be gone from the topic."""
        return not all(source.is_as_it_was() for source in self._sources)

    def _copy_step(self, streams: Sequence[Stream], parts: Iterator[tuple[list[Record], Sequence[int]]]) -> int:
        starts = array("q", [stream.position for stream in streams])
        bases = array("q", [target.latest_offset for target in self._targets])
        encoders: dict[int, RecordEncoder] = {}
        appended_bytes, codec = 0, NONE
        for stream in streams:
            stream.reached = 0
        for records, targets in parts:
            codec = streams[records[0].partition].codec
            for record, target in zip(records, targets, strict=True):
                encoder = encoders.get(target)
                if encoder is None:
                    encoder = encoders[target] = RecordEncoder(self._batch_bytes)
                if not self._put(encoder, record):
                    appended_bytes += self._append(target, encoder, codec)
                    encoder = encoders[target] = RecordEncoder(self._batch_bytes)
                    if not self._put(encoder, record):
                        encoder = encoders[target] = RecordEncoder(INT32_MAX)  # compressed, it is less
                        self._put(encoder, record)
            if appended_bytes + sum(encoder.size_bytes for encoder in encoders.values()) >= _STEP_BYTES:
                break
        for target, encoder in encoders.items():
            appended_bytes += self._append(target, encoder, codec)
        for source, stream in zip(self._sources, streams, strict=True):
            source.next_offset = stream.position
        if appended_bytes:
            self._steps.append(_Step(starts, bases, self._reached(streams)))
            self._progress(appended_bytes)
        return appended_bytes

    def _reached(self, streams: Sequence[Stream]) -> list[int]:
        reached = [0] * min(len(streams), max(1, _REACHED_BITS // len(self._targets)))
        for stream in streams:
            reached[stream.number % len(reached)] |= stream.reached
        return reached

    def _put(self, encoder: RecordEncoder, record: Record) -> bool:
        try:
            return encoder.append(record.timestamp_ms, record.key, record.value, record.headers)
        except own(RecordTooLarge):
            return False

    def _append(self, target: int, encoder: RecordEncoder, codec: int) -> int:
        if not encoder.count:
            return 0
        least_ms = encoder.min_timestamp_ms
        batch = build_batch(encoder, codec=codec)
        self._targets[target].append_batch(batch, min_timestamp_ms=least_ms)
        return len(batch)

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
        """For each new partition, the first record that the group has not committed. A partition in
        which it has committed nothing counts from its beginning. To be called before ``sync``."""
        committed = [0] * len(self._sources)
        for number, position in positions.items():
            committed[number] = position.offset
        now_ms = self._manager.clock.now_ms()
        return {
            number: Committed(offset, self._targets[number].leader_epoch, "", now_ms, self._after.id)
            for number, offset in self._first_since(committed).items()
        }

    def _first_since(self, committed: Sequence[int]) -> dict[int, int]:
        """By new partition, its first record that is not before the offset ``committed`` of its
        source; else its end."""
        begin = len(self._steps)
        for number, offset in enumerate(committed):
            index = bisect_right(self._steps, offset, key=lambda step: step.starts[number])
            begin = min(begin, max(index - 1, 0))
        ends = [target.latest_offset for target in self._targets]
        rest = _Step([source.next_offset for source in self._sources], ends, ())
        found: dict[int, int] = {}
        for step, then in pairwise([*self._steps[begin:], rest]):
            if all(offset <= start for offset, start in zip(committed, step.starts, strict=True)):
                rest = step
                break
            reached = 0
            for source, (offset, end) in enumerate(zip(committed, then.starts, strict=True)):
                reached |= step.reached[source % len(step.reached)] if offset < end else 0
            wanted = {number for number in self._after.numbers if reached >> number & 1 and number not in found}
            if wanted:
                found.update(self._found_in(step, then, committed, wanted))
        return {**dict(enumerate(rest.bases)), **found}

    def _found_in(
        self, step: _Step, then: _Step, committed: Sequence[int], wanted: set[int]
    ) -> Iterator[tuple[int, int]]:
        logs = (source.log for source in self._sources)
        streams = [self._stream(*each) for each in zip(logs, step.starts, then.starts, strict=True)]
        offsets = array("q", step.bases)
        for records, targets in merged(streams):
            for record, target in zip(records, targets, strict=True):
                if target in wanted and record.offset >= committed[record.partition]:
                    wanted.remove(target)
                    yield target, offsets[target]
                    if not wanted:
                        return
                offsets[target] += 1
