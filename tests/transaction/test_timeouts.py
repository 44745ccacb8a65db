"""``transaction_timeout_ms``: for owners that live, and append nothing. Nothing waits for it when
an owner is dead."""

from __future__ import annotations

import pytest

from pylog.errors import TransactionAborted
from tests.transaction.stage import Stage

TIMEOUT_MS = 1_000
BOUND_S = TIMEOUT_MS / 1000 * 1.25  # an owner records its activity at a quarter of its timeout


def test_a_live_owner_that_appends_nothing_for_its_timeout_is_aborted_by_others_and_goes_on_after_an_abort() -> None:
    stage = Stage()
    owner = stage.owner(timeout_ms=TIMEOUT_MS)
    owner.begin({0: "T1", 1: "T1"})
    stage.machine.seconds += BOUND_S + 0.01
    assert stage.append(0) == []
    with pytest.raises(TransactionAborted, match="transaction_timeout_ms"):
        owner.producer.commit_transaction()
    with pytest.raises(TransactionAborted):
        owner.producer.send("t", b"late", partition=0)
    owner.producer.abort_transaction()
    owner.commit({0: "T2", 1: "T2"})
    owner.producer.close()
    assert stage.read() == {0: ["T2"], 1: ["T2"], 2: [], 3: []}
    assert stage.append(1) == []


def test_the_next_record_of_an_owner_that_is_late_is_refused_and_its_transaction_does_not_begin_again() -> None:
    stage = Stage()
    owner = stage.owner(timeout_ms=TIMEOUT_MS)
    owner.begin({0: "T1"})
    stage.machine.seconds += BOUND_S + 0.01
    assert stage.append(0) == []
    delivery = owner.producer.send("t", b"T1", partition=2)
    owner.producer.flush()
    assert isinstance(delivery.exception(), TransactionAborted)
    with pytest.raises(TransactionAborted):
        owner.producer.commit_transaction()
    owner.producer.abort_transaction()
    owner.producer.close()
    assert stage.read() == {0: [], 1: [], 2: [], 3: []}


@pytest.mark.parametrize("read_only", [False, True], ids=["a writer reads", "a reader reads"])
def test_a_reader_that_may_write_ends_a_late_transaction_and_another_waits_for_its_live_owner(
    read_only: bool,
) -> None:
    stage = Stage()
    owner = stage.owner(timeout_ms=TIMEOUT_MS)
    owner.begin({0: "T1"})
    assert stage.read(read_only=read_only)[0] == ["?"]
    stage.machine.seconds += BOUND_S + 0.01
    assert stage.read(read_only=read_only)[0] == (["?"] if read_only else [])


@pytest.mark.parametrize("read_only", [False, True], ids=["a writer reads", "a reader reads"])
def test_nobody_waits_for_the_timeout_of_a_dead_owner(read_only: bool) -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin({0: "T1"})
    owner.process.kill()
    assert stage.read(read_only=read_only)[0] == []


def test_an_owner_that_keeps_appending_is_not_aborted(seed: int) -> None:
    stage = Stage(seed)
    owner = stage.owner(timeout_ms=TIMEOUT_MS)
    owner.begin({0: "T1"})
    for number in range(1, 10):
        stage.machine.seconds += TIMEOUT_MS / 1000
        with stage.machine.process().open_log("/log") as log:
            log.manager.partition("t", 0).settle_transactions()
        owner.write({number % 3: f"T1 {number}"})
    owner.producer.commit_transaction()
    assert stage.read()[0] == ["T1", "T1 3", "T1 6", "T1 9"]


def test_a_transaction_that_is_aborted_late_and_repeated_commits_once() -> None:
    stage = Stage()
    owner = stage.owner(timeout_ms=TIMEOUT_MS)
    for number in range(3):
        try:
            with owner.producer.transaction():
                owner.write({0: "T1", 1: "T1"})
                if number < 2:
                    stage.machine.seconds += BOUND_S + 0.01
                    stage.append(0)
        except TransactionAborted:
            continue
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}
