"""An erasure keeps its promises after a kill, or a loss of power, at each of its steps, and in any
order with others."""

from __future__ import annotations

import pytest

from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss
from tests.simulation.erasures import (
    MEETING,
    ROOT,
    check,
    erase_in,
    known_of,
    meeting,
    staged,
)
from tests.simulation.orders import at_random, in_every_order

pytestmark = [pytest.mark.slow, pytest.mark.one_in(8), pytest.mark.timeout(600)]


class Erasing:
    """The program, and whether it has returned."""

    def __init__(self, machine: Machine, *, tombstones: bool) -> None:
        self.log = machine.process().open_log(ROOT)
        self.known = known_of(machine.copy())
        self.tombstones = tombstones
        self.is_done = False

    def run(self) -> None:
        erase_in(self.log, tombstones=self.tombstones)
        self.is_done = True

    def check(self, left: Machine) -> None:
        check(left, self.known, erased=self.is_done)


@pytest.mark.parametrize("tombstones", [False, True])
def test_a_kill_at_any_step_leaves_all_others(seed: int, tombstones: bool) -> None:
    machine = staged(seed)
    program = Erasing(machine, tombstones=tombstones)
    assert for_every_kill(machine, program.run, program.check) > 60


@pytest.mark.parametrize("tombstones", [False, True])
def test_a_loss_of_power_at_any_step_leaves_all_others(seed: int, tombstones: bool) -> None:
    machine = staged(seed)
    program = Erasing(machine, tombstones=tombstones)
    checked = for_every_power_loss(machine, program.run, program.check, at_most=4, sector_bytes=512)
    assert checked > 200


@pytest.mark.engine  # minutes
@pytest.mark.parametrize("name", MEETING)
def test_an_erasure_meets_others_in_every_order_with_one_preemption(name: str, seed: int) -> None:
    found = in_every_order(meeting(name, seed))
    assert found.problems == []
    assert found.crashes > 50


@pytest.mark.parametrize("name", MEETING)
def test_an_erasure_meets_others_in_any_order(name: str, seed: int) -> None:
    assert at_random(meeting(name, seed), seed, 40).problems == []
