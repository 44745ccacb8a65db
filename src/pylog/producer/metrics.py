"""The figures of ``Producer.metrics``, and the failures that ``Producer.close`` raises."""

from __future__ import annotations

from pylog.errors import OutcomeUnknown, PylogError
from pylog.producer.batch import ProducerBatch, fresh
from pylog.producer.buffer import IncompleteBatches
from pylog.producer.buffer_pool import BufferPool

REMEMBERED_FAILURES = 1000


class ProducerMetrics:
    """Counts of settled batches, and the buffered bytes.

    The counts change under the sender's lock, in one straight line; ``snapshot`` takes no lock.
    """

    def __init__(self, pool: BufferPool, incomplete: IncompleteBatches) -> None:
        self._pool = pool
        self._incomplete = incomplete
        self.forget_parent()

    def forget_parent(self) -> None:
        """Start counting at 0: at the start, and in a forked child."""
        self._batches = self._records = self._raw_bytes = self._bytes = 0
        self._failed_batches = self._failed_records = self._unknown_records = 0

    def count(self, batch: ProducerBatch, error: PylogError | None) -> None:
        """Count a batch that was just settled."""
        is_unknown = error is not None and isinstance(error, OutcomeUnknown)
        if batch.end_offset >= 0:  # it was appended, even if the sync failed
            self._batches += 1
            self._bytes += batch.size_bytes
            self._raw_bytes += batch.raw_bytes
        if error is None:
            self._records += batch.count
            return
        self._failed_batches += 1
        self._failed_records += batch.count
        if is_unknown:
            self._unknown_records += batch.count

    def snapshot(self) -> dict[str, float]:
        """All figures now. They are not one consistent moment."""
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
            "buffered_bytes": self._incomplete.buffered_bytes(),
            "reserved_bytes": self._pool.reserved_bytes,
        }


class UnobservedFailures:
    """Failed batches with errors that the application has not seen. The caller holds a lock."""

    def __init__(self) -> None:
        self.batches: list[ProducerBatch] = []

    def add(self, failed: ProducerBatch) -> None:
        """Keep a failed batch, unless very many are kept already."""
        if len(self.batches) >= REMEMBERED_FAILURES:
            self.batches = [batch for batch in self.batches if not batch.is_observed()]
        if len(self.batches) < REMEMBERED_FAILURES:
            self.batches.append(failed)

    def take(self) -> PylogError | None:
        """The first error that the application has not seen. It is raised once."""
        batches, self.batches = self.batches, []
        for batch in batches:
            if batch.error is not None and not batch.is_observed():
                return fresh(batch.error)
        return None
