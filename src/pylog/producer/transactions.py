"""The transactions of one producer: what may be called when, and what a commit or an abort does.

``begin`` opens the gate for records. They wait in the producer's buffers. If all of them fit
one batch at the commit, that batch is the transaction. Else the first batch that must be written
makes the transaction ongoing, for all processes to see.

Once the decision is durable, ``commit`` does not raise: the next ``begin``, or another process,
writes the markers that a disk has refused. ``close`` writes markers of a decided transaction only.
"""

from __future__ import annotations

import logging
import threading  # an application may abort in another thread than the one that sends
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pylog.clock import SystemClock
from pylog.errors import (
    CommitFailed,
    ConfigError,
    NotAppended,
    OutcomeUnknown,
    ProducerFenced,
    PylogError,
    TransactionAborted,
)  # fmt: skip
from pylog.interrupts import own
from pylog.manager.manager import LogManager
from pylog.model import ConsumerGroupMetadata, Offsets
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import Outcome
from pylog.producer.batch import NO_IDENTITY, ProducerBatch, ProducerIdentity
from pylog.producer.touched import TouchedPartitions
from pylog.producer.transaction_state import Sender, State, Written, aborted, failed, nested, refused, still_writing
from pylog.transaction.directory import check_transactional_id
from pylog.transaction.offsets import TransactionOffsets
from pylog.transaction.owner import TransactionOwner
from pylog.turn import NOT_MINE, Turn

if TYPE_CHECKING:
    from pylog.manager.access import ProducerLog, ProducerPartition
    from pylog.model import AppendResult
    from pylog.producer.config import ProducerConfig

logger = logging.getLogger("pylog.producer")

PATIENCE_S = 30.0
"""How long an abort, or the next begin, waits for threads that are still writing a record."""


class ProducerTransactions:
    """Between the public face, the sender and the owner of the transactional id."""

    def __init__(self, manager: ProducerLog, config: ProducerConfig, gate: Callable[[bool], None]) -> None:
        """``gate(True)`` lets records into the buffers, ``gate(False)`` refuses them."""
        if not isinstance(manager, LogManager):
            raise ConfigError("transactions need a Log of its own directory", option="transactional_id")
        self._manager = manager
        self._transactional_id = check_transactional_id(config.transactional_id, manager.layout.ignores_case)
        self._timeout_ms = config.transaction_timeout_ms
        self._gate = gate
        self._forget()

    def _forget(self) -> None:
        self._calls = Turn()  # of the application, in any thread
        self._identity_lock = threading.RLock()  # of what a batch is given, in any thread
        self.state = State.NEW
        self._owner: TransactionOwner | None = None
        self._decided: Outcome | None = None  # what the markers say that are still to be written
        self._may_be_one_batch = True  # no batch of this epoch has an unknown outcome
        # Tests move time, and choose the order of all steps: then nothing runs at once.
        self._touched = TouchedPartitions(*() if type(self._manager.clock) is SystemClock else (1,))
        self._offsets = TransactionOffsets(self._manager)
        self._reset()

    def _reset(self) -> None:
        """No transaction is open."""
        self.error: PylogError | None = None
        self._takes_records = False
        self._is_sealed = True  # no further batch becomes part of the transaction
        self._is_complete = False  # all of its records are written: what has no identity yet was sent too late
        self._is_started = False  # its owner has made it ongoing
        self._only_batch: ProducerBatch | None = None  # being committed as one batch
        self._is_only_batch_built = False

    def forget_parent(self) -> None:
        """In a forked child: the id is its parent's, and so is the transaction."""
        state = self.state
        self._forget()
        if state is not State.NEW:
            self.state = State.FORKED

    # For the public face

    def init(self, sender: Sender) -> None:
        """Take the id over from any other producer. See ``Producer.init_transactions``."""
        with self._turn("init_transactions", sender):
            if self.state is not State.NEW:
                raise refused(self._transactional_id, self.state, "init_transactions")
            self._owner = TransactionOwner(self._manager, self._transactional_id, self._timeout_ms)
            self.state = State.READY

    def begin(self, sender: Sender) -> None:
        with self._turn("begin_transaction", sender):
            if self.state is not State.READY:
                raise refused(self._transactional_id, self.state, "begin_transaction")
            self._write_markers()  # of the transaction before, if a disk refused them
            end_s = self._manager.clock.monotonic() + PATIENCE_S
            before: list[ProducerBatch] = []
            while late := self._open(sender):
                if late == before or self._manager.clock.monotonic() >= end_s:
                    self._require_none_unsent(sender, "begin_transaction")
                before = late
                # Another thread sent them while the last one ended. They are not in this one.
                sender.give_up(partial(refused, self._transactional_id, State.READY, "send"), PATIENCE_S)

    def _open(self, sender: Sender) -> list[ProducerBatch]:
        """Open the transaction, unless batches were too late for the last one: those."""
        with self._identity_lock:  # a batch that another thread refuses is one of them until that is noted
            if self.state is not State.READY:  # a callback of ``give_up`` has forked
                raise refused(self._transactional_id, self.state, "begin_transaction")
            late = sender.unsent_batches()
            if not late:
                self._reset()
                self._takes_records, self._is_sealed, self.state = True, False, State.IN_TRANSACTION
                self._gate(True)
            return late

    @property
    def can_abort(self) -> bool:
        return self.state is State.IN_TRANSACTION

    def require_open(self) -> None:
        """Raises ``InvalidTransactionState`` if records can't be sent now."""
        if self.state is State.IN_TRANSACTION and self.error is not None:
            raise failed(self._transactional_id, self.error)
        if self.state is not State.IN_TRANSACTION or not self._takes_records:
            raise refused(self._transactional_id, self.state, "send")

    def send_offsets(self, offsets: Offsets, member: ConsumerGroupMetadata | str, sender: Sender) -> None:
        """Keep them until the commit."""
        with self._turn("send_offsets_to_transaction", sender):
            self.require_open()
            self._offsets.add(offsets, member)

    def commit(self, sender: Sender) -> None:
        with self._turn("commit_transaction", sender):
            owner = self._owner
            if owner is None or self.state not in (State.IN_TRANSACTION, State.COMMITTING):
                raise refused(self._transactional_id, self.state, "commit_transaction")
            self._refuse_records()
            if self.state is State.IN_TRANSACTION:
                self._require_no_failure()
                if not self._choose_one_batch(sender):
                    self._write_all(sender)
                    self._append_offsets(owner)
            if self._only_batch is not None:
                self._commit_one_batch(sender, owner, self._only_batch)
            elif self._is_started:
                self._commit_ongoing(owner)
            else:
                owner.holding(bool)  # nothing was sent: only find out whether it is fenced
            self._end(sender, Outcome.COMMITTED)
            self._offsets.maintain_if_due()

    def abort(self, sender: Sender) -> None:
        with self._turn("abort_transaction", sender):
            self._abort(sender)

    def _abort(self, sender: Sender) -> None:
        owner = self._owner
        if owner is None or self.state is not State.IN_TRANSACTION:
            raise refused(self._transactional_id, self.state, "abort_transaction")
        self._refuse_records()
        with self._identity_lock:
            self._is_sealed = True
            self.error = self.error or aborted(self._transactional_id)  # of what other threads are about to write
        reason = partial(aborted, self._transactional_id)
        sender.give_up(reason)
        if self._is_started:
            owner.abort(self._touched.names())
        # A writing thread is refused now. What waits after its batch must not be in the next one.
        sender.give_up(reason, PATIENCE_S)
        self._require_none_unsent(sender, "abort_transaction")
        self._may_be_one_batch = False
        self._end(sender, Outcome.ABORTED)

    def close(self, sender: Sender) -> None:
        """Abort what is open, and give the id back. What is not decided is left to others."""
        with self._turn("close", sender):
            owner = self._owner
            if owner is None:
                self.state = State.CLOSED
                return
            is_settled = self.state is not State.COMMITTING and self._may_be_one_batch
            try:
                if self.state is State.IN_TRANSACTION:
                    self._abort(sender)
                else:
                    self._finish()
            except own(PylogError) as error:
                logger.warning("%r: other processes abort what it has left: %s", self._transactional_id, error)
            finally:
                self._owner = None
                self.state = State.CLOSED
                self._reset()
                self._decided = None
                self._touched.close()
                self._offsets.close()
                owner.close(is_settled=is_settled)

    # For the sender

    def identity(self) -> ProducerIdentity:
        """Whose batch is written next. The first one makes the transaction ongoing."""
        with self._identity_lock:
            owner = self._owner
            if self.error is not None:
                raise failed(self._transactional_id, self.error)
            if owner is None or self._is_sealed:
                raise refused(self._transactional_id, self.state, "send")
            if self._only_batch is not None:
                if self._is_only_batch_built:  # this one was sent during the commit
                    raise refused(self._transactional_id, self.state, "send")
                self._is_only_batch_built = True
                return ProducerIdentity(owner.producer_id, owner.epoch, is_transactional=False)
            if not self._is_started:
                owner.start()
                self._is_started = self._may_be_one_batch = True
            return ProducerIdentity(owner.producer_id, owner.epoch, is_transactional=True)

    def append(self, batch: Written, data: bytearray, partition: ProducerPartition, timeout_ms: int) -> AppendResult:
        """Append a batch, unless its transaction is over. Its partition will need a marker.

        Raises as ``PartitionLog.append_batch``; ``ProducerFenced``, ``TransactionAborted``.
        """
        assert isinstance(partition, PartitionLog)  # of a LogManager
        owner, identity = self._owner, batch.identity
        if owner is None or self._is_of_another(batch):
            raise aborted(self._transactional_id)
        self._touched.add(partition)
        append = partial(partition.append_batch, data, timeout_ms=timeout_ms, min_timestamp_ms=batch.min_timestamp_ms)
        if identity.is_transactional:
            owner.keep_alive()
            result = append(require_ongoing=partial(owner.require_ongoing, identity.id, identity.epoch))
        else:  # the append is the commit, in whatever thread: no other producer takes over between the check and it
            result = owner.holding(append)
        self._touched.appended(batch.topic_partition, result.last_offset + 1)
        return result

    def note_failure(self, error: PylogError, batch: ProducerBatch) -> None:
        """A batch has failed: the transaction can only be aborted."""
        if self._is_of_another(batch) or self.state not in (State.IN_TRANSACTION, State.COMMITTING):
            return
        if self.error is None:
            self.error = error
        self._may_be_one_batch = False
        self._gate(False)  # the next send raises it
        if isinstance(error, ProducerFenced):
            self.state = State.FENCED

    def _is_of_another(self, batch: Written) -> bool:
        """Whether the batch is not, or no longer, part of this transaction."""
        owner = self._owner
        if self._only_batch is not None and batch is not self._only_batch:
            return True
        if batch.identity is NO_IDENTITY or owner is None:
            return owner is None or self._is_complete
        return batch.identity[:2] != (owner.producer_id, owner.epoch)

    # Parts

    def _refuse_records(self) -> None:
        self._takes_records = False
        self._gate(False)

    def _require_no_failure(self) -> None:
        if self.error is not None:
            raise failed(self._transactional_id, self.error)

    def _choose_one_batch(self, sender: Sender) -> bool:
        """Whether the transaction is one batch: it is all or none, and needs no marker."""
        with self._identity_lock:
            unsent = sender.unsent_batches()
            if self._is_started or self._offsets or not self._may_be_one_batch or len(unsent) != 1:
                return False
            self._only_batch = unsent[0]
            return True

    def _commit_one_batch(self, sender: Sender, owner: TransactionOwner, batch: ProducerBatch) -> None:
        try:
            self.state = State.COMMITTING
            sender.flush_rest()
        finally:
            if not self._is_only_batch_built and self.state is State.COMMITTING:
                self._only_batch, self.state = None, State.IN_TRANSACTION
        if isinstance(self.error, OutcomeUnknown) and self._touched.finds(batch, owner.producer_id):
            self.error = None
        if self.error is not None:
            self._only_batch, self.state = None, State.IN_TRANSACTION
            raise failed(self._transactional_id, self.error)
        self._require_none_unsent(sender, "commit_transaction")
        self._touched.sync()
        self._touched.clear()

    def _write_all(self, sender: Sender) -> None:
        """Write all records. From here on no other batch can become part of the transaction."""
        sender.flush(None)
        with self._identity_lock:
            self._is_sealed = True
        sender.flush_rest()
        self._require_no_failure()
        self._require_none_unsent(sender, "commit_transaction")
        self._is_complete = True

    def _require_none_unsent(self, sender: Sender, call: str) -> None:
        if sender.unsent_batches():
            raise still_writing(self._transactional_id, call)

    def _append_offsets(self, owner: TransactionOwner) -> None:
        """Append the groups' offsets. If that fails, the transaction can only be aborted."""
        if not self._offsets:
            return
        if not self._is_started:
            owner.start()
            self._is_started = self._may_be_one_batch = True
        self.error = OutcomeUnknown("interrupted while offsets were appended")
        try:
            for partition, end_offset in self._offsets.append(owner, self._touched.add):
                self._touched.appended(partition.log.topic_partition, end_offset)
        except own(PylogError) as error:
            self.error = error
            raise failed(self._transactional_id, error)  # noqa: B904 - it may be this one
        self.error = None

    def _commit_ongoing(self, owner: TransactionOwner) -> None:
        if self.state is State.IN_TRANSACTION:
            owner.keep_alive()
            self._touched.sync()
        self.state = State.COMMITTING
        try:
            owner.commit(self._touched.names(), self._offsets.while_owned)
        except BaseException as error:
            if not owner.may_be_committed:
                self.state = State.IN_TRANSACTION
                if isinstance(error, TransactionAborted | CommitFailed):
                    self.error = error
            elif isinstance(error, NotAppended):  # by this call; an earlier one may have decided
                raise OutcomeUnknown(f"the commit was begun, and may be decided: {error}", **error.facts) from error
            raise

    def _end(self, sender: Sender, outcome: Outcome) -> None:
        """The transaction is decided, whatever fails from here on. Interrupted, it is repeated."""
        if self._is_started:
            self._decided = outcome
        sender.forget_identity()
        self._finish()
        if self.state is State.FORKED:  # by a callback: the transaction is the parent's
            raise refused(self._transactional_id, self.state, "commit_transaction or abort_transaction")
        if self.state is not State.FENCED:
            self.state = State.READY
        self._reset()
        self._offsets.clear()

    def _finish(self) -> None:
        """Write the markers. If that fails, it is decided all the same: begin tries again."""
        try:
            self._write_markers()
        except own(PylogError) as error:
            if isinstance(error, ProducerFenced):
                self.state = State.FENCED
            logger.warning("markers of %r are missing for now: %s", self._transactional_id, error)

    def _write_markers(self) -> None:
        if self._owner is not None and self._decided is not None:
            self._touched.mark(self._owner, self._decided)
            self._decided = None

    @contextmanager
    def _turn(self, call: str, sender: Sender) -> Iterator[None]:
        """One call at a time. A thread that the other call may wait for, as in a callback, is
        refused instead of waiting."""
        calls = self._calls
        if calls.is_mine():
            raise nested(self._transactional_id, self.state, call)
        try:
            if not calls.take(not sender.is_waited_for()):
                raise nested(self._transactional_id, self.state, call)
            yield  # an exception of a signal handler in contextlib itself keeps the turn until its traceback is freed
        except own(ProducerFenced):
            self.state = State.FENCED
            raise
        finally:
            try:  # see turn.py
                calls.leave()
            except own(NOT_MINE):
                pass
