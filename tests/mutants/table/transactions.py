"""Bugs in how transactions are decided: what is committed by another decision than its own."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TOLD = "tests/transaction/test_told_outcomes.py"
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
        "a repeated commit does not look for a decision that is not published",
        "transaction/owner.py",
        "self._table.settled_commit_of(self.transactional_id, *self._state[:2])\n",
        "self._table.commit_of(*self._state[:2])\n",
        "a power failure commits what the application was told is aborted",
        (f"{_LOSSES}[an_abort_passes_over_a_decision_that_is_not_published]", _TOLD),
    ),
    Mutant(
        "a commit that could not be repeated can be aborted",
        "producer/transactions.py",
        "            if not owner.may_be_committed:\n",
        "            if not owner.may_be_committed or isinstance(error, NotAppended):\n",
        "the decision may be in the table, and others see the transaction committed",
        (_TOLD,),
    ),
    Mutant(
        "a batch that could not be written again is told not to be in the log",
        "producer/batch.py",
        "        if not self.was_interrupted or not isinstance",
        "        if True or not isinstance",
        "an interrupted append has left it there, and the next writer publishes it",
        (_TOLD, "tests/producer/test_batch.py"),
    ),
)
