"""What a live producer does with its transactional id.

Each incarnation has a lock file, which shows that it lives, and a producer id of its own. So its
transactions never mix with those of the incarnation before, which may still wait for their markers.
Every change of the state happens under the id's lock, after a check that this is still the owner.

A transaction is ongoing only once its first batch must be written: until then ``begin`` is the
producer's own affair.
"""

from __future__ import annotations

import logging
import threading  # two threads may send and commit
from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from pylog.errors import (
    CorruptSegment,
    ForkedHandle,
    InvalidPartition,
    InvalidTransactionState,
    NotAppended,
    ProducerFenced,
    PylogError,
    StorageError,
    TopicNotFound,
    TransactionAborted,
)
from pylog.interrupts import own, suppress
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.model import TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.storage import LOCK_TIMEOUT_MS, FileLock, holding, while_holding
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.records import Decision
from pylog.transaction.state import ABORTS, LATENESS, OWNER_BYTES, Status, TransactionState
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import PATIENCE_MS, Found, TransactionTable
from pylog.transaction.unfinished import UnfinishedCommits

logger = logging.getLogger("pylog.transaction")

T = TypeVar("T")

_COMPLETE = {Status.PREPARE_COMMIT: Status.COMPLETE_COMMIT, Status.PREPARE_ABORT: Status.COMPLETE_ABORT}

Decide = Callable[[], None]


class TransactionOwner:
    """One incarnation of a transactional producer. For one thread, but for ``require_ongoing``."""

    def __init__(self, manager: LogManager, transactional_id: str, timeout_ms: int) -> None:
        """Take the id over, and fence the owner before. ``LogLocked`` after 30 s."""
        self._manager = manager
        self._filesystem = manager.filesystem
        self._clock = manager.clock
        self._table = manager.part(TransactionTable)
        self._directory = TransactionDirectory.of(manager.filesystem, manager.layout, transactional_id, manager.boot)
        self._timeout_ms = timeout_ms
        self._process_id = manager.filesystem.process_id()
        self._started_ms = 0
        self._unfinished = UnfinishedCommits()
        self._prepared = (-1, -1)  # the transaction whose commit may be in the table
        self._owner = self._filesystem.random_bytes(OWNER_BYTES)
        self._alive: FileLock | None = None
        self._lock = self._directory.open_lock()
        self._lock_is_used = threading.Lock()  # two uses of one descriptor would not exclude each other
        self._file: StateFile
        try:
            self._state = self._hold_first()
            self._finish_others()
        except BaseException:
            self.close()
            raise

    def _hold_first(self) -> TransactionState:
        """Take over, with the lock that is in place: an expiry removes it with the directory."""

        def take_over() -> TransactionState | None:
            return self._take_over() if self._lock.is_in_place() else None

        while (state := holding(self._lock, self._directory.lock, self._filesystem, self._clock, take_over)) is None:
            self._lock.close()
            self._lock = self._directory.open_lock()
        return state

    def _take_over(self) -> TransactionState:
        self._file = StateFile(self._filesystem.open_appendable(self._directory.state, create=True), self._manager.boot)
        path = self._directory.owner(self._owner)
        # Locked while the id's lock is held: no other process takes it for a dead owner's.
        self._alive = self._filesystem.lock(path, readable=True)
        if not self._alive.try_acquire():
            raise StorageError(f"{path} was made just now, and another process has locked it", path=path)
        state = self._with_new_id()
        self._publish(state)  # from here on, the table decides what the owner before has left
        others = [owner for owner in self._directory.owners() if owner != self._owner]
        if others:
            self._take_in_batches()
        for owner in others:
            if not self._directory.is_alive(owner):
                with suppress(FileNotFoundError, StorageError):  # the next owner tries again
                    self._filesystem.remove(self._directory.owner(owner))
        return state

    def _take_in_batches(self) -> None:
        """Publish what an owner before has only written: a transaction that is one batch.

        Else the next append would publish it, after this program has looked how far that one came.
        """
        for topic in self._manager.topics():
            try:
                for number in self._manager.describe_topic(topic).numbers:
                    log = self._manager.partition(topic, number)
                    if self._has_left_batches(log):
                        log.settle(LOCK_TIMEOUT_MS)
            except own(TopicNotFound, InvalidPartition):
                pass  # it was deleted meanwhile
            except own(CorruptSegment) as error:
                logger.warning("%r: batches of an earlier owner stay hidden: %s", self.transactional_id, error)

    def _has_left_batches(self, log: PartitionLog) -> bool:
        with suppress(FileNotFoundError):  # a roll, which publishes first
            return any(
                self._table.transactional_id(view.header.producer_id) == self.transactional_id
                for view in log.unpublished_batches()
            )
        return False

    @property
    def transactional_id(self) -> str:
        return self._directory.transactional_id

    @property
    def producer_id(self) -> int:
        return self._state.producer_id

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def is_ongoing(self) -> bool:
        return self._state.status is Status.ONGOING

    # Moves

    def start(self) -> None:
        """Make a transaction ongoing, with the next epoch. Visible on return."""
        self._holding(self._start)

    def _start(self) -> None:
        state = self._mine()
        begun = state.begun(self._now_ms())
        if begun is None:  # no epoch is left
            begun = self._with_new_id().begun(self._now_ms())
            assert begun is not None
        self._started_ms = self._clock.now_ms()
        self._state = self._publish(begun)

    def require_ongoing(self, producer_id: int, epoch: int) -> None:
        """Called for each append, with the partition's lock: this transaction is still ongoing.

        ``ProducerFenced``, ``TransactionAborted``. Without this check, a fenced producer could
        write to a partition that no later transaction touches, and it would stay open there.
        """
        found = self._file.read()
        if found is None or found.owner != self._owner:
            raise self._fenced(found)
        if not found.is_of(producer_id, epoch):
            raise TransactionAborted(
                f"the transaction of this record is over: {self.transactional_id!r} has begun another one",
                transactional_id=self.transactional_id, producer_epoch=epoch, current_epoch=found.epoch,
            )  # fmt: skip
        if found.status is not Status.ONGOING:
            raise self._aborted(found)

    def keep_alive(self) -> None:
        """Record that it appends, long before the timeout of its last appends is over."""
        now_ms = self._now_ms()
        if self.is_ongoing and now_ms - self._state.active_ms > self._timeout_ms // LATENESS:
            self._holding(lambda: self._move(self._mine()._replace(active_ms=now_ms)))

    def commit(self, partitions: Collection[TopicPartition], around: Callable[[Decide], object]) -> None:
        """Decide: committed, durably on return. The transaction's records are durable before.

        ``around`` is called with the id's lock, and calls its argument to decide, or raises: it may
        hold other locks meanwhile. It is not asked again if an exception has ended the decision and
        its record is there. The markers come next: see ``complete``. After an exception,
        ``may_be_committed`` tells whether anything but a repeat can follow.
        """

        def decide() -> None:
            if self.may_be_committed:
                found = self._table.settled_commit_of(self.transactional_id, *self._state[:2])
                if found is not None:  # it is committed, even if another owner has taken over since
                    found.sync()
                    if self.is_ongoing:
                        self._state = self._state.moved(Status.PREPARE_COMMIT)
                    return
            state = self._mine()
            self._prepared = (-1, -1)  # an earlier call has left nothing, and no other process commits it
            if state.status is not Status.ONGOING:
                raise self._aborted(state)
            around(partial(self._prepare_commit, state, partitions))

        self._holding(decide)

    @property
    def may_be_committed(self) -> bool:
        """Whether a call of ``commit`` that raised has, or may have, recorded the decision."""
        return self._prepared == self._state[:2]

    def _prepare_commit(self, state: TransactionState, partitions: Collection[TopicPartition]) -> None:
        prepared = state.moved(Status.PREPARE_COMMIT)
        self._prepared = state[:2]
        try:
            found = self._append(prepared, partitions)
        except own(NotAppended):
            self._prepared = (-1, -1)  # nor has a call before left anything
            raise
        found.sync()
        self._state = prepared  # it is, whatever fails from here on
        self._publish_decision(prepared)

    def abort(self, partitions: Collection[TopicPartition]) -> None:
        """Decide: aborted. It may be so already, after a timeout."""

        def decide() -> None:
            state = self._mine()
            if self.may_be_committed:
                raise InvalidTransactionState(
                    f"the commit of {self.transactional_id!r} was begun, and its record may survive: it can only be "
                    "repeated; call commit_transaction again",
                    transactional_id=self.transactional_id, status=state.status.name,
                )  # fmt: skip
            if state.status is not Status.ONGOING:
                self._state = state
                return
            self._move(state.moved(Status.PREPARE_ABORT))
            with suppress(PylogError):  # the record is only for people: no record means aborted
                self._append(self._state, partitions)

        self._holding(decide)

    def complete(self, marked: Collection[tuple[PartitionLog, int]]) -> None:
        """The markers of the decided transaction are in every partition, before these offsets."""

        def end() -> None:
            self._mine()
            decided = self._state  # the file may not have it, if the disk refused
            if decided.status in _COMPLETE:
                self._move(decided.moved(_COMPLETE[decided.status]))

        if self._state.status is Status.PREPARE_COMMIT:
            self._unfinished.add(self._state[:2], marked)
        self._holding(end)

    def _finish_others(self) -> None:
        """Write the missing markers of owners before: the table can forget their commits then."""
        for found in self._table.unfinished_commits(self.transactional_id):
            producer_id, epoch, partitions = found.decision.producer_id, found.decision.epoch, found.decision.partitions
            marked = []
            found.sync()  # else its records, and its offsets, might count later and not now
            try:
                for name in partitions:
                    with suppress(TopicNotFound, InvalidPartition):
                        log = self._manager.partition(*name)
                        log.append_marker(producer_id, epoch, committed=True, timeout_ms=PATIENCE_MS)
                        marked.append((log, log.latest_offset))
            except own(PylogError) as error:
                logger.warning("%r: markers of an earlier owner are missing for now: %s", self.transactional_id, error)
            else:
                self._unfinished.add((producer_id, epoch), marked)

    def holding(self, work: Callable[[], T]) -> T:
        """The result of ``work``, called with the id's lock while no transaction is ongoing.

        ``ProducerFenced``.
        """

        def checked() -> T:
            self._mine()
            return work()

        return self._holding(checked)

    # Parts

    def _holding(self, work: Callable[[], T]) -> T:
        def checked() -> T:
            if not self._lock.is_in_place():  # the id's directory was removed: its next owner has another lock
                raise self._fenced(None)
            return work()

        self.check_process()
        if not self._lock_is_used.acquire(blocking=False):  # by another thread, or further up the stack
            return while_holding(self._filesystem, self._clock, self._directory.lock, checked)
        try:
            return holding(self._lock, self._directory.lock, self._filesystem, self._clock, checked)
        finally:
            self._lock_is_used.release()

    def _publish_decision(self, state: TransactionState) -> None:
        """Publish what the table has durably. If that fails, others still find it in the table."""
        try:
            self._publish(state)
        except own(StorageError) as error:
            self.check_process()
            logger.warning(
                "%r: its commit is in the table, and not in its state file: %s", self.transactional_id, error
            )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _mine(self) -> TransactionState:
        """The published state. ``ProducerFenced`` if it has another owner."""
        state = self._file.read()
        if state is None or state.owner != self._owner:
            raise self._fenced(state)
        return state

    def _with_new_id(self) -> TransactionState:
        """EMPTY, with a producer id that the table knows as this transactional id's."""
        state = TransactionState(
            self._manager.next_producer_id(), 0, Status.EMPTY, self._owner, self._timeout_ms, self._now_ms()
        )
        found = self._append(state, frozenset())
        if state.producer_id < LIKE_KAFKA_BELOW:
            found.sync()  # else a transaction of an id like Kafka's would never be decided
        return state

    def _move(self, state: TransactionState) -> None:
        self._state = self._publish(state)

    def _publish(self, state: TransactionState) -> TransactionState:
        """A child forked from here on has lost the file."""
        self.check_process()
        return self._file.publish(state)

    def _append(self, state: TransactionState, partitions: Collection[TopicPartition]) -> Found:
        now_ms = self._clock.now_ms()
        finished = self._unfinished.finished()
        start_ms = -1 if state.status is Status.EMPTY else self._started_ms
        decision = partial(Decision, self.transactional_id, timeout_ms=self._timeout_ms, update_ms=now_ms)
        decisions = [
            *(
                decision(*name, status=Status.COMPLETE_COMMIT, partitions=frozenset(), start_ms=now_ms)
                for name in finished
            ),
            decision(*state[:2], status=state.status, partitions=frozenset(partitions), start_ms=start_ms),
        ]
        found = self._table.append(self.transactional_id, decisions, self.check_process)
        self._unfinished.forget(finished)
        return found

    def check_process(self) -> None:
        """Raises ``ForkedHandle`` in a forked child: the id is its parent's."""
        if self._process_id != self._filesystem.process_id():
            raise ForkedHandle(
                f"the transactional id {self.transactional_id!r} is the parent process's; open another producer in the child",
                transactional_id=self.transactional_id,
            )

    def _fenced(self, found: TransactionState | None) -> ProducerFenced:
        return ProducerFenced(
            f"another producer with transactional_id={self.transactional_id!r} has taken over: close this one",
            transactional_id=self.transactional_id, producer_id=self._state.producer_id, producer_epoch=self._state.epoch,
            current_producer_id=-1 if found is None else found.producer_id,
            current_epoch=-1 if found is None else found.epoch,
        )  # fmt: skip

    def _aborted(self, found: TransactionState) -> TransactionAborted | InvalidTransactionState:
        if found.status in ABORTS:
            return TransactionAborted(
                f"the transaction of {self.transactional_id!r} was aborted by another thread or process, for example since it "
                f"appended nothing for {self._timeout_ms} ms (transaction_timeout_ms); call abort_transaction, and "
                "repeat its work",
                transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms,
            )  # fmt: skip
        return InvalidTransactionState(
            f"the transaction of {self.transactional_id!r} is {found.status.name}, not ONGOING",
            transactional_id=self.transactional_id, status=found.status.name,
        )  # fmt: skip

    def close(self, *, is_settled: bool = True) -> None:
        """Free the lock file: what is ongoing counts as left by a dead owner from here on.

        Unless all is settled, the file stays, and the next owner looks what this one has left.
        """
        with suppress(FileNotFoundError, StorageError):
            if is_settled and self._process_id == self._filesystem.process_id():
                self._filesystem.remove(self._directory.owner(self._owner))
        if self._alive is not None:
            self._alive.close()
        self._lock.close()
