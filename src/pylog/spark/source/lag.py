"""How far a streaming query is behind, from the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.spark.source.stream_offsets import Positions, decode


def offsets_behind(progress: Any) -> Positions:
    """By partition, the number of readable offsets that the last planned batch did not take.

    ``progress`` is a query's ``lastProgress`` (None before its first batch ends), one of
    ``recentProgress``, or a listener's argument. Of several sources of a topic the largest lag
    counts. Sources that are not in Python, or have other offsets, are left out. Gaps (compaction,
    transactions) count, so fewer records may come.
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
    except own(ValueError, ConfigError):  # offsets of another source
        return {}
