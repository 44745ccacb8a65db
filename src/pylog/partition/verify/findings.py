"""What a check found, and what it looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pylog.model import TopicPartition
from pylog.partition.read.undecided import OpenTransaction

UNCHECKED = "unchecked"


class Finding(NamedTuple):
    """One thing that is wrong, and where. Offsets from ``first_offset`` up to ``end_offset``
    (exclusive) are concerned."""

    kind: str
    path: str
    position: int
    first_offset: int | None
    end_offset: int | None
    problem: str


class Problem(NamedTuple):
    """A ``Finding`` with its partition.

    ``kind`` is batch, records, offsets, segment, seal, index, timeindex, txnindex, snapshot,
    epochs, slots or directory; or topic: the topic's own file, or the draft of its change, can't be
    read (``partition`` is None then), or the partition's directory belongs to no topic; or
    producer-ids: the log will give out the producer id of a batch again, or its count is damaged
    (``topic`` is "" then); or unchecked: records could not be looked at for want of a library,
    which ``problem`` names. Told once for each segment.
    """

    topic: str
    partition: int | None
    kind: str
    path: str
    position: int
    first_offset: int | None
    end_offset: int | None
    problem: str

    def __str__(self) -> str:
        name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        if not self.topic:
            return self.problem
        if self.kind == "topic":
            return f"{name}: {self.problem}"
        problem = f"not checked, nor others like it: {self.problem}" if self.kind == UNCHECKED else self.problem
        where = f"{name}: {self.path}, position {self.position}"
        if self.first_offset is not None:
            where += f", offsets from {self.first_offset}" + (
                f" to {self.end_offset - 1}" if self.end_offset is not None else ""
            )
        return f"{where}: {problem}"


@dataclass
class VerifyReport:
    """What was checked, and what is wrong with it.

    ``unfinished_bytes`` are after the published end: an append under way, or what a crash left,
    which the next writer adopts or cuts. They are not a problem, nor are ``unsealed_segments``,
    closed ones without a seal. ``notes`` describe what may be a problem elsewhere.
    ``open_transactions`` wait for their marker, which is no problem either.
    """

    problems: list[Problem] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    unsealed_segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    unfinished_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    open_transactions: list[tuple[TopicPartition, OpenTransaction]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class FirstFinding:
    """The first thing wrong with one small file, and how many are like it: a file of nonsense is
    one finding."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind = kind
        self.path = path
        self._first: Finding | None = None
        self._more = 0

    @property
    def is_empty(self) -> bool:
        return self._first is None

    def add(self, position: int, first_offset: int | None, end_offset: int | None, problem: str) -> None:
        if self._first is None:
            self._first = Finding(self._kind, self.path, position, first_offset, end_offset, problem)
        else:
            self._more += 1

    def result(self) -> Iterator[Finding]:
        if self._first is not None:
            more = f" (and {self._more} more like it)" if self._more else ""
            yield self._first._replace(problem=self._first.problem + more)
