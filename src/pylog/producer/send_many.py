"""Many records in one call: encoded in runs, each of them one call into the codec.

Records of a partition keep their order. A record that is refused ends the call with its error, whose fact ``index`` is
its place: all values before it were accepted, none behind it. Records that spread over partitions are therefore tried
out first, by encoding them once for nothing, which is cheaper than looking at each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from pylog.codec import RecordEncoder
from pylog.errors import PylogError
from pylog.interrupts import own
from pylog.producer.accumulator import Accumulator
from pylog.producer.batch import ProducerBatch
from pylog.producer.buffer import NO_BATCH, PartitionBuffer, TopicBuffers, refuse_reentry
from pylog.producer.config import ProducerConfig, Serializer, key_bytes, serialized
from pylog.producer.deliveries import Deliveries, ListedDeliveries, Runs, SpreadDeliveries
from pylog.producer.delivery import Delivery
from pylog.producer.partitioner import POSITIVE, UNHASHABLE, Sticky
from pylog.producer.sender import Sender
from pylog.producer.topic_cache import TopicCache

STEP_RECORDS = 10_000  # between two looks at the partitioner
_NO_HEADERS = ()
_RUN_RECORDS = 32  # a run costs as much as about so many records that are entered one by one


class BulkRequest:
    """What one call is to send. ``cut`` ends it before a refused record, whose error is raised when the rest is sent."""

    __slots__ = ("keys", "partitions", "refusal", "values")

    def __init__(
        self, values: Sequence[Any], keys: Sequence[Any] | None, partitions: Sequence[int | None] | None = None
    ) -> None:
        self.values = values
        self.keys = keys
        self.partitions = partitions  # None of a record leaves it to the partitioner
        self.refusal: PylogError | None = None

    def cut(self, index: int, error: PylogError) -> None:
        error.facts["index"] = index
        self.values = self.values[:index]
        self.keys = None if self.keys is None else self.keys[:index]
        self.partitions = None if self.partitions is None else self.partitions[:index]
        self.refusal = error

    def part(self, places: Sequence[int]) -> BulkRequest:
        """The values at these places, in this order."""
        values, keys = self.values, self.keys
        return BulkRequest(
            [values[place] for place in places], None if keys is None else [keys[place] for place in places]
        )


class BulkSender:
    """``send_many`` of one producer, and what ``send_arrow`` sends in bulk."""

    def __init__(self, accumulator: Accumulator, sender: Sender, topics: TopicCache, config: ProducerConfig) -> None:
        self._accumulator = accumulator
        self._topics = topics
        self._sender = sender
        self._config = config

    def request(self, values: Sequence[Any], keys: Sequence[Any] | None) -> BulkRequest:
        """Keys and values through the serializers, up to the first record that one of them refuses."""
        request = BulkRequest(values, keys)
        request.values = self._serialized(request, "value", self._config.value_serializer, request.values)
        if request.keys is not None:
            request.keys = self._serialized(request, "key", self._config.key_serializer, request.keys)
            request.values = request.values[: len(request.keys)]
        return request

    def send(
        self, topic: TopicBuffers, buffer: PartitionBuffer | None, timestamp_ms: int, request: BulkRequest
    ) -> Deliveries:
        """Send everything up to the first record that is refused, to one ``buffer``, or to those that the request or else the
        partitioner names."""
        all_runs: list[Runs] = []
        if buffer is None and request.partitions is None:
            buffer = topic.only
        try:
            if buffer is not None:
                deliveries = self._to_one(request, buffer, timestamp_ms, all_runs)
            elif request.keys is None and request.partitions is None and isinstance(topic.choice, Sticky):
                deliveries = self._to_sticky(request, topic, timestamp_ms, all_runs)
            else:
                deliveries = self._to_many(request, topic, timestamp_ms, all_runs)
        finally:
            for runs in all_runs:
                self._do_more(runs, timestamp_ms)
        if request.refusal is not None:
            raise request.refusal
        return deliveries

    def way(self, topic: TopicBuffers, key: Any) -> int:
        """The partition that the partitioner chooses for one record."""
        count = len(topic.buffers)
        key_hash = topic.key_hash
        if key is None or key_hash is None:
            return topic.choice.choose(key, count)
        return (key_hash(key) & POSITIVE) % count

    def _serialized(
        self, request: BulkRequest, field: str, serializer: Serializer | None, items: Sequence[Any]
    ) -> Sequence[Any]:
        """The items through the serializer, up to the first it refuses, which cuts the request."""
        if serializer is None:
            return items
        done: list[Any] = []
        try:
            for item in items:
                done.append(serialized(field, serializer, item))  # noqa: PERF401 - keeps those before a failure
        except own(PylogError) as error:
            request.cut(len(done), error)
        return done

    def _to_one(
        self, request: BulkRequest, buffer: PartitionBuffer, timestamp_ms: int, all_runs: list[Runs]
    ) -> Deliveries:
        runs = Runs()
        all_runs.append(runs)
        self._fill(buffer, timestamp_ms, request, runs)
        return Deliveries(runs, timestamp_ms)

    def _to_sticky(
        self, request: BulkRequest, topic: TopicBuffers, timestamp_ms: int, all_runs: list[Runs]
    ) -> Deliveries:
        """To the partition whose turn it is, and on to the next when its batch is full."""
        runs = Runs()
        all_runs.append(runs)
        start = 0
        while start < len(request.values):
            buffers = topic.buffers
            step = BulkRequest(request.values[start : start + STEP_RECORDS], None)
            buffer = buffers[topic.choice.choose(None, len(buffers))]
            taken = self._fill(buffer, timestamp_ms, step, runs, moves_on=True)
            if step.refusal is not None:
                request.cut(start + len(step.values), step.refusal)
                break
            start += taken
        return Deliveries(runs, timestamp_ms)

    def _to_many(
        self, request: BulkRequest, topic: TopicBuffers, timestamp_ms: int, all_runs: list[Runs]
    ) -> Deliveries:
        """Each to the partition chosen for it; partition by partition, unless there are few records for each."""
        ways = self._ways(request, topic)
        if len(request.values) < _RUN_RECORDS * len(topic.buffers):
            return self._one_by_one(request, topic, timestamp_ms, ways)
        self._try_out(request, topic, timestamp_ms)
        places: dict[int, list[int]] = {}
        for place in range(len(request.values)):
            places.setdefault(ways[place], []).append(place)
        spread: dict[int, Runs] = {way: Runs() for way in places}
        all_runs.extend(spread.values())
        unsent = dict(places)
        for way, chosen in places.items():
            part = request.part(chosen)
            self._fill(topic.buffers[way], timestamp_ms, part, spread[way])
            unsent[way] = chosen[len(part.values) :]
            if part.refusal is not None:  # no fault of the record, those were found: the producer is closed, or stuck
                request.cut(min(rest[0] for rest in unsent.values() if rest), part.refusal)
                break
        return SpreadDeliveries(spread, ways, timestamp_ms)

    def _one_by_one(self, request: BulkRequest, topic: TopicBuffers, timestamp_ms: int, ways: list[int]) -> Deliveries:
        """In their order, so that a record that is refused comes before all that are not sent."""
        buffers, append, listed = topic.buffers, self._accumulator.append, list[Delivery]()
        try:
            for way, key, value in zip(
                ways, repeat(None) if request.keys is None else request.keys, request.values, strict=False
            ):
                batch = buffers[way].open
                append_here = batch.append
                delivery = append_here(Delivery, batch, timestamp_ms, key, value, _NO_HEADERS)
                if delivery is None:
                    delivery = append(buffers[way], timestamp_ms, key, value, _NO_HEADERS)
                listed.append(delivery)
        except own(PylogError) as error:
            request.cut(len(listed), error)
        finally:
            self.do_more(listed)
        return ListedDeliveries(listed)

    def _ways(self, request: BulkRequest, topic: TopicBuffers) -> list[int]:
        """The partition of each record; cuts the request before the first that can have none."""
        key_hash, choose, count = topic.key_hash, topic.choice.choose, len(topic.buffers)
        keys: Sequence[Any] = [None] * len(request.values) if request.keys is None else request.keys
        ways: list[int] = []
        try:
            if request.partitions is not None:
                for key, number in zip(keys, request.partitions, strict=True):
                    ways.append(self.way(topic, key) if number is None else self._topics.buffer(topic, number).number)
                return ways
            for key in keys:
                if key is None or key_hash is None:
                    ways.append(choose(key, count))
                    continue
                try:
                    ways.append((key_hash(key) & POSITIVE) % count)
                except own(*UNHASHABLE):
                    ways.append((key_hash(key_bytes(key)) & POSITIVE) % count)
        except own(PylogError) as error:
            request.cut(len(ways), error)
        return ways

    def _try_out(self, request: BulkRequest, topic: TopicBuffers, timestamp_ms: int) -> None:
        """Cut the request before the first record that the codec or the topic's limit refuses."""
        trial = RecordEncoder(self._accumulator.limit_bytes(topic))
        index = 0
        while index < len(request.values):
            try:
                index = trial.extend(timestamp_ms, request.values, request.keys, index)
            except own(PylogError) as error:
                request.cut(int(error.facts.get("index", index)), error)
            else:
                trial.take_batch()

    def _fill(
        self, buffer: PartitionBuffer, timestamp_ms: int, request: BulkRequest, runs: Runs, *, moves_on: bool = False
    ) -> int:
        """All of the request into one partition, up to the first record that is refused; how many records that is.

        ``moves_on``: no more than its open batch takes, which is written then: what is left goes to another partition.
        """
        start = 0
        while start < len(request.values):
            try:
                refuse_reentry(buffer)
                with buffer.lock:
                    batch = buffer.open
                    batch.encoder.close()  # no record of another thread comes in between
                    buffer.is_extended = True
                    try:
                        first = batch.encoder.count
                        stop = batch.encoder.extend(timestamp_ms, request.values, request.keys, start)
                    finally:
                        buffer.is_extended = False
                        if buffer.open is batch:
                            batch.encoder.reopen()
                if stop > start:
                    runs.add(batch, first, stop - start)
                    start = stop
                if start < len(request.values):
                    if moves_on and batch is not NO_BATCH:
                        self._accumulator.write_full(buffer)
                        return start
                    key = None if request.keys is None else request.keys[start]
                    placed = self._accumulator.append(buffer, timestamp_ms, key, request.values[start], ())
                    runs.add(placed.batch, placed.index, 1)
                    start += 1
            except own(PylogError) as error:
                index = max(start, int(error.facts.get("index", start)))
                request.cut(index, error)  # the codec has taken the run back; the good part of it comes again
        return start

    def _do_more(self, runs: Runs, timestamp_ms: int) -> None:
        if self._config.on_delivery is not None:
            for number in range(runs.count):
                runs.delivery(number, timestamp_ms).add_done_callback(self._config.on_delivery)
        self._drain(runs.batches)

    def do_more(self, deliveries: Sequence[Delivery]) -> None:
        """What is to be done with records that were entered one by one: callbacks, and writing them where none may wait."""
        if self._config.on_delivery is not None:
            for delivery in deliveries:
                delivery.add_done_callback(self._config.on_delivery)
        self._drain(delivery.batch for delivery in deliveries)

    def _drain(self, batches: Iterable[ProducerBatch]) -> None:
        if self._config.linger_ms == 0:
            self._sender.drain_unsettled(batches)
