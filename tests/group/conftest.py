"""Logs for the consumers of a group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Log
from pylog.testing import ManualClock


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=4)
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed_log(tmpfs_dir: Path, clock: ManualClock) -> Iterator[Log]:
    """A log without topics, whose time passes only as the test says."""
    with Log(tmpfs_dir / "log", clock=clock) as opened:
        yield opened
