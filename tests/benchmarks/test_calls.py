"""The number of Python calls that an operation takes is bounded, and two checkouts can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import calls, versions
from pylog.codec import COMPILED

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not COMPILED, reason="the readable codec takes more calls")
def test_a_flush_and_a_send_take_few_calls() -> None:
    counts = {trace.operation: trace.count for trace in calls.flush()}
    assert counts.pop('flush of one batch, acks="all"') <= 105
    assert counts.pop("send that opens a batch") <= 12
    assert counts.pop("send into an open batch") == 1
    assert not counts


@pytest.mark.processes
def test_a_workload_of_two_checkouts_is_compared(tmpfs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ["--directory", str(tmpfs_dir)]
    assert versions.main([str(ROOT), "append_sync", "--rounds", "2", "--smoke", *directory]) == 0
    rows = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| `append_sync` | pylog | p50_us")
    ]
    assert len(rows) == 1
    assert "x (" in rows[0]


def test_a_ratio_is_of_times() -> None:
    assert versions.time_ratio("p50_us", 3.0, 2.0) == 1.5
    assert versions.time_ratio("records_per_s", 3.0, 2.0) == 2 / 3
