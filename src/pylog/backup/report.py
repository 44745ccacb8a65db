"""What a backup has copied: a value for callers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pylog.model import TopicPartition


class BackupReport(NamedTuple):
    """The copy at ``path`` ends, in each partition, before the offset of ``ends``.

    ``copied_bytes`` were read from the log and checked; ``kept_bytes`` are files of the earlier
    copy. Both count segments with their indexes and seals.
    """

    path: str
    topics: int
    partitions: int
    copied_bytes: int
    kept_bytes: int
    copied_segments: int
    kept_segments: int
    duration_ms: int
    ends: dict[TopicPartition, int]
