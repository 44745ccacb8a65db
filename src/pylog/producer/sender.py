"""Appends batches to the log and settles them, in any thread that fills a batch, flushes or waits.

For each partition: ``_write`` builds and appends, in order, in the buffer's turn ``writing``. Then
``_acknowledge`` syncs for acks="all", outside of that turn, so that several threads share a sync.
Then callbacks run in the order of the offsets. Another thread can repeat every step, so an
exception between two steps (Ctrl-C) does not lose work.

A failed append is final for its batch, with two exceptions. The batch stays in flight, for the next
thread to write, if the partition lock was not obtained in the caller's time (up to
``delivery_timeout_ms``), or if the thread was interrupted.
"""

from __future__ import annotations

import logging
import threading  # all writing threads share the counters and the producer id
from collections.abc import Callable, Iterable
from math import ceil
from typing import TYPE_CHECKING

from pylog.errors import DeliveryTimeout, OutcomeUnknown, OutOfOrderSequence, PylogError, TransactionAborted
from pylog.interrupts import own
from pylog.producer.batch import (
    APPENDED,
    BUILT,
    NO_IDENTITY,
    SETTLED,
    ProducerBatch,
    ProducerIdentity,
    id_of_two,
    not_appended,
    outcome,
    outcome_unknown,
    without_frames,
)
from pylog.producer.buffer import IncompleteBatches, PartitionBuffer
from pylog.producer.buffer_pool import BufferPool
from pylog.producer.config import ACKS_ALL, ProducerConfig
from pylog.producer.linger import LINGER
from pylog.producer.metrics import ProducerMetrics, UnobservedFailures
from pylog.turn import NOT_MINE, seconds_to_wait

if TYPE_CHECKING:
    from pylog.manager.access import ProducerLog
    from pylog.producer.named import NamedProducer
    from pylog.producer.transactions import ProducerTransactions

logger = logging.getLogger("pylog.producer")

_FIRST_EPOCH = 0
_PATIENCE_S = 0.05  # how long one partition may delay all others in the linger thread
_AGAIN_S = 0.002  # when that thread looks again at a partition that another thread is writing
_NEVER_S = float("inf")  # when a wait without a timeout ends
_ROUNDING_MS = 1e-6  # float error of a time that is rounded up


class Sender:
    """Writes the batches of one producer."""

    def __init__(
        self,
        log: ProducerLog,
        config: ProducerConfig,
        pool: BufferPool,
        incomplete: IncompleteBatches,
        transactions: ProducerTransactions | None = None,
        named: NamedProducer | None = None,
    ) -> None:
        # Constant after construction:
        self._named = named
        self._transactions = transactions
        self._log = log
        self._config = config
        self._pool = pool
        self._incomplete = incomplete
        self._monotonic = log.clock.monotonic
        self._no_identity = None if config.enable_idempotence else NO_IDENTITY  # None: taken with the first batch
        self.metrics = ProducerMetrics(pool, incomplete)  # changed under ``_lock``
        self.forget_parent()
        LINGER.know(self)
        log.flush_on_close(self)

    def forget_parent(self) -> None:
        """Start again. In a forked child, threads that no longer exist may hold the locks."""
        self._lock = threading.RLock()
        self._identity_lock = threading.RLock()
        # Set under ``_identity_lock``, cleared under ``_lock``, read by all threads:
        self._identity = self._no_identity
        # Under ``_lock``:
        self.failures = UnobservedFailures()
        self.metrics.forget_parent()
        # By the linger thread, which sets and clears it:
        self.is_watched = False

    # For other parts of the producer

    def drain(self, buffer: PartitionBuffer, timeout_s: float, wait_s: float | None = None) -> bool:
        """Write what the buffer holds, acknowledge it, call back. False if the time was too short.

        Waits up to ``wait_s`` (None: the whole time) if another thread is writing.
        """
        is_written = self._write(buffer, self._monotonic() + timeout_s, wait_s)
        self._acknowledge(buffer)
        return is_written

    def drain_unsettled(self, batches: Iterable[ProducerBatch]) -> None:
        """Drain the buffers of these batches, each once."""
        buffers: dict[PartitionBuffer, None] = {}
        for batch in batches:
            buffer = self._incomplete.batches.get(batch)
            if buffer is not None and batch.state < SETTLED:
                buffers[buffer] = None
        for buffer in buffers:
            self.drain(buffer, self._config.max_block_s)

    def complete(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Settle the batch in this thread. False if that takes too long."""
        buffer = self._incomplete.batches.get(batch)
        if buffer is None:  # another thread has called it back, or this is a forked child
            return batch.done
        return self._complete(batch, buffer, _NEVER_S if timeout_s is None else self._monotonic() + timeout_s)

    def flush(self, timeout_s: float | None) -> bool:
        """Settle every batch and run its callbacks. False if that takes too long."""
        end_s = _NEVER_S if timeout_s is None else self._monotonic() + timeout_s
        incomplete = self._incomplete
        batches = list(incomplete.batches.items())
        for buffer in list(incomplete.waiting):  # append all before the first sync
            self._write(buffer, end_s)
        left: dict[PartitionBuffer, None] = {}  # settled by other threads, or by an interrupted thread
        for batch, buffer in batches:
            if batch.state < SETTLED and not self._complete(batch, buffer, end_s):
                return False
            if batch in incomplete.batches:
                left[buffer] = None
        if not left:
            return True
        for buffer in left:
            buffer.stop_waiting()
        if any(buffer.calling.is_mine() for buffer in left):  # called by a callback: it cannot wait for itself
            return True
        return all(buffer.call_back(end_s - self._monotonic()) for buffer in left)

    def flush_rest(self) -> None:
        """Write, or refuse, also what threads were just about to send. Ends if nothing changes."""
        before: list[ProducerBatch] = []
        while (unsent := self.unsent_batches()) and unsent != before:
            before = unsent
            self.flush(None)

    def log_closes(self) -> None:
        """Write everything, also of a producer that is garbage. Abort an open transaction."""
        if self._transactions is not None:
            self._transactions.close(self)
        self.flush(None)
        if self._named is not None:
            self._named.close()

    def forget_identity(self) -> None:
        """Ask for it again with the next batch: a transaction has ended."""
        self._identity = self._no_identity

    def unsent_batches(self) -> list[ProducerBatch]:
        """The batches that are not in the log yet."""
        return [batch for batch in list(self._incomplete.batches) if batch.state < APPENDED]

    def is_waited_for(self) -> bool:
        """Whether others may wait for this thread: in callbacks, or interrupted in a write."""
        return any(buffer.calling.is_mine() or buffer.writing.is_mine() for buffer in self._incomplete.buffers())

    def give_up(self, reason: Callable[[], PylogError] | None = None, wait_s: float = 0.0) -> None:
        """Fail every batch that is not in the log.

        After ``wait_s``, those of a partition to which another thread is still writing are left.
        """
        end_s = self._monotonic() + wait_s
        for buffer in dict.fromkeys(self._incomplete.batches.values()):
            turn = buffer.writing
            if turn.is_mine():
                continue
            try:
                if turn.take(timeout=seconds_to_wait(end_s - self._monotonic())):
                    self._give_up(buffer, reason)
            finally:
                try:  # see turn.py
                    turn.leave()
                except own(NOT_MINE):
                    pass
            buffer.call_back(0)

    def write_soon(self, batch: ProducerBatch) -> None:
        """Have the linger thread write the batch now."""
        batch.make_due()
        buffer = self._incomplete.batches.get(batch)
        if buffer is not None and not LINGER.watch(self):
            self.drain(buffer, self._config.max_block_s)

    # For the linger thread

    def flush_due(self) -> float | None:
        """Write batches that lingered long enough. Returns seconds until the next one, or None."""
        next_s: float | None = None
        for buffer in list(self._incomplete.waiting):
            wait_s = buffer.due_s() - self._monotonic()
            if wait_s <= 0:
                self.drain(buffer, _PATIENCE_S, wait_s=0)
                if buffer not in self._incomplete.waiting:
                    continue
                wait_s = min(max(buffer.due_s() - self._monotonic(), _AGAIN_S), _PATIENCE_S)
            next_s = wait_s if next_s is None else min(wait_s, next_s)
        return next_s

    def is_waiting(self) -> bool:
        return bool(self._incomplete.waiting)

    # Writing. ``end_s`` is a time of the monotonic clock.

    def _complete(self, batch: ProducerBatch, buffer: PartitionBuffer, end_s: float) -> bool:
        """Settle one batch of the buffer. False if that takes too long."""
        while batch.state < SETTLED:
            # An appended batch still in flight was interrupted: ``_write`` continues with it.
            is_written = batch.state is APPENDED and buffer.in_flight is not batch
            if (is_written or self._write(buffer, end_s)) and not self._acknowledge(buffer):
                return False
            if batch.state < SETTLED and (
                buffer.writing.is_mine()  # in a signal handler: the interrupted thread cannot continue
                or buffer.is_interrupted()
                or self._monotonic() >= end_s
            ):
                return False
        return True

    def _write(self, buffer: PartitionBuffer, end_s: float, wait_s: float | None = None) -> bool:
        """Append what the buffer holds now. False if some of it remains when the time is over.

        A callback, a signal handler or a caller's file may fork and return into this method in the
        child. There, every buffer known before belongs to the parent.
        """
        if buffer.topic.is_abandoned:
            return True
        turn = buffer.writing
        # A signal handler sends during an append or a bulk send.
        if turn.is_mine() or (buffer.is_extended and buffer.is_interrupted()):
            return False
        try:
            if not turn.take(False):
                seconds = end_s - self._monotonic() if wait_s is None else wait_s
                if not turn.take(timeout=seconds_to_wait(seconds)):
                    return False
            was_tried = buffer.in_flight is not None
            return self._append(buffer, end_s) and (not was_tried or self._append(buffer, end_s))
        finally:
            try:  # see turn.py
                turn.leave()
            except own(NOT_MINE):
                pass

    def _append(self, buffer: PartitionBuffer, end_s: float) -> bool:
        """Append the batch in flight, or else the open one. False if it must be retried."""
        batch = buffer.next_batch()
        if batch is None:
            return True
        is_new = batch.state is not BUILT
        try:
            data = self._build(batch, buffer) if is_new else batch.data
            partition = buffer.open_partition(self._log)
        except own(Exception) as error:  # of any kind: the batch's deliveries get it
            self._fail(batch, buffer, not_appended(error))
            return True
        except BaseException:
            self._interrupted(batch, buffer)
            raise
        assert data is not None  # it is built
        try:
            if self._named is not None:
                self._named.check_order(batch, buffer)
            left_ms = (min(end_s, batch.deadline_s) - self._monotonic()) * 1000
            timeout_ms = max(0, ceil(left_ms - _ROUNDING_MS))  # not less: after the wait the batch's time must be over
            if self._transactions is not None:
                result = self._transactions.append(batch, data, partition, timeout_ms)
            else:
                result = partition.append_batch(data, timeout_ms=timeout_ms, min_timestamp_ms=batch.min_timestamp_ms)
            if is_new and result.duplicate:
                raise id_of_two(*batch.topic_partition, batch.identity.id)
            buffer.next_sequence = batch.next_sequence  # the same value if the next line must be repeated
            batch.appended(result)
        except own(Exception) as error:  # of any kind: the batch's deliveries get it
            if isinstance(error, DeliveryTimeout) and self._monotonic() < batch.deadline_s:
                return False
            self._fail(batch, buffer, outcome(error))
            return True
        except BaseException:
            self._interrupted(batch, buffer)
            raise
        buffer.finish_in_flight()
        return True

    def _interrupted(self, batch: ProducerBatch, buffer: PartitionBuffer) -> None:
        """Clean up after Ctrl-C or another exception of a signal handler, which ended a step early.

        A batch with a sequence number stays in flight for the next thread: the log knows whether it
        has the batch.
        """
        batch.interrupted()
        if batch.state is BUILT and not self._config.enable_idempotence:
            error = OutcomeUnknown("interrupted while it was appended; the records may be in the log or not")
            self._fail(batch, buffer, error)

    def _build(self, batch: ProducerBatch, buffer: PartitionBuffer) -> bytearray:
        identity = self._identity
        if identity is None:
            identity = self._identify()
        if buffer.identity is not identity:
            if buffer.identity[:2] != identity[:2]:
                buffer.next_sequence = 0
            buffer.identity = identity
        base_sequence = buffer.next_sequence if self._named is None else batch.base_sequence
        return batch.build(buffer.topic.codec, buffer.topic.level, identity, base_sequence)

    def _identify(self) -> ProducerIdentity:
        """This producer's identity: a new one for the first batch, and after an unknown outcome."""
        with self._identity_lock:
            identity = self._identity
            if self._transactions is not None:
                return self._transactions.identity()  # may differ for the next batch
            if self._named is not None:
                return self._named.identity
            if identity is None:
                taken = ProducerIdentity(self._log.next_producer_id(), _FIRST_EPOCH, is_transactional=False)
                identity = self._identity = self._identity or taken  # a signal handler may have sent something
            return identity

    def _give_up(self, buffer: PartitionBuffer, reason: Callable[[], PylogError] | None) -> None:
        while (late := buffer.next_batch()) is not None:
            if reason is not None:
                self._fail(late, buffer, reason())
                continue
            self._fail(late, buffer, DeliveryTimeout("not written in the time that close() was given; try again"))

    # Outcomes

    def _acknowledge(self, buffer: PartitionBuffer) -> bool:
        """Settle what was appended, after a sync for acks="all", and call back.

        False in a signal handler that interrupted a sync of the partition: another thread must do
        it later.
        """
        if buffer.topic.is_abandoned:
            return True
        batches = buffer.unacknowledged() if buffer.pending_callbacks else ()
        if batches:
            error: PylogError | None = None
            if self._config.acks == ACKS_ALL and self._transactions is None:  # a commit syncs
                partition = buffer.partition
                assert partition is not None  # something was appended
                try:
                    partition.sync(batches[-1].end_offset)
                except own(Exception) as failure:  # of any kind: the batches' deliveries get it
                    if partition.is_syncing_here():
                        LINGER.watch(self)
                        return False
                    error = outcome_unknown(failure)
            for batch in batches:
                self._settle(batch, buffer, error)
        buffer.call_back(0)
        buffer.stop_waiting()
        return True

    def _fail(self, batch: ProducerBatch, buffer: PartitionBuffer, error: PylogError) -> None:
        self._settle(batch, buffer, batch.outcome_after(error))
        buffer.finish_in_flight()

    def _settle(self, batch: ProducerBatch, buffer: PartitionBuffer, error: PylogError | None) -> None:
        """Settle the batch, once. A signal handler that sends meanwhile may settle it first."""
        with self._lock:
            if batch.state >= SETTLED:
                return
            if error is not None:
                self._note_failure(batch, buffer, error)
            if not batch.settle(error, self._pool):
                return
            self.metrics.count(batch, error)
        if error is not None:
            topic, partition = batch.topic_partition
            is_wanted = isinstance(error, TransactionAborted)  # by the application
            logger.log(logging.DEBUG if is_wanted else logging.WARNING, "batch of %d records to %s-%d failed: %s: %s",
                       batch.count, topic, partition, type(error).__name__, error)  # fmt: skip

    def _note_failure(self, batch: ProducerBatch, buffer: PartitionBuffer, error: PylogError) -> None:
        buffer.topic.is_stale = True
        if self._transactions is not None:
            self._transactions.note_failure(error, batch)
        if self._named is not None:
            self._named.note_failure(batch, buffer)
        if isinstance(error, OutcomeUnknown | OutOfOrderSequence) and self._identity == batch.identity:
            self._identity = self._no_identity  # the log's state of the old id is uncertain
        if self._config.acks != 0:
            without_frames(error)
            if self._transactions is None:  # else the commit raises it
                self.failures.add(batch)
