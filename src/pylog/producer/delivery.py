"""What became of a record. A ``Delivery`` is two numbers and the batch it is in; the batch holds all the state.

A batch is open, then sealed (no more records), then written (in the log, perhaps not yet durable), then settled: its
outcome is known and never changes. Each outcome is RecordMetadata, ``NotAppended`` (or a subclass) or ``OutcomeUnknown``.
Nothing here waits by itself or holds a lock: a thread that wants a result drives the batch through the sender.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from pylog.checks import OfOneProcess, require_callable, require_timeout
from pylog.codec import Receipt
from pylog.errors import BufferTimeout, PylogError
from pylog.interrupts import is_of_handler, own
from pylog.kafka_names import AbsentNames, answers_kafkas_names, refuse_keywords
from pylog.model import RecordMetadata

if TYPE_CHECKING:
    from pylog.codec import RecordEncoder
    from pylog.codec.batch import TakenRecords
    from pylog.producer.buffer import PartitionBuffer

logger = logging.getLogger("pylog.producer")


def refuse_reentry(buffer: PartitionBuffer) -> None:
    """A signal handler may come while this thread sends in bulk. What it sends then would tear the batch apart."""
    if buffer.is_interrupted():
        raise interrupted(buffer)


def interrupted(buffer: PartitionBuffer) -> BufferTimeout:
    """The error for a send from inside another one of the same thread, at a place where that can't be."""
    return BufferTimeout(
        f"{buffer.topic.name}-{buffer.number} was sent to from inside a send of the same thread (by a signal handler?); "
        "nothing was appended, send again when that is over",
        topic=buffer.topic.name,
        partition=buffer.number,
    )


class ProducerBatch:
    """The records of one batch on their way into the log, and the outcome they share.

    ``enter`` adds a record while the batch is open, from any thread; ``buffer.lock`` guards all else that is done with
    ``encoder`` until it is closed, later its writer alone touches it. The outcome is set once,
    ``settled`` last. ``done`` is what deliveries go by: equal to ``settled``, but for acks=0 True from the start.
    """

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "buffer",
        "callbacks",
        "called",
        "count",
        "data",
        "deadline_s",
        "done",
        "due_s",
        "encoder",
        "end_offset",
        "enter",
        "error",
        "limit_bytes",
        "min_timestamp_ms",
        "observed",
        "raw_bytes",
        "reserved_bytes",
        "settled",
        "taken",
        "was_interrupted",
        "written",
    )

    def __init__(self, buffer: PartitionBuffer, encoder: RecordEncoder, limit_bytes: int) -> None:
        self.buffer = buffer
        self.encoder = encoder
        self.enter = encoder.enter
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self.due_s = self.deadline_s = 0.0
        self.taken: TakenRecords | None = None  # out of the encoder, while the batch is built
        self.data: bytearray | None = None  # the encoded batch, once it is built
        self.min_timestamp_ms: int | None = None  # as the encoder said
        self.count = self.raw_bytes = 0
        self.base_offset = self.end_offset = self.append_time_ms = -1
        self.error: PylogError | None = None
        self.written = self.settled = self.done = self.called = False
        self.was_interrupted = False  # in an append: it may be in the log
        self.callbacks: deque[tuple[Callable[[Delivery], object], Delivery]] = deque()
        self.observed: set[int] = set()  # of a failed batch: the records whose error somebody has seen

    def is_observed(self) -> bool:
        """Whether every failed record of the batch was looked at."""
        return self.error is None or len(self.observed) >= self.count

    def abandon(self, error: PylogError) -> None:
        """In a forked child: decided here by ``error``; callbacks are the parent's."""
        self.callbacks.clear()
        self.error = error
        self.data = None
        self.settled = self.done = self.called = True

    def call_back(self) -> None:
        """Run the callbacks added so far, each once, whoever gets here first."""
        while self.callbacks:
            try:
                function, delivery = self.callbacks.popleft()
            except own(IndexError):  # another thread took the last one
                return
            if self.error is not None:
                self.observed.add(delivery.index)
            try:
                function(delivery)
            except Exception as error:
                if is_of_handler(error):
                    raise
                logger.exception("callback %r of %r failed", function, delivery)


@answers_kafkas_names
class Delivery(OfOneProcess, Receipt, metaclass=AbsentNames):
    """The fate of one record sent: a small future. Awaitable under asyncio.

    ``result()`` does not wait for the linger time: it writes the record's batch in the calling thread.
    """

    __slots__ = ()  # the fields are the receipt's: the encoder makes one with every record it takes

    _instead = "it is the outcome of a producer of this process; pass on what result() returns"

    batch: ProducerBatch

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.batch.done

    def result(self, timeout: float | None = None, **unknown: NoReturn) -> RecordMetadata:
        """Where the record stands, once it is acknowledged as ``acks`` asks: after acks="all", durable.

        Raises NotAppended (or a subclass) or OutcomeUnknown if that failed, and TimeoutError if it is not decided within
        ``timeout`` seconds (it is still under way then). Without a timeout, ``delivery_timeout_ms`` bounds the wait.
        """
        if unknown:
            refuse_keywords("Delivery.result", unknown)
        batch = self._decided(timeout)
        if batch.error is not None:
            batch.observed.add(self.index)
            raise fresh(batch.error)
        topic, partition = batch.buffer.topic_partition
        if batch.base_offset < 0:
            return RecordMetadata(topic, partition, -1, self.timestamp_ms)
        timestamp_ms = batch.append_time_ms if batch.append_time_ms >= 0 else self.timestamp_ms
        return RecordMetadata(topic, partition, batch.base_offset + self.index, timestamp_ms)

    def exception(self, timeout: float | None = None) -> PylogError | None:
        """The error ``result`` would raise, or None if the record was acknowledged. Waits as ``result`` does."""
        batch = self._decided(timeout)
        if batch.error is None:
            return None
        batch.observed.add(self.index)
        return fresh(batch.error)

    def _decided(self, timeout: float | None) -> ProducerBatch:
        if timeout is not None:
            require_timeout(timeout)
        batch = self.batch
        if not batch.done and not batch.buffer.finish(batch, timeout):
            raise TimeoutError(f"{self!r} is not decided after {timeout} s; it is still under way")
        return batch

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call ``function(self)`` once the outcome is known: now if it is, else in the thread that writes the batch.

        Callbacks of a partition run in the order of its offsets. An error of ``function`` is logged.
        """
        require_callable("function", function, "the Delivery")
        batch = self.batch
        batch.callbacks.append((function, self))
        if batch.called:
            batch.call_back()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait without blocking the event loop; the linger thread writes the batch at once."""
        if not self.batch.done:
            import asyncio  # only where there is a loop already

            loop = asyncio.get_running_loop()
            decided = loop.create_future()

            def wake_loop() -> None:
                if not decided.done():  # else whoever waited has been cancelled
                    decided.set_result(None)

            def wake(_: Delivery) -> None:
                try:
                    loop.call_soon_threadsafe(wake_loop)
                except own(RuntimeError):
                    logger.debug("event loop closed before %r was decided", self)

            self.add_done_callback(wake)
            self.batch.buffer.hurry(self.batch)
            yield from decided
        return self.result()

    def __repr__(self) -> str:
        batch = self.batch
        if not batch.done:
            state = "pending"
        elif batch.error is not None:
            state = type(batch.error).__name__
        else:
            state = f"offset {batch.base_offset + self.index}" if batch.base_offset >= 0 else "not acknowledged"
        topic, partition = batch.buffer.topic_partition
        return f"<Delivery to {topic}-{partition}: {state}>"


def fresh(error: PylogError) -> PylogError:
    """A copy to raise: one error serves a whole batch, and raising it twice would mix the tracebacks."""
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
