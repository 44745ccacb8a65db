"""PySpark's filters as conditions of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import datasource as ds
from pyspark.sql.datasource import Filter

from pylog.spark.source.filters import KINDS, Condition, Microseconds, Wanted

_KNOWN: dict[type[Filter], str] = {getattr(ds, kind): kind for kind in KINDS}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def wanted_by(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What these filters want together, and the filters that Spark must apply."""
    wanted, left = Wanted(), []
    for it in filters:
        condition, is_done = _condition(it), False
        if condition is not None:
            wanted, is_done = wanted.and_of(condition)
        if not is_done:
            left.append(it)
    return wanted, left


def _condition(it: Filter) -> Condition | None:
    """The same as a condition; None for an unknown filter."""
    positive: Any = it.child if isinstance(it, ds.Not) else it
    kind = _KNOWN.get(type(positive))
    if kind is None:
        return None
    given = positive.value if kind == "In" else (getattr(positive, "value", None),)
    values = tuple(_value(value) for value in given)
    return Condition(kind, ".".join(positive.attribute), values, isinstance(it, ds.Not))


def _value(value: Any) -> Any:
    """Times without a zone stay as they are: no column has such values."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return Microseconds((value - _EPOCH) // timedelta(microseconds=1))
    return value
