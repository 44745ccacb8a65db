"""Forgets transactional ids that were not used for a week, as Kafka's
``transactional.id.expiration.ms``.

An id leaves a record in the table and a directory. What goes is of no use any more:

- no process that has had the id lives. One that is stopped lives: it holds the lock of its file;
- its last transaction is decided, and the markers of its commits are durable. So readers need no
  record;
- its producer id is not like Kafka's, of which no record does not mean aborted.

Everything happens with the id's lock: first the tombstone, then the directory, which gets another
name at once. A producer that waited for this lock finds that it is not in place, and begins again
with a new directory. A kill in between leaves a directory without a record, which the next expiry
removes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pylog.cleaner.report import PartitionMaintenance
from pylog.cleaner.retention import NOT_DUE
from pylog.cleaner.step import Target
from pylog.errors import LogLocked, PylogError
from pylog.interrupts import own, suppress
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.storage import holding
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.needed import finish
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.records import Decision
from pylog.transaction.state import Status
from pylog.transaction.table import PATIENCE_MS, TransactionTable

logger = logging.getLogger("pylog.transaction")

EXPIRY = "expiry"
BY_AGE = "transactional_id_expiration_ms"
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 86_400_000


def expire(manager: LogManager, target: Target) -> PartitionMaintenance:
    """Forget the ids of one partition of ``__transaction_state`` that are due. With ``dry_run``,
    count them."""
    partition, expiry = target.partition, _Expiry(manager, target.now_ms)
    due = expiry.due(partition.number)
    forgotten = len(due) if target.dry_run else sum([expiry.forget(name) for name in due])
    if not target.dry_run:
        expiry.clear_away()
    done = target.report(EXPIRY, partition.earliest_offset)
    if not forgotten:
        return done._replace(kept=NOT_DUE)
    return done._replace(rules=(BY_AGE,), detail=f"{forgotten} transactional ids")


class _Expiry:
    def __init__(self, manager: LogManager, now_ms: int) -> None:
        self._manager = manager
        self._filesystem = manager.filesystem
        self._table = manager.part(TransactionTable)
        self._outcomes = manager.part(Outcomes)
        self._before_ms = now_ms - TRANSACTIONAL_ID_EXPIRATION_MS

    def due(self, number: int) -> list[str]:
        """The ids of this partition of the table that can be forgotten, as far as is seen without a
        lock."""
        latest = self._table.latest()
        return sorted(
            name
            for name, decision in latest.items()
            if self._table.number_of(name) == number and self._is_old(decision) and self._is_left(self._directory(name))
        )

    def forget(self, name: str) -> bool:
        """Whether this id is forgotten now."""
        try:
            commits = self._table.unfinished_commits(name)
            finished = {found.decision.transaction for found in commits if finish(self._manager, found)}
            directory = self._directory(name)
            directory.make()  # the power may have taken it
            return self._holding(directory, partial(self._forget, directory, finished))
        except own(PylogError, FileNotFoundError) as error:
            logger.warning("%r is not forgotten yet: %s", name, error)
            return False

    def _forget(
        self, directory: TransactionDirectory, finished: set[tuple[int, int]], check_process: Callable[[], object]
    ) -> bool:
        name = directory.transactional_id
        self._table.settle(name, PATIENCE_MS)  # a dead owner's last record may not be published
        decision = self._table.latest().get(name)
        if decision is None or not self._is_old(decision) or not self._is_left(directory):
            return False
        if any(found.decision.transaction not in finished for found in self._table.unfinished_commits(name)):
            return False
        self._table.forget(name, check_process)
        self._remove(directory, check_process)
        return True

    def clear_away(self) -> None:
        """Remove the directories that an expiry, or an owner, has left on its way."""
        known = {self._directory(name).path for name in self._table.latest()}
        for path in self._paths():
            directory = TransactionDirectory(self._filesystem, "", path, self._manager.boot)
            if directory.is_gone:
                directory.clear()
            elif path not in known:
                with suppress(LogLocked, FileNotFoundError):  # an owner makes it, or another process removes it
                    self._holding(directory, partial(self._clear, directory))

    def _clear(self, directory: TransactionDirectory, check_process: Callable[[], object]) -> bool:
        known = {self._directory(name).path for name in self._table.latest()}
        if directory.path in known or not self._is_left(directory):
            return False
        self._remove(directory, check_process)
        return True

    # Parts

    def _is_old(self, decision: Decision) -> bool:
        return decision.update_ms < self._before_ms and decision.producer_id >= LIKE_KAFKA_BELOW

    def _is_left(self, directory: TransactionDirectory) -> bool:
        """Whether no living process has the id, and nothing of it waits for a decision."""
        state = self._outcomes.state(directory)
        is_open = state is not None and state.status is Status.ONGOING  # readers and writers decide it
        return not is_open and not any(map(directory.is_alive, directory.owners()))

    def _holding(self, directory: TransactionDirectory, work: Callable[[Callable[[], object]], bool]) -> bool:
        """``work``'s result, with the id's lock; False if that is not in place. ``LogLocked``,
        ``FileNotFoundError``."""
        filesystem = self._filesystem
        lock = filesystem.lock(directory.lock)
        check_process = directory.same_process()
        try:
            return holding(
                lock, directory.lock, filesystem, self._manager.clock,
                lambda: lock.is_in_place() and work(check_process), PATIENCE_MS / 1000,
            )  # fmt: skip
        finally:
            lock.close()

    def _remove(self, directory: TransactionDirectory, check_process: Callable[[], object]) -> None:
        check_process()
        directory.rename_away().clear()

    def _directory(self, name: str) -> TransactionDirectory:
        return TransactionDirectory.of(self._filesystem, self._manager.layout, name, self._manager.boot)

    def _paths(self) -> list[str]:
        root = self._manager.layout.transactions
        try:
            return [f"{root}/{name}" for name in sorted(self._filesystem.names(root))]
        except own(FileNotFoundError):
            return []
