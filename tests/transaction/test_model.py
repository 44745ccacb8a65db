"""Transactions against a plain model: what is visible is what was committed, in the order of the
partition.

Two producers with ids of their own, incarnations that take over, deaths, losses of power, markers
that a disk refuses.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylog.errors import PylogError, StorageError
from pylog.testing.machine import Process, Step
from tests.transaction.stage import PARTITIONS, Owner, Stage

IDS = ("a", "b")
some_id = st.sampled_from(IDS)


class Transactions(RuleBasedStateMachine):
    """``written``: values in the order in which they came into the log. ``committed``: those to be
    seen."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, Owner] = {}
        self.open: dict[str, list[tuple[int, str]]] = {}
        self.committed: set[str] = set()
        self.sent = 0

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.stage = Stage(seed)

    def owner(self, name: str) -> Owner:
        if name not in self.owners:
            self.owners[name] = self.stage.owner(name)
        return self.owners[name]

    @rule(name=some_id, partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def send(self, name: str, partition: int, count: int) -> None:
        owner = self.owner(name)
        if name not in self.open:
            owner.producer.begin_transaction()
            self.open[name] = []
        for _ in range(count):
            self.sent += 1
            value = f"{name}{self.sent}"
            owner.producer.send("t", value.encode(), partition=partition)
            self.open[name].append((partition, value))

    @rule(name=some_id)
    def flush(self, name: str) -> None:
        self.owner(name).producer.flush()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        self.owners[name].producer.commit_transaction()
        self.committed |= {value for _, value in self.open.pop(name)}

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def commit_with_markers_refused(self, data: st.DataObject) -> None:
        """A disk refuses every write to a partition once the decision is durable: ``commit``
        returns all the same."""
        name = data.draw(st.sampled_from(sorted(self.open)))
        owner, is_decided = self.owners[name], False

        def refuse(process: Process, step: Step) -> None:
            nonlocal is_decided
            is_decided = is_decided or (step.name == "pwrite" and step.path.endswith("/state"))
            if is_decided and step.name == "pwrite" and "/t-" in step.path:
                raise StorageError("no", path=step.path)

        if not owner.is_ongoing:
            return
        owner.producer.flush()
        self.stage.machine.before_step.append(refuse)
        try:
            owner.producer.commit_transaction()
        finally:
            self.stage.machine.before_step.remove(refuse)
        self.committed |= {value for _, value in self.open.pop(name)}

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        self.owners[name].producer.abort_transaction()
        del self.open[name]

    @rule(name=some_id)
    def take_over(self, name: str) -> None:
        before = self.owners.pop(name, None)
        self.open.pop(name, None)
        self.owner(name)
        if before is not None:
            with suppress(PylogError):
                before.producer.commit_transaction()
            before.producer.close()

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.owners)))
        self.owners.pop(name).process.kill()
        self.open.pop(name, None)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.owners)))
        self.owners.pop(name).producer.close()
        self.open.pop(name, None)

    @rule()
    def lose_power(self) -> None:
        self.owners.clear()
        self.open.clear()
        self.stage.lose_power()

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def append(self, partition: int) -> None:
        self.stage.append(partition)

    @invariant()
    def what_is_visible_is_what_was_committed(self) -> None:
        for read_only in (True, False):
            for values in self.stage.read(read_only=read_only).values():
                numbers = [int(value[1:]) for value in values if value != "?"]
                assert len(set(numbers)) == len(numbers)
                assert self.committed.issuperset(value for value in values if value != "?")
                if not self.open:
                    assert "?" not in values
        if not self.open:
            found = {value for values in self.stage.read().values() for value in values}
            assert found == self.committed


Transactions.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestTransactions = pytest.mark.slow(Transactions.TestCase)
