"""The number of Python calls that an operation takes is bounded, and two checkouts can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import calls, trees
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
def test_appends_of_two_checkouts_are_compared(tmpfs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trees.main([*[str(ROOT)] * 2, "--directory", str(tmpfs_dir), "--rounds", "1", "--repeats", "1"]) == 0
    shown = capsys.readouterr().out
    for name in ("flush of 1", "flush of 100", "bare of 1", "bare of 100", "result, acks=1"):
        assert sum(name in line for line in shown.splitlines()) >= 3
    assert "ratio" in shown
