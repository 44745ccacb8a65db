"""The transactions of one producer: what may be called when, and what a commit or an abort does.

| state         | begin | send | commit | abort | after it                                            |
| ------------- | ----- | ---- | ------ | ----- | --------------------------------------------------- |
| NEW           |       |      |        |       | ``init_transactions``: READY                        |
| READY         | yes   |      |        |       | IN_TRANSACTION                                      |
| IN_TRANSACTION|       | yes  | yes    | yes   | READY; after an error only ``abort_transaction``    |
| COMMITTING    |       |      | yes    |       | READY. It was interrupted: only repeat it           |
| FENCED        |       |      |        |       | ``close``                                           |

``begin`` only opens the gate for records. They wait in the producer's buffers. If all of them fit
one batch at the commit, that batch is the transaction. Else the first batch that must be written
makes the transaction ongoing, for all processes to see.
"""

from __future__ import annotations

import logging
import threading  # an application may abort in another thread than the one that sends
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor  # syncs of several partitions at once
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from pylog.errors import (
    CommitFailed,
    ConfigError,
    InvalidTransactionState,
    OutcomeUnknown,
    ProducerFenced,
    PylogError,
    TransactionAborted,
)
from pylog.interrupts import own
from pylog.manager.manager import LogManager
from pylog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.producer.batch import ProducerBatch, ProducerIdentity
from pylog.transaction.directory import check_transactional_id
from pylog.transaction.offsets import TransactionOffsets
from pylog.transaction.owner import TransactionOwner

if TYPE_CHECKING:
    from pylog.manager.access import ProducerLog, ProducerPartition
    from pylog.producer.config import ProducerConfig
    from pylog.producer.sender import Sender

logger = logging.getLogger("pylog.producer")

_SYNCS_AT_ONCE = 16


class State(Enum):
    """What a transactional producer may do next. See the table above."""

    NEW = "has not called init_transactions"
    READY = "has no open transaction"
    IN_TRANSACTION = "has an open transaction"
    COMMITTING = "is committing: only commit_transaction can be repeated"
    FENCED = "is fenced: another producer has its transactional_id"


class ProducerTransactions:
    """Between the public face, the sender and the owner of the transactional id."""

    def __init__(self, manager: ProducerLog, config: ProducerConfig, gate: Callable[[bool], None]) -> None:
        """``gate(True)`` lets records into the buffers, ``gate(False)`` refuses them."""
        if not isinstance(manager, LogManager):
            raise ConfigError("transactions need a Log of its own directory", option="transactional_id")
        self._manager = manager
        self._transactional_id = check_transactional_id(config.transactional_id)
        self._timeout_ms = config.transaction_timeout_ms
        self._gate = gate
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self.state = State.NEW
        self._owner: TransactionOwner | None = None
        self._is_single = False  # being committed as one batch
        self._is_committed = False  # what the markers say that are still to be written
        self._touched: dict[TopicPartition, PartitionLog] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._offsets = TransactionOffsets(self._manager)
        self.error: PylogError | None = None

    def forget_parent(self) -> None:
        """In a forked child: the id is its parent's."""
        self._forget()

    # For the public face

    def init(self) -> None:
        """Take the id over from any other producer. See ``Producer.init_transactions``."""
        with self._lock:
            if self.state is not State.NEW:
                raise self._refused("init_transactions")
            self._owner = TransactionOwner(self._manager, self._transactional_id, self._timeout_ms)
            self.state = State.READY

    def begin(self) -> None:
        with self._lock:
            if self.state is not State.READY:
                raise self._refused("begin_transaction")
            self._write_markers()  # of the transaction before, if a disk refused them
            self.error = None
            self.state = State.IN_TRANSACTION
            self._gate(True)

    @property
    def can_abort(self) -> bool:
        return self.state is State.IN_TRANSACTION

    def require_open(self) -> None:
        """``InvalidTransactionState`` if records can't be sent now."""
        if self.state is not State.IN_TRANSACTION:
            raise self._refused("send")
        if self.error is not None:
            raise self._failed(self.error)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], member: ConsumerGroupMetadata | str
    ) -> None:
        """Keep them until the commit."""
        with self._lock:
            self.require_open()
            self._offsets.add(offsets, member)

    def commit(self, sender: Sender) -> None:
        with self._lock, self._fenced_for_good():
            owner = self._owner
            if owner is None or self.state not in (State.IN_TRANSACTION, State.COMMITTING):
                raise self._refused("commit_transaction")
            self._gate(False)
            if self.state is State.IN_TRANSACTION:
                if self.error is not None:
                    raise self._failed(self.error)
                if not self._offsets and not owner.is_ongoing and self._commit_as_one_batch(sender, owner):
                    self._end(sender)
                    return
                sender.flush(None)
                if self.error is not None:
                    raise self._failed(self.error)
                self._append_offsets(owner)
            if owner.is_ongoing:
                self._sync()
                owner.commit(self._touched, self._decide_with_offsets)
            self._is_committed = True
            self._end(sender)
            self._finish()

    def abort(self, sender: Sender) -> None:
        with self._lock, self._fenced_for_good():
            owner = self._owner
            if owner is None or self.state is not State.IN_TRANSACTION:
                raise self._refused("abort_transaction")
            self._gate(False)
            sender.give_up(self._aborted_error)
            if owner.is_ongoing:
                owner.abort(self._touched)
            self._is_committed = False
            self._end(sender)
            self._finish()

    def close(self, sender: Sender) -> None:
        """Abort what is open, and give the id back."""
        with self._lock:
            owner = self._owner
            if owner is None:
                return
            try:
                if self.state is State.IN_TRANSACTION:
                    self.abort(sender)
                else:
                    self._finish()
            except own(ProducerFenced):
                pass  # its transaction is decided
            finally:
                self._owner = None
                self.state = State.NEW
                owner.close()

    # For the sender

    def identity(self) -> ProducerIdentity:
        """Whose batch is written next. The first one makes the transaction ongoing."""
        owner = self._owner
        if owner is None:
            raise self._refused("send")
        if self.error is not None:
            raise self._failed(self.error)
        if not self._is_single and not owner.is_ongoing:
            owner.start()
        return ProducerIdentity(owner.producer_id, owner.epoch, is_transactional=not self._is_single)

    def before_append(self, batch: ProducerBatch, partition: ProducerPartition) -> None:
        """The batch is about to be appended: its partition will need a marker."""
        assert isinstance(partition, PartitionLog)  # of a LogManager
        self._touched[batch.topic_partition] = partition
        if self._owner is not None:
            self._owner.keep_alive()

    def after_append(self, partition: TopicPartition, end_offset: int) -> None:
        self._ends[partition] = end_offset

    def require_ongoing(self) -> None:
        """Called with the partition's lock."""
        owner = self._owner
        if owner is None:
            raise self._refused("send")
        owner.require_ongoing()

    def note_failure(self, error: PylogError) -> None:
        """A batch has failed: the transaction can only be aborted."""
        if self.error is None:
            self.error = error
        self._gate(False)  # the next send raises it
        if isinstance(error, ProducerFenced):
            self.state = State.FENCED

    # Parts

    def _commit_as_one_batch(self, sender: Sender, owner: TransactionOwner) -> bool:
        """Append the only batch that there is. It is all or none by itself, so it needs no marker."""
        if sender.unsent_batches() > 1:
            return False
        self._is_single = True
        try:
            owner.holding(lambda: sender.flush(None))
        finally:
            self._is_single = False
        if self.error is not None:
            raise self._failed(self.error)
        return True

    def _append_offsets(self, owner: TransactionOwner) -> None:
        """Append the groups' offsets. If that fails, the transaction can only be aborted."""
        if not self._offsets:
            return
        if not owner.is_ongoing:
            owner.start()
        self.error = OutcomeUnknown("interrupted while offsets were appended")
        try:
            for partition, end_offset in self._offsets.append(owner, self._touch):
                self._ends[partition.log.topic_partition] = end_offset
        except own(PylogError) as error:
            self.note_failure(error)
            self.error = error
            raise self._failed(error) from error
        self.error = None

    def _touch(self, partition: PartitionLog) -> None:
        self._touched[partition.topic_partition] = partition

    def _decide_with_offsets(self, decide: Callable[[], None]) -> None:
        """Called with the id's lock. ``CommitFailed``: the transaction can only be aborted."""

        def begin_to_commit() -> None:
            self.state = State.COMMITTING
            decide()

        try:
            self._offsets.while_owned(begin_to_commit)
        except own(CommitFailed) as error:
            self.error = error
            raise

    def _sync(self) -> None:
        """Make the transaction's records durable, in several partitions at once."""
        syncs = [(log, self._ends[name]) for name, log in self._touched.items() if name in self._ends]
        if len(syncs) == 1:
            syncs[0][0].sync(syncs[0][1])
        elif syncs:
            with ThreadPoolExecutor(min(len(syncs), _SYNCS_AT_ONCE)) as pool:
                for done in [pool.submit(log.sync, end) for log, end in syncs]:
                    done.result()

    def _end(self, sender: Sender) -> None:
        """The transaction is decided."""
        sender.forget_identity()
        self._offsets.clear()
        self.state = State.READY

    def _finish(self) -> None:
        """Write the markers. If that fails, the transaction is decided all the same: begin tries again."""
        try:
            self._write_markers()
        except own(ProducerFenced):
            raise
        except own(PylogError) as error:
            logger.warning("markers of %r are missing for now: %s", self._transactional_id, error)

    def _write_markers(self) -> None:
        owner = self._owner
        if owner is None or not self._touched:
            return
        for name, log in list(self._touched.items()):
            log.append_marker(owner.producer_id, owner.epoch, committed=self._is_committed)
            del self._touched[name]
            self._ends.pop(name, None)
        owner.complete()

    @contextmanager
    def _fenced_for_good(self) -> Iterator[None]:
        try:
            yield
        except own(ProducerFenced):
            self.state = State.FENCED
            raise

    def _failed(self, error: PylogError) -> PylogError:
        if isinstance(error, ProducerFenced | CommitFailed):
            return error
        failed = TransactionAborted(
            f"a record of the transaction was not appended ({error}); call abort_transaction, and repeat its work",
            transactional_id=self._transactional_id,
        )
        failed.__cause__ = error
        return failed

    def _aborted_error(self) -> TransactionAborted:
        return TransactionAborted(
            "the transaction of this record was aborted before it was written", transactional_id=self._transactional_id
        )

    def _refused(self, call: str) -> PylogError:
        if self.state is State.FENCED:
            return ProducerFenced(
                f"{call}: another producer with transactional_id={self._transactional_id!r} has taken over; close this one",
                transactional_id=self._transactional_id,
            )
        return InvalidTransactionState(
            f"{call}: this producer {self.state.value}", transactional_id=self._transactional_id, state=self.state.name
        )
