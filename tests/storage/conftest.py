"""What is asked of a filesystem is asked of a disk's: memory answers some of it otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(disk_dir: Path) -> Path:
    return disk_dir
