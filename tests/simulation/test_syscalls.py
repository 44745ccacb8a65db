"""Whatever call of the operating system fails, on the real filesystem: a typed error, nothing lost, no descriptor left open.

Here a share of all calls and errors, another with each seed; ``scripts/soak`` has the rest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.syscalls import sweep
from tests.simulation.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_call_that_fails_once_or_for_ever_leaves_no_lie(workload: Workload, tmpfs_dir: Path, seed: int) -> None:
    found = sweep(workload, tmpfs_dir, every=300, offset=seed)
    assert found.problems == []
    assert found.crashes > 5
