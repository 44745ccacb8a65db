"""Filters that narrow a query's plan by topic, partition, offset and time.

Reads no directory. Topics, partitions and offsets are narrowed exactly. Times are not, so Spark
applies filters on times again, as it does unknown filters. In SQL a comparison with null is not
true, and neither is its negation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import datasource as ds
from pyspark.sql.datasource import Filter

from pylog.model import TopicPartition

Span = tuple[int, int]
"""From the first number up to the second, exclusive."""

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_SPANS_MAX = 64
_END = 1 << 100  # greater than every offset and every time
_EVERYTHING = ((-_END, _END),)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    ds.EqualTo: lambda value, other: value == other,
    ds.EqualNullSafe: lambda value, other: value == other,
    ds.GreaterThan: lambda value, other: value > other,
    ds.GreaterThanOrEqual: lambda value, other: value >= other,
    ds.LessThan: lambda value, other: value < other,
    ds.LessThanOrEqual: lambda value, other: value <= other,
    ds.StringStartsWith: lambda value, other: value.startswith(other),
    ds.StringEndsWith: lambda value, other: value.endswith(other),
    ds.StringContains: lambda value, other: other in value,
}
_OF_TEXT = (ds.StringStartsWith, ds.StringEndsWith, ds.StringContains)


class Wanted(NamedTuple):
    """The wanted rows: partitions that pass these filters, these offsets, these times (ms)."""

    of_partition: tuple[Filter, ...] = ()
    offsets: tuple[Span, ...] = _EVERYTHING
    times_ms: Span = _EVERYTHING[0]

    def has(self, topic_partition: TopicPartition) -> bool:
        """Whether rows of this partition are wanted."""
        return all(_holds(it, getattr(topic_partition, _column(it))) for it in self.of_partition)

    def within(self, start: int, end: int) -> list[Span]:
        """The wanted offsets in this range."""
        return [] if self.times_ms[0] >= self.times_ms[1] else _both([(start, end)], self.offsets)

    @property
    def any_time(self) -> bool:
        return self.times_ms == _EVERYTHING[0]

    def and_of(self, it: Filter) -> tuple[Wanted, bool]:
        """Narrowed by one more filter, and whether Spark need not apply that filter."""
        column = _column(it)
        if isinstance(_positive(it), ds.IsNull | ds.IsNotNull):
            if column not in _NEVER_NULL:
                return self, False
            finds_all = isinstance(it, ds.IsNotNull) or it == ds.Not(ds.IsNull((column,)))
            return self if finds_all else self._replace(offsets=()), True
        if column in ("topic", "partition") and _is_of(it, str if column == "topic" else int):
            return self._replace(of_partition=(*self.of_partition, it)), True
        if column == "offset" and _is_of(it, int):
            spans = _spans(it, int)
            if len(spans) <= _SPANS_MAX:
                return self._replace(offsets=tuple(_both(self.offsets, spans))), True
            return self._replace(offsets=tuple(_both(self.offsets, [_hull(spans)]))), False
        if column == "timestamp" and _is_of(it, datetime):
            start, end = _hull(_spans(it, _microseconds))
            ((start_ms, end_ms),) = _both([self.times_ms], [(-(-start // 1000), -(-end // 1000))]) or [(0, 0)]
            return self._replace(times_ms=(start_ms, end_ms)), False
        return self, False


def wanted_by(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What these filters want together, and the filters that Spark must apply."""
    wanted, left = Wanted(), []
    for it in filters:
        wanted, is_done = wanted.and_of(it)
        if not is_done:
            left.append(it)
    return wanted, left


# One filter


def _positive(it: Filter) -> Any:
    return it.child if isinstance(it, ds.Not) else it


def _column(it: Filter) -> str:
    """The column's name, or a text that is not a column's name."""
    return ".".join(getattr(_positive(it), "attribute", ()))


def _values(it: Filter) -> Sequence[Any]:
    positive = _positive(it)
    return positive.value if isinstance(positive, ds.In) else [positive.value]


def _is_of(it: Filter, kind: type) -> bool:
    """Whether this is a known comparison with values of the column's own type, or null."""
    positive = _positive(it)
    if type(positive) is not ds.In and (
        type(positive) not in _COMPARISONS or (type(positive) in _OF_TEXT and kind is not str)
    ):
        return False
    return all(value is None or (type(value) is kind and not _is_local(value)) for value in _values(it))


def _is_local(value: Any) -> bool:
    """Whether it is a time without a zone."""
    return isinstance(value, datetime) and value.tzinfo is None


def _holds(it: Filter, value: Any) -> bool:
    """Whether the filter is true of a value that is not null."""
    positive, is_negated = _positive(it), isinstance(it, ds.Not)
    others = _values(it)
    if isinstance(positive, ds.In):
        is_in = value in others
        return is_in if not is_negated else not (is_in or None in others)
    if others[0] is None:
        return is_negated and isinstance(positive, ds.EqualNullSafe)
    return _COMPARISONS[type(positive)](value, others[0]) is not is_negated


def _spans(it: Filter, number: Callable[[Any], int]) -> list[Span]:
    """The numbers for which the filter is true."""
    positive, is_negated = _positive(it), isinstance(it, ds.Not)
    if None in _values(it) and not isinstance(positive, ds.In):
        return [*_EVERYTHING] if is_negated and isinstance(positive, ds.EqualNullSafe) else []
    if None in _values(it) and is_negated:
        return []
    numbers = sorted({number(value) for value in _values(it) if value is not None})
    spans = [(at, at + 1) for at in numbers]
    if isinstance(positive, ds.GreaterThan | ds.GreaterThanOrEqual):
        spans = [(numbers[0] + isinstance(positive, ds.GreaterThan), _END)]
    elif isinstance(positive, ds.LessThan | ds.LessThanOrEqual):
        spans = [(-_END, numbers[0] + isinstance(positive, ds.LessThanOrEqual))]
    return _others(spans) if is_negated else _joined(spans)


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


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
