"""The outcome of one record. A ``Delivery`` is two numbers and a batch, which holds the state.

An outcome is RecordMetadata, ``NotAppended`` (or a subclass) or ``OutcomeUnknown``. Nothing here
waits or holds a lock: a thread that wants a result drives the batch through the sender.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from pylog.checks import OfOneProcess, require_callable, require_timeout
from pylog.codec import Receipt
from pylog.errors import PylogError
from pylog.interrupts import own
from pylog.kafka_names import AbsentNames, answers_kafkas_names, refuse_keywords
from pylog.model import RecordMetadata
from pylog.producer.batch import ProducerBatch

logger = logging.getLogger("pylog.producer")


@answers_kafkas_names
class Delivery(OfOneProcess, Receipt, metaclass=AbsentNames):
    """The outcome of one record sent: a small future. Awaitable under asyncio.

    ``result()`` does not wait for the linger time: it writes the record's batch itself.
    """

    __slots__ = ()  # the fields are the receipt's: the encoder makes one for every record

    _instead = "it is the outcome of a producer of this process; pass on what result() returns"

    batch: ProducerBatch

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.batch.done

    def result(self, timeout: float | None = None, **unknown: NoReturn) -> RecordMetadata:
        """Wait until the record is acknowledged as ``acks`` asks, and return its metadata.

        After acks="all" the record is durable. Raises NotAppended (or a subclass) or OutcomeUnknown
        if the send failed. Raises TimeoutError if it is undecided after ``timeout`` seconds; the
        record is then still under way. Without a timeout, ``delivery_timeout_ms`` bounds the wait.
        In a forked child ``ForkedHandle``: the parent sends the record.
        """
        if unknown:
            refuse_keywords("Delivery.result", unknown)
        batch = self._decided(timeout)
        if batch.error is not None:
            raise batch.observed_error(self.index)
        topic, partition = batch.topic_partition
        if batch.base_offset < 0:
            return RecordMetadata(topic, partition, -1, self.timestamp_ms)
        timestamp_ms = batch.append_time_ms if batch.append_time_ms >= 0 else self.timestamp_ms
        # half as long as RecordMetadata(...)
        return tuple.__new__(RecordMetadata, (topic, partition, batch.base_offset + self.index, timestamp_ms))

    def exception(self, timeout: float | None = None) -> PylogError | None:
        """The error of ``result``, or None if the record was acknowledged. Waits like
        ``result``."""
        batch = self._decided(timeout)
        return None if batch.error is None else batch.observed_error(self.index)

    def _decided(self, timeout: float | None) -> ProducerBatch:
        if timeout is not None:
            require_timeout(timeout)
        batch = self.batch
        if not batch.done and not batch.driver.complete(batch, timeout):
            raise TimeoutError(f"{self!r} is not decided after {timeout} s; it is still under way")
        return batch

    def add_done_callback(self, function: Callable[[Delivery], object]) -> None:
        """Call ``function(self)`` now if the outcome is known, else in the thread that writes.

        Callbacks of a partition run in the order of its offsets. Their errors are logged.
        """
        require_callable("function", function, "the Delivery")
        self.batch.add_callback(function, self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait without blocking the event loop; the linger thread writes the batch at once."""
        if not self.batch.done:
            import asyncio  # only needed if an event loop exists

            loop = asyncio.get_running_loop()
            decided = loop.create_future()

            def wake_loop() -> None:
                if not decided.done():  # else the waiting task was cancelled
                    decided.set_result(None)

            def wake(_: Delivery) -> None:
                try:
                    loop.call_soon_threadsafe(wake_loop)
                except own(RuntimeError):
                    logger.debug("event loop closed before %r was decided", self)

            self.add_done_callback(wake)
            self.batch.driver.write_soon(self.batch)
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
        topic, partition = batch.topic_partition
        return f"<Delivery to {topic}-{partition}: {state}>"
