"""What retention deletes of one partition: pure functions of values.

Kafka's rules, oldest segment first: a segment goes if its records were deleted, if the others have
at least ``retention_bytes``, or if its newest record is older than ``retention_ms``. The first one
that stays keeps all after it. In addition to Kafka's rules, nothing at or after the last stable
offset goes, and nothing that a group of the topic has not committed with ``retention="consumed"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pylog.catalog.topic import APPEND_TIME, CONSUMED, UNLIMITED, TopicConfig

# Why a segment goes.
WAS_DELETED = "deleted before"
WAS_EMPTIED = "emptied by compaction"
BY_SIZE = "size"
BY_TIME = "time"
BY_GROUPS = "consumed"
BY_BOUND = "size of the log"

# Why one stays.
NOT_DUE = "not due"
IS_EMPTY = "nothing to delete"
IS_ACTIVE = "active segment"
OPEN_TRANSACTION = "open transaction"
NOT_CONSUMED = "not consumed"
IN_THE_FUTURE = "timestamp in the future"


class Segment(NamedTuple):
    """``size_bytes`` is of the log file. Nothing was appended after ``appended_ms``."""

    base_offset: int
    end_offset: int
    size_bytes: int
    appended_ms: int
    is_active: bool = False


class Bounds(NamedTuple):
    """What no rule passes. ``consumed``: every group has committed up to here; None if no rule
    asks.

    ``held_by`` names what has not, for people.
    """

    log_start: int
    stable_end: int
    consumed: int | None = None
    held_by: str = ""

    def why_kept(self, segment: Segment) -> str:
        """Why a closed segment can't go now; empty if it can."""
        if segment.end_offset > self.stable_end:
            return OPEN_TRANSACTION
        if self.consumed is not None and segment.end_offset > self.consumed:
            return NOT_CONSUMED
        return ""


class Plan(NamedTuple):
    """The first ``going`` segments go, by these ``rules``. ``kept`` is why the next one stays.

    ``log_start`` is the new one. With ``roll`` the active segment is due, too: it has to be closed
    first. ``due_since_ms``: since when the first segment is due, None if none is. ``kept_at`` is a
    time that belongs to ``kept``. ``held_rule``: the limit by which the one that stays is due all
    the same, since ``held_since_ms``.
    """

    going: int
    log_start: int
    rules: tuple[str, ...]
    kept: str
    roll: bool = False
    due_since_ms: int | None = None
    kept_at: int | None = None
    held_rule: str = ""
    held_since_ms: int | None = None


NewestMs = Callable[[int], int | None]
"""The greatest timestamp of a record in the segment of this number, None without one. Of a segment
that stays, it may be that of any record which is young enough."""


def is_limited(config: TopicConfig) -> bool:
    """Whether a rule can ever make anything go."""
    return config.is_deleted_from and (config.has_limit or config.retention == CONSUMED)


def oldest_young_ms(config: TopicConfig, now_ms: int) -> int:
    """A record of this time, or later, keeps its segment."""
    return now_ms - config.retention_ms


def planned(segments: Sequence[Segment], newest_ms: NewestMs, config: TopicConfig, bounds: Bounds, now_ms: int) -> Plan:
    """What goes now. ``segments`` rise, the active one is the last. ``newest_ms`` is asked for no
    more than it needs."""
    left_bytes = sum(segment.size_bytes for segment in segments)
    rules: list[str] = []
    since: list[int] = []
    log_start, kept, kept_at = bounds.log_start, IS_EMPTY, None
    count, roll, held_rule, held_since_ms = 0, False, "", None
    for number, segment in enumerate(segments):
        if segment.is_active and not segment.size_bytes:
            break
        if segment.end_offset <= bounds.log_start and not segment.is_active:
            rule, since_ms = WAS_DELETED, segment.appended_ms
        elif config.is_deleted_from and not segment.size_bytes:  # since a compaction: nothing tells when that was
            rule, since_ms = WAS_EMPTIED, now_ms
        else:
            rule, since_ms, kept, kept_at = _rule(segments, number, left_bytes, newest_ms, config, now_ms)
            if not rule:
                break
        why = "" if rule == WAS_DELETED else bounds.why_kept(segment)
        if why and rule in (BY_SIZE, BY_TIME):
            held_rule, held_since_ms = rule, since_ms
        if not why and segment.is_active and rule != BY_TIME:
            why = IS_ACTIVE
        if why:
            kept = why
            break
        kept, roll = IS_EMPTY, segment.is_active
        rules.append(rule)
        since.append(since_ms)
        count, log_start = count + 1, max(segment.end_offset, bounds.log_start)
        left_bytes -= segment.size_bytes
    found = tuple(dict.fromkeys(rules))
    due_since_ms = min(since, default=None)
    return Plan(count, log_start, found, kept, roll, due_since_ms, kept_at, held_rule, held_since_ms)


def _rule(
    segments: Sequence[Segment],
    number: int,
    left_bytes: int,
    newest_ms: NewestMs,
    config: TopicConfig,
    now_ms: int,
) -> tuple[str, int, str, int | None]:
    """The rule by which a segment is due, and since when; or "", 0, why it is not, and the time of
    that."""
    segment = segments[number]
    if not config.is_deleted_from:
        return "", 0, NOT_DUE, None
    if config.retention_bytes != UNLIMITED and left_bytes - segment.size_bytes >= config.retention_bytes:
        return BY_SIZE, _crossed_ms(segments[number + 1 :], config.retention_bytes, segment.appended_ms), "", None
    if config.retention_ms != UNLIMITED:
        at_ms = segment.appended_ms if config.retention_clock == APPEND_TIME else newest_ms(number)
        at_ms = segment.appended_ms if at_ms is None else at_ms
        if at_ms < oldest_young_ms(config, now_ms):
            return BY_TIME, at_ms + config.retention_ms, "", None
        return "", 0, IN_THE_FUTURE if at_ms > now_ms else NOT_DUE, at_ms
    if config.retention == CONSUMED and config.retention_bytes == UNLIMITED:
        return BY_GROUPS, segment.appended_ms, "", None  # the bound decides
    return "", 0, NOT_DUE, None


def _crossed_ms(later: Sequence[Segment], limit_bytes: int, otherwise_ms: int) -> int:
    """When the segments after one have reached the limit, at the latest."""
    size_bytes = 0
    for segment in later:
        size_bytes += segment.size_bytes
        if size_bytes >= limit_bytes:
            return segment.appended_ms
    return otherwise_ms
