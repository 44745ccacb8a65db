"""Sends many records in one call. Each run of records is encoded by one call into the codec.

Records of a partition keep their order. A refused record ends the call with its error. The error's
fact ``index`` is the record's place: all values before it were accepted, none after it. Records for
many partitions are grouped by partition, so refused records must be found first: those that are
large or not ``bytes`` are encoded once just to try them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from pylog.checks import copy_of_buffer
from pylog.codec import RecordEncoder, choose_partitions, count_plain, group_by_partition, pick, pick_times
from pylog.codec.faults import unusable_timestamp
from pylog.errors import InvalidRecord, PylogError
from pylog.interrupts import own
from pylog.producer.accumulator import Accumulator
from pylog.producer.batch import UNNUMBERED, ProducerBatch, Sequences
from pylog.producer.buffer import NO_BATCH, PartitionBuffer, TopicBuffers, interrupted
from pylog.producer.config import ProducerConfig, Serializer, serialized
from pylog.producer.deliveries import Deliveries, Runs, SpreadDeliveries
from pylog.producer.delivery import Delivery
from pylog.producer.keys import require_keys
from pylog.producer.partitioner import KINDS, Sticky
from pylog.producer.sender import Sender
from pylog.producer.topic_cache import TopicCache

STEP_RECORDS = 10_000  # between two looks at the partitioner
_NO_HEADERS = ()
_NOT_CHOSEN = -1


class BulkRequest:
    """The records of one call. ``cut`` ends it before a refused record, whose error is raised last.

    ``timestamps_ms`` is one for all records, or an ``array("q")`` with one that is valid for each.
    """

    __slots__ = ("first", "keys", "partitions", "refusal", "timestamps_ms", "values")

    def __init__(
        self,
        timestamps_ms: int | array[int],
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        partitions: Sequence[int | None] | None = None,
    ) -> None:
        self.timestamps_ms = timestamps_ms
        self.values = values
        self.keys = keys
        self.partitions = partitions  # None: the partitioner chooses
        self.refusal: PylogError | None = None
        self.first = UNNUMBERED  # the sequence of the first record, from a named producer

    def sequences(self, start: int) -> Sequences:
        """Of a batch that begins with the record at ``start``."""
        if start == 0 or self.first is UNNUMBERED:
            return self.first
        return Sequences(self.first.first + start - 1, self.first.first + start)

    def cut(self, index: int, error: PylogError) -> None:
        error.facts["index"] = index
        self.values = self.values[:index]  # the timestamps may be more
        self.keys = None if self.keys is None else self.keys[:index]
        self.partitions = None if self.partitions is None else self.partitions[:index]
        self.refusal = error

    def timestamp_ms(self, index: int) -> int:
        """Of one record."""
        return self.timestamps_ms[index] if isinstance(self.timestamps_ms, array) else self.timestamps_ms

    def in_groups(self, order: array[int]) -> BulkRequest:
        """The same records in another order."""
        times = pick_times(self.timestamps_ms, order) if isinstance(self.timestamps_ms, array) else self.timestamps_ms
        return BulkRequest(times, pick(self.values, order), None if self.keys is None else pick(self.keys, order))

    def part(self, start: int, stop: int) -> BulkRequest:
        """Some of the values, which the partitioner places."""
        times = self.timestamps_ms[start:stop] if isinstance(self.timestamps_ms, array) else self.timestamps_ms
        return BulkRequest(times, self.values[start:stop], None)


class BulkSender:
    """``send_many`` of one producer, and the bulk part of ``send_arrow``."""

    def __init__(self, accumulator: Accumulator, sender: Sender, topics: TopicCache, config: ProducerConfig) -> None:
        self._accumulator = accumulator
        self._topics = topics
        self._sender = sender
        self._config = config

    def request(self, timestamp_ms: int, values: Sequence[Any], keys: Sequence[Any] | None) -> BulkRequest:
        """Serialize keys and values, up to the first record that a serializer refuses."""
        request = BulkRequest(timestamp_ms, values, keys)
        request.values = self._serialized(request, "value", self._config.value_serializer, request.values)
        if request.keys is not None:
            request.keys = self._serialized(request, "key", self._config.key_serializer, request.keys)
            request.values = request.values[: len(request.keys)]
        if isinstance(timestamp_ms, array):  # here it is one for all
            request.cut(0, unusable_timestamp(timestamp_ms))
        return request

    def send(self, topic: TopicBuffers, buffer: PartitionBuffer | None, request: BulkRequest) -> Deliveries:
        """Send up to the first refused record, to ``buffer`` or to each record's partition."""
        runs = Runs()
        deliveries = Deliveries(runs, request.timestamps_ms)
        if buffer is None and request.partitions is None:
            buffer = topic.only
        try:
            if buffer is not None:
                self._fill(buffer, request, runs, 0, len(request.values))
            elif request.keys is None and request.partitions is None and isinstance(topic.choice, Sticky):
                self._to_sticky(request, topic, runs)
            else:
                order = self._to_many(request, topic, runs)
                deliveries = SpreadDeliveries(runs, order, request.timestamps_ms)
        finally:
            self.do_more(Deliveries(runs, request.timestamps_ms), runs.batches())
        if request.refusal is not None:
            raise request.refusal
        return deliveries

    def _serialized(
        self, request: BulkRequest, field: str, serializer: Serializer | None, items: Sequence[Any]
    ) -> Sequence[Any]:
        """Serialize the items. The first refused one cuts the request."""
        if serializer is None:
            return items
        done: list[Any] = []
        try:
            for item in items:
                data = serialized(field, serializer, item)
                # copied, since the serializer may fill it again; one by one: keeps those before a
                # failure
                done.append(data if type(data) is bytes else copy_of_buffer(data))
        except own(PylogError) as error:
            request.cut(len(done), error)
        return done

    def _to_sticky(self, request: BulkRequest, topic: TopicBuffers, runs: Runs) -> None:
        """Send to the current sticky partition, and to the next one when its batch is full."""
        start = 0
        while start < len(request.values):
            buffers = topic.buffers
            step = request.part(start, start + STEP_RECORDS)
            buffer = buffers[topic.choice.choose(None, len(buffers))]
            taken = self._fill(buffer, step, runs, 0, len(step.values), moves_on=True)
            if step.refusal is not None:
                request.cut(start + len(step.values), step.refusal)
                break
            start += taken

    def _to_many(self, request: BulkRequest, topic: TopicBuffers, runs: Runs) -> array[int]:
        """Send each record to its partition, partition by partition. Returns the order."""
        partitions = self._partitions(request, topic, len(topic.buffers))
        self._try_out(request, topic)
        buffers = topic.buffers  # a partition that the request names may be new
        order, groups = group_by_partition(partitions[: len(request.values)], len(buffers))
        grouped = request.in_groups(order)
        times, values, keys, start = grouped.timestamps_ms, grouped.values, grouped.keys, 0
        try:
            for number, start, stop in groups:
                batch = buffers[number].open
                first, count = batch.encoder.try_append_many(times, values, keys, start, stop)
                if count:
                    runs.add(batch, first, count)
                if count < stop - start:
                    self._fill(buffers[number], grouped, runs, start + count, stop)
                    if grouped.refusal is not None:  # not a record's error: the producer is closed or blocked
                        request.cut(min(order[len(grouped.values) :]), grouped.refusal)
                        break
        except own(PylogError) as error:  # no record can have this timestamp
            request.cut(min(order[start:]), error)
        return order

    def _partitions(self, request: BulkRequest, topic: TopicBuffers, count: int) -> array[int]:
        """The partition of each record. Cuts the request before the first record without one."""
        keys: Sequence[Any] = [None] * len(request.values) if request.keys is None else request.keys
        partitions = array("i", bytes(4 * len(keys)))
        kind = None if topic.key_hash is None or request.partitions is not None else KINDS.get(topic.key_hash)
        place, keyless = 0, _NOT_CHOSEN
        try:
            if kind is None:
                all_named = repeat(None) if request.partitions is None else request.partitions
                for place, (key, named) in enumerate(zip(keys, all_named, strict=False)):
                    chosen = topic.choose(key, count) if named is None else self._topics.buffer(topic, named).number
                    partitions[place] = chosen
                return partitions
            while (place := choose_partitions(kind, keys, place, partitions, count, keyless)) < len(keys):
                partitions[place] = topic.choose(keys[place], count)
                if keys[place] is None:
                    keyless = partitions[place]  # until its batch closes, which is after these records are sent
                place += 1
        except own(PylogError) as error:
            request.cut(place, error)
        return partitions

    def _try_out(self, request: BulkRequest, topic: TopicBuffers) -> None:
        """Cut the request before the first record that the codec, or the topic, refuses."""
        if topic.needs_keys:
            try:
                require_keys(topic.name, request.keys, 0, len(request.values))
            except own(InvalidRecord) as error:
                request.cut(error.index, error)
        limit_bytes = self._accumulator.limit_bytes(topic)
        index = count_plain(request.values, request.keys, limit_bytes)
        if index == len(request.values):
            return
        trial = RecordEncoder(limit_bytes)
        while index < len(request.values):
            try:
                index = trial.extend(request.timestamps_ms, request.values, request.keys, index)
            except own(PylogError) as error:
                request.cut(int(error.facts.get("index", index)), error)
            else:
                trial.take_batch()

    def _fill(
        self,
        buffer: PartitionBuffer,
        request: BulkRequest,
        runs: Runs,
        start: int,
        stop: int,
        *,
        moves_on: bool = False,
    ) -> int:
        """Send the records to one partition, up to the first refused one. Returns where it stopped.

        ``moves_on``: stop when the open batch is full, and write it; the caller sends the rest.
        """
        times, values, keys = request.timestamps_ms, request.values, request.keys
        has_keys = False
        while start < stop:
            try:
                if buffer.topic.needs_keys and not has_keys:
                    require_keys(buffer.topic.name, keys, start, stop)
                    has_keys = True
                batch = buffer.open
                first, count = batch.encoder.try_append_many(times, values, keys, start, stop)
                if count == 0:
                    batch, first, count = self._extend(buffer, request, start, stop)
                if count:
                    runs.add(batch, first, count)
                    start += count
                elif moves_on and batch is not NO_BATCH:
                    self._accumulator.write_open(buffer)
                    break
                else:
                    key, time_ms = None if keys is None else keys[start], request.timestamp_ms(start)
                    numbered = request.sequences(start)
                    placed = self._accumulator.append(buffer, time_ms, key, values[start], _NO_HEADERS, numbered)
                    runs.add(placed.batch, placed.index, 1)
                    start += 1
            except own(PylogError) as error:
                stop = max(start, int(error.facts.get("index", start)))
                request.cut(stop, error)  # the codec took back the run; its good part is sent again
        return start

    def _extend(
        self, buffer: PartitionBuffer, request: BulkRequest, start: int, stop: int
    ) -> tuple[ProducerBatch, int, int]:
        """Add records, also not of ``bytes``, to the open batch. Returns it, first index and
        count."""
        if buffer.is_extended and buffer.is_interrupted():
            raise interrupted(buffer)
        with buffer.lock:
            batch = buffer.open
            batch.encoder.close()  # so that no other thread's record comes in between
            buffer.is_extended = True
            try:
                first = batch.encoder.count
                count = batch.encoder.extend(request.timestamps_ms, request.values, request.keys, start, stop) - start
            finally:
                buffer.is_extended = False
                if buffer.open is batch:
                    batch.encoder.reopen()
        return batch, first, count

    def do_more(self, deliveries: Iterable[Delivery], batches: Iterable[ProducerBatch]) -> None:
        """Add the callback to these records, and write their batches if ``linger_ms`` is 0."""
        if self._config.on_delivery is not None:
            for delivery in deliveries:
                delivery.add_done_callback(self._config.on_delivery)
        if self._config.linger_ms == 0:
            self._sender.drain_unsettled(batches)
