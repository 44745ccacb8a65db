"""How far a streaming query is behind, out of the progress that Spark reports of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.spark.source.stream_offsets import Positions, decode


def offsets_behind(progress: Any) -> Positions:
    """By partition, how many offsets were there to be read and not yet taken when the last batch was planned.

    ``progress`` is a query's ``lastProgress`` (none before its first batch is over), or one of its ``recentProgress``, or what a
    listener is told. Of sources of one topic the one that is furthest behind counts; sources that are not in Python, or have
    other offsets, are left out. Gaps count: of a compacted topic, or between transactions, fewer records may come.
    """
    behind: Positions = {}
    if progress is None:
        return behind
    for source in progress["sources"] if isinstance(progress, Mapping) else progress.sources:
        if "python" in str(_of(source, "description")).lower():
            end, latest = _offsets(source, "endOffset"), _offsets(source, "latestOffset")
            for partition, offset in latest.items():
                behind[partition] = max(behind.get(partition, 0), offset - end.get(partition, 0))
    return behind


def _of(source: Any, name: str) -> Any:
    return source[name] if isinstance(source, Mapping) else getattr(source, name)


def _offsets(source: Any, name: str) -> Positions:
    text = _of(source, name)
    try:
        offsets = json.loads(text or "null")
        return decode(offsets) if isinstance(offsets, dict) else {}
    except own(ValueError, ConfigError):  # of another source
        return {}
