"""Transactions of real processes that are killed and stopped. The long form: ``scripts/soak
transactions --hours 1``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.soak.transactions import Settings, run_kills

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it stops and forks processes")
def test_the_output_of_a_killed_pipeline_equals_its_input_exactly_and_its_history_has_no_anomaly(
    tmp_path: Path, seed: int
) -> None:
    done = run_kills(seed, tmp_path, lambda kills, _: kills >= 12, Settings(window=20_000))
    assert done.problems == [], f"seed {seed}: {done.figures}"
    assert done.figures["committed"] > 40
    assert done.figures["table entries"] < 200
