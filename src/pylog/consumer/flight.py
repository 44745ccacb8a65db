"""A chunk of records in the hands of an iteration, which takes them one by one without a line of Python for each.

``rest`` is the list's own iterator: what it has left says which record is being processed. Cutting the list behind that
record ends the iterator, so that whoever holds it comes back for the next chunk.
"""

from __future__ import annotations

from operator import length_hint

from pylog.consumer.assigned_partition import Lane
from pylog.model import Record


class Flight:
    """One chunk of one lane."""

    __slots__ = ("_records", "lane", "rest")

    def __init__(self, lane: Lane, records: list[Record]) -> None:
        self.lane = lane
        self.rest = iter(records)
        self._records = records

    @property
    def left(self) -> int:
        """How many of the records the application has not been given."""
        return length_hint(self.rest)

    @property
    def position(self) -> int | None:
        """The offset of the next record to be given: of this chunk, or behind it."""
        left = self.left
        return self._records[-left].offset if left else self.lane.position

    def land(self) -> int:
        """Give the lane back what the application was not given; how many records that is."""
        left = self.left
        if left:
            self.lane.give_back(self._records[-left:])
            del self._records[-left:]
        return left
