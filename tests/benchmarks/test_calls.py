"""The number of Python calls that an operation takes is bounded, and two checkouts can be
compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import calls, versions
from benchmarks.rivals import RIVALS
from pylog.codec import COMPILED

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not COMPILED, reason="the readable codec takes more calls")
@pytest.mark.parametrize(
    ("operation", "limits"),
    [
        (
            calls.flush,
            {'flush of one batch, acks="all"': 87, "send that opens a batch": 10, "send into an open batch": 1},
        ),
        (calls.poll, {"poll of one batch": 75, "poll, nothing new": 28}),
        (calls.commit, {"commit() of a group member": 150}),
    ],
)
def test_an_operation_takes_few_calls(operation: Callable[[], Iterator[calls.Trace]], limits: dict[str, int]) -> None:
    counts = {trace.operation: trace.total for trace in operation()}
    assert counts.keys() == limits.keys()
    over = {name: count for name, count in counts.items() if count > limits[name]}
    assert not over, f"more Python calls than {limits}: save some (python -m benchmarks.calls --show NAME lists them)"


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
    assert versions.time_ratio("calls", 0.0, 0.0) == 1
    assert versions.time_ratio("calls", 3.0, 0.0) == math.inf


@pytest.mark.processes
def test_a_checkout_is_asked_which_rivals_it_has() -> None:
    assert versions.rivals(ROOT) == list(RIVALS)
