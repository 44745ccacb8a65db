"""What retention must know of a partition's segments. Reads only, and takes no lock.

The time of the last append is the log file's: a copy that does not keep file times makes it later,
never earlier, so nothing is deleted too early. No later segment can have been appended to before an
earlier one; so of a file time in the future, the least one after it counts.

A greatest timestamp decides about deletion, so it comes from a seal, or from batches whose
checksums are right. No index is trusted.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from pylog.catalog.topic import TopicConfig
from pylog.cleaner.retention import Segment, oldest_young_ms
from pylog.codec.format import CONTROL_BIT, INT64_MAX
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.partition_log import PartitionLog
from pylog.segment import SegmentScan, check_home, first_batch_since, read_seal
from pylog.segment.naming import LOG, SEAL, SNAPSHOT

NS_PER_MS = 1_000_000
LOOKS_MAX = 10
"""Each look fails only if another process deletes, in that moment, a segment that it has listed."""


class PartitionFacts(NamedTuple):
    """A partition at one moment. The active segment is the last."""

    partition: PartitionLog
    state: CommitState
    segments: tuple[Segment, ...]


class Facts:
    """Looks at partitions. Remembers what does not change: closed segments."""

    def __init__(self) -> None:
        self._closed: dict[TopicPartition, tuple[object, tuple[Segment, ...]]] = {}
        self._newest: dict[TopicPartition, tuple[object, dict[int, int | None]]] = {}

    def look(self, partition: PartitionLog) -> PartitionFacts:
        """Return the facts. Raises ``FileNotFoundError`` if a segment was deleted meanwhile."""
        directory, state = partition.directory, partition.current()
        filesystem = directory.filesystem
        known = self._closed.get(partition.topic_partition)
        if known is not None and known[0] == _version(partition, state):
            closed = known[1]
        else:
            found = []
            for base, end in pairwise(partition.reader.segments(state).bases):
                path = directory.file_path(base, LOG)
                found.append(Segment(base, end, filesystem.size(path), filesystem.modified_ns(path) // NS_PER_MS))
            closed = tuple(found)
            self._closed[partition.topic_partition] = _version(partition, state), closed
        appended_ms = INT64_MAX
        if state.written_end:  # else its file may not be there yet: a roll publishes it first
            appended_ms = filesystem.modified_ns(directory.file_path(state.active_base, LOG)) // NS_PER_MS
        active = Segment(state.active_base, state.log_end_offset, state.written_end, appended_ms, is_active=True)
        return PartitionFacts(partition, state, _with_rising_times([*closed, active]))

    def forget_others(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all partitions but these: the others are gone."""
        for known in self._closed, self._newest:
            for name in [name for name in list(known) if name not in partitions]:
                known.pop(name, None)

    def newest_ms(self, facts: PartitionFacts, number: int, config: TopicConfig, now_ms: int) -> int | None:
        """See ``retention.NewestMs``. ``CorruptSegment`` if a damaged segment does not tell."""
        partition, state, segment = facts.partition, facts.state, facts.segments[number]
        version = _version(partition, state)
        known = self._newest.get(partition.topic_partition)
        if known is None or known[0] != version:
            known = self._newest[partition.topic_partition] = version, {}
        if segment.base_offset not in known[1]:
            young_ms = oldest_young_ms(config, now_ms)
            found = None if segment.is_active else _sealed_ms(partition, segment)
            if found is None:
                following = None if segment.is_active else segment.end_offset
                reader, end = partition.reader.segment(segment.base_offset, state, following)
                header = first_batch_since(reader, young_ms, segment.base_offset, end) if end else None
                if header is not None:
                    return header.max_timestamp_ms
                if segment.is_active:
                    # It is closed before it goes, and is looked at again then. A record is no
                    # younger than the last append.
                    return min(young_ms - 1, segment.appended_ms)
                found = _read_ms(partition, segment)
            known[1][segment.base_offset] = found
        newest_ms = known[1][segment.base_offset]
        return newest_ms if newest_ms is not None and newest_ms >= 0 else None  # -1: the producer gave no time


def disk_bytes(facts: PartitionFacts) -> tuple[list[int], int]:
    """Bytes of all files of each segment, and of all others in the directory."""
    directory = facts.partition.directory
    of_base = {f"{segment.base_offset:020d}": number for number, segment in enumerate(facts.segments)}
    sizes, rest = [0] * len(facts.segments), 0
    for name in directory.names():
        try:
            size = directory.filesystem.size(f"{directory.path}/{name}")
        except own(FileNotFoundError):
            continue  # removed meanwhile
        number = of_base.get(name.partition(".")[0])
        if number is None or name.endswith(SNAPSHOT):
            rest += size
        else:
            sizes[number] += size
    return sizes, rest


def _version(partition: PartitionLog, state: CommitState) -> tuple[object, ...]:
    """Another one whenever the closed segments are others."""
    return partition.topic_id, state.active_base, state.segments_version


def _with_rising_times(segments: list[Segment]) -> tuple[Segment, ...]:
    least_ms, found = INT64_MAX, []
    for segment in reversed(segments):
        least_ms = min(least_ms, segment.appended_ms)
        found.append(segment if segment.appended_ms == least_ms else segment._replace(appended_ms=least_ms))
    return tuple(reversed(found))


def _sealed_ms(partition: PartitionLog, segment: Segment) -> int | None:
    """The greatest timestamp that the segment's seal says; None if there is none to believe."""
    directory = partition.directory
    path = directory.file_path(segment.base_offset, SEAL)
    try:
        seal = read_seal(directory.filesystem, directory.path, segment.base_offset, segment.size_bytes)
        if seal is None or seal.size_bytes != segment.size_bytes or not seal.greatest_ms:
            return None
        check_home(seal.home, directory.home, path)
    except own(CorruptSegment, FormatVersionError):
        return None
    return seal.greatest_ms[-1]


def _read_ms(partition: PartitionLog, segment: Segment) -> int | None:
    """The greatest timestamp of a record, of every batch of the segment with its checksum."""
    directory = partition.directory
    path = directory.file_path(segment.base_offset, LOG)
    newest_ms: int | None = None
    with closing(directory.filesystem.open_readable(path)) as file:
        scan = SegmentScan(file, 0, segment.size_bytes, next_offset=segment.base_offset, dense=False)
        for _, header in scan:
            if not header.attributes & CONTROL_BIT:
                newest_ms = max(header.max_timestamp_ms, -1 if newest_ms is None else newest_ms)
        if scan.problem is not None:
            raise scan.damage()
    return newest_ms
