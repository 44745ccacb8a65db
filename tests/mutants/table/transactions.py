"""Transactions: who decides, when a decision counts, and whose files are whose."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TOLD = "tests/transaction/test_outcomes_told_to_producers.py"
_LOSSES = "tests/transaction/test_rules_prevent_losses.py::test_a_rule_prevents_its_loss"
_REFUSALS = "tests/transaction/test_refusals.py"

MUTANTS = (
    Mutant(
        "two names that differ only in case have one directory where case is ignored",
        "catalog/layout.py",
        '_NOT_PLAIN_OR_CAPITAL = re.compile(r"[^a-z0-9._-]+")',
        '_NOT_PLAIN_OR_CAPITAL = re.compile(r"[^A-Za-z0-9._-]+")',
        "the producers of two ids fence each other, and two groups share their members",
        ("tests/catalog/test_group_names.py::test_capitals_are_escaped_if_the_filesystem_ignores_case",),
    ),
    Mutant(
        "an id of Kafka's that is too long for a file name is looked for",
        "catalog/layout.py",
        "{name if 0 < len(name) <= ENCODED_BYTES_MAX else _NOBODYS}",
        "{name}",
        "an open transaction of Kafka's stops all readers with an error, and cannot be aborted",
        ("tests/transaction/test_from_kafka.py::test_an_id_that_no_producer_can_have_stops_nobody",),
    ),
    Mutant(
        "what was sent too late for a transaction is in the next one",
        "producer/transactions.py",
        "            if not late:\n",
        "            late = []\n            if not late:\n",
        "an abort takes back a record of which another thread believes that it was committed before",
        (
            "tests/transaction/test_producer.py::test_a_send_that_returns_after_the_transaction_has_ended_is_not_in_the_next_one",
        ),
    ),
    Mutant(
        "an owner commits what others have aborted",
        "transaction/owner.py",
        "            if state.status is not Status.ONGOING:\n                raise self._aborted(state)\n"
        "            around(partial(",
        "            state = state._replace(status=Status.ONGOING)\n            around(partial(",
        "after a stop beyond the timeout, readers that have skipped its records are told that they are committed",
        ("tests/simulation/test_transactions.py", "-k", "stands_still"),
    ),
    Mutant(
        "a decision counts before it is durable",
        "transaction/outcomes.py",
        "if found.is_durable() or (not is_live and found.is_made_durable()):",
        "if found:",
        "the power takes a decision that others have acted on",
        (f"{_REFUSALS}::test_a_decision_whose_sync_is_refused_is_not_acted_on_and_counts_later",),
    ),
    Mutant(
        "a lock that is not free ends a reader",
        "transaction/outcomes.py",
        "except own(LogLocked, NotAppended, OutcomeUnknown, StorageError, FileNotFoundError) as error:",
        "except own(NotAppended, OutcomeUnknown, StorageError) as error:",
        "a stopped process with the lock of one id stops all readers with an error",
        (f"{_REFUSALS}::test_a_late_transaction_stays_hidden_while_a_stopped_process_holds_its_lock",),
    ),
    Mutant(
        "a late owner's batch joins a transaction that is over",
        "transaction/owner.py",
        "        if found.status is not Status.ONGOING:\n            raise self._aborted(found)\n\n",
        "\n",
        "it stays open in a partition whose marker was written before it",
        (f"{_REFUSALS}::test_an_append_of_a_transaction_that_is_over_is_refused_by_how_it_ended",),
    ),
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
