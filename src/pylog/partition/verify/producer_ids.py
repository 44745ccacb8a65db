"""The producer ids in a partition, against the log's next unreserved one.

An id at or above the next unreserved one will be given to another producer, whose records are then
taken for repeats. Only ids that the count can come to are a problem: a log that lost its count
continued at another random number, perhaps below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pylog.partition.verify.findings import Finding

_IN_REACH = 1 << 40


class ProducerIdRange:
    """The least and the greatest producer id seen in a log; -1 before the first."""

    def __init__(self) -> None:
        self.least = self.greatest = -1

    def add(self, producer_id: int) -> None:
        if producer_id >= 0:
            self.least = producer_id if self.least < 0 else min(self.least, producer_id)
            self.greatest = max(self.greatest, producer_id)


class ProducerIdCheck:
    """One partition. ``read_next`` gives the log's next unreserved id, None if it is unknown. Ids
    are reserved before they are used, so it is asked again for an id that is not below the one
    known."""

    def __init__(self, read_next: Callable[[], int | None], seen: ProducerIdRange) -> None:
        self._read_next = read_next
        self._seen = seen
        self._next = read_next()
        self._finding: Finding | None = None
        self._greatest = -1
        self._count = 0

    def add(self, producer_id: int, path: str, position: int, first_offset: int | None, end_offset: int) -> None:
        """An id of a batch, or of a snapshot."""
        self._seen.add(producer_id)
        if not self._is_to_come(producer_id):
            return
        self._next = self._read_next()
        if not self._is_to_come(producer_id):
            return
        self._count += 1
        if producer_id > self._greatest:
            self._greatest = producer_id
            problem = (
                f"producer id {producer_id} is not below {self._next}, the next number in .pylog/producer-ids: another producer "
                "will get the same id, and its records are then taken for repeats and lost; remove that file, and the next "
                "producer begins at a new random number"
            )
            self._finding = Finding("producer-ids", path, position, first_offset, end_offset, problem)

    def _is_to_come(self, producer_id: int) -> bool:
        return self._next is not None and self._next <= producer_id < self._next + _IN_REACH

    def result(self) -> Iterator[Finding]:
        if self._finding is not None:
            more = f" (and {self._count - 1} more like it)" if self._count > 1 else ""
            yield self._finding._replace(problem=self._finding.problem + more)
