"""``__transaction_state``: the durable record of which transactions were decided, and how.

A process reads on from where it stopped. Only commits are remembered: a transaction that is over
and has no record of its commit is aborted.
"""

from __future__ import annotations

import threading  # the application's threads share the index
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pylog.catalog import TopicConfig, TopicDescription
from pylog.codec.format import INT64_MAX
from pylog.codec.messages import hash_code
from pylog.errors import OffsetOutOfRange
from pylog.interrupts import own
from pylog.limits import RECORDS_AT_ONCE
from pylog.manager.manager import LogManager
from pylog.model import ProducerRecord
from pylog.partition.partition_log import PartitionLog
from pylog.partition.write.batch_input import encoded_batch
from pylog.storage import after_fork_in_child
from pylog.transaction.records import TRANSACTIONS_TOPIC, Decision, decode, encode_key, encode_value
from pylog.transaction.state import Status

TIMEOUT_MS = 30_000
_CONFIG = TopicConfig()._asdict()  # independent of the log's defaults


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
        if not self.is_durable():
            self.log.sync(self.end_offset, TIMEOUT_MS)


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

    def _catch_up(self) -> None:
        topic = self._manager.existing_topics([TRANSACTIONS_TOPIC]).get(TRANSACTIONS_TOPIC)
        for number in topic.numbers if topic is not None else ():
            assert topic is not None
            self._read(self._partition(topic, number))

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
                    decoder = view.decoder(TRANSACTIONS_TOPIC, log.number)
                    decoder.skip_to(partition.next_offset)
                    while records := decoder.take(RECORDS_AT_ONCE):
                        for record in records:
                            self._apply(log, record.key, record.value, view.header.last_offset + 1)
                partition.next_offset = fetched.cursor.offset
        except own(OffsetOutOfRange) as error:
            if partition.next_offset == error.earliest:
                raise
            partition.next_offset = error.earliest  # earlier records were deleted
            self._read(partition)
        partition.token = token

    def _apply(self, log: PartitionLog, key: bytes | None, value: bytes | None, end_offset: int) -> None:
        """Take in one record. ``CorruptRecord`` if it is damaged: then nothing may be decided."""
        decision = decode(key, value)
        if decision is None:
            return
        name = decision.producer_id, decision.epoch
        self._ids[decision.producer_id] = decision.transactional_id
        self._latest[decision.transactional_id] = decision
        if decision.status is Status.PREPARE_COMMIT:
            self._commits[name] = Found(decision, log, end_offset)
        elif decision.status is Status.COMPLETE_COMMIT:
            self._commits.pop(name, None)  # its markers are on the disk: nobody asks again

    # Writing

    def append(self, transactional_id: str, decisions: Iterable[Decision], check_held: Callable[[], object]) -> Found:
        """Append these records of one id, all or none. Visible on return, not durable.

        ``check_held`` verifies that the caller holds the id's lock. Raises as ``PartitionLog.append_batch``.
        """
        decisions = list(decisions)
        topic = self._manager.existing_topics([TRANSACTIONS_TOPIC]).get(TRANSACTIONS_TOPIC)
        if topic is None:
            topic = self._manager.create_topic(TRANSACTIONS_TOPIC, 1, _CONFIG, if_not_exists=True, internal=True)
        log = self._manager.partition(TRANSACTIONS_TOPIC, hash_code(transactional_id) % topic.partitions)
        records = [ProducerRecord(encode_value(each), encode_key(each.transactional_id)) for each in decisions]
        batch, least_ms = encoded_batch(records, topic.config.max_message_bytes, self._manager.clock.now_ms())
        process_id = self._manager.filesystem.process_id()  # a child forked before it fails the check
        check_held()
        appended = log.append_batch(batch, timeout_ms=TIMEOUT_MS, min_timestamp_ms=least_ms, process_id=process_id)
        return Found(decisions[-1], log, appended.last_offset + 1)
