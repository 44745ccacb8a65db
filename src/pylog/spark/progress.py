"""How far a streaming query is behind, out of the progress that Spark reports of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pylog.errors import ConfigError
from pylog.spark.stream_offsets import Positions, decode


def offsets_behind(progress: Any) -> Positions:
    """By partition, how many offsets were there to be read and not yet taken when the last batch was planned.

    ``progress`` is a query's ``lastProgress``, or one of its ``recentProgress``, or what a listener is told. Sources that are
    none of pylog's are left out. Gaps count: of a compacted topic, or between transactions, fewer records may come.
    """
    behind: Positions = {}
    for source in progress["sources"] if isinstance(progress, Mapping) else progress.sources:
        end, latest = _offsets(source, "endOffset"), _offsets(source, "latestOffset")
        behind |= {partition: max(offset - end.get(partition, 0), 0) for partition, offset in latest.items()}
    return behind


def _offsets(source: Any, name: str) -> Positions:
    text = source[name] if isinstance(source, Mapping) else getattr(source, name)
    try:
        offsets = json.loads(text or "null")
        return decode(offsets) if isinstance(offsets, dict) else {}
    except (ValueError, ConfigError):  # of another source
        return {}
