"""Takes batches to the log and decides what became of them. Any thread may: whoever filled, flushed or waits for one.

Per partition: ``write`` (build and append, in order, under the buffer's write lock), then ``acknowledge`` (for acks="all"
a sync outside of it, which several threads share), then callbacks, in the order of the offsets. Every step can be
repeated by another thread, so an exception between two steps (Ctrl-C) leaves work to do, not work that is lost.

An append that failed is final for its batch: nothing is retried that may already be in the log. The one exception is a
partition lock not obtained in the time the caller had; the batch then keeps its place until ``delivery_timeout_ms``.
"""

from __future__ import annotations

import logging
import threading  # the counters and the producer id are shared by all threads that write
from typing import TYPE_CHECKING

from pylog.codec.batch import build_batch
from pylog.codec.format import HEADER_BYTES, MAX_SEQUENCE
from pylog.errors import (
    Closed,
    DeliveryTimeout,
    ForkedHandle,
    InvalidPartition,
    LogLocked,
    MissingCodec,
    NotAppended,
    OutcomeUnknown,
    OutOfOrderSequence,
    PylogError,
    ReadOnlyLog,
    TopicNotFound,
)
from pylog.producer.buffer import Memory, PartitionBuffer
from pylog.producer.config import ACKS_ALL, ProducerConfig
from pylog.producer.delivery import PendingBatch, fresh, without_frames
from pylog.producer.linger import LINGER

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition import Partition

logger = logging.getLogger("pylog.producer")

# What an append raises before it writes anything
_BEFORE_WRITING = (NotAppended, Closed, ForkedHandle, InvalidPartition, LogLocked, MissingCodec, ReadOnlyLog, TopicNotFound)
_PRODUCER_EPOCH = 0
_NO_PRODUCER = -1
_REMEMBERED_FAILURES = 1000
_LINGER_PATIENCE_S = 0.05  # how long one partition may hold up all others in the linger thread

_threads_in_callbacks: set[int] = set()


class Sender:
    """Writes the batches of one producer."""

    def __init__(self, log: Log, config: ProducerConfig, memory: Memory) -> None:
        self._log = log
        self._config = config
        self._memory = memory
        self._monotonic = log.clock.monotonic
        self.is_watched = False  # by the linger thread, which sets and clears it
        self.forget_parent()

    def forget_parent(self) -> None:
        """Start anew: also in a forked child, where locks may be held by threads that are not there."""
        self._lock = threading.Lock()
        self._producer_id = _NO_PRODUCER
        self.is_watched = False
        self.failures: list[PendingBatch] = []
        self.batches = self.records = self.raw_bytes = self.bytes = 0
        self.failed_batches = self.failed_records = self.unknown_records = 0

    # Driving

    def drain(self, buffer: PartitionBuffer, timeout_s: float) -> bool:
        """Write what the buffer holds, acknowledge it, call back. False where it could not be written in the time."""
        is_written = self.write(buffer, timeout_s)
        self.acknowledge(buffer)
        return is_written

    def finish(self, batch: PendingBatch, timeout_s: float | None) -> bool:
        """Drive the batch until it is settled. False if that takes longer than the time."""
        end_s = float("inf") if timeout_s is None else self._monotonic() + timeout_s
        while not batch.settled:
            if batch.written or self.write(batch.buffer, end_s - self._monotonic()):
                self.acknowledge(batch.buffer)
            elif batch.buffer.writing.is_mine() or (self._monotonic() >= end_s and not batch.settled):
                return False
        return True

    def flush(self, timeout_s: float | None) -> bool:
        """Drive every batch there is until it is settled and its callbacks have run. False if that takes longer."""
        end_s = float("inf") if timeout_s is None else self._monotonic() + timeout_s
        batches = list(self._memory.unsettled)
        for buffer in list(self._memory.waiting):  # all are appended before the first is synced
            self.write(buffer, end_s - self._monotonic())
        if not all(self.finish(batch, end_s - self._monotonic()) for batch in batches):
            return False
        if threading.get_ident() in _threads_in_callbacks:  # called by a callback: it cannot wait for itself
            return True
        buffers = dict.fromkeys(batch.buffer for batch in batches)
        return all(self._call_back(buffer, end_s - self._monotonic()) for buffer in buffers)

    def flush_due(self) -> float | None:
        """Write the batches that have lingered long enough; seconds until the next one, None where none is left."""
        next_s: float | None = None
        for buffer in list(self._memory.waiting):
            wait_s = buffer.due_s() - self._monotonic()
            if wait_s <= 0:
                if not buffer.writing.is_taken():  # else another thread is at it already
                    self.drain(buffer, _LINGER_PATIENCE_S)
                wait_s = _LINGER_PATIENCE_S  # for what could not be written
            next_s = wait_s if next_s is None else min(wait_s, next_s)
        return next_s

    def is_waiting(self) -> bool:
        return bool(self._memory.waiting)

    def hurry(self, batch: PendingBatch) -> None:
        """Have the linger thread write the batch now."""
        batch.due_s = 0.0
        if not LINGER.watch(self):
            self.drain(batch.buffer, self._config.max_block_s)

    # Writing

    def write(self, buffer: PartitionBuffer, timeout_s: float) -> bool:
        """Append what the buffer holds now. False where some of it remains when the time is out."""
        turn = buffer.writing
        if turn.is_mine():  # a signal handler sends from inside an append
            return False
        end_s = self._monotonic() + timeout_s
        try:
            if not turn.take(timeout_s):
                return False
            was_tried = buffer.sealed is not None
            return self._append(buffer, end_s) and (not was_tried or self._append(buffer, end_s))
        finally:
            turn.leave()

    def _append(self, buffer: PartitionBuffer, end_s: float) -> bool:
        """Append the sealed batch, or else the open one. False if it has to be tried again."""
        batch = buffer.seal()
        if batch is None:
            return True
        try:
            data = batch.data if batch.data is not None else self._build(batch)
            partition = buffer.partition or self._open(buffer)
        except BaseException as error:
            self._fail(batch, _not_appended(error))
            if not isinstance(error, Exception):
                raise
            return True
        try:
            until_s = min(end_s, batch.deadline_s) - self._monotonic()
            result = partition.append_batch(data, timeout_ms=max(0, int(until_s * 1000)))
            batch.base_offset, batch.end_offset = result.base_offset, result.last_offset + 1
            batch.append_time_ms = result.timestamp_ms
        except BaseException as error:
            if isinstance(error, DeliveryTimeout) and self._monotonic() < batch.deadline_s:
                buffer.put_back()
                return False
            self._fail(batch, _fate(error))
            if not isinstance(error, Exception):
                raise
            return True
        self._appended(batch, len(data))
        return True

    def _build(self, batch: PendingBatch) -> bytearray:
        buffer, topic = batch.buffer, batch.buffer.topic
        batch.count, batch.raw_bytes = batch.encoder.count, HEADER_BYTES + batch.encoder.size_bytes
        if not self._config.enable_idempotence:
            batch.data = build_batch(batch.encoder, codec=topic.codec, level=topic.level)
            return batch.data
        producer_id = self._identify()
        if buffer.producer_id != producer_id:
            buffer.producer_id, buffer.next_sequence = producer_id, 0
        batch.data = build_batch(
            batch.encoder,
            codec=topic.codec,
            level=topic.level,
            producer_id=producer_id,
            producer_epoch=_PRODUCER_EPOCH,
            base_sequence=buffer.next_sequence,
        )
        return batch.data

    def _identify(self) -> int:
        """This producer's id, taken with the first batch, and again after an unknown outcome."""
        with self._lock:
            if self._producer_id == _NO_PRODUCER:
                self._producer_id = self._log.next_producer_id()
            return self._producer_id

    def _open(self, buffer: PartitionBuffer) -> Partition:
        buffer.partition = self._log.partition(buffer.topic.name, buffer.number)
        return buffer.partition

    def _appended(self, batch: PendingBatch, size_bytes: int) -> None:
        buffer = batch.buffer
        buffer.next_sequence = buffer.next_sequence + batch.count & MAX_SEQUENCE
        batch.data = None
        batch.written = True
        buffer.unseal()
        with self._lock:
            self.batches += 1
            self.bytes += size_bytes
            self.raw_bytes += batch.raw_bytes

    # What became of it

    def acknowledge(self, buffer: PartitionBuffer) -> None:
        """Settle what was appended, after a sync where ``acks`` asks for it, and call back."""
        batches = [batch for batch in buffer.appended.copy() if not batch.settled]
        if batches:
            error = self._sync(buffer, batches[-1].end_offset) if self._config.acks == ACKS_ALL else None
            for batch in batches:
                self._settle(batch, error)
        self._call_back(buffer, 0)

    def _sync(self, buffer: PartitionBuffer, end_offset: int) -> PylogError | None:
        assert buffer.partition is not None  # something was appended
        try:
            buffer.partition.sync(end_offset)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batches' deliveries get it
            return _unknown(error)
        return None

    def _fail(self, batch: PendingBatch, error: PylogError) -> None:
        self._settle(batch, error)
        batch.buffer.unseal()

    def _settle(self, batch: PendingBatch, error: PylogError | None) -> None:
        """Decide the batch, once."""
        with self._lock:
            if batch.settled:
                return
            if error is None:
                self.records += batch.count
            else:
                self._count_failure(batch, error)
            batch.settled = batch.done = True
        batch.data = None
        self._memory.release(batch.granted_bytes)
        if error is not None:
            topic, partition = batch.buffer.topic_partition
            logger.warning("batch of %d records to %s-%d failed: %s: %s",
                           batch.count, topic, partition, type(error).__name__, error)  # fmt: skip

    def _count_failure(self, batch: PendingBatch, error: PylogError) -> None:
        self.failed_batches += 1
        self.failed_records += batch.count
        if isinstance(error, OutcomeUnknown):
            self.unknown_records += batch.count
        if isinstance(error, OutcomeUnknown | OutOfOrderSequence) and self._producer_id == batch.buffer.producer_id:
            self._producer_id = _NO_PRODUCER  # what the log knows of the old id is uncertain
        if self._config.acks == 0:
            return
        without_frames(error)
        batch.error = error
        if len(self.failures) >= _REMEMBERED_FAILURES:
            self.failures = [failed for failed in self.failures if not failed.is_observed()]
        if len(self.failures) < _REMEMBERED_FAILURES:
            self.failures.append(batch)

    def give_up(self) -> None:
        """Fail every batch that is not in the log and that no other thread is writing now."""
        for batch in list(self._memory.unsettled):
            buffer = batch.buffer
            while not (batch.written or batch.settled) and buffer.writing.take(0):
                try:
                    late = buffer.seal()
                    if late is not None:
                        late.count = late.count or late.encoder.count
                        self._fail(late, DeliveryTimeout("not written in the time that close() was given; try again"))
                finally:
                    buffer.writing.leave()
            self._call_back(buffer, 0)

    def metrics(self) -> dict[str, float]:
        with self._lock:
            return {
                "records_sent": self.records,
                "records_failed": self.failed_records,
                "records_unknown": self.unknown_records,
                "batches_sent": self.batches,
                "batches_failed": self.failed_batches,
                "bytes_sent": self.bytes,
                "batch_size_avg": self.bytes / self.batches if self.batches else 0.0,
                "records_per_batch_avg": self.records / self.batches if self.batches else 0.0,
                "compression_rate": self.bytes / self.raw_bytes if self.raw_bytes else 1.0,
                "buffered_bytes": self._memory.buffered_bytes(),
                "reserved_bytes": self._memory.reserved_bytes,
            }

    def unobserved_failure(self) -> PylogError | None:
        """The first error of a delivery that nobody has looked at."""
        with self._lock:
            failed = [batch for batch in self.failures if not batch.is_observed()]
        return fresh(failed[0].error) if failed and failed[0].error is not None else None

    def _call_back(self, buffer: PartitionBuffer, timeout_s: float) -> bool:
        """Run the callbacks of what is settled, in order. False where another thread is at it for longer than the time."""
        turn, me = buffer.calling, threading.get_ident()
        is_outermost = me not in _threads_in_callbacks
        while _has_settled(buffer):
            if turn.is_mine():  # a callback sent something: the loop below, further up this stack, goes on with it
                return False
            try:
                if not turn.take(timeout_s):
                    return False  # whoever has the turn looks again after leaving it
                _threads_in_callbacks.add(me)
                while _has_settled(buffer):
                    batch = buffer.appended[0]
                    batch.called = True
                    batch.call_back()
                    self._memory.unsettled.pop(batch, None)
                    buffer.appended.popleft()
            finally:
                if is_outermost:
                    _threads_in_callbacks.discard(me)
                turn.leave()
        return True


def _has_settled(buffer: PartitionBuffer) -> bool:
    try:
        return buffer.appended[0].settled
    except IndexError:
        return False


def _not_appended(error: BaseException) -> PylogError:
    """``error`` as the outcome of a batch that was not written."""
    if isinstance(error, NotAppended):
        return error
    outcome = NotAppended(f"not appended: {error}" if str(error) else f"not appended: {type(error).__name__}")
    outcome.__cause__ = error
    return outcome


def _unknown(error: BaseException) -> PylogError:
    if isinstance(error, OutcomeUnknown):
        return error
    outcome = OutcomeUnknown(f"interrupted by {type(error).__name__}: {error}; the records may be in the log or not")
    outcome.__cause__ = error
    return outcome


def _fate(error: BaseException) -> PylogError:
    """What an error of an append says about the batch."""
    if isinstance(error, _BEFORE_WRITING):
        return _not_appended(error)
    return _unknown(error)
