"""A log under load keeps within its bounds while processes are killed. The long form:
``scripts/soak retention --hours 1``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from tests.soak.retention import HUNDRED_TOPICS, SHORT, Settings, run_load, usage

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.one_in(8)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
@pytest.mark.parametrize(
    ("settings", "seconds"), [(SHORT, 25.0), pytest.param(HUNDRED_TOPICS, 10.0, marks=pytest.mark.engine)]
)
def test_the_size_the_descriptors_and_the_memory_of_a_log_under_load_stay_within_their_bounds(
    settings: Settings, seconds: float, tmpfs_dir: Path, seed: int
) -> None:
    done = run_load(seconds, seed, tmpfs_dir, settings)
    assert done.problems == [], f"seed {seed}: {done.figures}"
    assert done.figures["kills"] > 0
    assert done.figures["sent"] > 100


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
def test_a_sample_counts_what_is_there_and_what_is_deleted_but_open(tmpfs_dir: Path) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(bytes(10_000))], acks=1)
        path = log.path / "t-0" / f"{0:020d}.log"
        size = path.stat().st_size
        before = usage(log.path, [os.getpid()])
        assert before.files["t-0"] >= before.blocks["t-0"] - (64 << 10)
        assert (before.files["t-0"] >= size > 10_000, before.held, before.waiting) == (True, {}, 0)
        path.rename(path.with_suffix(".log.deleted"))
        assert usage(log.path, [os.getpid()]).waiting == 1
        path.with_suffix(".log.deleted").unlink()
        after = usage(log.path, [os.getpid()])
        assert after.held == {(os.getpid(), "t-0"): size}
        assert after.files["t-0"] == before.files["t-0"] - size
