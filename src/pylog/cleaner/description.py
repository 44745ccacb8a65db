"""Describes partitions: sizes, segments, first and last record, what compaction has left. Reads no
data but at both ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pylog.catalog.topic import TopicConfig
from pylog.cleaner.facts import LOOKS_MAX, Facts, PartitionFacts, disk_bytes
from pylog.codec.batch import BatchHeader, BatchView
from pylog.codec.format import INT64_MAX
from pylog.errors import CorruptRecord, FormatVersionError, MissingCodec, OffsetOutOfRange, StorageError
from pylog.interrupts import own
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import OffsetAndTimestamp, Record
from pylog.partition.cleaner_checkpoint import read_cleaned

if TYPE_CHECKING:
    from pylog.manager.manager import LogManager
    from pylog.partition.partition_log import PartitionLog

_LAST_OFFSETS = 1000  # of each segment: among them is its last record, if there is one
_SEGMENTS_LOOKED_INTO = _PIECES_MAX = 64


class PartitionDescription(NamedTuple):
    """One partition. ``size_bytes``: of its log files; ``other_bytes``: of all its other files.

    ``oldest`` and ``newest`` are its first and last record, whether committed or not; None without
    records near that end. If a batch can't be decompressed, its first or last offset and its
    greatest time. ``open_transactions`` wait for a marker. ``first_dirty_offset``: what is before
    was compacted; ``dirty_bytes`` of closed segments were not. Both are None without compaction.
    ``problem``: why the rest is not known.
    """

    topic: str
    partition: int
    log_start_offset: int | None = None
    last_stable_offset: int | None = None
    latest_offset: int | None = None
    durable_offset: int | None = None
    segments: int | None = None
    size_bytes: int | None = None
    other_bytes: int | None = None
    oldest: OffsetAndTimestamp | None = None
    newest: OffsetAndTimestamp | None = None
    open_transactions: int | None = None
    first_dirty_offset: int | None = None
    dirty_bytes: int | None = None
    problem: str = ""

    @property
    def time_span_ms(self) -> int | None:
        """From the oldest to the newest record; None without records that have times."""
        if self.oldest is None or self.newest is None or min(self.oldest.timestamp_ms, self.newest.timestamp_ms) < 0:
            return None
        return self.newest.timestamp_ms - self.oldest.timestamp_ms


def describe_partitions(manager: LogManager, topic: str) -> list[PartitionDescription]:
    """See ``Log.describe_partitions``."""
    described = manager.describe_topic(topic)
    return [_described(manager.partition(topic, number), described.config) for number in described.numbers]


def _described(partition: PartitionLog, config: TopicConfig) -> PartitionDescription:
    found = PartitionDescription(partition.topic, partition.number)
    for number in range(LOOKS_MAX):
        try:
            facts = Facts().look(partition)
            found = _sizes(found, facts, config)
            open_transactions = len(partition.reader.open_transactions()) if _has_open(facts) else 0
            return found._replace(oldest=_oldest(facts), newest=_newest(facts), open_transactions=open_transactions)
        except own(FileNotFoundError, OffsetOutOfRange) as error:  # deleted meanwhile
            partition.reader.close()
            if number == LOOKS_MAX - 1:
                return found._replace(problem=str(error))
        except own(CorruptRecord, FormatVersionError, StorageError) as error:
            return found._replace(problem=str(error))
    raise AssertionError("the last try returns")


def _has_open(facts: PartitionFacts) -> bool:
    return facts.state.last_stable_offset < facts.state.high_watermark


def _sizes(found: PartitionDescription, facts: PartitionFacts, config: TopicConfig) -> PartitionDescription:
    state = facts.state
    size_bytes = sum(segment.size_bytes for segment in facts.segments)
    sizes, rest = disk_bytes(facts)
    found = found._replace(
        log_start_offset=state.log_start_offset, last_stable_offset=state.last_stable_offset,
        latest_offset=state.high_watermark, durable_offset=state.durable_offset, segments=len(facts.segments),
        size_bytes=size_bytes, other_bytes=max(sum(sizes) + rest - size_bytes, 0),
    )  # fmt: skip
    if not config.is_compacted:
        return found
    first_dirty = max(read_cleaned(facts.partition.directory).first_dirty, state.log_start_offset)
    dirty_bytes = sum(segment.size_bytes for segment in facts.segments[:-1] if segment.end_offset > first_dirty)
    return found._replace(first_dirty_offset=first_dirty, dirty_bytes=dirty_bytes)


def _oldest(facts: PartitionFacts) -> OffsetAndTimestamp | None:
    start = facts.state.log_start_offset
    pieces = facts.partition.reader.fetches(start, INT64_MAX)
    for fetched in islice(pieces, _PIECES_MAX):  # several only if compaction or an erasure has emptied the first ones
        for view in fetched.batches:
            try:
                for record in _records(view, start):
                    return OffsetAndTimestamp(record.offset, record.timestamp_ms)
            except own(MissingCodec):
                return OffsetAndTimestamp(max(view.base_offset, start), view.header.max_timestamp_ms)
    return None


def _newest(facts: PartitionFacts) -> OffsetAndTimestamp | None:
    for number in range(len(facts.segments) - 1, max(len(facts.segments) - 1 - _SEGMENTS_LOOKED_INTO, -1), -1):
        data = [header for header in _last_headers(facts, number) if not header.is_control and header.count]
        for header in reversed(data):
            newest = _last_of(facts, header)
            if newest is not None:
                return newest
    return None


def _last_headers(facts: PartitionFacts, number: int) -> list[BatchHeader]:
    partition, state, segment = facts.partition, facts.state, facts.segments[number]
    if segment.is_active and not segment.size_bytes:
        return []
    reader, end = partition.reader.segment(
        segment.base_offset, state, None if segment.is_active else segment.end_offset
    )
    offset = max(segment.base_offset, segment.end_offset - _LAST_OFFSETS)
    position = reader.locate(offset, end)
    return [header for _, header in reader.headers_from(offset)] if position < end else []


def _last_of(facts: PartitionFacts, header: BatchHeader) -> OffsetAndTimestamp | None:
    start = facts.state.log_start_offset
    try:
        for fetched in facts.partition.reader.fetches(max(header.base_offset, start), INT64_MAX, max_bytes=1):
            for view in fetched.batches:
                last = next(iter(deque(_records(view, start), maxlen=1)), None)
                return None if last is None else OffsetAndTimestamp(last.offset, last.timestamp_ms)
            break
    except own(MissingCodec):
        return OffsetAndTimestamp(header.last_offset, header.max_timestamp_ms)
    except own(OffsetOutOfRange):
        pass  # deleted meanwhile, or before the log start
    return None


def _records(view: BatchView, start: int) -> Iterator[Record]:
    decoder = view.decoder("", 0)
    decoder.skip_to(start)
    while records := decoder.take(RECORDS_AT_ONCE):
        yield from records
