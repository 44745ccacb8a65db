"""Which segments a reader keeps open: those that are come back to, not those that were read
through."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.partition import Partition
from pylog.partition.read import reader
from pylog.partition.read.cursor import Cursor
from pylog.partition.read.visibility import READ_UNCOMMITTED, WRITTEN
from pylog.storage import ReadableFile
from tests.partition.logs import one, open_partition
from tests.storage.filesystems import StandIn

SEGMENTS = 12


class Opened(StandIn):
    """Notes the names of the segments that are opened."""

    def __init__(self) -> None:
        self.names_opened: list[str] = []

    def open_readable(self, path: str) -> ReadableFile:
        if path.endswith(".log"):
            self.names_opened.append(os.path.basename(path))
        return super().open_readable(path)


def of_many_segments(directory: Path) -> tuple[Partition, Opened]:
    writer = open_partition(directory)
    for _ in range(SEGMENTS):
        writer.append(one("x"), acks=1)
        writer.log.roll()
    filesystem = Opened()
    return open_partition(directory, filesystem, read_only=True), filesystem


def test_segments_come_back_to_are_opened_once(tmp_path: Path) -> None:
    partition, filesystem = of_many_segments(tmp_path / "t-0")
    for _ in range(3):
        for offset in range(SEGMENTS - 1, -1, -1):
            assert partition.read(offset)[0].offset == offset
    assert len(filesystem.names_opened) == len(set(filesystem.names_opened)) == SEGMENTS


def test_the_segment_used_longest_ago_is_closed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_OPEN_SEGMENTS_MAX", 2)
    partition, filesystem = of_many_segments(tmp_path / "t-0")
    for offset in (7, 1, 7, 4, 7, 9, 7):
        partition.read(offset)
    assert [int(name.removesuffix(".log")) for name in filesystem.names_opened] == [7, 1, 4, 9]


def test_reading_through_a_log_keeps_few_files_open(tmp_path: Path, open_files: Callable[[], list[str]]) -> None:
    partition, filesystem = of_many_segments(tmp_path / "t-0")
    before, most = len(open_files()), 0
    cursor, read = Cursor(0), 0
    while read < SEGMENTS:
        fetched = partition.log.fetch(cursor, max_bytes=1, isolation_level=READ_UNCOMMITTED, visibility=WRITTEN)
        cursor, read = fetched.cursor, read + len(fetched.batches)
        most = max(most, len(open_files()) - before)
    assert len(filesystem.names_opened) == SEGMENTS
    assert most <= 3
