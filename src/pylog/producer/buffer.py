"""The buffers of a topic's partitions, and the incomplete batches of a producer.

A buffer has at most one open batch and at most one batch in flight. Records are added to the open
batch under ``lock``, which is held for microseconds and never during a write. The thread in the
turn ``writing`` appends the batch in flight. So one thread can fill the next batch while another
writes the previous one, and batches reach the log in the order they were opened. Locks are taken in
the order writing, lock, the pool's lock, and none of them is held when a callback runs.
"""

from __future__ import annotations

import threading  # several threads share a buffer
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from pylog.codec import RecordEncoder
from pylog.codec.format import POSITIVE
from pylog.errors import BufferTimeout, TopicChanged, TopicNotFound
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.producer.batch import APPENDED, NO_IDENTITY, OPEN, SETTLED, Driver, ProducerBatch
from pylog.producer.buffer_pool import BufferPool
from pylog.producer.config import key_bytes
from pylog.producer.partitioner import UNHASHABLE, Choice, KeyHash
from pylog.turn import NOT_MINE, Turn, is_mine, seconds_to_wait

if TYPE_CHECKING:
    from pylog.manager.access import ProducerLog, ProducerPartition
    from pylog.producer.named_sequences import NamedSequences

_ORPHAN_S = 1.0
_PERIOD_S = 1.0


class _NoRecords:
    """The encoder while no batch is open: it takes no records."""

    count = 0
    size_bytes = 0

    def try_append(self, *_: Any) -> None:
        return None

    def try_append_many(self, *_: Any) -> tuple[int, int]:
        return 0, 0

    def close(self) -> None:
        return None

    reopen = close

    def extend(self, timestamp_ms: int, values: Any, keys: Any, start: int, stop: int) -> int:
        return start


NO_BATCH = ProducerBatch(
    cast(Driver, None), TopicPartition("", -1), cast(RecordEncoder, _NoRecords()), 0, 0.0, 0.0, False
)


class TopicBuffers:
    """The buffers of one topic, one per partition, and the topic's settings that a producer
    uses."""

    __slots__ = (
        "batch_bytes", "buffers", "choice", "codec", "earlier_ids", "id", "is_abandoned", "is_stale", "key_hash", "level",
        "max_message_bytes", "name", "needs_keys", "only",
    )  # fmt: skip

    def __init__(self, name: str, topic_id: object, choice: Choice) -> None:
        # Constant after construction:
        self.name = name
        self.id = topic_id  # a topic created again under the same name has another id
        self.choice = choice
        self.earlier_ids: tuple[object, ...] = ()  # before it was repartitioned; set once
        # Any thread, one operation at a time:
        self.is_stale = False  # a batch failed: the topic may have been deleted
        self.is_abandoned = False  # the buffers belong to the parent process
        # Under the lock of TopicCache; any thread reads them:
        self.key_hash: KeyHash | None = None  # None: the choice also places records with a key
        self.buffers: list[PartitionBuffer] = []  # replaced, never changed in place: readers take no lock
        self.only: PartitionBuffer | None = None  # the only buffer, if there is no choice
        self.codec = 0
        self.level: int | None = None
        self.needs_keys = False  # it is compacted: see keys.py
        self.max_message_bytes = 0
        self.batch_bytes = 0  # the limit of an open batch; less if memory is short

    def choose(self, key: Any, count: int) -> int:
        """The partition, one of ``count``, that the partitioner chooses for a record."""
        key_hash = self.key_hash
        if key is None or key_hash is None:
            return self.choice.choose(key, count)
        try:
            return (key_hash(key) & POSITIVE) % count
        except own(*UNHASHABLE):
            return (key_hash(key_bytes(key)) & POSITIVE) % count


class PartitionBuffer:
    """The records of one partition that are not in the log yet."""

    __slots__ = (
        "_incomplete", "_pool", "calling", "identity", "in_flight", "is_extended", "lock", "named", "next_sequence",
        "number", "open", "partition", "pending_callbacks", "topic", "topic_partition", "used_in_period", "writing",
    )  # fmt: skip

    def __init__(self, topic: TopicBuffers, number: int, pool: BufferPool, incomplete: IncompleteBatches) -> None:
        # Constant after construction:
        self.topic = topic
        self.number = number
        self.topic_partition = TopicPartition(topic.name, number)
        self._pool = pool
        self._incomplete = incomplete
        self.lock = threading.RLock()
        self.writing = Turn()  # of the thread that appends
        self.calling = Turn()  # of the thread that runs callbacks
        # Under ``lock``; ``send`` reads it without the lock:
        self.open = NO_BATCH
        self.is_extended = False  # a bulk send is adding to the open batch
        # In the turn ``writing``:
        self.in_flight: ProducerBatch | None = None
        self.partition: ProducerPartition | None = None  # opened with the first batch
        self.identity = NO_IDENTITY  # the owner of ``next_sequence``
        self.next_sequence = 0
        # Under the lock of a named producer; a failed batch is added to it in the turn ``writing``:
        self.named: NamedSequences | None = None
        # In log order. The turn ``writing`` adds, the turn ``calling`` removes:
        self.pending_callbacks: deque[ProducerBatch] = deque()
        # Any thread; a lost change only makes a share slightly too large:
        self.used_in_period = 0.0

    def is_interrupted(self) -> bool:
        """Whether a signal handler or a value's ``__bytes__`` interrupted this thread's bulk send.

        What it sends would split the batch. Callers ask ``is_extended`` first, which saves a call.
        """
        return self.is_extended and is_mine(self.lock)

    def make_current(self, batch: ProducerBatch) -> bool:
        """Make ``batch``, which holds a record, the open one. Under ``lock``.

        False if a batch is open or its limit cannot be reserved. There is no call in between, so a
        signal handler runs before or after the whole step. Python 3.10 also runs handlers at a
        jump: what they send then is refused.
        """
        pool, incomplete = self._pool, self._incomplete
        if pool.is_locked_here():
            raise interrupted(self)
        with pool.lock:
            if self.open is not NO_BATCH or pool.reserved_bytes + batch.limit_bytes > pool.limit_bytes:
                return False
            pool.reserved_bytes += batch.limit_bytes
            self.open = batch
            incomplete.batches[batch] = self
            incomplete.waiting[self] = None
        return True

    def next_batch(self) -> ProducerBatch | None:
        """The next batch to append, closed, or None. In the turn ``writing``."""
        if self.topic.is_abandoned:
            return None
        batch = self.in_flight
        if batch is not None and batch.state >= APPENDED:
            self.finish_in_flight()  # a signal handler's exception came before this call
            batch = None
        if batch is None:
            with self.lock:
                batch = self.open
                if batch is NO_BATCH:
                    return None
                self.in_flight, self.open = batch, NO_BATCH
            if self.topic.only is None:
                self.topic.choice.batch_closed(self.number, len(self.topic.buffers))
        if batch.state is OPEN:
            batch.close()
        return batch

    def open_partition(self, log: ProducerLog) -> ProducerPartition:
        """The partition of exactly the topic that the buffer is for.

        Opened again if a change of the topic has closed it: the topic may have its name again.
        A later topic of that name has its own buffer, which also numbers its batches from 0. A
        batch with a number in use would pass for a duplicate and be acknowledged but not written.
        """
        if self.partition is not None and not self.partition.is_closed:
            return self.partition
        name, number = self.topic_partition
        if self.topic.id in log.describe_topic(name).earlier_ids:
            raise TopicChanged.since(name)
        partition = log.partition(name, number)
        if partition.topic_id != self.topic.id:
            raise TopicNotFound(
                f"partition {number} of {name!r} is gone: the topic was deleted, and created again since",
                topic=name, partition=number,
            )  # fmt: skip
        self.partition = partition
        return partition

    def finish_in_flight(self) -> None:
        """Move the batch in flight to those that wait for acknowledgement and callbacks."""
        batch, self.in_flight = self.in_flight, None
        if batch is not None:
            self.pending_callbacks.append(batch)

    def call_back(self, timeout_s: float) -> bool:
        """Run the callbacks of settled batches, in order. False if another thread still runs
        them."""
        if self.topic.is_abandoned:
            return True
        turn, pending = self.calling, self.pending_callbacks
        while True:
            try:
                if not pending or pending[0].state < SETTLED:
                    return True
            except own(IndexError):  # another thread took the last one
                return True
            if turn.is_mine():  # a callback sent something: the loop below, further up this stack, continues
                return False
            try:
                if not turn.take(False) and not turn.take(timeout=seconds_to_wait(timeout_s)):
                    return False  # the thread that has the turn looks again after leaving it
                self._run_callbacks()
            finally:
                try:  # see turn.py
                    turn.leave()
                except own(NOT_MINE):
                    pass

    def _run_callbacks(self) -> None:
        pending = self.pending_callbacks  # others only append to it
        while pending and pending[0].state >= SETTLED:
            batch = pending[0]
            batch.call_back()
            self._incomplete.batches.pop(batch, None)
            pending.popleft()

    def stop_waiting(self) -> None:
        """Remove this buffer from the waiting ones once all of its batches are settled."""
        if self.topic.is_abandoned:  # a thread of the parent may hold the lock
            return
        is_settled = not self.pending_callbacks or not self.unacknowledged()
        with self.lock:
            if is_settled and self.open is NO_BATCH and self.in_flight is None:
                waiting = self._incomplete.waiting
                waiting.pop(self, None)
                if self.open is not NO_BATCH:  # a signal handler has just sent something
                    waiting[self] = None

    def unacknowledged(self) -> list[ProducerBatch]:
        """The batches that are in the log but not settled, in order."""
        return [batch for batch in list(self.pending_callbacks) if batch.state is APPENDED]

    def due_s(self) -> float:
        """The latest time at which the oldest record must be written or acknowledged."""
        batch = self.in_flight or self.open
        if batch is not NO_BATCH:
            return batch.due_s
        orphans = self.unacknowledged()  # their thread is syncing them, unless it was interrupted
        return orphans[0].due_s + _ORPHAN_S if orphans else 0.0


class IncompleteBatches:
    """The unfinished work of a producer, roughly in order of age. Single operations need no
    lock."""

    def __init__(self) -> None:
        self.forget_parent()

    def forget_parent(self) -> None:
        """Empty both dicts: at the start, and in a forked child."""
        # Any thread, one operation at a time:
        self.waiting: dict[PartitionBuffer, None] = {}  # buffers that a thread must write or acknowledge
        self.batches: dict[ProducerBatch, PartitionBuffer] = {}  # until their callbacks have run
        # Any thread; a lost change only makes a share slightly too large:
        self._period = 0.0  # partitions in use are counted again in every period
        self._used_now = self._used_before = 0

    def partitions_in_use(self, buffer: PartitionBuffer, now_s: float) -> int:
        """How many partitions need memory, including this one.

        The sticky partitioner uses one partition at a time, which counts only while it waits.
        """
        if buffer.topic.choice.stays_on(buffer.number):
            return len(self.waiting) + 1
        period = now_s // _PERIOD_S + 1
        if period != self._period:
            self._used_before = self._used_now if period == self._period + 1 else 0
            self._period, self._used_now = period, 0
        if buffer.used_in_period != period:
            buffer.used_in_period = period
            self._used_now += 1
        return max(self._used_before, self._used_now, len(self.waiting) + 1)

    def buffers(self) -> set[PartitionBuffer]:
        """The buffers of all unfinished batches."""
        return {*self.batches.values(), *self.waiting}

    def buffered_bytes(self) -> int:
        """Encoded records that are not in the log yet."""
        return sum(batch.buffered_bytes() for batch in list(self.batches))


def interrupted(buffer: PartitionBuffer) -> BufferTimeout:
    """The error for a send inside another send of the same thread, where this is impossible."""
    return BufferTimeout(
        f"{buffer.topic.name}-{buffer.number} was sent to from inside a send of the same thread (by a signal handler?); "
        "nothing was appended, send again when that is over",
        topic=buffer.topic.name,
        partition=buffer.number,
    )
