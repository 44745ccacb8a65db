"""Producers, consumers and tidiers are killed, stopped and forked; the log keeps what it
acknowledged, and repairs itself."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes.sharing import forked, result_of
from tests.soak import chaos, full_disk, group_chaos

KILLS = int(os.environ.get("PYLOG_TEST_KILLS", "110"))
ENOUGH_S = 300.0

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the controller adopts orphans, as only Linux can"),
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # producers have a thread, and are forked
]


@pytest.mark.timeout(ENOUGH_S)
@pytest.mark.parametrize("where", ["disk", "tmpfs"])
@pytest.mark.one_in(4)
def test_processes_that_are_killed_stopped_and_forked_lose_and_double_nothing(
    where: str, request: pytest.FixtureRequest, tmp_path: Path, seed: int
) -> None:
    directory: Path = request.getfixturevalue(f"{where}_dir")
    outcome = result_of(forked(lambda: chaos.run(ENOUGH_S, seed, directory, kills=KILLS, settings=chaos.CI)))
    print(outcome.figures)
    if outcome.problems and where == "tmpfs":
        shutil.copytree(directory, tmp_path / "kept")
    assert outcome.problems == []
    assert outcome.figures["kills"] >= KILLS
    assert outcome.figures["acknowledged"] > KILLS
    assert outcome.figures["anomalies"] == 0
    assert all(outcome.figures[name] > 0 for name in ("kills at failpoints", "stops", "forks"))


@pytest.mark.slow
def test_processes_that_are_killed_while_the_disk_is_full_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    if problem := full_disk.why_not():
        pytest.skip(f"this system does not allow a private mount namespace: {problem}")
    outcome = chaos.run_full(3.0, seed, tmp_path)
    print(outcome.figures)
    assert outcome.problems == []
    assert all(outcome.figures[name] > 0 for name in ("kills", "fills", "refused", "acknowledged"))


@pytest.mark.slow
@pytest.mark.timeout(ENOUGH_S)
def test_members_of_a_group_that_are_killed_stopped_and_forked_read_everything_and_share_nothing(
    tmpfs_dir: Path, seed: int
) -> None:
    outcome = result_of(
        forked(lambda: group_chaos.run(ENOUGH_S, seed, tmpfs_dir, kills=KILLS // 4, settings=group_chaos.CI))
    )
    assert outcome.problems == []
    assert outcome.figures["generations"] > KILLS // 10  # members that die at once are gone in one generation
