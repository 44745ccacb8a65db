"""The states of a transactional producer, the errors of calls that do not fit them, and what it
uses of the rest.

| state         | begin | send | commit | abort | after it                                         |
| ------------- | ----- | ---- | ------ | ----- | ------------------------------------------------ |
| NEW           |       |      |        |       | ``init_transactions``: READY                     |
| READY         | yes   |      |        |       | IN_TRANSACTION                                   |
| IN_TRANSACTION|       | yes  | yes    | yes   | READY; after an error only ``abort_transaction`` |
| COMMITTING    |       |      | yes    |       | READY. Repeat it: the decision may be recorded   |
| FENCED        |       |      |        |       | ``close``                                        |
| FORKED        |       |      |        |       | ``close``: a child of the process with the id    |
| CLOSED        |       |      |        |       |                                                  |
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from pylog.errors import (
    Closed,
    CommitFailed,
    ForkedHandle,
    InvalidTransactionState,
    LogLocked,
    ProducerFenced,
    PylogError,
    TransactionAborted,
)  # fmt: skip
from pylog.model import TopicPartition
from pylog.producer.batch import ProducerBatch, ProducerIdentity


class State(Enum):
    """What a transactional producer may do next. See the table above."""

    NEW = "has not called init_transactions"
    READY = "has no open transaction"
    IN_TRANSACTION = "has an open transaction"
    COMMITTING = "is committing: only commit_transaction can be repeated"
    FENCED = "is fenced: another producer has its transactional_id"
    FORKED = "is the parent process's"
    CLOSED = "is closed"


def refused(transactional_id: str, state: State, call: str) -> PylogError:
    """The error of a call that the state does not permit."""
    if state is State.FENCED:
        return ProducerFenced(
            f"{call}: another producer with transactional_id={transactional_id!r} has taken over; close this one",
            transactional_id=transactional_id,
        )
    if state is State.CLOSED:
        return Closed(f"{call}: the producer {state.value}", transactional_id=transactional_id)
    if state is State.FORKED:
        return ForkedHandle(
            f"{call}: the transactional id {transactional_id!r} is the parent process's; open another producer in the child",
            transactional_id=transactional_id,
        )
    why = f"this producer {state.value}"
    if call == "init_transactions" and state is State.READY:
        why = "it was called before; continue with begin_transaction"
    return InvalidTransactionState(f"{call}: {why}", transactional_id=transactional_id, state=state.name)


def failed(transactional_id: str, error: PylogError) -> PylogError:
    """The error of a transaction that can only be aborted, after ``error`` of one of its
    records."""
    if isinstance(error, ProducerFenced | CommitFailed | TransactionAborted):
        return error
    told = TransactionAborted(
        f"a record of the transaction was not appended ({error}); call abort_transaction, and repeat its work",
        transactional_id=transactional_id,
    )
    told.__cause__ = error
    return told


def aborted(transactional_id: str) -> TransactionAborted:
    """The error of a record that was not written before its transaction was aborted."""
    return TransactionAborted(
        "the transaction of this record was aborted before it was written", transactional_id=transactional_id
    )


def still_writing(transactional_id: str, call: str) -> LogLocked:
    """The error of a call that can't wait for a record of the transaction any longer."""
    return LogLocked(
        f"{call}: a record is still being written, by another thread or by this one, which a signal handler has interrupted; "
        "call it again later",
        transactional_id=transactional_id,
    )


def nested(transactional_id: str, state: State, call: str) -> InvalidTransactionState:
    """The error of a call that would wait for another one, which may wait for this thread."""
    return InvalidTransactionState(
        f"{call}: called in a callback, or in a signal handler, while another call for the transaction is under way; "
        "call it after that one",
        transactional_id=transactional_id, state=state.name,
    )  # fmt: skip


class Sender(Protocol):
    """What ``ProducerTransactions`` uses of the sender."""

    def flush(self, timeout_s: float | None) -> bool: ...
    def flush_rest(self) -> None: ...
    def is_waited_for(self) -> bool: ...
    def give_up(self, reason: Callable[[], PylogError] | None = None, wait_s: float = 0.0) -> None: ...
    def forget_identity(self) -> None: ...
    def unsent_batches(self) -> list[ProducerBatch]: ...


class Written(Protocol):
    """What it uses of a batch that is to be appended."""

    identity: ProducerIdentity
    topic_partition: TopicPartition
    min_timestamp_ms: int | None
