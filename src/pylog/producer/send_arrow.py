"""Sends a table's rows piece by piece: in bulk, but rows with headers one by one.

Both paths keep the order of the rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import groupby, repeat
from typing import TYPE_CHECKING, NamedTuple

from pylog.codec.faults import check_timestamp
from pylog.errors import InvalidTimestamp, PylogError
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
        deliveries = JoinedDeliveries()
        try:
            self._topics.find(name)  # also if there is no row
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
        partitions = None if rows.partitions is None else rows.partitions[some]
        buffer: PartitionBuffer | None = None
        if partitions is not None and partitions[0] is not None and partitions.count(partitions[0]) == len(partitions):
            buffer, partitions = self._topics.buffer(topic, partitions[0]), None
        keys = None if rows.keys is None else rows.keys[some]
        request = BulkRequest(now_ms, rows.values[some], keys, partitions)
        if rows.timestamps_ms is not None:
            _set_times(request, rows.timestamps_ms[some])
        return self._bulk.send(topic, buffer, request)

    def _send_rows(self, topic: TopicBuffers, rows: Rows, run: _Run, now_ms: int) -> Deliveries:
        sent: list[Delivery] = []
        choose, buffer_of, append = topic.choose, self._topics.buffer, self._accumulator.append
        some = slice(run.start, run.stop)
        columns = (repeat(None) if column is None else column[some] for column in rows[1:])
        try:
            for value, key, partition, time_ms, headers in zip(rows.values[some], *columns, strict=False):
                buffers = topic.buffers
                buffer = topic.only if partition is None else buffer_of(topic, partition)
                if buffer is None:
                    buffer = buffers[choose(key, len(buffers))]
                if time_ms is None:
                    time_ms = now_ms  # noqa: PLW2901 - of this row, and of no other
                batch = buffer.open
                delivery = batch.append(Delivery, batch, time_ms, key, value, headers or ())
                if delivery is None:
                    among = buffers if partition is None else None
                    delivery = append(buffer, time_ms, key, value, headers or (), among=among)
                sent.append(delivery)
        except own(PylogError) as error:
            error.facts["index"] = len(sent)
            raise
        finally:
            self._bulk.do_more(sent, (delivery.batch for delivery in sent))
        return ListedDeliveries(sent)


def _set_times(request: BulkRequest, times: array[int] | list[int | None]) -> None:
    """Cuts the request before the first time that no record can have."""
    if isinstance(times, list):
        given, times, now_ms = times, array("q"), request.timestamp_ms(0)
        try:
            for time_ms in given:
                check_timestamp(now_ms if time_ms is None else time_ms)
                times.append(now_ms if time_ms is None else time_ms)
        except own(InvalidTimestamp) as error:
            request.cut(len(times), error)
    request.timestamps_ms = times


def _runs(rows: Rows) -> Iterator[_Run]:
    """The rows in order: long runs without headers, and the rows between them."""
    count = len(rows.values)
    if not count or rows.headers is None:
        yield _Run(0, count, True)
        return
    loose = stop = 0
    for has_headers, run in groupby(map(bool, rows.headers)):
        start, stop = stop, stop + len(list(run))
        if stop - start >= _RUN_ROWS and not has_headers:
            if loose < start:
                yield _Run(loose, start, False)
            yield _Run(start, stop, True)
            loose = stop
    if loose < count:
        yield _Run(loose, count, False)
