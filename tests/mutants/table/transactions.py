"""Bugs in how transactions are decided: what is committed by another decision than its own."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOSSES = "tests/transaction/test_losses.py::test_a_rule_prevents_its_loss"

MUTANTS = (
    Mutant(
        "a new owner keeps the producer id, with the next epoch of the table",
        "transaction/owner.py",
        "            self._manager.next_producer_id(), 0, Status.EMPTY, self._owner,",
        "            *((found.producer_id, found.epoch + 1) if (found := self._table.latest().get(self.transactional_id))"
        " else (self._manager.next_producer_id(), 0)),\n            Status.EMPTY, self._owner,",
        "records whose epoch was never recorded become part of a later transaction",
        (f"{_LOSSES}[an_epoch_without_a_record_is_used_again]",),
    ),
    Mutant(
        "an abort does not look for a decision that is not published",
        "transaction/owner.py",
        "self._table.settled_commit_of(self.transactional_id, *state[:2]) is not None:\n",
        "self._table.commit_of(*state[:2]) is not None:\n",
        "a power failure commits what the application was told is aborted",
        (f"{_LOSSES}[an_abort_passes_over_a_decision_that_is_not_published]",),
    ),
)
