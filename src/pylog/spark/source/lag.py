"""How far a streaming query is behind, and has come, from the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.spark.source.stream_offsets import Positions, behind, decode, ids

if TYPE_CHECKING:
    from pylog.group.descriptions import OffsetChange
    from pylog.log import Log
    from pylog.model import TopicPartition


def offsets_behind(progress: Any) -> Positions:
    """By partition, the number of readable offsets that the last planned batch did not take.

    ``progress`` is a query's ``lastProgress`` (None before its first batch ends), one of
    ``recentProgress``, or a listener's argument. Of several sources of a topic the largest lag
    counts. Sources that are not in Python, or have other offsets, are left out. Gaps (compaction,
    transactions) count, so fewer records may come.
    """
    found: Positions = {}
    for source in _sources(progress):
        end, latest = decode(_offsets(source, "endOffset")), decode(_offsets(source, "latestOffset"))
        for partition, offsets in behind(end, latest).items():
            found[partition] = max(found.get(partition, 0), offsets)
    return found


def commit_progress(log: Log, group: str, progress: Any) -> dict[TopicPartition, OffsetChange]:
    """Commit the end of the batch that ``progress`` reports as the offsets of ``group``, so that
    ``retention="consumed"`` keeps what the query has not processed. Durable on return.

    ``progress`` as for ``offsets_behind``. The group must have no members (``GroupNotEmpty``).
    Topics that ``log`` does not have, or has under another id, are left out. Of several sources of
    a topic the least offset counts. Returns the old and new offsets.
    """
    reached: Positions = {}
    for source in _sources(progress):
        end = _offsets(source, "endOffset")
        known = ids(end)
        there = {topic for topic in log.topics() if known.get(topic) == log.describe_topic(topic).id}
        for partition, offset in decode(end).items():
            if partition.topic in there:
                reached[partition] = min(reached.get(partition, offset), offset)
    return log.reset_offsets(group, offsets=reached) if reached else {}


def _sources(progress: Any) -> Iterator[Any]:
    """Those in Python."""
    if progress is None:
        return
    for source in progress["sources"] if isinstance(progress, Mapping) else progress.sources:
        if "python" in str(_of(source, "description")).lower():
            yield source


def _of(source: Any, name: str) -> Any:
    return source[name] if isinstance(source, Mapping) else getattr(source, name)


def _offsets(source: Any, name: str) -> dict[str, Any]:
    text = _of(source, name)
    try:
        offsets = json.loads(text or "null")
        decode(offsets), ids(offsets)
    except own(ValueError, ConfigError):  # offsets of another source
        return {}
    return cast("dict[str, Any]", offsets)
