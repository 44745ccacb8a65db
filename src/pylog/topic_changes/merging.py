"""Merges the partitions of a topic: each keeps its order, and among them the earlier record goes
first.

Record by record, since batches overlap, and a batch's first time can be its delete horizon. That
costs up to a sixth more processor time than copying pieces.

A key can be in several partitions, since partitions were added. Of records with the same time,
those go first that are in another partition than their keys' records go to now.

The order follows from the records alone. So a part of it, read again, is the same.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import accumulate

from pylog.codec import RecordDecoder
from pylog.codec.format import NONE
from pylog.errors import ConfigError
from pylog.limits import RECORDS_AT_ONCE
from pylog.model import Record
from pylog.partition.partition_log import PartitionLog
from pylog.partition.producers.state import is_named
from pylog.partition.read.visibility import READ_COMMITTED
from pylog.topic_changes.keys import KeyHash

_OPEN_BYTES = 64 << 20  # of what was read of all partitions, and is not decoded yet
_RECORD_BYTES = 350  # of memory for a record, besides its bytes
_HEADER_BYTES = 200
_UNKNOWN_BYTES = 4096  # for each of the first records, since they may have many headers


class Stream:
    """The committed records of one partition between two offsets, as far as they can be read
    now."""

    def __init__(
        self, log: PartitionLog, start: int, end: int, *, now: KeyHash, after: KeyHash, max_bytes: int
    ) -> None:
        """``now`` places keys among the partitions that the topic has, ``after`` among those that
        it gets."""
        self.number = log.number
        self.position = start
        """The offset after the last record that was taken."""
        self.reached = 0
        """The new partitions of the records that were taken, as bits."""
        self.codec = NONE
        self.is_done = False
        """Whether all is read."""
        self.open_bytes = 0
        """What was read, as it is in the files and decompressed, if there may be records in it
        yet."""
        self._log = log
        self._end = end
        self._now = now
        self._after = after
        self._max_bytes = max_bytes
        self._memory_bytes = 0  # for records that were not taken yet
        self._record_bytes = _UNKNOWN_BYTES
        self._read_to = start
        self._chunks = self._read()
        self._records: list[Record] = []
        self._targets: array[int] = array("i")
        self._order: list[int] = []

    def fill(self) -> bool:
        """Have records that were not taken yet; False if there are none, or none that can be read
        now.

        Reads more when half of them are taken: so all streams have many, and few parts hold many of
        each.
        """
        known = len(self._records)
        if known and (self.is_done or known > RECORDS_AT_ONCE // 2 or self._memory_bytes > self._max_bytes // 2):
            return True
        for chunk in self._chunks:
            self._records += chunk
            if len(self._records) >= RECORDS_AT_ONCE or self._memory_bytes >= self._max_bytes:
                break
        else:
            self.is_done = self._read_to >= self._end
        if not self._records:
            self.position = max(self.position, min(self._read_to, self._end))
            return False
        records = self._records[known:]
        keys = [record.key for record in records]
        self._targets += self._after.places(keys, self.number)
        places = zip(records, self._now.places(keys, self.number), strict=True)
        times = (2 * record.timestamp_ms + (place == self.number) for record, place in places)
        # After records that were taken, an earlier time changes nothing: all others up to them were
        # taken, too.
        self._order += accumulate(times, max) if not known else accumulate(times, max, initial=self._order.pop())
        return True

    @property
    def is_blocked(self) -> bool:
        """After ``fill`` was false: whether there is more, after a transaction that is open."""
        return self.position < self._end

    def close(self) -> None:
        """Keep the records, but not what more was read: ``fill`` reads it again."""
        self._chunks.close()
        self._chunks = self._read()
        self.open_bytes = 0

    @property
    def is_closable(self) -> bool:
        """Whether ``close`` saves memory until the records are taken."""
        return self.open_bytes > 0 and bool(self._records)

    @property
    def first(self) -> int:
        """Where the first of its records is in the order of all."""
        return self._order[0]

    @property
    def last(self) -> int:
        """Where the last of its records is in the order of all."""
        return self._order[-1]

    def take(self, last: int, *, inclusive: bool) -> tuple[list[Record], array[int], list[int]]:
        """Take the records up to ``last``: with their new partitions, and what orders them."""
        count = (bisect_right if inclusive else bisect_left)(self._order, last)
        taken = self._records[:count], self._targets[:count], self._order[:count]
        if count:
            self._memory_bytes -= self._memory_bytes * count // len(self._records)
            del self._records[:count], self._targets[:count], self._order[:count]
            self.position = taken[0][-1].offset + 1
            for target in set(taken[1]):
                self.reached |= 1 << target
        return taken

    def _read(self) -> Generator[list[Record], None, None]:
        start = self._records[-1].offset + 1 if self._records else self.position
        end = self._end
        self._read_to = max(self._read_to, start)
        fetches = self._log.reader.fetches(start, end, max_bytes=self._max_bytes, isolation_level=READ_COMMITTED)
        for fetched in fetches:
            fetched_bytes = sum(len(view.buffer) for view in fetched.batches)
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
                self.open_bytes = fetched_bytes + (decoder.size_bytes if self.codec != NONE else 0)
                size_bytes = decoder.size_bytes // max(view.header.count, 1) + 1
                while decoder.remaining:
                    yield self._some(decoder, size_bytes)
            self._read_to = fetched.cursor.offset
        self.open_bytes = 0

    def _some(self, decoder: RecordDecoder, size_bytes: int) -> list[Record]:
        """Records of ``size_bytes`` each, on the average; as many as there is memory for."""
        record_bytes = max(self._record_bytes, size_bytes + _RECORD_BYTES)
        at_once = (self._max_bytes - self._memory_bytes) // record_bytes
        records = decoder.take(max(1, min(RECORDS_AT_ONCE, at_once)))
        headers = sum([len(record.headers) for record in records])
        memory_bytes = len(records) * (size_bytes + _RECORD_BYTES) + headers * _HEADER_BYTES
        self._memory_bytes += memory_bytes
        self._record_bytes = memory_bytes // len(records)
        if records[-1].offset >= self._end:
            records = [each for each in records if each.offset < self._end]
        return records


def merged(streams: Sequence[Stream]) -> Iterator[tuple[list[Record], Sequence[int]]]:
    """Records and their new partitions, a part at a time. ``streams`` are in the order of their
    numbers.

    Ends before a transaction that is open: its records precede some of those in other partitions.
    """
    while True:
        ready = []
        open_bytes = sum(stream.open_bytes for stream in streams)
        for stream in streams:
            open_bytes -= stream.open_bytes
            if stream.fill():
                ready.append(stream)
            elif stream.is_blocked:
                return
            open_bytes += stream.open_bytes
            if open_bytes > _OPEN_BYTES:
                open_bytes -= _close_some(streams, open_bytes)
        if not ready:
            return
        unread = [stream for stream in ready if not stream.is_done]
        if unread:
            first = min(unread, key=lambda stream: stream.last)  # what it has not read yet comes later
        else:
            first = max(ready, key=lambda stream: (stream.last, stream.number))
        last = first.last
        yield _together(
            stream.take(last, inclusive=stream.number <= first.number) for stream in ready if stream.first <= last
        )


def _close_some(streams: Sequence[Stream], open_bytes: int) -> int:
    """Close those that are read again last. One stays open, however large its batch is. Returns the
    bytes of the others."""
    closed_bytes = 0
    closable = sorted((stream for stream in streams if stream.is_closable), key=lambda stream: stream.last)
    while closable and open_bytes - closed_bytes > max(_OPEN_BYTES, closable[-1].open_bytes):
        stream = closable.pop()
        closed_bytes += stream.open_bytes
        stream.close()
    return closed_bytes


def _together(taken: Iterable[tuple[list[Record], array[int], list[int]]]) -> tuple[list[Record], Sequence[int]]:
    parts = [part for part in taken if part[0]]
    records, targets, order = parts[0]
    if len(parts) == 1:
        return records, targets
    for more in parts[1:]:
        records += more[0]
        targets += more[1]
        order += more[2]
    by_time = sorted(range(len(order)), key=order.__getitem__)
    return [records[index] for index in by_time], [targets[index] for index in by_time]
