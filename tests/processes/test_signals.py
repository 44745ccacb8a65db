"""What a signal handler raises reaches the caller unchanged, wherever it comes, and nothing is
lost, there twice or left open."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.soak.signal_trials import EXCEPTIONS, FURTHER, run_trials

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that raise signals"),
]
TRIALS = int(os.environ.get("PYLOG_TEST_SIGNALS", "40"))


def test_what_a_signal_handler_raises_at_a_random_moment_reaches_the_caller_unchanged(
    tmp_path: Path, seed: int
) -> None:
    figures, problems = run_trials(tmp_path, seed, {**EXCEPTIONS, **FURTHER}, TRIALS, 600)
    print(figures)
    assert problems == []
    assert [figures[f"{kind}: unchanged"] for kind in (*EXCEPTIONS, *FURTHER)] == [TRIALS] * 8
    assert figures["descriptors left open"] == 0


@pytest.mark.soak
def test_of_1000_exceptions_of_each_kind_1000_reach_the_caller_unchanged(tmp_path: Path, seed: int) -> None:
    figures, problems = run_trials(tmp_path, seed, EXCEPTIONS, 1000, 3600)
    print(figures)
    assert problems == []
    assert [figures[f"{kind}: unchanged"] for kind in EXCEPTIONS] == [1000] * 5
