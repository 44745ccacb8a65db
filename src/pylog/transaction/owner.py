"""What a live producer does with its transactional id.

Each incarnation has a lock file, which shows that it lives, and a producer id of its own. So its
transactions never mix with those of the incarnation before, which may still wait for their markers.
Every change of the state happens under the id's lock, after a check that this is still the owner.

A transaction is ongoing only once its first batch must be written: until then ``begin`` is the
producer's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pylog.errors import ForkedHandle, InvalidTransactionState, ProducerFenced, StorageError, TransactionAborted
from pylog.manager.manager import LogManager
from pylog.model import TopicPartition
from pylog.storage import FileLock, while_holding
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.records import Decision
from pylog.transaction.state import ABORTS, OWNER_BYTES, Status, TransactionState
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import Found, TransactionTable

T = TypeVar("T")

Decide = Callable[[], None]


def _at_once(decide: Decide) -> None:
    decide()


class TransactionOwner:
    """One incarnation of a transactional producer. For one thread at a time, but for ``require_ongoing``."""

    def __init__(self, manager: LogManager, transactional_id: str, timeout_ms: int) -> None:
        """Take the id over: the owner before is fenced. ``LogLocked`` if its lock is not free in 30 s."""
        self._manager = manager
        self._filesystem = manager.filesystem
        self._clock = manager.clock
        self._table = manager.part(TransactionTable)
        self._directory = TransactionDirectory.of(manager.filesystem, manager.layout, transactional_id, manager.boot)
        self._timeout_ms = timeout_ms
        self._process_id = manager.filesystem.process_id()
        self._started_ms = 0
        self._prepared = (-1, -1)  # the transaction whose commit was begun
        self._directory.make()
        self._owner = self._filesystem.random_bytes(OWNER_BYTES)
        self._alive: FileLock | None = None
        self._file = StateFile(self._filesystem.open_appendable(self._directory.state), manager.boot)
        try:
            self._state = self._holding(self._take_over)
        except BaseException:
            self.close()
            raise

    def _take_over(self) -> TransactionState:
        self._alive = self._filesystem.lock(self._directory.owner(self._owner), readable=True)
        self._alive.try_acquire()  # with the id's lock, so nobody takes it for a dead owner's
        state = TransactionState(
            self._manager.next_producer_id(), 0, Status.EMPTY, self._owner, self._timeout_ms, self._now_ms()
        )
        self._append(state, frozenset())
        self._file.publish(state)  # from here on, the table decides what the owner before has left
        for owner in self._directory.owners():
            if owner != self._owner and not self._directory.is_alive(owner):
                with suppress(FileNotFoundError, StorageError):  # the next owner tries again
                    self._filesystem.remove(self._directory.owner(owner))
        return state

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
            state = state._replace(producer_id=self._manager.next_producer_id(), epoch=0, status=Status.EMPTY)
            self._append(state, frozenset())
            begun = state.begun(self._now_ms())
            assert begun is not None
        self._started_ms = self._clock.now_ms()
        self._state = self._file.publish(begun)

    def require_ongoing(self) -> None:
        """Called for each append, with the partition's lock: this very transaction is still ongoing.

        ``ProducerFenced``, ``TransactionAborted``. Without this check, a fenced producer could write to a
        partition that no later transaction touches, and nobody would end that transaction.
        """
        found = self._file.read()
        if found is None or not found.is_of(self._state.producer_id, self._state.epoch):
            raise self._fenced(found)
        if found.status is not Status.ONGOING:
            raise self._aborted(found)

    def keep_alive(self) -> None:
        """Record that it appends, long before the timeout of its last appends is over."""
        now_ms = self._now_ms()
        if self.is_ongoing and now_ms - self._state.active_ms > self._timeout_ms // 4:
            self._holding(lambda: self._move(self._mine()._replace(active_ms=now_ms)))

    def commit(self, partitions: Collection[TopicPartition], around: Callable[[Decide], object] = _at_once) -> None:
        """Decide: committed, durably on return. The transaction's records are durable before.

        ``around`` is called with the id's lock, and calls its argument to decide, or raises: it may hold other locks
        meanwhile. It is not asked again after an exception in the decision, whose record may be there already.
        The markers come next: see ``complete``.
        """

        def decide() -> None:
            state = self._mine()
            if state.status is Status.PREPARE_COMMIT:  # repeated after an exception
                self._state = state
                return
            if state.status is not Status.ONGOING:
                raise self._aborted(state)
            prepare = partial(self._prepare_commit, state, partitions)
            if self._prepared == (state.producer_id, state.epoch):
                prepare()
            else:
                around(prepare)

        self._holding(decide)

    def _prepare_commit(self, state: TransactionState, partitions: Collection[TopicPartition]) -> None:
        self._prepared = state.producer_id, state.epoch
        prepared = state.moved(Status.PREPARE_COMMIT)
        self._append(prepared, partitions).sync()
        self._move(prepared)

    def abort(self, partitions: Collection[TopicPartition]) -> None:
        """Decide: aborted. It may be so already, after a timeout."""

        def decide() -> None:
            state = self._mine()
            if state.status is Status.ONGOING:
                state = state.moved(Status.PREPARE_ABORT)
                self._append(state, partitions)
                if self._table.commit_of(state.producer_id, state.epoch) is not None:
                    raise InvalidTransactionState(
                        f"the commit of {self.transactional_id!r} was begun, and its record may survive: it can only be "
                        "repeated; call commit_transaction again",
                        transactional_id=self.transactional_id, status=state.status.name,
                    )  # fmt: skip
            self._move(state)

        self._holding(decide)

    def complete(self) -> None:
        """The markers of the decided transaction are in every partition that it touched."""

        def end() -> None:
            state = self._mine()
            ended = {Status.PREPARE_COMMIT: Status.COMPLETE_COMMIT, Status.PREPARE_ABORT: Status.COMPLETE_ABORT}
            if state.status in ended:
                self._move(state.moved(ended[state.status]))

        self._holding(end)

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
        self.check_held()
        return while_holding(self._filesystem, self._clock, self._directory.lock, work)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _mine(self) -> TransactionState:
        """The published state. ``ProducerFenced`` if it has another owner."""
        state = self._file.read()
        if state is None or state.owner != self._owner:
            raise self._fenced(state)
        return state

    def _move(self, state: TransactionState) -> None:
        self.check_held()
        self._state = self._file.publish(state)

    def _append(self, state: TransactionState, partitions: Collection[TopicPartition]) -> Found:
        now_ms = self._clock.now_ms()
        decision = Decision(
            self.transactional_id, state.producer_id, state.epoch, self._timeout_ms, state.status,
            frozenset(partitions), now_ms, -1 if state.status is Status.EMPTY else self._started_ms,
        )  # fmt: skip
        return self._table.append(self.transactional_id, [decision], self.check_held)

    def check_held(self) -> None:
        """``ForkedHandle`` in a forked child: the id is its parent's."""
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
                f"the transaction of {self.transactional_id!r} was aborted: it appended nothing for {self._timeout_ms} ms "
                "(transaction_timeout_ms); call abort_transaction, and repeat its work",
                transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms,
            )  # fmt: skip
        return InvalidTransactionState(
            f"the transaction of {self.transactional_id!r} is {found.status.name}, not ONGOING",
            transactional_id=self.transactional_id, status=found.status.name,
        )  # fmt: skip

    def close(self) -> None:
        """Free the lock file: what is ongoing counts as left by a dead owner from here on."""
        self._file.close()
        with suppress(FileNotFoundError, StorageError):
            if self._process_id == self._filesystem.process_id():
                self._filesystem.remove(self._directory.owner(self._owner))
        if self._alive is not None:
            self._alive.close()
