"""A recovery may be interrupted at any step, and again: the next one comes to the same log."""

from __future__ import annotations

import pytest

from tests.simulation.recoveries import interrupted_recoveries
from tests.simulation.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_recovery_interrupted_twice_comes_to_the_same_log(workload: Workload, seed: int) -> None:
    found = interrupted_recoveries(workload, seed, 1)
    assert found.problems == []
    assert found.crashes > 0
