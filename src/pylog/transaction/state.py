"""The states of a transactional id, and the legal moves between them. Pure.

| from            | to              | who moves it                                                 |
| --------------- | --------------- | ------------------------------------------------------------ |
| EMPTY, COMPLETE | ONGOING         | its owner, with the first batch; the epoch rises             |
| ONGOING         | PREPARE_COMMIT  | its owner, after the decision is durable in the table        |
|                 |                 | any process, if the owner died after that                    |
| ONGOING         | PREPARE_ABORT   | its owner; any process, if the owner died or timed out       |
| ONGOING         | ONGOING         | its owner: it still appends; or ``start`` was interrupted    |
| PREPARE_COMMIT  | COMPLETE_COMMIT | its owner, after the markers                                 |
| PREPARE_ABORT   | COMPLETE_ABORT  | its owner, after the markers                                 |

A new owner, which fences the one before, begins with EMPTY and a producer id of its own, whatever
the state was: from then on the table alone decides what the one before has left.

The numbers are those of Kafka's ``TransactionState``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from pylog.partition.read.undecided import Outcome

OWNER_BYTES = 16
EPOCH_MAX = 32_767
LATENESS = 4
"""An owner records its activity only when this part of its timeout has passed since the last
record."""


class Status(IntEnum):
    """Where the last transaction of an id stands."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        """``PrepareCommit`` for PREPARE_COMMIT."""
        return "".join(word.capitalize() for word in self.name.split("_"))


COMMITS = frozenset({Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT})
ABORTS = frozenset({Status.PREPARE_ABORT, Status.COMPLETE_ABORT})

_MOVES = {
    Status.EMPTY: {Status.ONGOING},
    Status.ONGOING: {Status.PREPARE_COMMIT, Status.PREPARE_ABORT, Status.ONGOING},
    Status.PREPARE_COMMIT: {Status.COMPLETE_COMMIT},
    Status.PREPARE_ABORT: {Status.COMPLETE_ABORT},
    Status.COMPLETE_COMMIT: {Status.ONGOING},
    Status.COMPLETE_ABORT: {Status.ONGOING},
}


class TransactionState(NamedTuple):
    """The state of one transactional id.

    ``owner`` names the incarnation of the producer whose lock file shows that it lives.
    ``active_ms`` is when it last appended, or began, by the machine's monotonic clock.
    """

    producer_id: int
    epoch: int
    status: Status
    owner: bytes
    timeout_ms: int
    active_ms: int

    @property
    def outcome(self) -> Outcome:
        """The outcome of the transaction with this id and epoch, by the state alone."""
        if self.status in COMMITS:
            return Outcome.COMMITTED
        return Outcome.ABORTED if self.status in ABORTS else Outcome.UNDECIDED

    def is_of(self, producer_id: int, epoch: int) -> bool:
        return self.producer_id == producer_id and self.epoch == epoch

    def moved(self, status: Status) -> TransactionState:
        """The state after a legal move that keeps the epoch. ``ValueError`` for another."""
        self._check(status)
        return self._replace(status=status)

    def begun(self, now_ms: int) -> TransactionState | None:
        """ONGOING, with the next epoch; None if no epoch is left, and it needs another producer
        id."""
        self._check(Status.ONGOING)
        if self.epoch >= EPOCH_MAX:
            return None
        return self._replace(epoch=self.epoch + 1, status=Status.ONGOING, active_ms=now_ms)

    def _check(self, status: Status) -> None:
        if status not in _MOVES[self.status]:
            raise ValueError(f"a transaction does not move from {self.status.name} to {status.name}")

    def is_late(self, now_ms: int) -> bool:
        """Whether its owner has certainly appended nothing for its timeout."""
        return self.status is Status.ONGOING and now_ms - self.active_ms > self.timeout_ms + self.timeout_ms // LATENESS
