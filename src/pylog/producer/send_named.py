"""``send`` and ``send_many`` of a named producer (named.py): the sequences are the application's.

A record whose sequence is not above the last one is not sent: its delivery has the outcome of the
record that was. One thread at a time sends to a partition. ``NamedSequences.last`` is only a copy:
an exception of a signal handler may come before it is set. So the open batch is asked first, and a
batch that does not continue what the log has is refused when it is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from pylog.clock import Clock
from pylog.errors import BufferTimeout, PylogError
from pylog.interrupts import own
from pylog.model import GivenHeaders
from pylog.producer.accumulator import Accumulator
from pylog.producer.batch import ProducerBatch, Sequences, batch_in_log
from pylog.producer.buffer import NO_BATCH, PartitionBuffer, TopicBuffers, interrupted
from pylog.producer.config import ProducerConfig
from pylog.producer.deliveries import Deliveries, JoinedDeliveries, Runs
from pylog.producer.delivery import Delivery
from pylog.producer.named import NamedProducer, check_sequence, out_of_order
from pylog.producer.named_sequences import NamedSequences
from pylog.producer.send_many import BulkSender
from pylog.producer.sender import Sender
from pylog.producer.topic_cache import TopicCache
from pylog.turn import is_mine


class NamedSender:
    """Sends with the application's sequences."""

    def __init__(
        self,
        named: NamedProducer,
        accumulator: Accumulator,
        bulk: BulkSender,
        sender: Sender,
        topics: TopicCache,
        config: ProducerConfig,
        clock: Clock,
    ) -> None:
        self._named = named
        self._accumulator = accumulator
        self._bulk = bulk
        self._sender = sender
        self._topics = topics
        self._config = config
        self._monotonic = clock.monotonic
        self._now_ms = clock.now_ms

    def send(
        self,
        buffer: PartitionBuffer,
        sequence: object,
        timestamp_ms: int | None,
        key: Any,
        value: Any,
        headers: GivenHeaders,
    ) -> Delivery:
        """Send one record, unless it was sent before."""
        number = check_sequence(sequence)
        buffer, known = self._of(buffer)
        with known.lock:
            last = self._last(buffer, known, number)
            if number <= last:
                batch, index, _ = self._find(buffer, known, number)
                return _delivery(batch, index, self._now_ms() if timestamp_ms is None else timestamp_ms)
            self._close_at_gap(buffer, known, number)
            delivery = self._accumulator.append(buffer, timestamp_ms, key, value, headers, Sequences(last, number))
            known.last = number
            return delivery

    def send_many(
        self,
        topic: TopicBuffers,
        buffer: PartitionBuffer,
        sequence: object,
        timestamp_ms: int,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
    ) -> Deliveries:
        """Send those records that were not sent before. ``sequence`` is the first one's."""
        number = check_sequence(sequence, len(values))
        buffer, known = self._of(buffer)
        with known.lock:
            last = self._last(buffer, known, number)
            repeats = min(max(last - number + 1, 0), len(values))
            if repeats:
                values, keys = values[repeats:], None if keys is None else keys[repeats:]
            sent = JoinedDeliveries()
            sent.add(self._repeated(buffer, known, range(number, number + repeats), timestamp_ms))
            if values:
                sent.add(self._send_rest(topic, buffer, known, number + repeats, timestamp_ms, values, keys, repeats))
            return sent

    def _send_rest(
        self,
        topic: TopicBuffers,
        buffer: PartitionBuffer,
        known: NamedSequences,
        sequence: int,
        timestamp_ms: int,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        repeats: int,
    ) -> Deliveries:
        self._close_at_gap(buffer, known, sequence)
        request = self._bulk.request(timestamp_ms, values, keys)
        assert known.last is not None  # it was asked for
        request.first = Sequences(known.last, sequence)
        try:
            return self._bulk.send(topic, buffer, request)
        except own(PylogError) as error:
            error.facts["index"] = int(error.facts.get("index", 0)) + repeats
            raise
        finally:
            if request.values:  # those that were accepted
                known.last = sequence + len(request.values) - 1

    def last_sequence(self, buffer: PartitionBuffer) -> int | None:
        """The last sequence that the log has."""
        self._named.known(buffer)
        batches = self._named.last_batches(*buffer.topic_partition)
        return batches[-1].last_sequence if batches else None

    # Parts. The lock of ``known`` is held.

    def _of(self, buffer: PartitionBuffer) -> tuple[PartitionBuffer, NamedSequences]:
        buffer = self._topics.current(buffer, self._monotonic())
        known = self._named.known(buffer)
        if is_mine(known.lock):  # in a signal handler or a callback
            raise interrupted(buffer)
        return buffer, known

    def _last(self, buffer: PartitionBuffer, known: NamedSequences, sequence: int) -> int:
        """The last sequence that was sent, from which this one may be a repeat."""
        if known.failed:
            self._resume(buffer, known, sequence)
        last = known.last
        if last is None:
            last = self._named.learn(buffer)
        batch = buffer.open
        if batch is not NO_BATCH:
            last = known.last = max(last, batch.base_sequence + batch.encoder.count - 1)
        return last

    def _resume(self, buffer: PartitionBuffer, known: NamedSequences, sequence: int) -> None:
        """After a failure, continue with the first record that is not in the log, and no later
        one."""
        if not self._sender.drain(buffer, self._config.max_block_s):
            raise BufferTimeout(
                f"what was sent to {buffer.topic.name}-{buffer.number} before is not decided after "
                f"{self._config.max_block_ms} ms",
                max_block_ms=self._config.max_block_ms,
            )
        failed = list(known.failed)
        last = self._named.learn(buffer)
        first = min((batch.base_sequence for batch in failed if batch.base_sequence > last), default=sequence)
        if sequence > first:
            raise out_of_order(buffer.topic_partition, sequence, first)
        del known.failed[: len(failed)]

    def _close_at_gap(self, buffer: PartitionBuffer, known: NamedSequences, sequence: int) -> None:
        if buffer.open is not NO_BATCH and known.last is not None and sequence != known.last + 1:
            self._accumulator.write_open(buffer)
            if known.failed:
                self._resume(buffer, known, sequence)

    # Repeats

    def _find(self, buffer: PartitionBuffer, known: NamedSequences, sequence: int) -> tuple[ProducerBatch, int, int]:
        """The batch of a record that was sent before, its index there, and the sequence after it.

        The sequence after it is the next one that may be in another batch.
        """
        for batch in chain((buffer.open, buffer.in_flight), buffer.pending_callbacks.copy()):
            if batch is not None and batch.base_sequence >= 0:
                end = batch.base_sequence + (batch.count or batch.encoder.count)
                if batch.base_sequence <= sequence < end:
                    return batch, sequence - batch.base_sequence, end
        if not known.in_log or sequence > known.in_log[-1].last_sequence:
            known.in_log = self._named.last_batches(*buffer.topic_partition)
        following = sequence + 1
        for trace in reversed(known.in_log):
            if trace.first_sequence <= sequence <= trace.last_sequence:
                batch = batch_in_log(buffer.topic_partition, trace.first_offset)
                return batch, sequence - trace.first_sequence, trace.last_sequence + 1
        if known.in_log and sequence < known.in_log[0].first_sequence:
            following = known.in_log[0].first_sequence
        return batch_in_log(buffer.topic_partition, -1), 0, following

    def _repeated(
        self, buffer: PartitionBuffer, known: NamedSequences, sequences: range, timestamp_ms: int
    ) -> Deliveries:
        runs = Runs()
        at = sequences.start
        while at < sequences.stop:
            batch, index, following = self._find(buffer, known, at)
            end = min(following, sequences.stop)
            runs.add(batch, index, end - at)
            at = end
        deliveries = Deliveries(runs, timestamp_ms)
        self._bulk.do_more(deliveries, ())
        return deliveries


def _delivery(batch: ProducerBatch, index: int, timestamp_ms: int) -> Delivery:
    delivery = Delivery()
    delivery.batch, delivery.index, delivery.timestamp_ms = batch, index, timestamp_ms
    return delivery
