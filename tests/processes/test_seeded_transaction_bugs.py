"""Bugs of transactions put into pylog on purpose: the history of a killed pipeline names each one's
anomaly.

pytest -m engine tests/processes/test_seeded_transaction_bugs.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pylog.errors import TransactionAborted
from pylog.partition.read import reader
from pylog.partition.read.undecided import OpenTransactions, Outcome
from pylog.producer.touched import TouchedPartitions
from pylog.producer.transactions import ProducerTransactions
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.owner import TransactionOwner
from tests.processes.seeding import now_and_then, put
from tests.processes.sharing import forked, result_of
from tests.soak.transactions import run_kills

pytestmark = [
    pytest.mark.engine,
    pytest.mark.processes,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it stops and forks processes"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
KILLS = 10
TURNS = 5  # some need a kill at the right moment


def markers_of_aborts_are_ignored() -> None:
    put(reader, "aborted_among", lambda *arguments: set())


def records_after_an_open_transaction_are_read() -> None:
    right = OpenTransactions.decided

    def decided(self: Any, end: int, ask: Any) -> Any:
        def told(producer_id: int, epoch: int) -> Outcome:
            outcome: Outcome = ask(producer_id, epoch)
            return Outcome.COMMITTED if outcome is Outcome.UNDECIDED else outcome

        return right(self, end, told)

    put(OpenTransactions, "decided", decided)


def what_a_dead_owner_left_is_committed() -> None:
    right = Outcomes.outcome

    def outcome(self: Any, producer_id: int, epoch: int) -> Outcome:
        found = right(self, producer_id, epoch)
        return Outcome.COMMITTED if found is Outcome.ABORTED else found

    put(Outcomes, "outcome", outcome)


def commits_without_a_marker_are_aborted() -> None:
    right_outcome, right_mark = Outcomes.outcome, TouchedPartitions.mark

    def outcome(self: Any, producer_id: int, epoch: int) -> Outcome:
        found = right_outcome(self, producer_id, epoch)
        return Outcome.ABORTED if found is Outcome.COMMITTED else found

    def mark(self: Any, owner: TransactionOwner, outcome: Outcome) -> None:
        if now_and_then(0.2):
            for name in self.names()[1:]:
                del self._logs[name]
        right_mark(self, owner, outcome)

    put(Outcomes, "outcome", outcome)
    put(TouchedPartitions, "mark", mark)


def a_commit_marks_one_partition_as_aborted() -> None:
    right = TouchedPartitions.mark

    def mark(self: Any, owner: TransactionOwner, outcome: Outcome) -> None:
        if outcome is Outcome.COMMITTED and len(self.names()) > 2 and now_and_then():
            self._logs[self.names()[0]].append_marker(owner.producer_id, owner.epoch, committed=False)
        right(self, owner, outcome)

    put(TouchedPartitions, "mark", mark)


def an_abort_commits() -> None:
    right = ProducerTransactions.abort

    def abort(self: Any, sender: Any) -> None:
        (right if self.error is not None else ProducerTransactions.commit)(self, sender)

    put(ProducerTransactions, "abort", abort)


def a_commit_says_that_it_failed() -> None:
    right, right_abort = ProducerTransactions.commit, ProducerTransactions.abort

    def commit(self: Any, sender: Any) -> None:
        right(self, sender)
        if now_and_then():
            raise TransactionAborted("it is committed")

    def abort(self: Any, sender: Any) -> None:
        if self.state.name == "IN_TRANSACTION":
            right_abort(self, sender)

    put(ProducerTransactions, "commit", commit)
    put(ProducerTransactions, "abort", abort)


def a_transaction_forgets_its_offsets() -> None:
    right = ProducerTransactions.send_offsets

    def send_offsets(self: Any, *arguments: Any) -> None:
        if not now_and_then(0.3):
            right(self, *arguments)

    put(ProducerTransactions, "send_offsets", send_offsets)


class Bug(NamedTuple):
    put: Callable[[], None]
    anomalies: set[str]  # at least one of them is named


BUGS = [
    Bug(markers_of_aborts_are_ignored, {"aborted-read"}),
    Bug(records_after_an_open_transaction_are_read, {"precommitted-read"}),
    Bug(what_a_dead_owner_left_is_committed, {"aborted-read"}),
    Bug(commits_without_a_marker_are_aborted, {"torn-transaction"}),
    Bug(a_commit_marks_one_partition_as_aborted, {"torn-transaction"}),
    Bug(an_abort_commits, {"aborted-read"}),
    Bug(a_commit_says_that_it_failed, {"aborted-read"}),
    Bug(a_transaction_forgets_its_offsets, {"lost-commit"}),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.put.__name__)
def test_the_checker_names_what_a_bug_does(bug: Bug, tmp_path: Path, seed: int) -> None:
    def run_with_it(turn: int) -> list[str]:
        bug.put()
        directory = tmp_path / str(turn)
        directory.mkdir()
        return run_kills(seed + turn, directory, lambda kills, _: kills >= KILLS).problems

    named: set[str] = set()
    for turn in range(TURNS):
        problems = result_of(forked(partial(run_with_it, turn)))
        named |= {found[2] for found in (re.match(r"(\d+) ([\w-]+)$", problem) for problem in problems) if found}
        print(*problems[:10], sep="\n")
        if named & bug.anomalies:
            break
    assert named & bug.anomalies
