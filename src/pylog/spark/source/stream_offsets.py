"""A stream's offsets in a query's checkpoint: the JSON of Spark's Kafka source, and more.

    {"orders": {"0": 23, "1": 0}, "$ids": {"orders": "9a1f…"}}

``"$ids"`` detects a recreated topic. ``"$from"`` records the start of a batch that does not start
at the previous end: the first one, because Spark asks for the start again on a replay and
``latest`` may have moved, and one that reaches a recreated topic.

A query's progress has two more entries in ``latestOffset``, because PySpark has no other place for
them: ``"$path"``, the log, and ``"$metrics"``, the lag under the names of Spark's Kafka source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pylog.errors import ConfigError
from pylog.model import TopicPartition
from pylog.spark.source.offset_options import is_int

FROM, IDS, PATH, METRICS = "$from", "$ids", "$path", "$metrics"  # not valid names of topics

Positions = dict[TopicPartition, int]
Ids = Mapping[str, str]
"""By topic; topics with an unknown id are left out."""


def encode(
    ends: Mapping[TopicPartition, int], ids: Ids, starts: Mapping[TopicPartition, int] | None = None
) -> dict[str, Any]:
    """Equal positions give equal text: Spark compares it. ``starts``: no earlier batch's ends."""
    found = _by_topic(ends)
    known = {topic: ids[topic] for topic in sorted(found) if topic in ids}
    if known:
        found[IDS] = known
    if starts is not None:
        found[FROM] = _by_topic(starts)
    return found


def report(latest: Positions, ids: Ids, path: str, taken: Positions) -> dict[str, Any]:
    """For a query's progress: what is readable, of which log, and how far the query is behind."""
    lags = behind(taken, latest).values()
    metrics = {"min": min(lags), "max": max(lags), "avg": sum(lags) / len(lags)} if lags else {}
    named = {f"{kind}OffsetsBehindLatest": value for kind, value in metrics.items()}
    return {**encode(latest, ids), PATH: path, METRICS: named}


def behind(taken: Positions, latest: Positions) -> Positions:
    """The readable offsets that were not taken; a partition that is not in ``taken`` is new."""
    return {partition: offset - taken.get(partition, 0) for partition, offset in latest.items()}


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def decode(offsets: Mapping[str, Any]) -> Positions:
    """The next offset to read, by partition. ``ConfigError`` if ``offsets`` is not of this form."""
    if not isinstance(offsets, dict):
        raise _no_offsets(offsets)
    return {
        partition: offset
        for topic, numbers in offsets.items()
        if topic not in (FROM, IDS, PATH, METRICS)
        for partition, offset in _of_topic(topic, numbers).items()
    }


def starts(start: Mapping[str, Any], end: Mapping[str, Any]) -> Positions:
    """Where the batch between the two offsets starts."""
    return decode(start) | (decode(end.get(FROM, {})) if start != end else {})


def ids(offsets: Mapping[str, Any]) -> dict[str, str]:
    found = offsets.get(IDS, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _no_offsets(found)
    return found


def _no_offsets(found: object, of: str = "", expected: str = "topic and partition", **facts: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint has {found!r}{of}, expected offsets by {expected}; it is of another source, or damaged: "
        "start with a new checkpointLocation",
        option="checkpointLocation", value=found, **facts,
    )  # fmt: skip


def _of_topic(topic: str, numbers: object) -> Positions:
    if not isinstance(numbers, dict) or not all(
        re.fullmatch("0|[1-9][0-9]{0,9}", number) and is_int(offset, 0) for number, offset in numbers.items()
    ):
        raise _no_offsets(numbers, f" for topic {topic!r}", "partition", topic=topic)
    return {TopicPartition(topic, int(number)): offset for number, offset in numbers.items()}
