"""What all others do about a transaction: find out how it ended, and finish what its owner left.

The order of a look is what makes it right: first the batches, then the state and whether its owner
lives, then the table. In any other order the owner could commit, and end, between two looks, and
the commit would be taken for an abort.
"""

from __future__ import annotations

import logging

from pylog.errors import LogLocked
from pylog.interrupts import own
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import Outcome
from pylog.storage import while_holding
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.records import Decision
from pylog.transaction.state import Status, TransactionState
from pylog.transaction.state_file import StateFile
from pylog.transaction.table import TransactionTable

logger = logging.getLogger("pylog.transaction")

_LOCK_S = 0.05  # a holder of the id's lock that is stopped does not stop others' appends


class Outcomes:
    """Decides the transactions of one log, for readers and for writers. Safe to share among threads."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._filesystem = manager.filesystem
        self._table = manager.part(TransactionTable)

    def outcome(self, producer_id: int, epoch: int) -> Outcome:
        """How the transaction of a batch that was just read ended. Takes no lock, changes nothing."""
        directory = self._directory_of(producer_id)
        if directory is None:
            return self._of_unknown(producer_id)
        state = self.state(directory)
        if state is not None and state.is_of(producer_id, epoch):
            if state.outcome is not Outcome.UNDECIDED:
                return state.outcome
            if directory.is_alive(state.owner):
                return Outcome.UNDECIDED
            if not self._manager.read_only:
                return self._decided(producer_id, epoch)
        return self._of_table(producer_id, epoch)

    def settle(self, partition: PartitionLog) -> bool:
        """Write the markers that are missing in the partition, of transactions that are over.

        Returns whether a transaction is still open.
        """
        is_open = False
        for producer_id, epoch, _ in partition.open_transactions():
            outcome = self._decided(producer_id, epoch)
            if outcome is Outcome.UNDECIDED:
                is_open = True
            else:
                partition.append_marker(producer_id, epoch, committed=outcome is Outcome.COMMITTED)
        return is_open

    def _decided(self, producer_id: int, epoch: int) -> Outcome:
        """Like ``outcome``. If the owner is dead or late, the transaction is decided now."""
        directory = self._directory_of(producer_id)
        if directory is None:
            return self._of_unknown(producer_id)
        state = self.state(directory)
        if state is not None and state.is_of(producer_id, epoch) and self._is_left(directory, state):
            try:
                while_holding(
                    self._filesystem,
                    self._manager.clock,
                    directory.lock,
                    lambda: self._decide(directory, producer_id, epoch),
                    _LOCK_S,
                )
            except own(LogLocked):
                return Outcome.UNDECIDED
            state = self.state(directory)
        if state is not None and state.is_of(producer_id, epoch):
            return state.outcome
        return self._of_table(producer_id, epoch)

    def _of_table(self, producer_id: int, epoch: int) -> Outcome:
        """How a transaction ended that is over: its owner is dead, or has begun another one."""
        found = self._table.commit_of(producer_id, epoch)
        if found is None:
            return Outcome.ABORTED
        if not found.is_durable():
            if self._manager.read_only:
                return Outcome.UNDECIDED
            found.sync()  # a decision counts only once it is durable
        return Outcome.COMMITTED

    def _is_left(self, directory: TransactionDirectory, state: TransactionState) -> bool:
        """Whether nobody works on an ongoing transaction."""
        if state.status is not Status.ONGOING:
            return False
        return state.is_late(int(self._manager.clock.monotonic() * 1000)) or not directory.is_alive(state.owner)

    def _decide(self, directory: TransactionDirectory, producer_id: int, epoch: int) -> None:
        """With the id's lock: decide what its owner has left."""
        file = StateFile(self._filesystem.open_appendable(directory.state), self._manager.boot)
        try:
            state = file.read()
            if state is None or not state.is_of(producer_id, epoch) or not self._is_left(directory, state):
                return
            decided = self.decide_now(directory, file, state)
            if decided.status is Status.PREPARE_ABORT:
                logger.warning(
                    "the transaction of %r (producer %d, epoch %d) is aborted: its owner is gone, or appended nothing for %d ms",
                    directory.transactional_id, producer_id, epoch, state.timeout_ms,
                )  # fmt: skip
        finally:
            file.close()

    def decide_now(self, directory: TransactionDirectory, file: StateFile, state: TransactionState) -> TransactionState:
        """With the id's lock: end an ongoing transaction, by an abort if no commit is recorded."""
        producer_id, epoch = state.producer_id, state.epoch
        aborted, now_ms = state.moved(Status.PREPARE_ABORT), self._manager.clock.now_ms()
        decision = Decision(
            directory.transactional_id,
            producer_id,
            epoch,
            state.timeout_ms,
            aborted.status,
            frozenset(),
            now_ms,
            now_ms,
        )
        # The append takes in what the owner may have left in the middle of its own one: a commit comes first then.
        if self._table.commit_of(producer_id, epoch) is None:
            self._table.append(directory.transactional_id, [decision], bool)
        found = self._table.commit_of(producer_id, epoch)
        if found is None:
            return file.publish(aborted)
        found.sync()
        return file.publish(state.moved(Status.PREPARE_COMMIT))

    def _of_unknown(self, producer_id: int) -> Outcome:
        """Of a producer id that the table does not know: the power took its record, before any decision.

        An id that Kafka may have given is decided only on request.
        """
        return Outcome.UNDECIDED if producer_id < LIKE_KAFKA_BELOW else Outcome.ABORTED

    def _directory_of(self, producer_id: int) -> TransactionDirectory | None:
        name = self._table.transactional_id(producer_id)
        if name is None:
            return None
        return TransactionDirectory.of(self._filesystem, self._manager.layout, name, self._manager.boot)

    def state(self, directory: TransactionDirectory) -> TransactionState | None:
        """The published state of an id; None if it has had no owner since the machine was booted."""
        try:
            file = StateFile(self._filesystem.open_readable(directory.state), directory.boot)
        except own(FileNotFoundError):
            return None
        try:
            return file.read()
        finally:
            file.close()
