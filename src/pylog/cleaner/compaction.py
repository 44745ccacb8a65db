"""Compaction as a step of maintenance: whether a partition is due, and what came of it.

Docs: docs/design.md, "Compaction". The engine is ``partition/compact``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from pylog.catalog.topic import TopicConfig
from pylog.cleaner.facts import PartitionFacts
from pylog.cleaner.report import PartitionMaintenance
from pylog.cleaner.retention import Segment
from pylog.cleaner.step import Target
from pylog.codec.format import INT64_MAX
from pylog.errors import OffsetOutOfRange, PylogError
from pylog.interrupts import own
from pylog.partition.cleaner_checkpoint import read_cleaned
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
CHANGED = "its segments were changed meanwhile"


class Needed(NamedTuple):
    """The records from ``offset`` on are still needed, also if newer ones have their keys.
    ``reason``: by whom."""

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
        facts = self._look(target.partition)
        try:
            return self._run(target, facts)
        except own(SegmentsChanged) as error:
            return _kept(target, facts, CHANGED, str(error))
        except own(PylogError, FileNotFoundError) as error:
            if not _is_of_deleted(error, target.partition, facts):
                raise
            return _kept(target, facts, CHANGED, str(error))
        except own(MemoryError):
            return _report(target, facts)._replace(error="too little memory for the map of its keys")

    def _run(self, target: Target, facts: PartitionFacts) -> PartitionMaintenance:
        partition, config = target.partition, target.config
        if _is_overdue(facts.segments[-1], facts, config, target.now_ms):
            if target.dry_run:  # what would be left can't be told before
                since_ms = _first_ms(facts, facts.segments[-1]) + config.max_compaction_lag_ms
                return _report(target, facts)._replace(rules=(BY_LAG,), overdue_ms=target.overdue_ms(since_ms))
            partition.roll()
            facts = self._look(partition)
        first_dirty = max(read_cleaned(partition.directory).first_dirty, facts.state.log_start_offset)
        dirty = [segment for segment in facts.segments[:-1] if segment.end_offset > first_dirty]
        if not dirty:
            return _kept(target, facts, NOT_DIRTY)
        due = _due(dirty, facts, config, target.now_ms)
        if not due.rule:
            return _kept(target, facts, TOO_CLEAN)
        options = CompactionOptions(config.delete_retention_ms, config.min_compaction_lag_ms)
        if not target.dry_run:
            needed = self._first_needed(partition)
            options = replace(options, end=needed.offset, end_reason=needed.reason)
            partition.sync(facts.state.active_base, target.timeout_ms)  # nothing else may ever sync it
        plan = planned(partition, options)
        if not plan.dirty or not (due.rule == BY_LAG or plan.dirty_ratio > config.min_cleanable_dirty_ratio):
            return _held(target, facts, plan.reason, due) if plan.reason else _kept(target, facts, TOO_CLEAN)
        size_bytes = sum(segment.size_bytes for segment in plan.segments)
        if size_bytes > target.bytes_max:
            return _kept(target, facts, TOO_LARGE, f"{size_bytes} bytes would be read")
        if target.dry_run:
            return _kept(target, facts, plan.reason)._replace(
                rules=(due.rule,), bytes_before=size_bytes, overdue_ms=target.overdue_ms(due.since_ms)
            )
        if target.bytes_max < INT64_MAX:
            options = replace(options, memory_bytes=min(options.memory_bytes, 4 * size_bytes))  # in one pass, as a rule
        return _compacted(target, facts, options, due)


def _compacted(target: Target, facts: PartitionFacts, options: CompactionOptions, due: _Due) -> PartitionMaintenance:
    done = compact(target.partition, options)
    why = "; ".join(done.skipped)
    if not done.passes:
        return _kept(target, facts, why) if why == NOT_DIRTY else _held(target, facts, why, due)
    return _kept(target, facts, why)._replace(
        rules=(due.rule,), bytes_before=done.bytes_before, bytes_after=done.bytes_after,
        records_kept=done.records_kept, records_dropped=done.records_dropped,
    )  # fmt: skip


def _is_of_deleted(error: BaseException, partition: PartitionLog, facts: PartitionFacts) -> bool:
    """Whether a file is missing since another process has deleted records meanwhile: no damage.
    Else the next maintenance tells."""
    causes: list[BaseException] = []
    while error not in causes:
        causes.append(error)
        error = error.__cause__ or error
    is_missing = any(isinstance(cause, FileNotFoundError) for cause in causes)
    return is_missing and partition.current().log_start_offset > facts.state.log_start_offset


def _due(dirty: list[Segment], facts: PartitionFacts, config: TopicConfig, now_ms: int) -> _Due:
    """By sizes and the first records alone: cheap, and never "no" if something is due."""
    for segment in dirty:
        if _is_overdue(segment, facts, config, now_ms):
            return _Due(BY_LAG, _first_ms(facts, segment) + config.max_compaction_lag_ms)
    clean_bytes = sum(segment.size_bytes for segment in facts.segments[: -1 - len(dirty)])
    for segment, dirty_bytes in zip(dirty, accumulate(segment.size_bytes for segment in dirty), strict=True):
        if dirty_bytes > config.min_cleanable_dirty_ratio * (clean_bytes + dirty_bytes):
            return _Due(BY_RATIO, segment.appended_ms + config.min_compaction_lag_ms)
    return _Due()


def _is_overdue(segment: Segment, facts: PartitionFacts, config: TopicConfig, now_ms: int) -> bool:
    """Whether the segment's first record waits for longer than ``max_compaction_lag_ms``, as in
    Kafka."""
    if config.max_compaction_lag_ms == INT64_MAX or not segment.size_bytes:
        return False
    first_ms = _first_ms(facts, segment)
    return 0 <= first_ms < now_ms - config.max_compaction_lag_ms


def _first_ms(facts: PartitionFacts, segment: Segment) -> int:
    """The time of the first batch with records of the segment that are not deleted; -1 if it is
    gone, or has no time."""
    offset = max(segment.base_offset, facts.state.log_start_offset)
    try:
        for fetched in facts.partition.reader.fetches(offset, INT64_MAX, max_bytes=1):
            for view in fetched.batches:
                return view.header.max_timestamp_ms
    except own(OffsetOutOfRange, FileNotFoundError):
        pass  # deleted meanwhile
    return -1


def _report(target: Target, facts: PartitionFacts) -> PartitionMaintenance:
    return target.report(COMPACTION, facts.state.log_start_offset)


def _kept(target: Target, facts: PartitionFacts, why: str, detail: str = "") -> PartitionMaintenance:
    return _report(target, facts)._replace(kept=why, detail=detail)


def _held(target: Target, facts: PartitionFacts, why: str, due: _Due) -> PartitionMaintenance:
    """It is due, and nothing can be done."""
    return _kept(target, facts, why)._replace(held_rule=due.rule, held_ms=target.overdue_ms(due.since_ms))
