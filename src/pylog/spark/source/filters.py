"""Conditions that narrow a query's plan by topic, partition, offset and time.

Reads no directory. Topics, partitions and offsets are narrowed exactly. Times are not, so Spark
applies filters on times again, as it does unknown filters. In SQL a comparison with null is not
true, and neither is its negation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pylog.model import TopicPartition

Span = tuple[int, int]
"""From the first number up to the second, exclusive."""

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_SPANS_MAX = 64
_END = 1 << 100  # greater than every offset and every time
_EVERYTHING = ((-_END, _END),)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda value, other: value == other,
    "EqualNullSafe": lambda value, other: value == other,
    "GreaterThan": lambda value, other: value > other,
    "GreaterThanOrEqual": lambda value, other: value >= other,
    "LessThan": lambda value, other: value < other,
    "LessThanOrEqual": lambda value, other: value <= other,
    "StringStartsWith": lambda value, other: value.startswith(other),
    "StringEndsWith": lambda value, other: value.endswith(other),
    "StringContains": lambda value, other: other in value,
}
_OF_TEXT = ("StringStartsWith", "StringEndsWith", "StringContains")
KINDS = frozenset((*_COMPARISONS, "In", "IsNull", "IsNotNull"))
"""Spark's names of the filters that are known here."""


class Microseconds(int):
    """A time since 1970: the type of values to compare ``timestamp`` with."""


class Condition(NamedTuple):
    """Spark's filter ``kind`` of a column, or its negation. ``values``: of ``In`` all, else one."""

    kind: str
    column: str
    values: tuple[Any, ...] = ()
    is_negated: bool = False


class Wanted(NamedTuple):
    """The wanted rows: partitions that meet the conditions, these offsets, these times (ms)."""

    of_partition: tuple[Condition, ...] = ()
    offsets: tuple[Span, ...] = _EVERYTHING
    times_ms: Span = _EVERYTHING[0]

    def has(self, topic_partition: TopicPartition) -> bool:
        """Whether rows of this partition are wanted."""
        return all(_holds(it, getattr(topic_partition, it.column)) for it in self.of_partition)

    def within(self, start: int, end: int) -> list[Span]:
        """The wanted offsets in this range."""
        return [] if self.times_ms[0] >= self.times_ms[1] else _both([(start, end)], self.offsets)

    @property
    def any_time(self) -> bool:
        return self.times_ms == _EVERYTHING[0]

    def and_of(self, it: Condition) -> tuple[Wanted, bool]:
        """Narrowed by one more condition, and whether Spark need not apply that one."""
        if it.kind in ("IsNull", "IsNotNull"):
            if it.column not in _NEVER_NULL:
                return self, False
            finds_all = (it.kind == "IsNotNull") is not it.is_negated
            return self if finds_all else self._replace(offsets=()), True
        if it.column in ("topic", "partition") and _is_of(it, str if it.column == "topic" else int):
            return self._replace(of_partition=(*self.of_partition, it)), True
        if it.column == "offset" and _is_of(it, int):
            spans = _spans(it)
            if len(spans) <= _SPANS_MAX:
                return self._replace(offsets=tuple(_both(self.offsets, spans))), True
            return self._replace(offsets=tuple(_both(self.offsets, [_hull(spans)]))), False
        if it.column == "timestamp" and _is_of(it, Microseconds):
            start, end = _hull(_spans(it))
            ((start_ms, end_ms),) = _both([self.times_ms], [(-(-start // 1000), -(-end // 1000))]) or [(0, 0)]
            return self._replace(times_ms=(start_ms, end_ms)), False
        return self, False


# One condition


def _is_of(it: Condition, kind: type) -> bool:
    """Whether this is a known comparison with values of the column's own type, or null."""
    if it.kind != "In" and (it.kind not in _COMPARISONS or (it.kind in _OF_TEXT and kind is not str)):
        return False
    return all(value is None or type(value) is kind for value in it.values)


def _holds(it: Condition, value: Any) -> bool:
    """Whether the condition is true of a value that is not null."""
    if it.kind == "In":
        is_in = value in it.values
        return is_in if not it.is_negated else not (is_in or None in it.values)
    if it.values[0] is None:
        return it.is_negated and it.kind == "EqualNullSafe"
    return _COMPARISONS[it.kind](value, it.values[0]) is not it.is_negated


def _spans(it: Condition) -> list[Span]:
    """The numbers for which the condition is true."""
    if None in it.values and it.kind != "In":
        return [*_EVERYTHING] if it.is_negated and it.kind == "EqualNullSafe" else []
    if None in it.values and it.is_negated:
        return []
    numbers = sorted({int(value) for value in it.values if value is not None})
    spans = [(at, at + 1) for at in numbers]
    if it.kind in ("GreaterThan", "GreaterThanOrEqual"):
        spans = [(numbers[0] + (it.kind == "GreaterThan"), _END)]
    elif it.kind in ("LessThan", "LessThanOrEqual"):
        spans = [(-_END, numbers[0] + (it.kind == "LessThanOrEqual"))]
    return _others(spans) if it.is_negated else _joined(spans)


# Spans, in ascending order


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Drop empty spans and join adjacent ones."""
    found: list[Span] = []
    for start, end in spans:
        if found and found[-1][1] == start < end:
            found[-1] = found[-1][0], end
        elif start < end:
            found.append((start, end))
    return found


def _others(spans: Sequence[Span]) -> list[Span]:
    ends = [-_END, *(end for span in spans for end in span), _END]
    return _joined([*pairwise(ends)][::2])


def _both(spans: Iterable[Span], others: Sequence[Span]) -> list[Span]:
    return _joined((max(a, c), min(b, d)) for a, b in spans for c, d in others if max(a, c) < min(b, d))


def _hull(spans: Sequence[Span]) -> Span:
    return (spans[0][0], spans[-1][1]) if spans else (0, 0)
