"""Appends a commit's batches to the partitions, each once, even if the commit is retried.

A partition records the next sequence of the sink's producer, which shows what is in the log. If it
has forgotten that producer (a day without a batch, or many thousands of other producers), the
headers after the partition's end at the time of the decision show it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pylog.codec.batch import number
from pylog.codec.format import MAX_SEQUENCE
from pylog.errors import CorruptSegment, InvalidPartition, NotAppended, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.intents import Intent, Share
from pylog.spark.sink.staging import Staged, StagedBatch, Target, staged_batches

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.spark")

PRODUCER_EPOCH = 0


def prepare(
    log: Log, directory: SinkDirectory, batch_id: int, producer_id: int, files: Iterable[Staged], timeout_ms: int
) -> Intent:
    """The intent for a commit of these files. Reads them all: damage is found before the decision.

    ``CorruptSegment``; ``TopicNotFound`` if a topic is gone; a kind of ``NotAppended``.
    """
    files = tuple(files)
    records: dict[Target, int] = {}
    for batch in _batches(directory, files):
        records[batch.target] = records.get(batch.target, 0) + batch.header.count
    shares = []
    for target, count in records.items():
        if count > MAX_SEQUENCE:
            raise NotAppended(
                f"{count} records for {target.topic}-{target.partition} in one commit, {MAX_SEQUENCE} are possible: write "
                "them in several",
                topic=target.topic, partition=target.partition,
            )  # fmt: skip
        partition = _partition(log, target)
        if partition is None:
            raise TopicNotFound(
                f"{target.topic!r} was deleted, or deleted and created again, since its records were staged; "
                "nothing was written: write again",
                topic=target.topic, partition=target.partition,
            )  # fmt: skip
        first = partition.next_sequence(producer_id, timeout_ms) or 0
        shares.append(Share(target, first, count, partition.latest_offset))
    return Intent(batch_id, producer_id, files, tuple(shares))


def _batches(directory: SinkDirectory, files: Iterable[Staged]) -> Iterator[StagedBatch]:
    for staged in files:
        yield from staged_batches(directory, staged)


def _partition(log: Log, target: Target) -> PartitionLog | None:
    """The partition; None if its topic is gone."""
    try:
        partition = log.partition(target.topic, target.partition).log
    except own(TopicNotFound, InvalidPartition):
        return None
    return partition if partition.topic_id == target.topic_id else None


class Publication:
    """One attempt to append a commit."""

    def __init__(self, log: Log, directory: SinkDirectory, intent: Intent, timeout_ms: int) -> None:
        self._log = log
        self._directory = directory
        self._intent = intent
        self._timeout_ms = timeout_ms
        self.may_have_begun = False  # whether records may be in the log

    def run(self, *, again: bool) -> None:
        """Append what is not in the log yet, and sync it. ``again``: it may have begun before.

        Records for a topic that was deleted since the decision are dropped.
        """
        self.may_have_begun = again
        parts = {share.target: self._part(share, again) for share in self._intent.shares}
        for batch in _batches(self._directory, self._intent.files):
            part = parts.get(batch.target)
            if part is None:
                raise self._disagreement(
                    f"{batch.target.topic}-{batch.target.partition} is in a file and not in the commit"
                )
            self._append(part, batch)
        for part in parts.values():
            self._sync(part)

    def _part(self, share: Share, again: bool) -> _PartitionPart:
        partition = _partition(self._log, share.target)
        if partition is None:
            _warn_of_deletion(share)
            return _PartitionPart(share, None, 0)
        there = self._records_there(partition, share) if again else 0
        return _PartitionPart(share, partition, there)

    def _records_there(self, partition: PartitionLog, share: Share) -> int:
        """How many of the share's records are in the log."""
        producer_id = self._intent.producer_id
        expected = partition.next_sequence(producer_id, self._timeout_ms)
        if expected is None:
            expected = _after_last_found(partition, producer_id, share)
        there = (expected - share.first_sequence) & MAX_SEQUENCE
        if there > share.records:
            raise self._disagreement(
                f"{share.target.topic}-{share.target.partition} expects sequence {expected} of producer {producer_id}, the "
                f"commit has {share.records} from {share.first_sequence} on"
            )
        return there

    def _append(self, part: _PartitionPart, batch: StagedBatch) -> None:
        passed = part.passed
        part.passed += batch.header.count
        if part.partition is None or passed < part.there:
            return
        sequence = (part.share.first_sequence + passed) & MAX_SEQUENCE
        number(batch.data, self._intent.producer_id, PRODUCER_EPOCH, sequence)
        had_begun, self.may_have_begun = self.may_have_begun, True
        try:
            result = part.partition.append_batch(
                batch.data, timeout_ms=self._timeout_ms, min_timestamp_ms=batch.min_timestamp_ms
            )
        except own(PylogError) as error:
            self.may_have_begun = had_begun or not isinstance(error, NotAppended)
            if not self._is_gone(part):
                raise
            return
        part.end_offset = result.last_offset + 1

    def _sync(self, part: _PartitionPart) -> None:
        if part.partition is None or part.end_offset < 0:
            return
        try:
            part.partition.sync(part.end_offset)
        except own(PylogError):
            if not self._is_gone(part):
                raise

    def _is_gone(self, part: _PartitionPart) -> bool:
        """Whether the topic was deleted just now; then its part is dropped."""
        if _partition(self._log, part.share.target) is not None:
            return False
        _warn_of_deletion(part.share)
        part.partition = None
        return True

    def _disagreement(self, problem: str) -> CorruptSegment:
        return CorruptSegment(
            f"{self._directory.intent} does not fit the log: {problem}. Was one of them restored from a copy, without the other? "
            "Move the file away to give that commit up",
            path=self._directory.intent, position=0,
        )  # fmt: skip


class _PartitionPart:
    """A publication's records for one partition; its partition is None if the topic is gone."""

    def __init__(self, share: Share, partition: PartitionLog | None, there: int) -> None:
        self.share = share
        self.partition = partition
        self.there = there  # this many records are in the log already
        self.passed = 0  # this many are done
        self.end_offset = -1 if partition is None or not there else partition.latest_offset


def _warn_of_deletion(share: Share) -> None:
    logger.warning(
        "%s was deleted since a commit to it was decided; its %d records go with it", share.target.topic, share.records
    )


def _after_last_found(partition: PartitionLog, producer_id: int, share: Share) -> int:
    """The sequence after the producer's last batch since the share's start; else its first."""
    expected = share.first_sequence
    for view in partition.batches(max(share.start_offset, partition.earliest_offset), partition.latest_offset):
        if view.header.producer_id == producer_id:
            expected = (view.header.last_sequence + 1) & MAX_SEQUENCE
    return expected
