"""The driver's part of a sink: each micro-batch, and each ``save``, is one transaction.

A query's transactional id is ``spark:<query id>``, and so is its group, for which the transaction
commits the next batch's number. So the log says which batch comes next, and a later driver of the
query fences the earlier one. A save happens once, and needs no number: it takes the first of the
ids ``spark:save-0``, ``spark:save-1``, … that no other save holds now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import TYPE_CHECKING

from pylog.codec.format import INT32_MAX
from pylog.errors import InvalidPartition, OutcomeUnknown, PylogError, TopicNotFound, TransactionAborted
from pylog.interrupts import own, suppress
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.earlier_builds import finish_earlier
from pylog.spark.sink.staging import Staged, Target, staged_batches

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.partition_log import PartitionLog
    from pylog.producer.encoded import EncodedTransaction

logger = logging.getLogger("pylog.spark")

TIMEOUT_MS = 60_000
SLOW_DISK_BYTES_PER_MS = 10_000
"""A live driver's transaction is not aborted while a disk as slow as this takes all of it."""


class SinkCommit:
    """Commits for one sink."""

    def __init__(self, log: Log, directory: SinkDirectory, timeout_ms: int) -> None:
        self._log = log
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._partitions: dict[Target, PartitionLog] = {}

    def commit(self, batch_id: int, files: Sequence[Staged]) -> None:
        """On return the files' records are in the log and durable. A batch in the log is skipped.

        ``OutcomeUnknown``: the disk refuses the decision. After any other error nothing is in the
        log, nor will be. ``ProducerFenced``: another driver of this query has begun a commit.
        """
        finish_earlier(self._log, self._directory, self._timeout_ms)
        if files:
            self._write(batch_id, files)
        try:
            self._clean(batch_id)
        except own(PylogError) as error:  # the commit itself stands
            logger.warning("staged files are left for a later commit: %s", error)

    def _write(self, batch_id: int, files: Sequence[Staged]) -> None:
        from pylog.group.position import POSITION, next_batch
        from pylog.producer.encoded import EncodedTransaction

        manager, timeout_ms = self._log.manager, self._transaction_timeout_ms(files)
        with (
            self._transactional_id() as name,
            closing(EncodedTransaction(manager, name, timeout_ms)) as transaction,
        ):
            is_query = not self._directory.is_save
            if is_query and batch_id < (expected := next_batch(manager, name) or 0):
                self._report_repeated(batch_id, expected - 1)
                return
            transaction.begin()
            for staged in files:
                self._append(transaction, staged)
            if is_query:
                transaction.send_offsets({POSITION: batch_id + 1}, name)
            self._decide(transaction)

    @contextmanager
    def _transactional_id(self) -> Iterator[str]:
        """Of a save, it is this save's as long as its lock is held."""
        directory = self._directory
        if not directory.is_save:
            yield f"spark:{directory.sink_id}"
            return
        for number in count():
            with closing(directory.filesystem.lock(f"{directory.sinks}/save-{number}.lock")) as lock:
                if lock.try_acquire():
                    yield f"spark:save-{number}"
                    return

    def _transaction_timeout_ms(self, files: Sequence[Staged]) -> int:
        """As long as an append may wait for a lock, and a sync for the disk."""
        size_bytes = sum(staged.size_bytes for staged in files)
        return min(max(TIMEOUT_MS, 2 * self._timeout_ms) + size_bytes // SLOW_DISK_BYTES_PER_MS, INT32_MAX)

    def _append(self, transaction: EncodedTransaction, staged: Staged) -> None:
        for batch in staged_batches(self._directory, staged):
            partition = self._partition(batch.target)
            transaction.append(partition, batch.data, batch.min_timestamp_ms, self._timeout_ms)

    def _partition(self, target: Target) -> PartitionLog:
        """``TopicNotFound`` if the topic is gone."""
        found = self._partitions.get(target)
        if found is None:
            with suppress(TopicNotFound, InvalidPartition):
                found = self._log.partition(target.topic, target.partition).log
            if found is None or found.topic_id != target.topic_id:
                raise TopicNotFound(
                    f"{target.topic!r} was deleted, or deleted and created again, since its records were staged; "
                    "nothing was written: write again",
                    topic=target.topic, partition=target.partition,
                )  # fmt: skip
            self._partitions[target] = found
        return found

    def _decide(self, transaction: EncodedTransaction) -> None:
        """Commit. An error tells what became of the transaction: who is told of a failure saves again."""
        from pylog.partition.read.undecided import Outcome

        try:
            transaction.commit()
        except own(Exception) as error:
            transaction.close()
            outcome = transaction.outcome()
            if outcome is Outcome.COMMITTED:
                logger.warning("committed, but with an error that stopped the driver from seeing it: %s", error)
                return
            if outcome is Outcome.UNDECIDED:
                raise OutcomeUnknown(
                    f"the disk refuses the decision about this commit ({error}). Repair it: then readers find out what became of "
                    "all its records. Start a query again; look for a save's records before you repeat it",
                    cause=str(error),
                ) from error
            if isinstance(error, OutcomeUnknown):
                raise TransactionAborted(f"nothing was written: {error}", cause=str(error)) from error
            raise

    def _report_repeated(self, batch_id: int, last: int) -> None:
        """Only the last batch comes again after a crash; an earlier one may differ."""
        if batch_id == last:
            logger.info("batch %d of %s is in the log already", batch_id, self._directory.sink_id)
            return
        logger.warning(
            "batch %d of query %s is skipped, the log has its batches up to %d: was its checkpoint set back, or does another "
            "driver run it? What it reads again is written with a new checkpointLocation only",
            batch_id,
            self._directory.sink_id,
            last,
        )

    def _clean(self, batch_id: int) -> None:
        directory = self._directory
        with suppress(FileNotFoundError):  # nothing was staged, or another driver was faster
            now_ns = directory.filesystem.modified_ns(directory.path)
            directory.remove_up_to(batch_id)
            for other in directory.all():
                _remove_leftovers(other, now_ns)


def _remove_leftovers(directory: SinkDirectory, now_ns: int) -> None:
    with suppress(FileNotFoundError):  # its own driver was faster
        directory.remove_leftovers(now_ns)
