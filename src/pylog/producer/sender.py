"""Takes batches to the log and decides what became of them. Any thread may: whoever filled, flushed or waits for one.

Per partition: ``write`` (build and append, in order, in the buffer's turn ``writing``), then ``acknowledge`` (for acks="all"
a sync outside of it, which several threads share), then callbacks, in the order of the offsets. Every step can be
repeated by another thread, so an exception between two steps (Ctrl-C) leaves work to do, not work that is lost.

An append that failed is final for its batch. Two things only leave a batch in its place, to be written by whoever comes
next: a partition lock not obtained in the time the caller had (up to ``delivery_timeout_ms``), and an interrupted thread.
"""

from __future__ import annotations

import logging
import threading  # the counters and the producer id are shared by all threads that write
from math import ceil
from typing import TYPE_CHECKING

from pylog.codec.batch import TakenRecords, build_batch
from pylog.codec.format import HEADER_BYTES, MAX_SEQUENCE
from pylog.errors import DeliveryTimeout, OutcomeUnknown, OutOfOrderSequence, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.producer.buffer import PartitionBuffer
from pylog.producer.buffer_pool import Memory
from pylog.producer.config import ACKS_ALL, ProducerConfig
from pylog.producer.delivery import ProducerBatch, without_frames
from pylog.producer.linger import LINGER
from pylog.producer.outcome import Tally, fate, id_of_two, not_appended, unknown
from pylog.turn import NOT_MINE, seconds_to_wait

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.producer")

_PRODUCER_EPOCH = 0
_NO_PRODUCER = -1
_PATIENCE_S = 0.05  # how long one partition may hold up all others in the linger thread
_AGAIN_S = 0.002  # and when the thread looks again at one that another thread is writing


class Sender:
    """Writes the batches of one producer."""

    def __init__(self, log: Log, config: ProducerConfig, memory: Memory) -> None:
        self._log = log
        self._config = config
        self._memory = memory
        self._monotonic = log.clock.monotonic
        self.is_watched = False  # by the linger thread, which sets and clears it
        self.forget_parent()
        LINGER.know(self)
        log.flush_on_close(self)

    def forget_parent(self) -> None:
        """Start anew: also in a forked child, where locks may be held by threads that are not there."""
        self._lock = threading.RLock()
        self._id_lock = threading.RLock()
        self._producer_id = _NO_PRODUCER
        self.is_watched = False
        self.tally = Tally()

    # Driving

    def drain(self, buffer: PartitionBuffer, timeout_s: float, wait_s: float | None = None) -> bool:
        """Write what the buffer holds, acknowledge it, call back. False where it could not be written in the time.

        Another thread that is writing it is waited for up to ``wait_s``, which is the whole time if not given.
        """
        is_written = self.write(buffer, timeout_s, wait_s)
        self.acknowledge(buffer)
        return is_written

    def finish(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Drive the batch until it is settled. False if that takes longer than the time."""
        end_s = float("inf") if timeout_s is None else self._monotonic() + timeout_s
        while not batch.settled:
            # A batch that is written and still sealed was interrupted in between: ``write`` goes on with it.
            is_done = batch.written and batch.buffer.sealed is not batch
            is_written = is_done or self.write(batch.buffer, end_s - self._monotonic())
            if is_written and not self.acknowledge(batch.buffer):
                return False
            if not batch.settled and (
                batch.buffer.writing.is_mine()  # a signal handler, which the thread it interrupted can't go on beside
                or batch.buffer.is_interrupted()
                or self._monotonic() >= end_s
            ):
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
        buffers = dict.fromkeys(batch.buffer for batch in batches)
        for buffer in buffers:
            buffer.rest()
        if any(buffer.calling.is_mine() for buffer in buffers):  # called by a callback: it cannot wait for itself
            return True
        return all(self._call_back(buffer, end_s - self._monotonic()) for buffer in buffers)

    def log_closes(self) -> None:
        """Write everything, also where the producer has gone, and with it the topics that would ask for this."""
        self.flush(None)

    def flush_due(self) -> float | None:
        """Write the batches that have lingered long enough; seconds until the next one, None where none is left."""
        next_s: float | None = None
        for buffer in list(self._memory.waiting):
            wait_s = buffer.due_s() - self._monotonic()
            if wait_s <= 0:
                self.drain(buffer, _PATIENCE_S, wait_s=0)
                if buffer not in self._memory.waiting:
                    continue
                wait_s = min(max(buffer.due_s() - self._monotonic(), _AGAIN_S), _PATIENCE_S)
            next_s = wait_s if next_s is None else min(wait_s, next_s)
        return next_s

    def is_waiting(self) -> bool:
        return bool(self._memory.waiting)

    def hurry(self, batch: ProducerBatch) -> None:
        """Have the linger thread write the batch now."""
        batch.due_s = 0.0
        if not LINGER.watch(self):
            self.drain(batch.buffer, self._config.max_block_s)

    # Writing

    def write(self, buffer: PartitionBuffer, timeout_s: float, wait_s: float | None = None) -> bool:
        """Append what the buffer holds now. False where some of it remains when the time is out.

        Nothing of it is this process's where a callback, a signal handler or a file of the caller's has forked, and returned in
        the child into what its parent does: there every buffer known before is the parent's.
        """
        if buffer.topic.is_abandoned:
            return True
        turn = buffer.writing
        if turn.is_mine() or buffer.is_interrupted():  # a signal handler sends from inside an append, or a fill
            return False
        end_s = self._monotonic() + timeout_s
        try:
            wait_s = timeout_s if wait_s is None else wait_s
            if not turn.take(blocking=False) and not turn.take(timeout=seconds_to_wait(wait_s)):
                return False
            was_tried = buffer.sealed is not None
            return self._append(buffer, end_s) and (not was_tried or self._append(buffer, end_s))
        finally:
            try:  # see turn.py
                turn.leave()
            except own(NOT_MINE):
                pass

    def _append(self, buffer: PartitionBuffer, end_s: float) -> bool:
        """Append the sealed batch, or else the open one. False if it has to be tried again."""
        batch = buffer.seal()
        if batch is None:
            return True
        is_new = batch.data is None
        try:
            data = self._build(batch) if batch.data is None else batch.data
            partition = buffer.partition or self._open(buffer)
        except own(Exception) as error:  # whatever it is, the batch's deliveries get it
            self._fail(batch, not_appended(error))
            return True
        except BaseException:
            self._interrupted(batch)
            raise
        size_bytes = len(data)
        try:
            until_s = min(end_s, batch.deadline_s) - self._monotonic()
            result = partition.append_batch(
                data, timeout_ms=_whole_ms(until_s), min_timestamp_ms=batch.min_timestamp_ms
            )
            if is_new and result.duplicate:
                raise id_of_two(*buffer.topic_partition, buffer.producer_id)
            if self._config.acks != 0:
                batch.base_offset, batch.append_time_ms = result.base_offset, result.timestamp_ms
            batch.end_offset = result.last_offset + 1
            buffer.next_sequence = buffer.next_sequence + batch.count & MAX_SEQUENCE
            batch.data, batch.written = None, True
        except own(Exception) as error:  # the same
            if isinstance(error, DeliveryTimeout):
                if self._monotonic() < batch.deadline_s:
                    return False
                error = _of_a_batch_given_up(batch, error)
            self._fail(batch, fate(error))
            return True
        except BaseException:
            self._interrupted(batch)
            raise
        buffer.unseal()
        with self._lock:
            self.tally.add_written(batch, size_bytes)
        return True

    def _interrupted(self, batch: ProducerBatch) -> None:
        """Ctrl-C, or another exception of a signal handler, in the midst of it: this thread goes elsewhere.

        A batch with a sequence number stays sealed, to be written by whoever comes next: the log knows whether it has it.
        """
        if batch.written:
            return
        batch.was_interrupted = batch.data is not None
        if batch.data is not None and not self._config.enable_idempotence:
            self._fail(batch, OutcomeUnknown("interrupted while it was appended; the records may be in the log or not"))

    def _build(self, batch: ProducerBatch) -> bytearray:
        buffer, topic = batch.buffer, batch.buffer.topic
        if batch.taken is None:
            batch.count, batch.raw_bytes = batch.encoder.count, HEADER_BYTES + batch.encoder.size_bytes
            batch.min_timestamp_ms = batch.encoder.min_timestamp_ms
            batch.taken = TakenRecords(batch.encoder)  # last: from here on the encoder may be empty
        if not self._config.enable_idempotence:
            batch.data = build_batch(batch.taken, codec=topic.codec, level=topic.level)
            batch.taken = None
            return batch.data
        producer_id = self._producer_id
        if producer_id == _NO_PRODUCER:
            producer_id = self._identify()
        if buffer.producer_id != producer_id:
            buffer.producer_id, buffer.next_sequence = producer_id, 0
        batch.data = build_batch(
            batch.taken,
            codec=topic.codec,
            level=topic.level,
            producer_id=producer_id,
            producer_epoch=_PRODUCER_EPOCH,
            base_sequence=buffer.next_sequence,
        )
        batch.taken = None
        return batch.data

    def _identify(self) -> int:
        """This producer's id, taken with the first batch, and again after an unknown outcome."""
        with self._id_lock:
            if self._producer_id == _NO_PRODUCER:
                fresh = self._log.next_producer_id()
                if self._producer_id == _NO_PRODUCER:  # else a signal handler has sent something meanwhile
                    self._producer_id = fresh
            return self._producer_id

    def _open(self, buffer: PartitionBuffer) -> PartitionLog:
        """The partition of the very topic that the buffer is for.

        A later topic of that name has a buffer of its own, which numbers its batches from 0, too: one of two with the same
        number would pass for a repeat, and be acknowledged unwritten.
        """
        name, number = buffer.topic_partition
        partition = self._log.partition(name, number).log
        if partition.topic_id != buffer.topic.id:
            raise TopicNotFound(
                f"partition {number} of {name!r} is gone: the topic was deleted, and created again since",
                topic=name, partition=number,
            )  # fmt: skip
        buffer.partition = partition
        return partition

    # What became of it

    def acknowledge(self, buffer: PartitionBuffer) -> bool:
        """Settle what was appended, after a sync where ``acks`` asks for it, and call back.

        False where this is a signal handler that has interrupted a sync of the partition: others have to do it later.
        """
        if buffer.topic.is_abandoned:
            return True
        batches = buffer.unacknowledged()
        if batches:
            if self._config.acks == ACKS_ALL and buffer.partition is not None and buffer.partition.is_syncing_here():
                LINGER.watch(self)
                return False
            error = self._sync(buffer, batches[-1].end_offset) if self._config.acks == ACKS_ALL else None
            for batch in batches:
                self._settle(batch, error)
        self._call_back(buffer, 0)
        buffer.rest()
        return True

    def _sync(self, buffer: PartitionBuffer, end_offset: int) -> PylogError | None:
        assert buffer.partition is not None  # something was appended
        try:
            buffer.partition.sync(end_offset)
        except own(Exception) as error:  # whatever it is, the batches' deliveries get it
            return unknown(error)
        return None

    def _fail(self, batch: ProducerBatch, error: PylogError) -> None:
        self._settle(batch, error)
        batch.buffer.unseal()

    def _settle(self, batch: ProducerBatch, error: PylogError | None) -> None:
        """Decide the batch, once. A signal handler may send in the midst of it, and decide it first."""
        with self._lock:
            if batch.settled:
                return
            self._memory.release(batch)
            batch.data = batch.taken = None
            if error is not None:
                self._note_failure(batch, error)
            if batch.settled:
                return
            batch.settled = batch.done = True
            self.tally.add_decided(batch, error)
        if error is not None:
            topic, partition = batch.buffer.topic_partition
            logger.warning("batch of %d records to %s-%d failed: %s: %s",
                           batch.count, topic, partition, type(error).__name__, error)  # fmt: skip

    def metrics(self) -> dict[str, float]:
        """What has been counted."""
        with self._lock:
            return self.tally.metrics()

    def _note_failure(self, batch: ProducerBatch, error: PylogError) -> None:
        batch.buffer.topic.is_stale = True
        if isinstance(error, OutcomeUnknown | OutOfOrderSequence) and self._producer_id == batch.buffer.producer_id:
            self._producer_id = _NO_PRODUCER  # what the log knows of the old id is uncertain
        if self._config.acks != 0:
            without_frames(error)
            batch.error = error
            self.tally.remember(batch)

    def give_up(self) -> None:
        """Fail every batch that is not in the log and that no other thread is writing now."""
        for buffer in dict.fromkeys(batch.buffer for batch in list(self._memory.unsettled)):
            turn = buffer.writing
            if turn.is_mine():
                continue
            try:
                if turn.take(timeout=0):
                    self._give_up(buffer)
            finally:
                try:  # see turn.py
                    turn.leave()
                except own(NOT_MINE):
                    pass
            self._call_back(buffer, 0)

    def _give_up(self, buffer: PartitionBuffer) -> None:
        while (late := buffer.seal()) is not None:
            late.count = late.count or late.encoder.count
            error = DeliveryTimeout("not written in the time that close() was given; try again")
            self._fail(late, _of_a_batch_given_up(late, error))

    def _call_back(self, buffer: PartitionBuffer, timeout_s: float) -> bool:
        """Run the callbacks of what is settled, in order. False where another thread is at it for longer than the time."""
        if buffer.topic.is_abandoned:
            return True
        turn = buffer.calling
        while _has_settled(buffer):
            if turn.is_mine():  # a callback sent something: the loop below, further up this stack, goes on with it
                return False
            try:
                if not turn.take(blocking=False) and not turn.take(timeout=seconds_to_wait(timeout_s)):
                    return False  # whoever has the turn looks again after leaving it
                self._call_back_all(buffer)
            finally:
                try:  # see turn.py
                    turn.leave()
                except own(NOT_MINE):
                    pass
        return True

    def _call_back_all(self, buffer: PartitionBuffer) -> None:
        appended = buffer.appended  # others only add to it
        while appended and appended[0].settled:
            batch = appended[0]
            batch.called = True
            batch.call_back()
            self._memory.unsettled.pop(batch, None)
            appended.popleft()


def _of_a_batch_given_up(batch: ProducerBatch, error: DeliveryTimeout) -> PylogError:
    """``error``, unless an append of the batch was interrupted earlier, and nobody could ask the log about it since."""
    if not batch.was_interrupted:
        return error
    return OutcomeUnknown(
        f"interrupted while it was appended, and not to be written again in time: {error}", **error.facts
    )


def _whole_ms(seconds: float) -> int:
    """In milliseconds, not less: who waits so long has waited until the batch's time is over. (Past the error of a float.)"""
    return max(0, ceil(seconds * 1000 - 1e-6))


def _has_settled(buffer: PartitionBuffer) -> bool:
    try:
        return bool(buffer.appended) and buffer.appended[0].settled
    except own(IndexError):  # another thread took the last one
        return False
