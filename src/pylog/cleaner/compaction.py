"""Compaction as a step of maintenance: whether a partition is due, and what came of it.

Docs: docs/design.md, "Compaction". The engine is ``partition/compact``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from pylog.catalog.topic import TopicConfig
from pylog.cleaner.facts import PartitionFacts
from pylog.cleaner.report import PartitionMaintenance
from pylog.cleaner.retention import Segment
from pylog.cleaner.step import Target
from pylog.codec.format import INT64_MAX
from pylog.errors import OffsetOutOfRange
from pylog.interrupts import own
from pylog.partition.compact.checkpoint import read_first_dirty
from pylog.partition.compact.engine import compact, planned
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.compact.swap import SegmentsChanged
from pylog.partition.partition_log import PartitionLog

COMPACTION = "compaction"

# Why a partition is compacted.
BY_RATIO = "dirty ratio"
BY_LAG = "max_compaction_lag_ms"

# Why it is not.
NOT_DIRTY = "nothing is dirty"
TOO_CLEAN = "too little is dirty"
TOO_LARGE = "left to maintenance"


class Needed(NamedTuple):
    """The records from ``offset`` on are still needed, also if newer ones have their keys. ``reason``: by whom."""

    offset: int = INT64_MAX
    reason: str = ""


Look = Callable[[PartitionLog], PartitionFacts]
FirstNeeded = Callable[[PartitionLog], Needed]


class _Due(NamedTuple):
    """``since_ms``: since when at least. ``rule`` is empty if it is not due."""

    rule: str = ""
    since_ms: int = 0


class Compaction:
    """``run`` is the step. Safe to share among threads."""

    def __init__(self, look: Look, first_needed: FirstNeeded) -> None:
        self._look = look
        self._first_needed = first_needed

    def run(self, target: Target) -> PartitionMaintenance:
        partition, config = target.partition, target.config
        facts = self._look(partition)
        if _is_overdue(facts.segments[-1], facts, config, target.now_ms):
            if target.dry_run:  # what would be left can't be told before
                since_ms = _first_ms(partition, facts.segments[-1].base_offset) + config.max_compaction_lag_ms
                return _report(target, facts, rules=(BY_LAG,), overdue_ms=_overdue_ms(target, since_ms))
            partition.roll()
            facts = self._look(partition)
        options = options_of(config)
        first_dirty = max(read_first_dirty(partition.directory), facts.state.log_start_offset)
        dirty = [segment for segment in facts.segments[:-1] if segment.end_offset > first_dirty]
        if not dirty:
            return _report(target, facts, kept=NOT_DIRTY)
        due = _due(dirty, facts, config, target.now_ms)
        if not due.rule:
            return _report(target, facts, kept=TOO_CLEAN)
        if not target.dry_run:
            needed = self._first_needed(partition)
            options = replace(options, end=needed.offset, end_reason=needed.reason)
            partition.sync(facts.state.active_base, target.timeout_ms)  # nothing else may ever sync it
        plan = planned(partition, options)
        if not plan.dirty or not (due.rule == BY_LAG or plan.dirty_ratio > config.min_cleanable_dirty_ratio):
            return _report(target, facts, kept=plan.reason or TOO_CLEAN)
        size_bytes = sum(segment.size_bytes for segment in plan.segments)
        if size_bytes > target.bytes_max:
            return _report(target, facts, kept=TOO_LARGE, detail=f"{size_bytes} bytes would be read")
        if target.bytes_max < INT64_MAX:
            options = replace(options, memory_bytes=min(options.memory_bytes, 4 * size_bytes))  # in one pass, as a rule
        if target.dry_run:
            return _report(
                target, facts, rules=(due.rule,), kept=plan.reason, bytes_before=size_bytes,
                overdue_ms=_overdue_ms(target, due.since_ms),
            )  # fmt: skip
        return _compacted(target, facts, options, due)


def _compacted(target: Target, facts: PartitionFacts, options: CompactionOptions, due: _Due) -> PartitionMaintenance:
    try:
        done = compact(target.partition, options)
    except own(SegmentsChanged) as error:
        return _report(target, facts, kept="its segments were changed meanwhile", detail=str(error))
    except own(MemoryError) as error:
        return _report(target, facts, error=str(error))
    return _report(
        target, facts, rules=(due.rule,) if done.passes else (), kept="; ".join(done.skipped),
        bytes_before=done.bytes_before, bytes_after=done.bytes_after, records_kept=done.records_kept,
        records_dropped=done.records_dropped,
    )  # fmt: skip


def options_of(config: TopicConfig) -> CompactionOptions:
    """What a topic's options ask of the engine."""
    return CompactionOptions(config.delete_retention_ms, config.min_compaction_lag_ms)


def _due(dirty: list[Segment], facts: PartitionFacts, config: TopicConfig, now_ms: int) -> _Due:
    """By sizes and the first records alone: cheap, and never "no" if something is due."""
    for segment in dirty:
        if _is_overdue(segment, facts, config, now_ms):
            return _Due(BY_LAG, _first_ms(facts.partition, segment.base_offset) + config.max_compaction_lag_ms)
    closed_bytes = sum(segment.size_bytes for segment in facts.segments[:-1])
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    size_bytes = closed_bytes - dirty_bytes
    dirty_bytes = 0
    for segment in dirty:
        size_bytes += segment.size_bytes
        dirty_bytes += segment.size_bytes
        if dirty_bytes > config.min_cleanable_dirty_ratio * size_bytes:
            return _Due(BY_RATIO, segment.appended_ms + config.min_compaction_lag_ms)
    return _Due()


def _is_overdue(segment: Segment, facts: PartitionFacts, config: TopicConfig, now_ms: int) -> bool:
    """Whether the segment's first record waits for longer than ``max_compaction_lag_ms``, as in Kafka."""
    if config.max_compaction_lag_ms == INT64_MAX or not segment.size_bytes:
        return False
    first_ms = _first_ms(facts.partition, segment.base_offset)
    return 0 <= first_ms < now_ms - config.max_compaction_lag_ms


def _first_ms(partition: PartitionLog, offset: int) -> int:
    """The time of the first batch from ``offset`` on; -1 if it is gone, or has no time."""
    try:
        for fetched in partition.reader.fetches(offset, INT64_MAX, max_bytes=1):
            for view in fetched.batches:
                return view.header.max_timestamp_ms
    except own(OffsetOutOfRange, FileNotFoundError):
        pass  # deleted meanwhile
    return -1


def _overdue_ms(target: Target, since_ms: int) -> int:
    return max(target.now_ms - max(since_ms, target.set_ms), 0)


def _report(
    target: Target,
    facts: PartitionFacts,
    *,
    rules: Iterable[str] = (),
    kept: str = "",
    detail: str = "",
    overdue_ms: int = 0,
    error: str = "",
    bytes_before: int = 0,
    bytes_after: int = 0,
    records_kept: int = 0,
    records_dropped: int = 0,
) -> PartitionMaintenance:
    partition = target.partition
    return PartitionMaintenance(
        partition.topic, partition.number, COMPACTION, facts.state.log_start_offset, rules=tuple(rules), kept=kept,
        detail=detail, overdue_ms=overdue_ms, error=error, bytes_before=bytes_before, bytes_after=bytes_after,
        records_kept=records_kept, records_dropped=records_dropped,
    )  # fmt: skip
