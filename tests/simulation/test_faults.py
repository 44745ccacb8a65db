"""Whatever the system refuses, and wherever an exception strikes: nobody is told what is not so,
and nothing stays locked.

Here a share of all faults, another with each seed; ``scripts/soak`` tries them all.
"""

from __future__ import annotations

import pytest

from pylog.errors import StorageError
from pylog.testing.machine import Machine, Step
from tests.simulation.faults import (
    FAULTS,
    FILESYSTEM_BEHAVIOURS,
    NEXT,
    NEXT_CHANGE,
    Fault,
    Twice,
    error_of,
    faults_of,
    striking_twice,
    sweep,
    sweep_in_a_row,
    sweep_of_repairs,
)
from tests.simulation.workloads import WORKLOADS, Workload

pytestmark = [pytest.mark.slow, pytest.mark.one_in(16)]

every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
SHARE = 20
SHARE_IN_A_ROW = 120
SHARE_OF_REPAIRS = 40


@every_workload
def test_a_step_that_fails_once_or_for_ever_leaves_no_lie(workload: Workload, seed: int) -> None:
    found = sweep(workload, seed, every=SHARE, offset=seed)
    assert found.problems == []
    assert found.crashes > 60


@every_workload
def test_a_sync_that_fails_is_never_taken_for_one_that_succeeded(workload: Workload, seed: int) -> None:
    found = sweep(workload, seed, every=5, offset=seed, kinds=FILESYSTEM_BEHAVIOURS)
    assert found.problems == []


@every_workload
def test_two_steps_in_a_row_that_fail_leave_no_lie(workload: Workload, seed: int) -> None:
    """All 40,110 of them: ``scripts/soak faults``."""
    found = sweep_in_a_row(workload, seed, every=SHARE_IN_A_ROW, offset=seed)
    assert found.problems == []
    assert found.crashes > 10


@every_workload
def test_two_errors_while_a_killed_writers_log_is_repaired_leave_no_lie(workload: Workload, seed: int) -> None:
    """A kill at every step that changes the disk: the next writer comes to a whole log, however
    often it has to begin."""
    found = sweep_of_repairs(workload, seed, every=SHARE_OF_REPAIRS, offset=seed)
    assert found.problems == []
    assert found.crashes > 10


@pytest.mark.parametrize(
    ("gap", "sticky", "refused"),
    [
        (NEXT, False, [1, 2]),
        (NEXT, True, [1, 2, 3, 4, 5]),
        (NEXT_CHANGE, False, [1, 3]),
        (NEXT_CHANGE, True, [1, 3, 4, 5]),
        (4, False, [1, 5]),
    ],
)
def test_the_second_of_two_faults_strikes_where_it_is_meant_to(gap: int, sticky: bool, refused: list[int]) -> None:
    process = Machine().process()
    before = striking_twice(Twice(Fault(1, "EIO", sticky=False), gap, "EIO", sticky))
    struck = []
    for number, name in enumerate(["pread", "pread", "size", "pwrite", "pread", "pread"]):
        try:
            before(process, Step(name, "/f", 8))
        except StorageError:
            struck.append(number)
    assert struck == refused


def test_every_step_can_fail_in_the_ways_that_are_listed() -> None:
    steps = [Step(name, "/f", 8) for name in FAULTS]
    faults = list(faults_of(steps))
    assert {(steps[fault.number].name, fault.kind) for fault in faults} == {
        (name, kind) for name, kinds in FAULTS.items() for kind in kinds
    }
    for fault in faults:
        assert isinstance(error_of(fault.kind, steps[fault.number]), BaseException)
