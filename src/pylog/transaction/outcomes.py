"""What all others do about a transaction: find out how it ended, and finish what its owner left.

The order of a look is what makes it right: first the batches, then the state and whether its owner
lives, then the table. In any other order the owner could commit, and end, between two looks, and
the commit would be taken for an abort.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pylog.errors import LogLocked, NotAppended, OutcomeUnknown, PylogError, StorageError
from pylog.interrupts import own, suppress
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import Outcome
from pylog.storage import LOCK_KIND, NETWORK_FILESYSTEMS, FileSystem, while_holding
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.records import Decision
from pylog.transaction.state import Status, TransactionState
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import PATIENCE_MS, TransactionTable

logger = logging.getLogger("pylog.transaction")


def sees_deaths(filesystem: FileSystem, root: str) -> bool:
    """Whether a free lock shows that its holder is dead: not to another host, nor if a probe must
    take the lock."""
    return LOCK_KIND == "ofd" and filesystem.kind(root) not in NETWORK_FILESYSTEMS


class Outcomes:
    """Decides the transactions of one log, for readers and for writers. Safe to share among
    threads."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._filesystem = manager.filesystem
        self._table = manager.part(TransactionTable)
        self._sees_deaths = not manager.read_only or sees_deaths(self._filesystem, manager.layout.root)

    def outcome(self, producer_id: int, epoch: int) -> Outcome:
        """How the transaction of a batch that was just read ended.

        If the owner is dead or late, and this process may write, it is decided now. Raises
        ``CorruptSegment`` if the table is damaged: then nothing is decided. If a disk refuses, it
        is undecided for now.
        """
        if not self._sees_deaths:
            return self._of_table(producer_id, epoch, is_live=True, is_last=False)
        directory = self._directory_of(producer_id)
        if directory is None:
            return self._of_unknown(producer_id)
        state = self.state(directory)
        if state is None:  # of this boot; or it was lost, and an owner that lives may still commit
            is_live = any(map(directory.is_alive, directory.owners()))
            return self._of_table(producer_id, epoch, is_live=is_live, is_last=True)
        if not state.is_of(producer_id, epoch):
            return self._of_table(producer_id, epoch, is_live=False, is_last=False)
        if not self._manager.read_only and self._is_left(directory, state):
            self._try_to_decide(directory, producer_id, epoch)
            after = self.state(directory)
            if after is not None and after.is_of(producer_id, epoch):
                state = after
        if state.outcome is not Outcome.UNDECIDED:
            return state.outcome
        return self._of_table(producer_id, epoch, is_live=directory.is_alive(state.owner), is_last=True)

    def settle(self, partition: PartitionLog) -> None:
        """Write the markers that are missing in the partition, of transactions that are over."""
        for producer_id, epoch, _ in partition.open_transactions(PATIENCE_MS):
            outcome = self.outcome(producer_id, epoch)
            if outcome is not Outcome.UNDECIDED:
                partition.append_marker(
                    producer_id, epoch, committed=outcome is Outcome.COMMITTED, timeout_ms=PATIENCE_MS
                )

    def _of_table(self, producer_id: int, epoch: int, *, is_live: bool, is_last: bool) -> Outcome:
        """By the table. ``is_live``: its owner may still decide. ``is_last``: of its id's
        transactions, as far as is known."""
        if is_live or not is_last:
            found = self._table.commit_of(producer_id, epoch)
        else:
            found = self._table.last_commit_of(producer_id, epoch)
        if found is None:
            return Outcome.UNDECIDED if is_live else Outcome.ABORTED
        if found.is_durable() or (not is_live and found.is_made_durable()):
            return Outcome.COMMITTED
        return Outcome.UNDECIDED

    def _try_to_decide(self, directory: TransactionDirectory, producer_id: int, epoch: int) -> None:
        check_process = directory.same_process()

        def decide() -> None:
            self._decide(directory, producer_id, epoch, check_process)

        try:
            while_holding(self._filesystem, self._manager.clock, directory.lock, decide, PATIENCE_MS / 1000)
        except own(LogLocked, NotAppended, OutcomeUnknown, StorageError, FileNotFoundError) as error:
            logger.warning("%r: its transaction is not decided yet: %s", directory.transactional_id, error)

    def _is_left(self, directory: TransactionDirectory, state: TransactionState) -> bool:
        """Whether an ongoing transaction has lost its owner, or its owner is late."""
        if state.status is not Status.ONGOING:
            return False
        return state.is_late(int(self._manager.clock.monotonic() * 1000)) or not directory.is_alive(state.owner)

    def _decide(
        self, directory: TransactionDirectory, producer_id: int, epoch: int, check_process: Callable[[], None]
    ) -> None:
        """With the id's lock: decide what its owner has left."""
        file = StateFile(self._filesystem.open_appendable(directory.state), self._manager.boot)
        try:
            state = file.read()
            if state is None or not state.is_of(producer_id, epoch) or not self._is_left(directory, state):
                return
            if self.decide_now(directory, file, state, check_process).status is Status.PREPARE_ABORT:
                logger.warning(
                    "the transaction of %r (producer %d, epoch %d) is aborted: its owner is gone, or appended nothing for %d ms",
                    directory.transactional_id, producer_id, epoch, state.timeout_ms,
                )  # fmt: skip
        finally:
            file.close()

    def decide_now(
        self,
        directory: TransactionDirectory,
        file: StateFile,
        state: TransactionState,
        check_process: Callable[[], None],
    ) -> TransactionState:
        """With the id's lock: end an ongoing transaction, by an abort if no commit is recorded.

        ``check_process`` is from before the lock was taken.
        """
        name, producer_id, epoch = directory.transactional_id, state.producer_id, state.epoch
        # This takes in what the owner may have left in the middle of its own append.
        found = self._table.settled_commit_of(name, producer_id, epoch, PATIENCE_MS)
        if found is not None:
            found.sync()
        check_process()  # a child forked from here on has lost the file
        if found is not None:
            return file.publish(state.moved(Status.PREPARE_COMMIT))
        aborted = file.publish(state.moved(Status.PREPARE_ABORT))
        now_ms = self._manager.clock.now_ms()
        decision = Decision(name, producer_id, epoch, state.timeout_ms, aborted.status, frozenset(), now_ms, now_ms)
        with suppress(PylogError):  # the record is only for people: no record means aborted
            self._table.append(name, [decision], bool, PATIENCE_MS)
        return aborted

    def _of_unknown(self, producer_id: int) -> Outcome:
        """Of a producer id that the table does not know: the power took its record, before any
        decision.

        An id that Kafka may have given is decided only on request.
        """
        return Outcome.UNDECIDED if producer_id < LIKE_KAFKA_BELOW else Outcome.ABORTED

    def _directory_of(self, producer_id: int) -> TransactionDirectory | None:
        name = self._table.transactional_id(producer_id)
        if name is None:
            return None
        return TransactionDirectory.of(self._filesystem, self._manager.layout, name, self._manager.boot)

    def state(self, directory: TransactionDirectory) -> TransactionState | None:
        """The published state of an id; None if it has had no owner since the machine was
        booted."""
        try:
            file = StateFile(self._filesystem.open_readable(directory.state), directory.boot)
        except own(FileNotFoundError):
            return None
        try:
            return file.read()
        finally:
            file.close()
