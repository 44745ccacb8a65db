"""Which part of a partition can be compacted, how much of it is dirty, and which segments become
one. Pure functions.

Kafka's rules: ``LogCleanerManager.cleanableOffsets`` and ``Cleaner.groupSegmentsBySize``
(docs/format.md, "Compaction").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pylog.codec.format import INT32_MAX
from pylog.partition.commit_slots import CommitState
from pylog.partition.compact.options import CompactionOptions


class ClosedSegment(NamedTuple):
    """One closed segment. ``end`` is the next one's base; ``greatest_ms`` its latest record time,
    or that of its last append."""

    base: int
    end: int
    size_bytes: int
    index_bytes: int = 0
    greatest_ms: int = -1


class Plan(NamedTuple):
    """``segments`` before ``end`` are to be rewritten; those from ``first_dirty`` on were never
    cleaned.

    ``reason`` says what keeps the rest from being cleaned.
    """

    first_dirty: int
    end: int
    segments: tuple[ClosedSegment, ...]
    reason: str = ""

    @property
    def dirty(self) -> tuple[ClosedSegment, ...]:
        return tuple(segment for segment in self.segments if segment.end > self.first_dirty)

    @property
    def dirty_ratio(self) -> float:
        """The share of bytes that were never cleaned, 0 without any."""
        total = sum(segment.size_bytes for segment in self.segments)
        return sum(segment.size_bytes for segment in self.dirty) / total if total else 0.0


def plan(
    state: CommitState, closed: Sequence[ClosedSegment], checkpoint: int, options: CompactionOptions, now_ms: int
) -> Plan:
    """What can be compacted now of the segments ``closed``, which are all before the active one."""
    first_dirty = checkpoint if state.log_start_offset <= checkpoint <= state.log_end_offset else state.log_start_offset
    limits = {
        "the active segment is not compacted": state.active_base,
        "what follows is not durable": state.durable_offset,
        "a transaction is open": min(state.last_stable_offset, state.high_watermark),
    }
    if options.end_reason:
        limits[options.end_reason] = options.end
    if options.min_compaction_lag_ms > 0:
        young_ms = now_ms - options.min_compaction_lag_ms
        young = [segment.base for segment in closed if segment.end > first_dirty and segment.greatest_ms > young_ms]
        limits["records are younger than min_compaction_lag_ms"] = min(young, default=state.active_base)
    reason, limit = min(limits.items(), key=lambda item: item[1])
    segments = [segment for segment in closed if segment.end > state.log_start_offset and segment.end <= limit]
    end = max([first_dirty, *(segment.end for segment in segments)]) if segments else first_dirty
    return Plan(first_dirty, end, tuple(segments), "" if end >= state.active_base else reason)


def groups(
    segments: Sequence[ClosedSegment], segment_bytes: int, index_max_bytes: int
) -> list[tuple[ClosedSegment, ...]]:
    """Neighbours that fit into one segment together: by size, by size of their indexes, and by
    offsets relative to a base."""
    made: list[list[ClosedSegment]] = []
    for segment in segments:
        if made and _fits([*made[-1], segment], segment_bytes, index_max_bytes):
            made[-1].append(segment)
        else:
            made.append([segment])
    return [tuple(group) for group in made]


def _fits(group: Sequence[ClosedSegment], segment_bytes: int, index_max_bytes: int) -> bool:
    return (
        sum(segment.size_bytes for segment in group) <= segment_bytes
        and sum(segment.index_bytes for segment in group) <= index_max_bytes
        and group[-1].end - group[0].base <= INT32_MAX
        and all(before.end == after.base for before, after in pairwise(group))
    )
