"""A compaction of three segments keeps its promises after a kill, or a loss of power, at each of
its steps."""

from __future__ import annotations

from itertools import count

import pytest

from pylog.testing.machine import Machine, for_every_kill, for_every_power_loss
from tests.simulation.compactions import (
    MEETING,
    ROOT,
    append_times,
    check,
    check_maintained,
    committed,
    compact_in,
    compact_while_sealing,
    meeting,
    staged,
)
from tests.simulation.orders import at_random, in_every_order

pytestmark = [pytest.mark.slow, pytest.mark.one_in(8)]


def test_a_kill_at_any_step_leaves_the_newest_records(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    original = committed(log)
    checked = for_every_kill(machine, lambda: compact_in(log), lambda left: check(left, original))
    assert checked > 30


def test_maintenance_removes_what_a_kill_at_any_step_has_left(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    original, times = committed(log), append_times(log)
    assert len({*times.values()}) == 3
    checked = for_every_kill(machine, lambda: compact_in(log), lambda left: check_maintained(left, original, times))
    assert checked > 30


def test_a_loss_of_power_at_any_step_leaves_the_newest_records(seed: int) -> None:
    machine = staged(seed)
    log = machine.process().open_log(ROOT)
    original = committed(log)
    checked = for_every_power_loss(
        machine, lambda: compact_in(log), lambda left: check(left, original), at_most=16, sector_bytes=512
    )
    assert checked > 500


def test_a_compaction_drops_what_is_superseded(seed: int) -> None:
    machine: Machine = staged(seed)
    with machine.process().open_log(ROOT) as log:
        before = committed(log)
        report = compact_in(log)
        assert report.segments_after == 1
        assert report.bytes_after < report.bytes_before
        assert report.skipped == ()
        left = committed(log)
    assert len(left) < len(before)
    check(machine, before)


@pytest.mark.parametrize("name", MEETING)
def test_a_compaction_meets_others_in_every_order_with_one_preemption(name: str, seed: int) -> None:
    found = in_every_order(meeting(name, seed))
    assert found.problems == []
    assert found.crashes > 50


@pytest.mark.parametrize("name", MEETING)
def test_a_compaction_meets_others_in_any_order(name: str, seed: int) -> None:
    assert at_random(meeting(name, seed), seed, 60).problems == []


def test_a_compaction_at_any_step_of_the_sealer_keeps_its_own_seal(seed: int) -> None:
    met = list(iter((compact_while_sealing(seed, step) for step in count()).__next__, None))
    assert any(step.startswith(("sync", "replace")) and "seal" in step for step in met), met
