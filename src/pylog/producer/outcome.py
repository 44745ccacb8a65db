"""What an error says about the batch it happened to, and what a producer has counted. Pure: no lock, no log.

A send ends in one of three ways; ``fate`` makes one of the two bad ones out of whatever an append raises.
"""

from __future__ import annotations

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
from pylog.producer.delivery import ProducerBatch, fresh

REMEMBERED_FAILURES = 1000

# What an append raises before it writes anything
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


def not_appended(error: BaseException) -> PylogError:
    """``error`` as the outcome of a batch that was not written."""
    if isinstance(error, NotAppended):
        return error
    outcome = NotAppended(f"not appended: {error}" if str(error) else f"not appended: {type(error).__name__}")
    outcome.__cause__ = error
    return outcome


def unknown(error: BaseException) -> PylogError:
    if isinstance(error, OutcomeUnknown):
        return error
    outcome = OutcomeUnknown(f"{type(error).__name__}: {error}; the records may be in the log or not")
    outcome.__cause__ = error
    return outcome


def id_of_two(topic: str, partition: int, producer_id: int) -> NotAppended:
    """For a batch that the log took for a repeat, though it was never sent before."""
    return NotAppended(
        f"producer id {producer_id} has another producer's records in {topic}-{partition}, and these were taken for a repeat: "
        "an older .pylog/producer-ids was put back, perhaps; close the log everywhere, remove that file, and send again",
        topic=topic, partition=partition, producer_id=producer_id,
    )  # fmt: skip


def fate(error: BaseException) -> PylogError:
    """What an error of an append says about the batch."""
    if isinstance(error, _BEFORE_WRITING):
        return not_appended(error)
    return unknown(error)


class Tally:
    """Counts, and the failures that somebody should look at. Its caller holds a lock."""

    def __init__(self) -> None:
        self.failures: list[ProducerBatch] = []
        self._batches = self._records = self._raw_bytes = self._bytes = 0
        self._failed_batches = self._failed_records = self._unknown_records = 0

    def add_written(self, batch: ProducerBatch, size_bytes: int) -> None:
        self._batches += 1
        self._bytes += size_bytes
        self._raw_bytes += batch.raw_bytes

    def add_decided(self, batch: ProducerBatch, error: PylogError | None) -> None:
        if error is None:
            self._records += batch.count
            return
        self._failed_batches += 1
        self._failed_records += batch.count
        if isinstance(error, OutcomeUnknown):
            self._unknown_records += batch.count

    def remember(self, failed: ProducerBatch) -> None:
        """Keep a failed batch until all of its records were looked at; the first so many of those that never are."""
        if len(self.failures) >= REMEMBERED_FAILURES:
            self.failures = [batch for batch in self.failures if not batch.is_observed()]
        if len(self.failures) < REMEMBERED_FAILURES:
            self.failures.append(failed)

    def take_unobserved_failure(self) -> PylogError | None:
        """The first error of a delivery that nobody has looked at. Telling it once is enough."""
        failures, self.failures = self.failures, []
        for batch in failures:
            if batch.error is not None and not batch.is_observed():
                return fresh(batch.error)
        return None

    def metrics(self) -> dict[str, float]:
        return {
            "records_sent": self._records,
            "records_failed": self._failed_records,
            "records_unknown": self._unknown_records,
            "batches_sent": self._batches,
            "batches_failed": self._failed_batches,
            "bytes_sent": self._bytes,
            "batch_size_avg": self._bytes / self._batches if self._batches else 0.0,
            "records_per_batch_avg": self._records / self._batches if self._batches else 0.0,
            "compression_rate": self._bytes / self._raw_bytes if self._raw_bytes else 1.0,
        }
