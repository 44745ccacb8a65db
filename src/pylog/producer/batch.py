"""A producer's batch and its outcome. Everything that changes a batch's state is in this file.

    OPEN -> CLOSED -> BUILT -> APPENDED -> SETTLED -> CALLED_BACK          ABANDONED

| state | meaning |
| --- | --- |
| OPEN | the batch takes records, from any thread |
| CLOSED | it takes no more records; they are not encoded as a batch yet |
| BUILT | it is encoded: each retry appends the same bytes |
| APPENDED | it is in the log, but may not be durable yet |
| SETTLED | its outcome is known and never changes |
| CALLED_BACK | its callbacks have run, or run now; one that is added later runs at once |
| ABANDONED | this process was forked: the batch is the parent's, and nothing changes it here |

A failure settles a batch that is CLOSED, BUILT or APPENDED. Any other step that is not in the table
is a bug of pylog and raises ``AssertionError``.

A step assigns its fields in one straight line, without a call in between, the state last. So an
exception of a signal handler comes before the whole step or after it (see turn.py), and a step that
did not happen can be repeated.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, cast

from pylog.codec import Receipt, RecordEncoder, TakenRecords
from pylog.codec.batch import build_batch
from pylog.codec.format import HEADER_BYTES, MAX_SEQUENCE
from pylog.errors import (
    Closed,
    ForkedHandle,
    InvalidPartition,
    LogLocked,
    LogNotFound,
    MissingCodec,
    NotAppended,
    OutcomeUnknown,
    PylogError,
    ReadOnlyLog,
    TopicNotFound,
)
from pylog.interrupts import is_of_handler, own
from pylog.model import AppendResult, TopicPartition
from pylog.producer.buffer_pool import BufferPool

logger = logging.getLogger("pylog.producer")


class ProducerIdentity(NamedTuple):
    """How the log identifies a producer, for whose batches it counts sequence numbers."""

    id: int
    epoch: int
    is_transactional: bool


NO_IDENTITY = ProducerIdentity(-1, -1, False)
"""The identity of a producer without idempotence."""
_NO_SEQUENCE = -1


class Sequences(NamedTuple):
    """What the application of a named producer says of a batch: its first sequence, and the one
    before."""

    previous: int
    first: int


UNNUMBERED = Sequences(_NO_SEQUENCE, _NO_SEQUENCE)


class State(IntEnum):
    """The states of a batch, in order. See the table above."""

    OPEN = 0
    CLOSED = 1
    BUILT = 2
    APPENDED = 3
    SETTLED = 4
    CALLED_BACK = 5
    ABANDONED = 6


OPEN, CLOSED, BUILT, APPENDED, SETTLED, CALLED_BACK, ABANDONED = State


class Driver(Protocol):
    """The sender, as used by a batch's deliveries."""

    def complete(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Settle the batch in this thread. False if it is not settled in time."""

    def write_soon(self, batch: ProducerBatch) -> None:
        """Have another thread write the batch at once."""


class ProducerBatch:
    """The records of one batch on their way into the log, and their common outcome.

    ``append`` adds a record while the batch is open, from any thread.
    """

    __slots__ = (
        "_records", "append", "append_time_ms", "base_offset", "base_sequence", "callbacks", "count", "data", "deadline_s",
        "done", "driver", "due_s", "encoder", "end_offset", "error", "identity", "is_fire_and_forget", "limit_bytes",
        "min_timestamp_ms", "next_sequence", "observed", "previous_sequence", "raw_bytes", "size_bytes", "state",
        "topic_partition", "was_interrupted",
    )  # fmt: skip

    def __init__(
        self,
        driver: Driver,
        topic_partition: TopicPartition,
        encoder: RecordEncoder,
        limit_bytes: int,
        due_s: float,
        deadline_s: float,
        is_fire_and_forget: bool,
        sequences: Sequences = UNNUMBERED,
        append: Callable[..., Any] | None = None,
    ) -> None:
        """``append`` takes the place of the encoder's own."""
        # Constant after construction:
        self.driver = driver
        self.topic_partition = topic_partition
        self.encoder = encoder  # while open: guarded by the buffer's ``lock``, except ``append``
        self.append = encoder.try_append if append is None else append
        self.limit_bytes = limit_bytes  # reserved in the pool until the batch is settled
        self.deadline_s = deadline_s
        self.previous_sequence, self.base_sequence = sequences  # of a named producer
        self.is_fire_and_forget = is_fire_and_forget  # acks=0: done from the start, whatever its outcome
        # In the buffer's turn ``writing``; any thread reads them after the batch is appended:
        self._records: TakenRecords | None = None  # taken from the encoder, until the batch is built
        self.data: bytearray | None = None  # the encoded batch, until it is appended
        self.count = self.raw_bytes = self.size_bytes = 0
        self.min_timestamp_ms: int | None = None
        self.identity = NO_IDENTITY
        self.next_sequence = _NO_SEQUENCE  # of the next batch
        self.was_interrupted = False  # during an append: the batch may be in the log
        self.base_offset = self.end_offset = self.append_time_ms = -1
        # In that turn until the batch is appended, then under the pool's lock:
        self.state = OPEN
        # Under the pool's lock; any thread reads them:
        self.error: PylogError | None = None
        self.done = is_fire_and_forget  # what deliveries check
        # Any thread, one operation at a time:
        self.due_s = due_s
        self.callbacks: deque[tuple[Callable[[Any], object], Receipt]] = deque()
        self.observed: set[int] = set()  # the records of a failed batch whose error the application has seen

    def make_due(self) -> None:
        """Have it written now, without further lingering."""
        self.due_s = 0.0

    # Steps

    def close(self) -> None:
        """Take no more records. The batch is no longer the buffer's open one."""
        if self.state is not OPEN:
            self._must_be_abandoned("close")
            return
        encoder = self.encoder
        encoder.close()
        records = TakenRecords(encoder)
        count, raw_bytes, min_timestamp_ms = encoder.count, HEADER_BYTES + encoder.size_bytes, encoder.min_timestamp_ms
        if self.state is not OPEN:  # a signal handler forked, and this is the child
            return
        self.count, self.raw_bytes, self.min_timestamp_ms = count, raw_bytes, min_timestamp_ms
        self._records = records
        self.state = CLOSED

    def build(self, codec: int, level: int | None, identity: ProducerIdentity, base_sequence: int) -> bytearray:
        """Encode the batch. The log recognizes a duplicate by the identity and the sequence
        number."""
        records = self._records
        if self.state is not CLOSED or records is None:
            raise self._refusal("build")
        data = build_batch(
            records,
            codec=codec,
            level=level,
            producer_id=identity.id,
            producer_epoch=identity.epoch,
            base_sequence=_NO_SEQUENCE if identity is NO_IDENTITY else base_sequence,
            transactional=identity.is_transactional,
        )
        size_bytes = len(data)
        if self.state is not CLOSED:  # a signal handler forked, and this is the child
            raise self._refusal("build")
        self.data, self.size_bytes, self._records = data, size_bytes, None
        self.identity, self.next_sequence = identity, base_sequence + self.count & MAX_SEQUENCE
        self.state = BUILT
        return data

    def interrupted(self) -> None:
        """A signal handler's exception ended a step. A batch that was BUILT may be in the log."""
        if self.state is BUILT:
            self.was_interrupted = True
        elif self.state is OPEN:
            raise self._refusal("interrupted")

    def appended(self, result: AppendResult) -> None:
        """Record that the batch is in the log. For acks=0 the result has no offset."""
        if self.state is not BUILT:
            self._must_be_abandoned("appended")
            return
        base_offset, append_time_ms = (-1, -1) if self.is_fire_and_forget else (result.base_offset, result.timestamp_ms)
        self.base_offset, self.append_time_ms = base_offset, append_time_ms
        self.end_offset = result.last_offset + 1
        self.data = None
        self.state = APPENDED

    def settle(self, error: PylogError | None, pool: BufferPool) -> bool:
        """Decide the outcome, once, and release the memory. False if it was decided before."""
        seen = None if self.is_fire_and_forget else error
        with pool.lock:  # a signal handler may settle the batch first
            state = self.state
            if state >= SETTLED:
                return False
            if state is OPEN or (error is None and state is not APPENDED):
                raise self._refusal("settle")
            pool.reserved_bytes -= self.limit_bytes
            self.error = seen
            self.data = self._records = None
            self.done = True
            self.state = SETTLED
        return True

    def call_back(self) -> None:
        """Run the callbacks added so far. In the buffer's turn ``calling``."""
        if self.state is SETTLED:
            self.state = CALLED_BACK
        elif self.state < SETTLED:
            raise self._refusal("call back")
        if self.callbacks:
            self._run_callbacks()

    def abandon(self, error: PylogError) -> None:
        """In a forked child: fail an undecided batch with ``error``. The parent runs the
        callbacks."""
        self.callbacks.clear()
        self.error = error if self.state < SETTLED else self.error
        self.data = self._records = None
        self.done = True
        self.state = ABANDONED

    def _must_be_abandoned(self, step: str) -> None:
        if self.state is not ABANDONED:
            raise self._refusal(step)

    def _refusal(self, step: str) -> Exception:
        topic, partition = self.topic_partition
        if self.state is ABANDONED:
            return ForkedHandle(f"the batch to {topic}-{partition} is the parent process's")
        return AssertionError(f"a batch to {topic}-{partition} is {self.state.name}: no step {step!r} from there")

    # Other methods

    def buffered_bytes(self) -> int:
        """Encoded records that are not in the log yet."""
        return 0 if self.state >= APPENDED else self.raw_bytes or self.encoder.size_bytes

    def add_callback(self, function: Callable[[Any], object], receipt: Receipt) -> None:
        """Call ``function(receipt)`` once the outcome is known, or now if it is known."""
        self.callbacks.append((function, receipt))
        if self.state >= CALLED_BACK or self.is_fire_and_forget:
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        """Run each callback once, in the first thread that gets here."""
        while self.callbacks:
            try:
                function, receipt = self.callbacks.popleft()
            except own(IndexError):  # another thread took the last one
                return
            if self.error is not None:
                self.observed.add(receipt.index)
            try:
                function(receipt)
            except Exception as error:
                if is_of_handler(error):
                    raise
                logger.exception("callback %r of %r failed", function, receipt)

    def is_observed(self) -> bool:
        """Whether the application has seen the error of every record."""
        return self.error is None or len(self.observed) >= self.count

    def observed_error(self, index: int) -> PylogError:
        """The error to raise for a record of a failed batch. The application has seen it then."""
        assert self.error is not None
        self.observed.add(index)
        return fresh(self.error)

    def outcome_after(self, error: PylogError) -> PylogError:
        """The outcome after the last attempt's ``error``, if an interrupted attempt before may have
        appended the batch.

        In a transaction it does not count then: the transaction can only be aborted.
        """
        if not self.was_interrupted or not isinstance(error, NotAppended) or self.identity.is_transactional:
            return error
        return OutcomeUnknown(f"interrupted while it was appended, and not written again: {error}", **error.facts)


def batch_in_log(topic_partition: TopicPartition, base_offset: int) -> ProducerBatch:
    """A batch that was appended long ago; ``base_offset`` is -1 if it is unknown."""
    batch = ProducerBatch(cast(Driver, None), topic_partition, RecordEncoder(HEADER_BYTES), 0, 0.0, 0.0, False)
    batch.base_offset = base_offset
    batch.done = True
    batch.state = CALLED_BACK
    return batch


# What an append raises before it writes anything:
_BEFORE_WRITING = (
    NotAppended,
    Closed,
    ForkedHandle,
    InvalidPartition,
    LogLocked,
    LogNotFound,
    MissingCodec,
    ReadOnlyLog,
    TopicNotFound,
)


def outcome(error: BaseException) -> PylogError:
    """The outcome of a batch whose append raised ``error``."""
    if isinstance(error, _BEFORE_WRITING):
        return not_appended(error)
    return outcome_unknown(error)


def not_appended(error: BaseException) -> PylogError:
    """``error`` as the outcome of a batch that was not written."""
    if isinstance(error, NotAppended):
        return error
    failure = NotAppended(f"not appended: {error}" if str(error) else f"not appended: {type(error).__name__}")
    failure.__cause__ = error
    return failure


def outcome_unknown(error: BaseException) -> PylogError:
    """``error`` as the outcome of a batch that may have been written."""
    if isinstance(error, OutcomeUnknown):
        return error
    failure = OutcomeUnknown(f"{type(error).__name__}: {error}; the records may be in the log or not")
    failure.__cause__ = error
    return failure


def id_of_two(topic: str, partition: int, producer_id: int) -> NotAppended:
    """The error for a batch that was never sent before but that the log took for a duplicate."""
    return NotAppended(
        f"producer id {producer_id} has another producer's records in {topic}-{partition}, and these were taken for a repeat: "
        "an older .pylog/producer-ids was put back, perhaps; close the log everywhere, remove that file, and send again",
        topic=topic, partition=partition, producer_id=producer_id,
    )  # fmt: skip


def fresh(error: PylogError) -> PylogError:
    """A copy to raise: a batch's records share one error, and reuse would mix tracebacks."""
    again: PylogError = copy.copy(error)
    again.__cause__ = error.__cause__
    return again


def without_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that is kept: their frames hold the batch's bytes."""
    seen: set[int] = set()
    rest: BaseException | None = error
    while rest is not None and id(rest) not in seen:
        seen.add(id(rest))
        rest.__traceback__ = None
        rest = rest.__cause__ or rest.__context__
