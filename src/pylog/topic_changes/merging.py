"""Merges the partitions of a topic: each keeps its order, and among them the earlier record goes first.

A key can be in several partitions, since partitions were added. Of records with the same time, those
go first that are in another partition than their keys' records go to now.

The order follows from the records alone. So a part of it, read again, is the same.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from pylog.codec.format import NONE
from pylog.errors import ConfigError
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import Record
from pylog.partition.partition_log import PartitionLog
from pylog.partition.producers.state import is_named
from pylog.partition.read.visibility import READ_COMMITTED
from pylog.topic_changes.keys import KeyHash


class Stream:
    """The committed records of one partition between two offsets, as far as they can be read now."""

    def __init__(
        self, log: PartitionLog, start: int, end: int, *, now: KeyHash, after: KeyHash, max_bytes: int
    ) -> None:
        """``now`` places keys among the partitions that the topic has, ``after`` among those that it gets."""
        self.number = log.number
        self.position = start
        """The offset after the last record that was taken."""
        self.reached = 0
        """The new partitions of the records that were taken, as bits."""
        self.codec = NONE
        self._log = log
        self._end = end
        self._now = now
        self._after = after
        self._max_bytes = max_bytes
        self._read_bytes = 0
        self._read_to = start
        self._chunks = self._read()
        self._records: list[Record] = []
        self._targets: array[int] = array("i")
        self._order: list[int] = []

    def fill(self) -> bool:
        """Have records that were not taken yet; False if there are none, or none that can be read now."""
        if self._records:
            return True
        self._read_bytes = 0
        for chunk in self._chunks:
            self._records += chunk
            if len(self._records) >= RECORDS_AT_ONCE or self._read_bytes >= self._max_bytes:
                break
        if not self._records:
            self.position = max(self.position, min(self._read_to, self._end))
            return False
        keys = [record.key for record in self._records]
        self._targets = self._after.places(keys, self.number)
        places = zip(self._records, self._now.places(keys, self.number), strict=True)
        times = (2 * record.timestamp_ms + (place == self.number) for record, place in places)
        self._order = list(accumulate(times, max))
        return True

    @property
    def is_blocked(self) -> bool:
        """After ``fill`` was false: whether there is more, after a transaction that is open."""
        return self.position < self._end

    @property
    def last(self) -> int:
        """Where the last of its records is in the order of all."""
        return self._order[-1]

    def take(self, last: int, *, inclusive: bool) -> tuple[list[Record], array[int], list[int]]:
        """Take the records up to ``last``: with their new partitions, and what orders them."""
        count = (bisect_right if inclusive else bisect_left)(self._order, last)
        taken = self._records[:count], self._targets[:count], self._order[:count]
        if count:
            del self._records[:count], self._targets[:count], self._order[:count]
            self.position = taken[0][-1].offset + 1
            for target in set(taken[1]):
                self.reached |= 1 << target
        return taken

    def _read(self) -> Iterator[list[Record]]:
        start, end = self.position, self._end
        fetches = self._log.reader.fetches(start, end, max_bytes=self._max_bytes, isolation_level=READ_COMMITTED)
        for fetched in fetches:
            for view in fetched.batches:
                if view.base_offset >= end:
                    break
                topic, number = self._log.topic_partition
                if is_named(view.header.producer_id):
                    raise ConfigError(
                        f"{topic}-{number} has records of a named producer at offset {view.base_offset}: it numbers its batches "
                        "by partition, and would send them again to others; the topic keeps its partitions",
                        option="partitions", topic=topic, partition=number, offset=view.base_offset,
                    )  # fmt: skip
                self.codec = view.header.codec
                decoder = view.decoder(topic, number)
                decoder.skip_to(start)
                size_bytes = decoder.size_bytes // max(view.header.count, 1) + 1
                at_once = max(1, min(RECORDS_AT_ONCE, self._max_bytes // size_bytes))
                while records := decoder.take(at_once):
                    self._read_bytes += len(records) * size_bytes
                    yield records if records[-1].offset < end else [each for each in records if each.offset < end]
            self._read_to = fetched.cursor.offset


def merged(streams: Sequence[Stream]) -> Iterator[tuple[list[Record], Sequence[int]]]:
    """Records and their new partitions, a part at a time. ``streams`` are in the order of their numbers.

    Ends before a transaction that is open: its records precede some of those in other partitions.
    """
    while True:
        ready = []
        for stream in streams:
            if stream.fill():
                ready.append(stream)
            elif stream.is_blocked:
                return
        if not ready:
            return
        first = min(ready, key=lambda stream: stream.last)  # what it has not read yet comes later
        last = first.last
        parts = [stream.take(last, inclusive=stream.number <= first.number) for stream in ready]
        parts = [part for part in parts if part[0]]
        records, targets, order = parts[0]
        if len(parts) > 1:
            for more in parts[1:]:
                records += more[0]
                targets += more[1]
                order += more[2]
            by_time = sorted(range(len(order)), key=order.__getitem__)
            yield [records[index] for index in by_time], [targets[index] for index in by_time]
        else:
            yield records, targets
