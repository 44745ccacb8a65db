"""Opens a batch for a record that the open batch did not take: the slow path of ``send``.

The thread that finds a batch full writes it. Memory is reserved before a batch is opened. If none
is left, the same thread first writes the batches that have waited longest. So nothing queues up or
is dropped, and a producer is as fast as the disk. ``max_block_ms`` bounds the wait for other
threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pylog.clock import SystemClock
from pylog.codec import RecordEncoder
from pylog.errors import BufferTimeout, ForkedHandle, RecordTooLarge
from pylog.interrupts import own
from pylog.model import GivenHeaders
from pylog.producer.batch import UNNUMBERED, ProducerBatch, Sequences
from pylog.producer.buffer import NO_BATCH, IncompleteBatches, PartitionBuffer, TopicBuffers, interrupted
from pylog.producer.buffer_pool import BufferPool
from pylog.producer.config import ProducerConfig
from pylog.producer.delivery import Delivery
from pylog.producer.keys import with_key
from pylog.producer.linger import LINGER
from pylog.producer.sender import Sender
from pylog.producer.topic_cache import TopicCache

if TYPE_CHECKING:
    from pylog.clock import Clock

Key = bytes | None
Value = bytes | None

_PATIENCE_S = 0.05  # how long one partition may delay the others when memory is short
_SLEEP_MIN_S = 0.0001
_SLEEP_MAX_S = 0.005


class Accumulator:
    """Opens batches and fills them."""

    def __init__(
        self,
        clock: Clock,
        config: ProducerConfig,
        pool: BufferPool,
        incomplete: IncompleteBatches,
        sender: Sender,
        topics: TopicCache,
    ) -> None:
        self._now_ms = None if type(clock) is SystemClock else clock.now_ms  # None: the encoder reads it
        self._monotonic = clock.monotonic
        self._sleep = clock.sleep
        self._config = config
        self._pool = pool
        self._incomplete = incomplete
        self._sender = sender
        self._topics = topics

    def append(
        self,
        buffer: PartitionBuffer,
        timestamp_ms: int | None,
        key: Key,
        value: Value,
        headers: GivenHeaders,
        sequences: Sequences = UNNUMBERED,
        *,
        among: list[PartitionBuffer] | None = None,
    ) -> Delivery:
        """Put a record into the buffer. ``sequences`` are of the batch that it opens, if it does.

        ``among``: the partitioner chose the buffer among these. It chooses again if the topic has
        changed.
        Raises the error of the record or the topic's limit, ``BufferTimeout`` after
        ``max_block_ms``, or ``Closed``.
        """
        if buffer.is_extended and buffer.is_interrupted():
            raise interrupted(buffer)
        now_s = self._monotonic()
        buffer = self._topics.current(buffer, now_s, key, among)
        end_s = now_s + self._config.max_block_s
        pool = self._pool
        needed_bytes = pool.share_bytes(buffer.topic.batch_bytes, self._incomplete.partitions_in_use(buffer, now_s))
        while True:
            if buffer.open is not NO_BATCH:
                with buffer.lock:
                    batch = buffer.open
                    delivery = batch.append(Delivery, batch, timestamp_ms, key, value, headers)
                    if delivery is not None:
                        return delivery
                self._make_way(buffer, end_s)
            if pool.reserved_bytes + needed_bytes > pool.limit_bytes:
                self._make_room(needed_bytes, end_s)
            try:
                opened = self._open(buffer, needed_bytes, now_s, timestamp_ms, key, value, headers, sequences)
            except own(RecordTooLarge) as error:
                needed_bytes = self._size_alone(buffer, needed_bytes, error)
            else:
                if opened is not None:
                    if self._config.lingers and not self._sender.is_watched:
                        self._look_after(buffer)
                    return opened
                # Another thread took the memory, or opened a batch that may have room.

    def limit_bytes(self, topic: TopicBuffers) -> int:
        """The maximum size of a batch with one record."""
        return min(topic.max_message_bytes, self._pool.limit_bytes)

    def _look_after(self, buffer: PartitionBuffer) -> None:
        """Make sure that the batch just opened will be written."""
        if not LINGER.watch(self._sender):
            self._sender.drain(buffer, self._config.max_block_s)

    def write_open(self, buffer: PartitionBuffer) -> None:
        """Write the buffer's open batch, full or not. ``BufferTimeout`` after ``max_block_ms``."""
        self._make_way(buffer, self._monotonic() + self._config.max_block_s)

    def _make_way(self, buffer: PartitionBuffer, end_s: float) -> None:
        if not self._sender.drain(buffer, end_s - self._monotonic()):
            if buffer.writing.is_mine():  # in a signal handler that interrupted the writing
                raise interrupted(buffer)
            raise self._timeout(buffer, "its open batch could not be written")

    def _make_room(self, size_bytes: int, end_s: float) -> None:
        """Free memory for a batch: write the batches that have waited longest if necessary."""
        pool, sleep_s = self._pool, _SLEEP_MIN_S
        while pool.reserved_bytes + size_bytes > pool.limit_bytes:
            if any(self._sender.drain(waiting, _PATIENCE_S, wait_s=0) for waiting in list(self._incomplete.waiting)):
                continue
            if self._monotonic() >= end_s:
                raise self._timeout(None, f"{pool.reserved_bytes} of {pool.limit_bytes} buffer bytes are in use")
            self._sleep(sleep_s)  # other threads are writing
            sleep_s = min(sleep_s * 2, _SLEEP_MAX_S)

    def _open(
        self,
        buffer: PartitionBuffer,
        limit_bytes: int,
        now_s: float,
        timestamp_ms: int | None,
        key: Key,
        value: Value,
        headers: GivenHeaders,
        sequences: Sequences,
    ) -> Delivery | None:
        """Open a batch with this record. None if another thread opened one or took the memory."""
        config, encoder = self._config, RecordEncoder(limit_bytes, self._now_ms)
        due_s = now_s + config.linger_s
        deadline_s = now_s + config.delivery_timeout_s if config.transactional_id is None else config.forever_s
        append = with_key(encoder.try_append, buffer.topic_partition) if buffer.topic.needs_keys else None
        # Arguments by position: names make this call half as long again.
        batch = ProducerBatch(
            self._sender, buffer.topic_partition, encoder, limit_bytes, due_s, deadline_s, config.acks == 0, sequences, append,
        )  # fmt: skip
        delivery = batch.append(Delivery, batch, timestamp_ms, key, value, headers)
        with buffer.lock:
            if self._topics.is_closed:
                raise self._topics.refusal()
            if buffer.topic.is_abandoned:
                raise ForkedHandle("a signal handler forked during this send: the parent process sends the record")
            return delivery if buffer.make_current(batch) else None

    def _size_alone(self, buffer: PartitionBuffer, tried_bytes: int, error: RecordTooLarge) -> int:
        """The size of a batch with only this record, which no usual batch can hold; or its
        error."""
        size_bytes = int(error.facts.get("size_bytes", -1))
        limit_bytes = self.limit_bytes(buffer.topic)
        if tried_bytes < size_bytes <= limit_bytes:
            return size_bytes
        if size_bytes < 0:
            raise error
        is_topics = buffer.topic.max_message_bytes <= self._pool.limit_bytes
        whose = (
            "the topic's max_message_bytes; raise it with alter_topic" if is_topics else "the producer's buffer_bytes"
        )
        raise RecordTooLarge(
            f"record of {size_bytes} bytes with its batch header to {buffer.topic.name}-{buffer.number}, but the limit is "
            f"{limit_bytes}, {whose}",
            topic=buffer.topic.name, partition=buffer.number, size_bytes=size_bytes, limit_bytes=limit_bytes,
        ) from None  # fmt: skip

    def _timeout(self, buffer: PartitionBuffer | None, reason: str) -> BufferTimeout:
        where = f" to {buffer.topic.name}-{buffer.number}" if buffer else ""
        return BufferTimeout(
            f"no room for a record{where} after {self._config.max_block_ms} ms: {reason}",
            max_block_ms=self._config.max_block_ms, buffered_bytes=self._incomplete.buffered_bytes(),
        )  # fmt: skip
