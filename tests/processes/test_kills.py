"""Producing processes are killed at random moments; the log keeps what it acknowledged, and repairs itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.processes import chaos

KILLS = int(os.environ.get("PYLOG_TEST_KILLS", "60"))


@pytest.mark.processes
@pytest.mark.parametrize("where", ["disk", "tmpfs"])
def test_killed_producers_lose_nothing_that_was_acknowledged(
    where: str, request: pytest.FixtureRequest, seed: int
) -> None:
    directory: Path = request.getfixturevalue("tmp_path" if where == "disk" else "tmpfs_dir")
    outcome = chaos.run(directory / "log", kills=KILLS, workers=3, partitions=2, seed=seed)
    assert outcome.problems == []
    assert outcome.acknowledged > 0
    assert outcome.read >= outcome.acknowledged
