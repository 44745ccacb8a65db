"""A broker begins a new segment and compacts what a query has planned to read: no damage, and
nothing is missed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pylog import Log
from pylog.errors import CorruptSegment
from tests.partition.logs import append_encoded, batch, flip, log_file, topic_of
from tests.spark.reading import offsets, planned, read_ranges

ON_CORRUPTION = pytest.mark.parametrize("on_corruption", ["fail", "skip"])


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    directory = tmp_path / "theirs" / "orders-0"
    directory.mkdir(parents=True)
    return directory


def segments(path: Path) -> list[bytes]:
    """Three segments of ten batches, each of one record and of one size."""
    with Log(path) as log:
        partition = topic_of(log, "orders")
        for number in range(30):
            append_encoded(partition, batch(b"v"))
            if number in (9, 19):
                partition.log.roll()
        return [log_file(Path(path, "orders-0"), base).read_bytes() for base in (0, 10, 20)]


def without(segment: bytes, *gone: int) -> bytes:
    size = len(segment) // 10
    return b"".join(segment[n * size : (n + 1) * size] for n in range(10) if n not in gone)


def replace(path: Path, content: bytes) -> None:
    """As the cleaner does it: who has the file open reads the old one."""
    path.with_suffix(".swap").write_bytes(content)
    os.replace(path.with_suffix(".swap"), path)


@ON_CORRUPTION
@pytest.mark.parametrize("is_merged", [False, True])
def test_what_was_planned_is_compacted_before_it_is_read(
    tmp_log_dir: Path, theirs: Path, is_merged: bool, on_corruption: str
) -> None:
    first, second, third = segments(tmp_log_dir)
    log_file(theirs).write_bytes(first)
    log_file(theirs, 10).write_bytes(second)
    ranges = planned(theirs, onCorruption=on_corruption)
    log_file(theirs, 20).write_bytes(third)
    left = without(second, 1, 2, 8, 9)
    if is_merged:
        replace(log_file(theirs), without(first, 5) + left)
        log_file(theirs, 10).unlink()
    else:
        replace(log_file(theirs, 10), left)
    expected = [n for n in range(20) if n not in (11, 12, 18, 19) and (n != 5 or not is_merged)]
    assert offsets(list(read_ranges(ranges))) == expected


def test_damage_is_damage_although_there_is_a_new_segment(tmp_log_dir: Path, theirs: Path) -> None:
    first, second, third = segments(tmp_log_dir)
    log_file(theirs).write_bytes(first)
    log_file(theirs, 10).write_bytes(second)
    ranges = planned(theirs)
    log_file(theirs, 20).write_bytes(third)
    flip(log_file(theirs, 10), len(second) - 1)
    with pytest.raises(CorruptSegment, match=r"orders-0 is damaged at offset 19, file .*00010\.log"):
        list(read_ranges(ranges))
