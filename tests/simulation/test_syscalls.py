"""Whatever call of the operating system fails, on the real filesystem: a typed error, nothing lost,
no file left open.

Here a share of all calls and errors, another with each seed, and a larger one in ``scripts/test
--engines``; ``scripts/soak`` has the rest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.syscalls import sweep
from tests.simulation.workloads import WORKLOADS, Workload


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
@pytest.mark.one_in(8)
def test_a_call_that_fails_once_or_for_ever_leaves_no_lie(workload: Workload, tmpfs_dir: Path, seed: int) -> None:
    found = sweep(workload, tmpfs_dir, every=900, offset=seed)
    assert found.problems == []
    assert found.crashes > 1


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_more_calls_that_fail_leave_no_lie_either(workload: Workload, tmpfs_dir: Path, seed: int) -> None:
    found = sweep(workload, tmpfs_dir, every=200, offset=seed + 1)
    assert found.problems == []
    assert found.crashes > 8
