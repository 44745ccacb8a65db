"""What is written depends on what is sent, and on nothing that happens to be in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.repeatable import contents, write

ROOT = Path(__file__).parents[1]
# What fresh memory is filled with (all of it comes from malloc then), the order of sets, and the
# codec.
SURROUNDINGS = [
    {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "85", "PYTHONHASHSEED": "1", "PYLOG_PURE_PYTHON": "0"},
    {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "170", "PYTHONHASHSEED": "2", "PYLOG_PURE_PYTHON": "0"},
    {"PYTHONMALLOC": "pymalloc_debug", "MALLOC_PERTURB_": "1", "PYTHONHASHSEED": "3", "PYLOG_PURE_PYTHON": "0"},
    {"PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "85", "PYTHONHASHSEED": "4", "PYLOG_PURE_PYTHON": "1"},
]


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes_a_hundred_times(tmpfs_dir: Path) -> None:
    root = tmpfs_dir / "log"
    write(root)
    first = contents(root)
    assert {name.rpartition(".")[2] for name in first} >= {
        "log",
        "index",
        "timeindex",
        "txnindex",
        "seal",
        "snapshot",
        "commit",
    }
    for _ in range(99):
        shutil.rmtree(root)
        write(root)
        assert contents(root) == first


@pytest.mark.processes
def test_nothing_of_what_was_in_memory_before_is_written(tmpfs_dir: Path) -> None:
    files, seals = set(), set()
    for surroundings in SURROUNDINGS:
        done = subprocess.run(
            [sys.executable, "-m", "tests.storage.repeatable", str(tmpfs_dir / "log")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **surroundings},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        of_files, of_seals = done.stdout.split()
        files.add(of_files)
        seals.add((surroundings["PYLOG_PURE_PYTHON"], of_seals))
    assert len(files) == 1
    assert len(seals) == 2  # the readable codec leaves out the least times: docs/format.md
