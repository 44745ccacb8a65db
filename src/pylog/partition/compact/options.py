"""What a compaction is asked for, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pylog.codec.format import INT64_MAX


@dataclass(frozen=True)
class CompactionOptions:
    """Kafka's topic settings of these names. ``memory_bytes``: the most that the map of keys takes,
    by default for 10,000,000 keys at once. It takes less if there are fewer records.

    No record from the offset ``end`` on is compacted, for this reason.
    """

    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    memory_bytes: int = 176 << 20
    end: int = INT64_MAX
    end_reason: str = ""


class CompactionReport(NamedTuple):
    """What one compaction did. Bytes are those of the segments that it read, and of what it left of
    them.

    ``cleaned_to``: every record before this offset is the newest of its key before it, or a
    tombstone that is still needed. ``passes`` is more than one if the keys did not fit into memory
    at once: each took a part of the dirty range. ``skipped``: why nothing, or not all, was cleaned;
    empty if all that is closed, durable and old enough was.
    """

    cleaned_to: int
    bytes_before: int = 0
    bytes_after: int = 0
    records_kept: int = 0
    records_dropped: int = 0
    segments_after: int = 0
    passes: int = 0
    skipped: tuple[str, ...] = ()
