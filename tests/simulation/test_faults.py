"""Whatever the system refuses, and wherever an exception strikes: nobody is told what is not so, and nothing stays locked.

Here a share of all faults, another with each seed; ``scripts/soak`` tries them all.
"""

from __future__ import annotations

import pytest

from pylog.testing.machine import Step
from tests.simulation.faults import FAULTS, FILESYSTEM_BEHAVIOURS, error_of, faults_of, sweep
from tests.simulation.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.slow

every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
SHARE = 20


@every_workload
def test_a_step_that_fails_once_or_for_ever_leaves_no_lie(workload: Workload, seed: int) -> None:
    found = sweep(workload, seed, every=SHARE, offset=seed)
    assert found.problems == []
    assert found.crashes > 60


@every_workload
def test_a_sync_that_fails_is_never_taken_for_one_that_succeeded(workload: Workload, seed: int) -> None:
    found = sweep(workload, seed, every=5, offset=seed, kinds=FILESYSTEM_BEHAVIOURS)
    assert found.problems == []


def test_every_step_can_fail_in_the_ways_that_are_listed() -> None:
    steps = [Step(name, "/f", 8) for name in FAULTS]
    faults = list(faults_of(steps))
    assert {(steps[fault.number].name, fault.kind) for fault in faults} == {
        (name, kind) for name, kinds in FAULTS.items() for kind in kinds
    }
    for fault in faults:
        assert isinstance(error_of(fault.kind, steps[fault.number]), BaseException)
