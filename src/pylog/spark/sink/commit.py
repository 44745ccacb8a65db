"""The driver's part of a sink: each micro-batch, and each ``save``, is one transaction.

A query's transactional id is ``spark:<query id>``, and so is its group, for which the transaction
commits the next batch's number. So the log says which batch comes next, and a later driver of the
query fences the earlier one, in the middle of a commit. A save happens once, and needs no number:
it takes the first of the ids ``spark:save-0``, ``spark:save-1``, … that no other save holds now. An
id for each save would leave a directory and a record for each, forever.

The driver sets the producer and the sequences of the staged batches, and computes their CRC again
(15 GB/s): with ids of the tasks every partition would have to remember each attempt as a producer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import TYPE_CHECKING

from pylog.codec.format import INT32_MAX
from pylog.errors import InvalidPartition, OutcomeUnknown, PylogError, TopicNotFound, TransactionAborted
from pylog.interrupts import own, suppress
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.earlier_builds import finish_earlier
from pylog.spark.sink.staging import Part, Staged, Target, parts_of

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.model import TopicPartition
    from pylog.partition.partition_log import PartitionLog
    from pylog.producer.encoded import EncodedProducer

logger = logging.getLogger("pylog.spark")

TIMEOUT_MS = 60_000
SLOW_DISK_BYTES_PER_MS = 10_000
"""A live driver's transaction is not aborted while a disk as slow as this takes all of it."""


class SinkCommit:
    """Commits for one sink. It keeps the log open, and a query's transactional id, until it is
    closed: opening them for each micro-batch made that three times as long."""

    def __init__(self, log: Log, directory: SinkDirectory, timeout_ms: int) -> None:
        self._log = log
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._partitions: dict[Target, PartitionLog] = {}
        self._producer: EncodedProducer | None = None  # of a query, after its first commit

    def commit(self, batch_id: int, files: Sequence[Staged]) -> None:
        """On return the files' records are in the log and durable. A batch in the log is skipped.

        ``OutcomeUnknown``: the commit is not decided for now. After any other error nothing is in
        the log, nor will be. ``ProducerFenced``: another driver of this query has begun a commit.
        After an error only ``close`` can follow.
        """
        finish_earlier(self._log, self._directory, self._timeout_ms)
        self._partitions.clear()
        if files and self._directory.is_save:
            self._write_save(files)
        elif files:
            self._write_batch(batch_id, files)
        try:
            self._clean(batch_id)
        except own(PylogError) as error:  # the commit itself stands
            logger.warning("staged files are left for a later commit: %s", error)

    def is_owner(self) -> bool:
        """Whether no other process has committed for this query since this one did."""
        return self._producer is not None and self._producer.is_owner()

    def close(self) -> None:
        self._give_up_id()
        self._log.close()

    def _give_up_id(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _taken_over(self, name: str, files: Sequence[Staged]) -> EncodedProducer:
        """The producer with this id, with time enough for these files."""
        from pylog.producer.encoded import EncodedProducer

        size_bytes = sum(staged.size_bytes for staged in files)
        timeout_ms = max(TIMEOUT_MS, 2 * self._timeout_ms) + size_bytes // SLOW_DISK_BYTES_PER_MS
        if self._producer is None or self._producer.timeout_ms < timeout_ms:
            self._give_up_id()
            self._producer = EncodedProducer(self._log.manager, name, min(timeout_ms, INT32_MAX))
        return self._producer

    def _write_save(self, files: Sequence[Staged]) -> None:
        with self._id_of_save() as name:
            try:
                self._write(self._taken_over(name, files), files)
            finally:
                self._give_up_id()

    def _write_batch(self, batch_id: int, files: Sequence[Staged]) -> None:
        from pylog.group.position import POSITION, next_batch

        name = f"spark:{self._directory.sink_id}"
        producer = self._taken_over(name, files)
        expected = next_batch(self._log.manager, name) or 0
        if batch_id < expected:
            self._report_repeated(batch_id, expected - 1)
        else:
            self._write(producer, files, {POSITION: batch_id + 1})

    def _write(
        self, producer: EncodedProducer, files: Sequence[Staged], offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        parts: dict[Target, list[Part]] = {}
        for staged in files:
            for part in parts_of(self._directory, staged):
                parts.setdefault(part.target, []).append(part)
        found = {self._partition(target): self._batches(some) for target, some in parts.items()}
        producer.begin()
        try:
            producer.append(found, self._timeout_ms, sum(staged.size_bytes for staged in files))
        except own(OutcomeUnknown) as error:
            raise _never_written(error) from error
        if offsets is not None:
            producer.send_offsets(offsets, f"spark:{self._directory.sink_id}")
        self._decide(producer)

    def _batches(self, parts: Sequence[Part]) -> Iterator[tuple[bytearray, int]]:
        for part in parts:
            yield from part.batches(self._directory)

    @contextmanager
    def _id_of_save(self) -> Iterator[str]:
        """A transactional id that is this save's as long as its lock is held."""
        directory = self._directory
        for number in count():
            with closing(directory.filesystem.lock(f"{directory.sinks}/save-{number}.lock")) as lock:
                if lock.try_acquire():
                    yield f"spark:save-{number}"
                    return

    def _partition(self, target: Target) -> PartitionLog:
        """Return the partition. Raises ``TopicNotFound`` if the topic is gone."""
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

    def _decide(self, producer: EncodedProducer) -> None:
        """Commit. An error tells what became of the transaction: who is told of a failure saves
        again."""
        from pylog.partition.read.undecided import Outcome

        try:
            producer.commit()
        except own(Exception) as error:
            self._give_up_id()
            outcome = producer.outcome()
            if outcome is Outcome.COMMITTED:
                logger.warning("committed, but with an error that stopped the driver from seeing it: %s", error)
                return
            if outcome is Outcome.UNDECIDED:
                raise OutcomeUnknown(
                    f"this commit is not decided yet: {error}. Put that right: then it is in the log as a whole, or not at all. "
                    "Start a query again; look for a save's records before you repeat it",
                    cause=str(error),
                ) from error
            if isinstance(error, OutcomeUnknown):
                raise _never_written(error) from error
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


def _never_written(error: OutcomeUnknown) -> TransactionAborted:
    return TransactionAborted(f"nothing was written: {error}", cause=str(error))


def _remove_leftovers(directory: SinkDirectory, now_ns: int) -> None:
    with suppress(FileNotFoundError):  # its own driver was faster
        directory.remove_leftovers(now_ns)
