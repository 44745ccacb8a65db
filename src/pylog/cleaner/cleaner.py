"""Does all maintenance that is due, once, and reports on each partition.

A step deals with one partition at a time, under no lock but the partition's own while it deletes.
Any number of processes may do the same at once: what one has done is not due for the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from pylog.catalog.topic import CONSUMED, INTERNAL_TOPICS, UNLIMITED, TopicConfig, own_topic_changes
from pylog.cleaner.bound import Candidate, Part, shared
from pylog.cleaner.compaction import COMPACTION, Compaction, FirstNeeded
from pylog.cleaner.facts import LOOKS_MAX, NS_PER_MS, Facts, PartitionFacts, disk_bytes
from pylog.cleaner.leftovers import LEFTOVERS, end_transactions, free_leftovers
from pylog.cleaner.report import LogMaintenance, MaintenanceReport, PartitionMaintenance
from pylog.cleaner.retention import (
    BY_BOUND,
    IN_THE_FUTURE,
    IS_ACTIVE,
    NOT_CONSUMED,
    OPEN_TRANSACTION,
    Bounds,
    Plan,
    is_limited,
    planned,
)
from pylog.cleaner.step import Step, Target
from pylog.errors import InvalidPartition, LogLocked, PylogError, StorageFull, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.manager.changes import changes_of, drop_leftovers
from pylog.model import TopicPartition
from pylog.segment.naming import CLEANER_LOCK

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.manager.manager import LogManager
    from pylog.partition.commit_slots import CommitState
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.cleaner")

T = TypeVar("T")

RETENTION, BOUND = "retention", "log bound"
INTERNAL, COMPACTED, KEPT_BY_POLICY = "internal topic", "compacted topic", "cleanup_policy=none"
_PATIENCE_MS = 100  # an append does not wait longer for another writer's lock
_SMALL_BYTES = 16 << 20
_SHARE = 20  # a writer spends a twentieth of its time on the log's bound
_LEFTOVERS = Step(LEFTOVERS, bool, free_leftovers)


class _Consumed(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def held_by(self) -> str: ...


class Consumption(Protocol):
    """Asks the groups. See ``group/consumption.py``."""

    def consumed(self, partition: PartitionLog, *, durably: bool) -> _Consumed: ...
    def is_still_consumed(self, partition: PartitionLog, offset: int) -> bool: ...


class Cleaner:
    """Maintains one log. Safe to share among threads."""

    def __init__(self, manager: LogManager, consumption: Consumption, first_needed: FirstNeeded, *others: Step) -> None:
        """``first_needed``: from which record on compaction must leave a partition as it is.
        ``others``: steps of other rooms."""
        self._manager = manager
        self._consumption = consumption
        self._facts = Facts()
        self._next_bound_s = 0.0
        self._retention = Step(RETENTION, is_retained, self._retain)
        self._compaction = Step(COMPACTION, _is_compacted, Compaction(self._look, first_needed).run)
        self._steps = (self._retention, *others, self._compaction)

    def maintain(self, topics: Sequence[str] = (), *, dry_run: bool = False) -> MaintenanceReport:
        """See ``Log.maintain``."""
        manager = self._manager
        if not dry_run:
            changes_of(manager, 0.0).finish_if_free()
            with suppress(LogLocked):  # the next one does it
                drop_leftovers(manager, 0.0)
        now_ms = manager.clock.now_ms()
        unreadable: list[str] = []
        described = [manager.describe_topic(name) for name in topics] or list(self._all_topics(unreadable))
        done: list[PartitionMaintenance] = []
        unlimited = 0
        for each in described:
            topic = self._with_own_options(each, dry_run=dry_run)
            steps = [step for step in self._steps if step.applies(topic)]
            if not steps:
                unlimited += len(topic.numbers)
            for target in self._targets(topic, now_ms, dry_run, only_cleaned=not steps):
                done += [result for step in (_LEFTOVERS, *steps) if (result := _attempt(step, target)) is not None]
        max_bytes = UNLIMITED if topics else manager.settings().max_bytes
        log = LogMaintenance(max_bytes)
        if max_bytes != UNLIMITED:
            targets = [target for topic in described for target in self._targets(topic, now_ms, dry_run)]
            end_transactions(targets)
            retained = {(each.topic, each.partition): each for each in done if each.step == RETENTION}
            more, log = self._keep_bound(max_bytes, targets, retained)
            done += more
        if not topics:
            self._facts.forget_others(
                {TopicPartition(each.name, number) for each in described for number in each.numbers}
            )
        return MaintenanceReport(dry_run, tuple(done), unlimited, log, tuple(unreadable))

    def _all_topics(self, unreadable: list[str]) -> Iterator[TopicDescription]:
        """Those that can be read; the errors of the others are added to ``unreadable``."""
        for name in self._manager.topics():
            try:
                yield self._manager.describe_topic(name)
            except own(TopicNotFound):
                continue  # deleted meanwhile
            except own(PylogError) as error:
                unreadable.append(str(error))

    def _with_own_options(self, topic: TopicDescription, *, dry_run: bool) -> TopicDescription:
        """An internal topic that an earlier version has made is compacted from now on: earlier
        versions refuse it."""
        changes = own_topic_changes(topic)
        if not changes or self._manager.is_kafka_directory:
            return topic
        if dry_run:
            return topic._replace(config=topic.config.with_changes(changes))
        try:
            return self._manager.alter_topic(topic.name, changes)
        except own(TopicNotFound):
            return topic  # deleted meanwhile, which its partitions tell

    def after_roll(self, partition: PartitionLog, max_bytes: int) -> None:
        """Apply the limits of time and size to a partition whose writer has just closed a segment;
        and this bound to the log, unless that was done too recently. Groups are not asked: their
        commits would be read and synced while the append waits. The active segment is not closed by
        time: with records of long ago, each append would."""
        config = self._manager.describe_topic(partition.topic).config
        is_asked = config.retention is None and is_limited(config)
        done = [self.retain(partition, config, may_roll=False)] if is_asked else []
        start_s = self._manager.clock.monotonic()
        if max_bytes != UNLIMITED and start_s >= self._next_bound_s:
            topics = self._all_topics([])  # maintenance names those that can't be read
            targets = [t._replace(timeout_ms=_PATIENCE_MS) for topic in topics for t in self._targets(topic, 0, False)]
            done += self._keep_bound(max_bytes, targets, {}, ask_groups=False)[0]
            now_s = self._manager.clock.monotonic()
            self._next_bound_s = now_s + _SHARE * (now_s - start_s)
        for each in done:
            _tell(each)

    def compact_if_small(self, partition: PartitionLog) -> None:
        """Compact a partition whose writer has closed a segment, if it is due and takes less than
        about a second."""
        topic = self._manager.describe_topic(partition.topic)
        if self._compaction.applies(topic):
            now_ms = self._manager.clock.now_ms()
            target = Target(partition, topic.config, now_ms, False, timeout_ms=_PATIENCE_MS, bytes_max=_SMALL_BYTES)
            _tell(_attempt(self._compaction, target))

    def retain(
        self, partition: PartitionLog, config: TopicConfig, *, may_roll: bool = True
    ) -> PartitionMaintenance | None:
        """Delete what this configuration does not keep. None if the topic is gone. ``may_roll``:
        also of the active segment; a writer of records of long ago would begin a segment with each
        append."""
        now_ms = self._manager.clock.now_ms()
        target = Target(partition, config, now_ms, False, timeout_ms=_PATIENCE_MS, may_roll=may_roll)
        return _attempt(self._retention, target)

    def _targets(
        self, topic: TopicDescription, now_ms: int, dry_run: bool, *, only_cleaned: bool = False
    ) -> Iterator[Target]:
        """Every partition of a topic. One that is deleted meanwhile has none. ``only_cleaned``: in
        which a compaction or an erasure has ever begun; no other is opened."""
        manager = self._manager
        with suppress(TopicNotFound, InvalidPartition, FileNotFoundError):
            set_ms = self._time_of(manager.layout.topic(topic.name))
            for number in topic.numbers:
                lock_path = f"{manager.layout.partition(topic.name, number)}/{CLEANER_LOCK}"
                if only_cleaned and not manager.filesystem.exists(lock_path):
                    continue
                yield Target(manager.partition(topic.name, number), topic.config, now_ms, dry_run, set_ms)

    def _time_of(self, path: str) -> int:
        return 0 if self._manager.is_kafka_directory else self._manager.filesystem.modified_ns(path) // NS_PER_MS

    # Retention of one partition

    def _retain(self, target: Target) -> PartitionMaintenance:
        partition, config = target.partition, target.config
        facts, plan, bounds = self._looked(partition, partial(self._planned, target, with_active=True))
        if plan.roll and not target.dry_run:
            full = _rolled(partition) if target.may_roll else None
            facts, plan, bounds = self._looked(partition, partial(self._planned, target, with_active=False))
            if full is not None and not plan.going:
                raise full
        if plan.going and not target.dry_run:
            allowed = partial(self._is_allowed, partition, config, plan.log_start)
            reached = partition.delete_before(plan.log_start, allowed, target.timeout_ms)
            if reached < plan.log_start:
                held = bounds.held_by or "a transaction began meanwhile"
                return _report(target, facts, plan._replace(going=0, rules=(), due_since_ms=None), held)
        return _report(target, facts, plan, _detail(plan, bounds, target))

    def _planned(self, target: Target, *, with_active: bool) -> tuple[PartitionFacts, Plan, Bounds]:
        config = target.config
        facts = self._facts.look(target.partition)
        bounds = self._bounds(target, facts)

        def newest_ms(number: int) -> int | None:
            return self._facts.newest_ms(facts, number, config, target.now_ms)

        segments = facts.segments if with_active else facts.segments[:-1]
        plan = planned(segments, newest_ms, config, bounds, target.now_ms)
        if bounds.consumed and plan.going and not target.dry_run:  # only what goes must be durable
            durable = self._bounds(target, facts, durably=True)
            plan, bounds = planned(segments, newest_ms, config, durable, target.now_ms), durable
        return facts, plan, bounds

    def _look(self, partition: PartitionLog) -> PartitionFacts:
        return self._looked(partition, partial(self._facts.look, partition))

    def _looked(self, partition: PartitionLog, look: Callable[[], T]) -> T:
        """``look()``, repeated if a segment was deleted since it was listed."""
        for _ in range(LOOKS_MAX - 1):
            try:
                return look()
            except own(FileNotFoundError):
                partition.reader.close()
        return look()

    def _bounds(self, target: Target, facts: PartitionFacts, *, durably: bool = False) -> Bounds:
        state = facts.state
        if target.config.retention != CONSUMED:
            return Bounds(state.log_start_offset, state.last_stable_offset)
        consumed = self._consumption.consumed(target.partition, durably=durably)
        return Bounds(state.log_start_offset, state.last_stable_offset, consumed.offset, consumed.held_by)

    def _is_allowed(self, partition: PartitionLog, config: TopicConfig, log_start: int, state: CommitState) -> bool:
        """With the partition's lock: whether nothing has come in between that keeps a segment."""
        if log_start > state.last_stable_offset:
            return False
        return config.retention != CONSUMED or self._consumption.is_still_consumed(partition, log_start)

    # The bound of the whole log

    def _keep_bound(
        self,
        max_bytes: int,
        targets: Sequence[Target],
        before: dict[tuple[str, int], PartitionMaintenance],
        *,
        ask_groups: bool = True,
    ) -> tuple[list[PartitionMaintenance], LogMaintenance]:
        if targets and targets[0].dry_run:
            set_ms = self._time_of(self._manager.layout.settings)
            targets = [target._replace(set_ms=set_ms) for target in targets]
        found: dict[TopicPartition, tuple[Target, PartitionFacts, Part]] = {}
        done: list[PartitionMaintenance] = []
        for target in targets:
            try:
                found[target.partition.topic_partition] = target, *self._part(target, before, ask_groups)
            except own(TopicNotFound):
                continue  # deleted meanwhile
            except own(PylogError, FileNotFoundError) as error:
                done.append(_failed(target, BOUND, error))
        share = shared((part for _, _, part in found.values()), max_bytes)
        size_bytes = sum(
            part.kept_bytes + sum(each.disk_bytes for each in part.candidates) for _, _, part in found.values()
        )
        missed = 0
        for name, count in sorted(share.counts.items()):
            target, facts, part = found[name]
            went = part.candidates[:count]
            result = _attempt(Step(BOUND, bool, partial(self._cut, facts, went)), target)
            done += [] if result is None else [result]
            if result is not None and not result.deleted_segments:
                missed += sum(each.disk_bytes for each in went)
        excess = share.excess_bytes + missed
        kept = {**share.why, **({"not deleted now": missed} if missed else {})}
        return done, LogMaintenance(
            max_bytes, size_bytes - share.freed_bytes + missed, excess, tuple(sorted(kept.items()))
        )

    def _part(
        self, target: Target, before: dict[tuple[str, int], PartitionMaintenance], ask_groups: bool
    ) -> tuple[PartitionFacts, Part]:
        """What may go of a partition. In a dry run, what its retention would delete is gone
        already."""
        partition, config = target.partition, target.config
        facts = self._look(partition)
        sizes, rest = disk_bytes(facts)
        if target.dry_run and (planned_before := before.get((partition.topic, partition.number))) is not None:
            gone = sum(segment.end_offset <= planned_before.log_start_offset for segment in facts.segments)
            facts, sizes = facts._replace(segments=facts.segments[gone:]), sizes[gone:]
        kept = KEPT_BY_POLICY
        if partition.topic in INTERNAL_TOPICS:
            kept = INTERNAL
        elif config.is_compacted:
            kept = COMPACTED
        elif config.retention == CONSUMED and not ask_groups:
            kept = NOT_CONSUMED
        count = 0
        if kept == KEPT_BY_POLICY and config.is_deleted_from:
            bounds, kept = self._bounds(target, facts, durably=not target.dry_run), IS_ACTIVE
            for segment in facts.segments[:-1]:
                if why := bounds.why_kept(segment):
                    kept = f"{why} ({bounds.held_by})" if why == NOT_CONSUMED else why
                    break
                count += 1
        candidates = [
            Candidate(segment.appended_ms, segment.end_offset, size)
            for segment, size in zip(facts.segments[:count], sizes[:count], strict=True)
        ]
        return facts, Part(partition.topic_partition, candidates, kept, sum(sizes[count:]) + rest)

    def _cut(self, facts: PartitionFacts, went: Sequence[Candidate], target: Target) -> PartitionMaintenance:
        partition, log_start = target.partition, went[-1].end_offset
        plan = Plan(
            sum(segment.end_offset <= log_start for segment in facts.segments), log_start, (BY_BOUND,), "",
            due_since_ms=went[-1].appended_ms,
        )  # fmt: skip
        if not target.dry_run:
            allowed = partial(self._is_allowed, partition, target.config, log_start)
            if partition.delete_before(log_start, allowed, target.timeout_ms) < log_start:
                plan = plan._replace(going=0, rules=(), kept=NOT_CONSUMED, due_since_ms=None)
        return _report(target, facts, plan, "", BOUND)


def _rolled(partition: PartitionLog) -> StorageFull | None:
    """Close the active segment. The error if the disk is full: closed segments that go make room
    for the next time."""
    try:
        partition.roll()
    except own(StorageFull) as error:
        return error
    return None


def is_retained(topic: TopicDescription) -> bool:
    """Whether retention may ever delete anything of it."""
    return is_limited(topic.config) and topic.name not in INTERNAL_TOPICS


def _is_compacted(topic: TopicDescription) -> bool:
    return topic.config.is_compacted


def _attempt(step: Step, target: Target) -> PartitionMaintenance | None:
    """The step's result; None without one, or if the topic is gone. What fails on one partition
    keeps no other waiting."""
    try:
        return step.run(target)
    except own(TopicNotFound):
        return None
    except own(PylogError, FileNotFoundError) as error:
        return _failed(target, step.name, error)


def _tell(done: PartitionMaintenance | None) -> None:
    if done is not None and done.error:
        logger.warning("%s-%d: %s is left to the next roll: %s", done.topic, done.partition, done.step, done.error)


def _failed(target: Target, step: str, error: Exception) -> PartitionMaintenance:
    return target.report(step, -1)._replace(error=str(error))


def _report(
    target: Target, facts: PartitionFacts, plan: Plan, detail: str, step: str = RETENTION
) -> PartitionMaintenance:
    gone = facts.segments[: plan.going]
    return target.report(step, max(plan.log_start, facts.state.log_start_offset))._replace(
        deleted_segments=len(gone), deleted_bytes=sum(segment.size_bytes for segment in gone), rules=plan.rules,
        kept=plan.kept, detail=detail, overdue_ms=target.overdue_ms(plan.due_since_ms),
        held_rule=plan.held_rule, held_ms=target.overdue_ms(plan.held_since_ms),
    )  # fmt: skip


def _detail(plan: Plan, bounds: Bounds, target: Target) -> str:
    if plan.kept == NOT_CONSUMED:
        return f"{bounds.held_by} has committed {bounds.consumed or 'nothing'}"
    if plan.kept == OPEN_TRANSACTION:
        return f"it begins at offset {bounds.stable_end}"
    if plan.kept == IN_THE_FUTURE and plan.kept_at is not None:
        return (
            f"a record's timestamp is {plan.kept_at - target.now_ms} ms ahead of the clock: its segment stays until then, unless "
            'retention_clock="append"'
        )
    return ""
