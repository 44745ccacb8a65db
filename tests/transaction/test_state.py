"""The table of moves: each legal one, and every other one."""

from __future__ import annotations

import pytest

from pylog.partition.read.undecided import Outcome
from pylog.transaction.state import EPOCH_MAX, LATENESS, OWNER_BYTES, Status, TransactionState

OWNER = b"a" * OWNER_BYTES
LEGAL = {
    (Status.EMPTY, Status.ONGOING),
    (Status.ONGOING, Status.ONGOING),
    (Status.ONGOING, Status.PREPARE_COMMIT),
    (Status.ONGOING, Status.PREPARE_ABORT),
    (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT),
    (Status.PREPARE_ABORT, Status.COMPLETE_ABORT),
    (Status.COMPLETE_COMMIT, Status.ONGOING),
    (Status.COMPLETE_ABORT, Status.ONGOING),
}


def state(status: Status, epoch: int = 3) -> TransactionState:
    return TransactionState(7, epoch, status, OWNER, 1_000, 5_000)


@pytest.mark.parametrize("before", Status, ids=lambda status: status.name)
@pytest.mark.parametrize("after", Status, ids=lambda status: status.name)
def test_a_move_is_made_or_refused(before: Status, after: Status) -> None:
    if (before, after) in LEGAL:
        assert state(before).moved(after) == state(after)
    else:
        with pytest.raises(ValueError, match=f"from {before.name} to {after.name}"):
            state(before).moved(after)


@pytest.mark.parametrize("before", Status, ids=lambda status: status.name)
def test_a_transaction_begins_with_the_next_epoch(before: Status) -> None:
    if (before, Status.ONGOING) not in LEGAL:
        with pytest.raises(ValueError, match="ONGOING"):
            state(before).begun(9_000)
        return
    assert state(before).begun(9_000) == state(Status.ONGOING, 4)._replace(active_ms=9_000)
    assert state(before, EPOCH_MAX - 1).begun(9_000) == state(Status.ONGOING, EPOCH_MAX)._replace(active_ms=9_000)
    assert state(before, EPOCH_MAX).begun(9_000) is None


@pytest.mark.parametrize("status", Status, ids=lambda status: status.name)
def test_the_state_alone_says_how_a_transaction_ended(status: Status) -> None:
    expected = {
        Status.PREPARE_COMMIT: Outcome.COMMITTED, Status.COMPLETE_COMMIT: Outcome.COMMITTED,
        Status.PREPARE_ABORT: Outcome.ABORTED, Status.COMPLETE_ABORT: Outcome.ABORTED,
    }  # fmt: skip
    assert state(status).outcome is expected.get(status, Outcome.UNDECIDED)


def test_a_state_is_of_one_producer_id_and_epoch() -> None:
    assert state(Status.ONGOING).is_of(7, 3)
    assert not state(Status.ONGOING).is_of(7, 2)
    assert not state(Status.ONGOING).is_of(6, 3)


@pytest.mark.parametrize("status", Status, ids=lambda status: status.name)
def test_only_an_ongoing_transaction_is_late_and_never_before_its_timeout_since_the_last_append(status: Status) -> None:
    recorded = 5_000
    appended_at_most = recorded + 1_000 // LATENESS  # later appends are recorded
    limit = appended_at_most + 1_000
    assert not state(status).is_late(limit)
    assert state(status).is_late(limit + 1) == (status is Status.ONGOING)


def test_the_numbers_are_kafkas() -> None:
    """``TransactionState`` of Kafka 4: Empty 0, Ongoing 1, PrepareCommit 2, PrepareAbort 3,
    CompleteCommit 4, CompleteAbort 5."""
    assert [status.value for status in Status] == [0, 1, 2, 3, 4, 5]
