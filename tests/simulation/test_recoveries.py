"""A recovery may be interrupted at any step, and again: the next one comes to the same log."""

from __future__ import annotations

import pytest

from tests.simulation.recoveries import interrupted_recoveries, killed_recoveries_verified
from tests.simulation.workloads import WORKLOADS, Workload

pytestmark = [pytest.mark.slow, pytest.mark.one_in(8)]


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_recovery_interrupted_twice_comes_to_the_same_log(workload: Workload, seed: int) -> None:
    found = interrupted_recoveries(workload, seed, 1)
    assert found.problems == []
    assert found.crashes > 0


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_verify_names_nothing_that_the_next_writer_makes_again_after_a_recovery_that_was_killed(
    workload: Workload, seed: int
) -> None:
    found = killed_recoveries_verified(workload, seed, 3)
    assert found.problems == []
    assert found.crashes > 0
