"""What a producer is told of a transaction is what readers see, whatever strikes in its commit, and
in the call after it.

A commit is interrupted at each of its steps. The next call, a commit or an abort, meets each kind
of error, or another interrupt. Then the application does what it was told to: it commits, aborts,
or closes; or another producer takes over before its last commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from pylog import Producer, TopicPartition
from pylog.errors import (
    CommitFailed,
    ProducerFenced,
    PylogError,
    StorageError,
    StorageFull,
    TransactionAborted,
)
from pylog.group.admin import GroupAdmin
from pylog.testing.machine import Process, Step
from tests.transaction.stage import ROOT, Owner, Stage

BOTH, ONE = {0: "T1", 1: "T1"}, {0: "T1"}
NONE: dict[int, str] = {}
CONSUMED = TopicPartition("t", 3)
CHANGES = ("pwrite", "sync", "lock")
CALLS = {"commit": Producer.commit_transaction, "abort": Producer.abort_transaction}


class Fault(NamedTuple):
    """Raised before the steps of these names, on paths with this text."""

    steps: tuple[str, ...]
    path: str
    error: Callable[[], BaseException]


FAULTS = {
    "slots full": Fault(("pwrite",), ".commit", lambda: StorageFull("no space left on device")),
    "table full": Fault(("pwrite",), "__transaction_state", lambda: StorageFull("no space left on device")),
    "refused": Fault(("pwrite", "sync"), "", lambda: StorageError("the disk refused")),
    "interrupted": Fault(CHANGES, "__transaction_state", KeyboardInterrupt),
}


@contextmanager
def interrupted_at(stage: Stage, number: int) -> Iterator[list[Step]]:
    """The step ``number`` of those that change something is interrupted. Yields where, once it
    was."""
    struck: list[Step] = []
    count = 0

    def before(_: Process, step: Step) -> None:
        nonlocal count
        if step.name in CHANGES:
            count += 1
            if count == number + 1:
                struck.append(step)
                raise KeyboardInterrupt

    stage.machine.before_step.append(before)
    try:
        yield struck
    finally:
        stage.machine.before_step.remove(before)


@contextmanager
def struck_by(stage: Stage, fault: Fault) -> Iterator[None]:
    def before(_: Process, step: Step) -> None:
        if step.name in fault.steps and fault.path in step.path:
            raise fault.error()

    stage.machine.before_step.append(before)
    try:
        yield
    finally:
        stage.machine.before_step.remove(before)


class Application:
    """Calls, and remembers what it was told: True of a commit, False of an abort, None of nothing
    yet."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.told: bool | None = None
        self.answers: list[str] = []

    def call(self, name: str) -> None:
        try:
            CALLS[name](self.owner.producer)
            self._tell(name == "commit")
            answer = "done"
        except (PylogError, KeyboardInterrupt) as error:
            if isinstance(error, TransactionAborted | CommitFailed | ProducerFenced):
                self._tell(False)
            answer = type(error).__name__
        self.answers.append(f"{name}: {answer}")

    def _tell(self, is_committed: bool) -> None:
        assert self.told in (None, is_committed), f"told both: {self.answers}"
        self.told = is_committed

    def end_with(self, name: str) -> None:
        for call in (name, "commit", "abort"):
            if not self.is_over:
                self.call(call)
        assert self.is_over, self.answers

    @property
    def is_over(self) -> bool:
        return bool(self.answers) and self.answers[-1].endswith("done")


def trial(values: dict[int, str], number: int, second: str, fault: str, last: str) -> bool:
    """One application. False if its first commit had fewer steps."""
    stage = Stage()
    owner = stage.owner()
    owner.producer.begin_transaction()
    for partition, value in values.items():
        owner.producer.send("t", value.encode(), partition=partition)
    if values is BOTH:
        owner.producer.flush()
        owner.producer.send_offsets_to_transaction({CONSUMED: 7}, "g")
    application = Application(owner)
    with interrupted_at(stage, number) as struck:
        application.call("commit")
    if not application.is_over:
        with struck_by(stage, FAULTS[fault]):
            application.call(second)
    if last == "fenced" and not application.is_over:
        stage.owner()
        application.call("commit")
    elif last in CALLS:
        application.end_with(last)
    owner.producer.close()
    where = f"interrupted before {struck}, then {second} with {fault}, then {last}: {application.answers}"
    seen = seen_of(stage, values)
    assert seen in (values, NONE), where
    assert application.told in (None, seen == values), where
    return bool(struck)


def seen_of(stage: Stage, values: dict[int, str]) -> dict[int, str]:
    """What readers see of the transaction, and of its offsets, after others have appended."""
    for partition in values:
        stage.append(partition)
    found = stage.read(read_only=False)
    assert stage.read() == found
    seen = {partition: value for partition, (value,) in ((n, v) for n, v in found.items() if v)}
    if values is BOTH:
        with stage.machine.process().open_log(ROOT) as log:
            assert (CONSUMED in log.manager.part(GroupAdmin).committed("g")) == bool(seen)
    return seen


@pytest.mark.slow
@pytest.mark.one_in(8)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(BOTH, id="partitions and offsets", marks=pytest.mark.slow),
        pytest.param(ONE, id="one batch"),
    ],
)
def test_the_outcome_that_is_told_is_what_readers_see(values: dict[int, str], fault: str) -> None:
    for last in ("commit", "abort", "close", "fenced"):
        for second in CALLS:
            number = 0
            while trial(values, number, second, fault, last):
                number += 1
            assert number > 5
