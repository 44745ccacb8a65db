"""``__transaction_state``: the durable record of which transactions were decided, and how.

A process reads on from where it stopped. Only commits are remembered: a transaction that is over
and has no record of its commit is aborted. A commit is forgotten after its CompleteCommit, which
its owner writes once all of its markers are durable. So a process that was told "no record" must
look for the marker again: the CompleteCommit may have come between its two looks.
"""

from __future__ import annotations

import logging
import threading  # the application's threads share the index
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pylog.catalog import TopicDescription
from pylog.catalog.topic import OWN_TOPICS_OPTIONS
from pylog.checks import TRANSACTIONS_TOPIC
from pylog.codec.batch import BatchView
from pylog.codec.format import INT64_MAX
from pylog.codec.messages import hash_code
from pylog.errors import NotAppended, OffsetOutOfRange, OutcomeUnknown, StorageError
from pylog.interrupts import own, suppress
from pylog.limits import RECORDS_AT_ONCE
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.model import ProducerRecord
from pylog.partition.partition_log import PartitionLog
from pylog.partition.write.batch_input import encoded_batch
from pylog.storage import LOCK_TIMEOUT_MS, after_fork_in_child
from pylog.transaction.records import Decision, decode, decode_key, encode_key, encode_value
from pylog.transaction.state import Status

logger = logging.getLogger("pylog.transaction")

PATIENCE_MS = 50  # of those who need not decide now: a process that is stopped must not stop them, too


class _Partition:
    """One partition of the table, and how far it was read."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.next_offset = 0
        self.token: object = None


class Found(NamedTuple):
    """A decision and where its record ends: it counts only once that is durable."""

    decision: Decision
    log: PartitionLog
    end_offset: int

    def is_durable(self) -> bool:
        return self.log.durable_offset >= self.end_offset

    def sync(self) -> None:
        """Return when it is durable. ``OutcomeUnknown``, ``ReadOnlyLog``."""
        self.log.sync(self.end_offset, LOCK_TIMEOUT_MS)

    def is_made_durable(self) -> bool:
        """Whether it is durable, after an attempt to make it so. Needs no write permission, and
        raises nothing of the disk's."""
        if self.is_durable():
            return True
        if self.log.is_read_only:
            return self.log.sync_as_reader()
        try:
            self.log.settle(PATIENCE_MS)  # it may be in the end that its writer has not published
            self.log.sync(self.end_offset, PATIENCE_MS)
        except own(NotAppended, OutcomeUnknown, StorageError) as error:
            logger.warning("a decision of %r is not durable yet: %s", self.decision.transactional_id, error)
            return False
        return True


class TransactionTable:
    """The table of one log, and an index of it in memory. Safe to share among threads."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._forget_parent()
        after_fork_in_child(self._forget_parent)

    def _forget_parent(self) -> None:
        self._lock = threading.RLock()
        self._partitions: dict[int, _Partition] = {}
        self._commits: dict[tuple[int, int], Found] = {}  # decided, and markers may be missing
        self._ids: dict[int, str] = {}  # the transactional id of a producer id
        self._latest: dict[str, Decision] = {}

    # Reading

    def commit_of(self, producer_id: int, epoch: int) -> Found | None:
        """The record that this transaction is committed, if there is one now."""
        with self._lock:
            self._catch_up()
            return self._commits.get((producer_id, epoch))

    def settled_commit_of(
        self, transactional_id: str, producer_id: int, epoch: int, timeout_ms: int = LOCK_TIMEOUT_MS
    ) -> Found | None:
        """The same, after what a writer has left in the middle of an append is taken in, or cut.

        The caller holds the id's lock. So if there is no such record now, there will be none: no
        other process writes it. ``DeliveryTimeout``.
        """
        topic = self._topic()
        if topic is not None:
            number = hash_code(transactional_id) % topic.partitions
            self._manager.partition(TRANSACTIONS_TOPIC, number).settle(timeout_ms)
        return self.commit_of(producer_id, epoch)

    def last_commit_of(self, producer_id: int, epoch: int) -> Found | None:
        """The same for a dead owner, without a lock: what it appended last may not be published.

        The next writer takes in the whole batches there.
        """
        with self._lock:
            found = self._unpublished_commit_of(producer_id, epoch)
            return self.commit_of(producer_id, epoch) or found  # in this order: it may have been published meanwhile

    def _unpublished_commit_of(self, producer_id: int, epoch: int) -> Found | None:
        for log in self._logs():
            for decision, end_offset in _unpublished(log):
                if decision.status is Status.PREPARE_COMMIT and decision.transaction == (producer_id, epoch):
                    return Found(decision, log, end_offset)
        return None

    def unfinished_commits(self, transactional_id: str) -> list[Found]:
        """The commits of an id whose markers may not be durable."""
        with self._lock:
            self._catch_up()
            commits = list(self._commits.values())
        return [found for found in commits if found.decision.transactional_id == transactional_id]

    def all_unfinished(self, log: PartitionLog) -> list[Found]:
        """The same of all ids, in one partition of the table."""
        with self._lock:
            self._catch_up()
            commits = list(self._commits.values())
        return [found for found in commits if found.log is log]

    def transactional_id(self, producer_id: int) -> str | None:
        """Whose producer id this is, or was; None if no transactional producer ever had it."""
        with self._lock:
            found = self._ids.get(producer_id)
            if found is None:
                self._catch_up()
                found = self._ids.get(producer_id)
            return found

    def latest(self) -> dict[str, Decision]:
        """The last record of every transactional id."""
        with self._lock:
            self._catch_up()
            return dict(self._latest)

    def _topic(self) -> TopicDescription | None:
        return self._manager.existing_topics([TRANSACTIONS_TOPIC]).get(TRANSACTIONS_TOPIC)

    def _logs(self) -> list[PartitionLog]:
        topic = self._topic()
        return [] if topic is None else [self._partition(topic, number).log for number in topic.numbers]

    def _catch_up(self) -> None:
        for log in self._logs():
            self._read(self._partitions[log.number])

    def _partition(self, topic: TopicDescription, number: int) -> _Partition:
        partition = self._partitions.get(number)
        if partition is None or partition.log.topic_id != topic.id:
            partition = self._partitions[number] = _Partition(self._manager.partition(TRANSACTIONS_TOPIC, number))
        return partition

    def _read(self, partition: _Partition) -> None:
        log = partition.log
        token = log.change_token()
        if token == partition.token:
            return
        try:
            for fetched in log.reader.fetches(partition.next_offset, INT64_MAX):
                for view in fetched.batches:
                    for move in _moves_in(view, log, partition.next_offset):
                        if isinstance(move, Decision):
                            self._apply(log, move, view.header.last_offset + 1)
                        else:
                            self._forget(move)
                partition.next_offset = fetched.cursor.offset
        except own(OffsetOutOfRange) as error:
            if partition.next_offset == error.earliest:
                raise
            self._commits = {name: found for name, found in self._commits.items() if found.log is not log}
            partition.next_offset = error.earliest  # earlier records were deleted, or the disk has lost later ones
            self._read(partition)
        partition.token = token

    def _apply(self, log: PartitionLog, decision: Decision, end_offset: int) -> None:
        name = decision.transaction
        self._ids[decision.producer_id] = decision.transactional_id
        self._latest[decision.transactional_id] = decision
        if decision.status is Status.PREPARE_COMMIT:
            if name not in self._commits:  # the first record counts; another one repeats it
                self._commits[name] = Found(decision, log, end_offset)
        elif decision.status is Status.COMPLETE_COMMIT:
            self._commits.pop(name, None)  # its markers are on the disk

    def _forget(self, transactional_id: str) -> None:
        latest = self._latest.get(transactional_id)
        if latest is None or latest.producer_id < LIKE_KAFKA_BELOW:  # no record of such an id does not mean aborted
            return
        del self._latest[transactional_id]
        self._commits = {
            name: found for name, found in self._commits.items() if found.decision.transactional_id != transactional_id
        }

    # Writing

    def number_of(self, transactional_id: str) -> int:
        """The partition of an id. The topic is there."""
        topic = self._topic()
        assert topic is not None
        return hash_code(transactional_id) % topic.partitions

    def settle(self, transactional_id: str, timeout_ms: int) -> None:
        """Publish or cut what a dead process has left at the end. ``DeliveryTimeout``."""
        self._manager.partition(TRANSACTIONS_TOPIC, self.number_of(transactional_id)).settle(timeout_ms)

    def forget(self, transactional_id: str, check_process: Callable[[], object]) -> None:
        """Append a tombstone. ``check_process``: as for ``append``."""
        self._append(transactional_id, [ProducerRecord(None, encode_key(transactional_id))], check_process, PATIENCE_MS)

    def append(
        self,
        transactional_id: str,
        decisions: Iterable[Decision],
        check_process: Callable[[], object],
        timeout_ms: int = LOCK_TIMEOUT_MS,
    ) -> Found:
        """Append these records of one id, all or none. Visible on return, not durable.

        ``check_process`` fails in a child of the process that holds the id's lock. Raises as
        ``PartitionLog.append_batch``.
        """
        decisions = list(decisions)
        records = [ProducerRecord(encode_value(each), encode_key(each.transactional_id)) for each in decisions]
        return Found(decisions[-1], *self._append(transactional_id, records, check_process, timeout_ms))

    def _append(
        self,
        transactional_id: str,
        records: list[ProducerRecord],
        check_process: Callable[[], object],
        timeout_ms: int,
    ) -> tuple[PartitionLog, int]:
        topic = self._topic()
        if topic is None:
            topic = self._manager.create_topic(
                TRANSACTIONS_TOPIC, 1, OWN_TOPICS_OPTIONS, if_not_exists=True, internal=True
            )
        with self._lock:
            log = self._partition(topic, hash_code(transactional_id) % topic.partitions).log
        batch, least_ms = encoded_batch(records, topic.config.max_message_bytes, self._manager.clock.now_ms())
        process_id = self._manager.filesystem.process_id()  # a child forked before it fails the check
        check_process()
        appended = log.append_batch(batch, timeout_ms=timeout_ms, min_timestamp_ms=least_ms, process_id=process_id)
        return log, appended.last_offset + 1


def decisions_in(view: BatchView, log: PartitionLog, offset: int = 0) -> Iterator[Decision]:
    """The decisions in a batch, from ``offset`` on. ``CorruptRecord`` if it is damaged: then
    nothing may be decided."""
    return (move for move in _moves_in(view, log, offset) if isinstance(move, Decision))


def _moves_in(view: BatchView, log: PartitionLog, offset: int) -> Iterator[Decision | str]:
    """The decisions in a batch, and the ids that are forgotten."""
    decoder = view.decoder(TRANSACTIONS_TOPIC, log.number)
    decoder.skip_to(offset)
    while records := decoder.take(RECORDS_AT_ONCE):
        for record in records:
            decision = decode(record.key, record.value)
            if decision is not None:
                yield decision
            elif record.value is None:
                yield decode_key(record.key)


def _unpublished(log: PartitionLog) -> Iterator[tuple[Decision, int]]:
    """The decisions in whole batches after the published end, each with the offset after its
    batch."""
    with suppress(FileNotFoundError):  # a roll, which publishes first
        for view in log.unpublished_batches():
            for decision in decisions_in(view, log, view.header.base_offset):
                yield decision, view.header.last_offset + 1
