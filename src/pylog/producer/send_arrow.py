"""Sends a table's rows piece by piece: in bulk if only values, keys and partitions differ.

The bulk path takes one timestamp for a whole run, and no headers. Other rows are sent one by one.
Both paths keep the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, repeat
from operator import ne
from typing import TYPE_CHECKING, NamedTuple

from pylog.errors import PylogError
from pylog.interrupts import own
from pylog.producer.accumulator import Accumulator
from pylog.producer.buffer import PartitionBuffer, TopicBuffers
from pylog.producer.deliveries import Deliveries, JoinedDeliveries, ListedDeliveries
from pylog.producer.delivery import Delivery
from pylog.producer.send_many import BulkRequest, BulkSender
from pylog.producer.topic_cache import TopicCache

if TYPE_CHECKING:
    from pylog.arrow.rows import Rows

_RUN_ROWS = 16  # shorter runs are faster one by one


class _Run(NamedTuple):
    start: int
    stop: int
    in_bulk: bool


class TableSender:
    """``send_arrow`` of one producer."""

    def __init__(
        self, bulk: BulkSender, accumulator: Accumulator, topics: TopicCache, now_ms: Callable[[], int]
    ) -> None:
        self._bulk = bulk
        self._accumulator = accumulator
        self._topics = topics
        self._now_ms = now_ms

    def send(self, name: str, pieces: Iterator[Rows]) -> Deliveries:
        """Send all rows up to the first refused one; the error's fact ``index`` is its place."""
        self._topics.find(name)
        deliveries = JoinedDeliveries()
        try:
            for rows in pieces:
                now_ms = self._now_ms()
                for run in _runs(rows):
                    topic = self._topics.find(name)
                    send = self._send_run if run.in_bulk else self._send_rows
                    deliveries.add(send(topic, rows, run, now_ms))
        except own(PylogError) as error:
            error.facts["index"] = len(deliveries) + int(error.facts.get("index", 0))
            raise
        return deliveries

    def _send_run(self, topic: TopicBuffers, rows: Rows, run: _Run, now_ms: int) -> Deliveries:
        some = slice(run.start, run.stop)
        times, partitions = rows.timestamps_ms, None if rows.partitions is None else rows.partitions[some]
        time_ms = None if times is None else times[run.start]
        buffer: PartitionBuffer | None = None
        if partitions is not None and partitions[0] is not None and partitions.count(partitions[0]) == len(partitions):
            buffer, partitions = self._topics.buffer(topic, partitions[0]), None
        request = BulkRequest(rows.values[some], None if rows.keys is None else rows.keys[some], partitions)
        return self._bulk.send(topic, buffer, now_ms if time_ms is None else time_ms, request)

    def _send_rows(self, topic: TopicBuffers, rows: Rows, run: _Run, now_ms: int) -> Deliveries:
        sent: list[Delivery] = []
        choose, buffer_of, append = self._bulk.choose, self._topics.buffer, self._accumulator.append
        some = slice(run.start, run.stop)
        columns = (repeat(None) if column is None else column[some] for column in rows[1:])
        try:
            for value, key, partition, time_ms, headers in zip(rows.values[some], *columns, strict=False):
                buffer = topic.only if partition is None else buffer_of(topic, partition)
                if buffer is None:
                    buffer = topic.buffers[choose(topic, key, len(topic.buffers))]
                if time_ms is None:
                    time_ms = now_ms  # noqa: PLW2901 - of this row, and of no other
                batch = buffer.open
                delivery = batch.append(Delivery, batch, time_ms, key, value, headers or ())
                if delivery is None:
                    delivery = append(buffer, time_ms, key, value, headers or ())
                sent.append(delivery)
        except own(PylogError) as error:
            error.facts["index"] = len(sent)
            raise
        finally:
            self._bulk.do_more(sent, (delivery.batch for delivery in sent))
        return ListedDeliveries(sent)


def _runs(rows: Rows) -> Iterator[_Run]:
    """The rows in order: long runs with one timestamp and no headers, and the rows between them."""
    count = len(rows.values)
    if not count or (rows.timestamps_ms is None and rows.headers is None):
        yield _Run(0, count, True)
        return
    times = rows.timestamps_ms or [None] * count
    headers = rows.headers or [()] * count
    alike = times if rows.headers is None else [pairs or time for pairs, time in zip(headers, times, strict=True)]
    bounds = [0, *(at for at, differs in enumerate(map(ne, alike, alike[1:]), 1) if differs), count]
    loose = 0
    for start, stop in pairwise(bounds):
        if stop - start >= _RUN_ROWS and not headers[start]:
            if loose < start:
                yield _Run(loose, start, False)
            yield _Run(start, stop, True)
            loose = stop
    if loose < count:
        yield _Run(loose, count, False)
