"""What goes so that a whole log keeps within ``max_bytes``: pure functions of values.

The oldest segment of all topics goes first, by the time of its last append. Active segments,
compacted and internal topics stay, and what retention's bounds hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from pylog.model import TopicPartition


class Candidate(NamedTuple):
    """A closed segment that can go if all of its partition's before it go. ``disk_bytes`` is with
    its other files."""

    appended_ms: int
    end_offset: int
    disk_bytes: int


class Part(NamedTuple):
    """A partition: what may go, oldest first, and why not the rest, with its size."""

    name: TopicPartition
    candidates: Sequence[Candidate]
    kept: str
    kept_bytes: int


class Share(NamedTuple):
    """``counts``: how many candidates of each partition go. ``excess_bytes`` stay above the bound,
    and ``why``: bytes by reason."""

    counts: dict[TopicPartition, int]
    freed_bytes: int
    excess_bytes: int
    why: dict[str, int]


def shared(parts: Iterable[Part], max_bytes: int) -> Share:
    """What goes, and what stays above the bound all the same."""
    found = list(parts)
    size_bytes = sum(part.kept_bytes + sum(each.disk_bytes for each in part.candidates) for part in found)
    oldest = [(part.candidates[0], number) for number, part in enumerate(found) if part.candidates]
    heapify(oldest)
    counts: Counter[TopicPartition] = Counter()
    freed_bytes = 0
    while oldest and size_bytes - freed_bytes > max_bytes:
        segment, number = oldest[0]
        part = found[number]
        counts[part.name] += 1
        freed_bytes += segment.disk_bytes
        if counts[part.name] < len(part.candidates):
            heapreplace(oldest, (part.candidates[counts[part.name]], number))
        else:
            heappop(oldest)
    excess_bytes = max(size_bytes - freed_bytes - max_bytes, 0)
    why: Counter[str] = Counter()
    for part in found if excess_bytes else ():
        why[part.kept] += part.kept_bytes
    return Share(dict(counts), freed_bytes, excess_bytes, {reason: size for reason, size in why.items() if size})
