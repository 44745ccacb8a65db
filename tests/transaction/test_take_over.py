"""What a new owner of an id finds in the log stays so: nothing of the owner before comes after
it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog.testing.machine import Machine, Process, Step, for_every_kill, for_every_power_loss
from tests.transaction.stage import ROOT, Owner, Stage, values_of


@pytest.mark.one_in(8)
@pytest.mark.slow
@pytest.mark.parametrize("flushes", [False, True], ids=["one batch", "ordinary"])
@pytest.mark.parametrize("crash", [for_every_kill, for_every_power_loss])
def test_what_a_new_owner_reads_is_what_the_owner_before_has_left(
    crash: Callable[..., int], flushes: bool, seed: int
) -> None:
    """A program continues after the last record that it has written: what appears later, it would
    write twice."""
    machine = Machine(seed, tear_writes=crash is for_every_kill)
    with machine.process().open_log(ROOT) as log:
        log.create_topic("t")
    owner = Owner(machine.process(), "app", 10**9)

    def program() -> None:
        for value in ("1", "2"):
            owner.producer.begin_transaction()
            owner.producer.send("t", value.encode())
            if flushes:
                owner.producer.flush()
            owner.producer.commit_transaction()

    def check(left: Machine) -> None:
        next_owner = Owner(left.process(), "app", 10**9)
        with left.process().open_log(ROOT) as log:
            before = values_of(log, 0)
        next_owner.producer.begin_transaction()
        next_owner.producer.send("t", b"next")
        next_owner.producer.commit_transaction()
        with left.process().open_log(ROOT) as log:
            assert values_of(log, 0) == [*before, "next"]

    assert crash(machine, program, check) > 10


def test_a_producer_that_is_closed_after_an_interrupted_commit_leaves_nothing_that_appears_later() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.producer.begin_transaction()
    owner.producer.send("t", b"1", partition=0)

    def before(process: Process, step: Step) -> None:
        if process is owner.process and step.name == "pwrite" and step.path.endswith("t-0/.commit"):
            stage.machine.before_step.remove(before)
            raise KeyboardInterrupt

    stage.machine.before_step.append(before)
    with pytest.raises(KeyboardInterrupt):
        owner.producer.commit_transaction()
    owner.producer.close()
    assert stage.read()[0] == []
    next_owner = stage.owner()
    assert stage.read()[0] == ["1"]
    next_owner.commit({0: "2"})
    assert stage.read()[0] == ["1", "2"]
