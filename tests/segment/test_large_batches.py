"""Batches too large to be read on the word of their header: checked in pieces first, and read whole
up to a limit."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.codec.batch import stamp
from pylog.codec.format import BATCH_OVERHEAD, LENGTH_POSITION
from pylog.errors import CorruptSegment
from pylog.model import TopicPartition
from pylog.partition.verify import verify_partition
from pylog.segment import BATCH_LIMIT_BYTES, SegmentReader
from pylog.segment import reader as reader_module
from pylog.storage import OsFileSystem, ReadableFile
from tests.partition.logs import append_encoded, batch, everything, log_file, open_partition
from tests.storage.filesystems import StandIn

MIB = 1 << 20


class WatchedFile:
    """A file that tells of every read."""

    def __init__(self, file: ReadableFile, tell: Callable[[int], None]) -> None:
        self._file = file
        self._tell = tell
        self.path, self.size, self.close = file.path, file.size, file.close
        self.close_when_idle = file.close_when_idle

    def pread(self, size: int, position: int) -> bytes:
        self._tell(size)
        return self._file.pread(size, position)


class Watched(StandIn):
    """Knows the largest read that was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.most_at_once = 0

    def open_readable(self, path: str) -> ReadableFile:
        return WatchedFile(super().open_readable(path), self._note)

    def _note(self, size: int) -> None:
        self.most_at_once = max(self.most_at_once, size)


def test_a_length_made_up_in_a_sparse_segment_allocates_nothing_and_hides_nothing(tmp_path: Path) -> None:
    first, claims, last = batch(b"first"), batch(b"claims"), batch(b"last")
    length = 200 * MIB
    claims[LENGTH_POSITION : LENGTH_POSITION + 4] = (length - BATCH_OVERHEAD).to_bytes(4, "big")
    for offset, made in enumerate((first, claims, last)):
        stamp(made, offset, 0)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(first + claims)
    os.truncate(path, len(first) + length)
    with path.open("ab") as file:
        file.write(last)
    filesystem = Watched()
    reader = SegmentReader(filesystem, str(tmp_path), 0, closed=True, dense=True)
    end = reader.size()
    assert len(reader.read(0, end, max_bytes=MIB)) == 1
    with pytest.raises(CorruptSegment, match="checksum") as caught:
        reader.read(reader.locate(1, end), end, max_bytes=MIB)
    assert (caught.value.path, caught.value.position) == (str(path), len(first))
    (view,) = reader.read(reader.locate(2, end), end, max_bytes=MIB)
    assert [record.value for record in view.records()] == [b"last"]
    assert filesystem.most_at_once <= 2 * MIB
    reader.close()


def test_what_may_be_to_blame_for_a_gap_is_not_read_on_its_word_either(tmp_path: Path) -> None:
    claims, last = batch(b"claims"), batch(b"last")
    claims[LENGTH_POSITION : LENGTH_POSITION + 4] = (64 * MIB - BATCH_OVERHEAD).to_bytes(4, "big")
    stamp(claims, 0, 0)
    stamp(last, 9, 0)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(claims)
    os.truncate(path, 64 * MIB)
    with path.open("ab") as file:
        file.write(last)
    filesystem = Watched()
    reader = SegmentReader(filesystem, str(tmp_path), 0, closed=True, dense=False)
    with pytest.raises(CorruptSegment, match="checksum"):
        reader.locate(5, reader.size())
    assert filesystem.most_at_once <= 2 * MIB
    reader.close()


@pytest.mark.parametrize("size_mib", [3, 5, 15])
def test_a_real_large_batch_reads(tmp_path: Path, size_mib: int) -> None:
    values = [b"before", b"x" * (size_mib * MIB), b"behind"]
    partition = open_partition(tmp_path / "t-0", max_message_bytes=32 * MIB)
    for value in values:
        append_encoded(partition, batch(value))
    assert [value for _, value in everything(partition)] == values


def test_a_batch_may_be_as_large_as_the_guarantees_say() -> None:
    text = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()
    assert re.search(rf"\b{BATCH_LIMIT_BYTES >> 20} MiB", text)


def test_what_the_topic_allows_is_read_however_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "BATCH_LIMIT_BYTES", 5 * MIB)
    directory = tmp_path / "t-0"
    partition = open_partition(directory, max_message_bytes=7 * MIB)
    append_encoded(partition, batch(b"x" * 6 * MIB))
    append_encoded(partition, batch(b"behind"))
    assert len(everything(partition)) == 2
    partition.close()
    lowered = open_partition(directory, max_message_bytes=MIB)
    with pytest.raises(CorruptSegment, match=r"limit is 5242880; it is whole.* max_message_bytes") as caught:
        lowered.read(0)
    assert (caught.value.path, caught.value.position) == (str(log_file(directory)), 0)
    assert [record.value for record in lowered.read(1)] == [b"behind"]
    for limit_bytes, count in ((7 * MIB, 0), (MIB, 1)):
        found = verify_partition(OsFileSystem(), str(directory), TopicPartition("t", 0), batch_limit_bytes=limit_bytes)
        assert len(list(found)) == count
