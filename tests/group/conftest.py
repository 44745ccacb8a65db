"""A log for the consumers of a group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Log


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=4)
        yield opened
