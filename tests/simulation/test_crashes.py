"""What is promised holds after a kill, or a loss of power, at every step of every workload."""

from __future__ import annotations

import pytest

from pylog.partition.verify import times
from pylog.segment import seal, time_lookup
from tests.simulation.crashes import PowerCuts, kills, kills_then_power_cuts
from tests.simulation.workloads import (
    OF_SEVERAL,
    WORKLOADS,
    Workload,
    drawn,
    group_commit,
    rolls,
)

pytestmark = [pytest.mark.slow, pytest.mark.one_in(16)]

every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


@every_workload
def test_a_kill_at_any_step_loses_nothing_that_was_acknowledged(workload: Workload, seed: int) -> None:
    found = kills(workload, seed)
    assert found.problems == []
    assert found.crashes > 200


def test_a_loss_of_power_at_any_step_of_what_is_drawn_loses_nothing_durable(seed: int) -> None:
    assert PowerCuts(drawn(seed), seed, samples=2, sector_bytes=4096, every=3, one_in=6).run().problems == []


@every_workload
def test_a_loss_of_power_at_any_step_loses_nothing_durable(workload: Workload, seed: int) -> None:
    found = PowerCuts(workload, seed, samples=2, every=3, one_in=6).run()
    assert found.problems == []
    assert found.images > 100


@pytest.mark.parametrize("workload", OF_SEVERAL, ids=lambda workload: workload.__name__)
def test_a_loss_of_power_some_time_after_a_kill_loses_nothing_durable(workload: Workload, seed: int) -> None:
    found = kills_then_power_cuts(workload, seed, kills=60, share=0.3)
    assert found.problems == []
    assert found.images > 100


def test_a_loss_of_power_some_time_after_a_kill_loses_nothing_durable_of_what_is_drawn(seed: int) -> None:
    assert kills_then_power_cuts(drawn(seed), seed, kills=60, share=0.3).problems == []


@pytest.mark.parametrize("workload", [rolls, group_commit], ids=lambda work: work.__name__)
def test_what_seals_and_slots_say_of_times_is_so_after_any_crash(
    workload: Workload, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (seal, time_lookup, times):  # a batch has its own block of 64 bytes
        monkeypatch.setattr(module, "LEAST_EVERY_BYTES", 64)
    assert kills(workload, seed).problems == []
    assert PowerCuts(workload, seed, samples=2, every=6, one_in=6).run().problems == []
    assert kills_then_power_cuts(workload, seed, kills=20, share=0.3).problems == []
