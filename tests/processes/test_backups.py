"""Backups of a log that real processes write to, some of them killed: the short form of ``python -m
tests.soak backup``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import backups


@pytest.mark.processes
@pytest.mark.slow
def test_backups_under_load_open_verify_and_hold_what_was_acknowledged(tmp_path: Path, seed: int) -> None:
    outcome = backups.run(5.0, seed, tmp_path)
    assert outcome.problems == []
    assert outcome.figures["backups"] >= 1
