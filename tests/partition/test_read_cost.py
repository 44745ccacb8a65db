"""What one read, one fetch and one sync look at: no more than they need."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pylog import Consumer, Log
from pylog.codec.batch import BatchView
from pylog.model import ProducerRecord, TopicPartition
from pylog.segment.naming import COMMIT_SLOTS, UNSYNCED
from pylog.storage import ReadableFile
from tests.partition.logs import append_encoded, batch, many, one, open_partition, topic_of, values
from tests.storage.filesystems import StandIn


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions outside of the codec are called."""
    called = 0

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal called
        called += event == "call" and "codec" not in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


@pytest.fixture
def decoders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each batch that is opened."""
    opened: list[int] = []
    decoder = BatchView.decoder

    def counted(view: BatchView, *how: Any) -> Any:
        opened.append(view.base_offset)
        return decoder(view, *how)

    monkeypatch.setattr(BatchView, "decoder", counted)
    return opened


def test_reading_few_records_opens_the_batches_that_hold_them(tmp_path: Path, decoders: list[int]) -> None:
    partition = open_partition(tmp_path / "t-0")
    for number in range(40):
        partition.append(one(f"{number}"), acks=1)
    partition.read(0, max_records=1)
    decoders.clear()
    assert values(partition.read(20, max_records=1)) == ["20"]
    assert decoders == [20]
    assert values(partition.read(20, max_records=3)) == ["20", "21", "22"]
    assert decoders == [20, 20, 21, 22]
    assert calls_of(lambda: partition.read(0, max_records=1)) < 120


def test_reading_few_records_brings_as_many_as_are_there_whatever_their_size(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    sizes = [1, 5000, 1, 1, 20_000, 300]
    for size in sizes:
        partition.append(one("x" * size), acks=1)
    partition.append(many("a", "b", "c"), acks=1)
    for first in range(9):
        for count in range(1, 12):
            found = partition.read(first, max_records=count)
            assert [record.offset for record in found] == list(range(first, min(first + count, 9)))


def test_reading_few_records_does_not_go_beyond_the_bytes_asked_for(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for _ in range(9):
        append_encoded(partition, batch(b"x" * 1000))
    assert len(partition.read(0, max_records=9, max_bytes=3500)) == 3


class Looked(StandIn):
    """Counts reads of slots, and looks for markers of failed syncs."""

    def __init__(self) -> None:
        self.slots = self.markers = 0

    def open_readable(self, path: str) -> ReadableFile:
        file = super().open_readable(path)
        return Counted(file, self) if path.endswith(COMMIT_SLOTS) else file

    def exists(self, path: str) -> bool:
        self.markers += path.endswith(UNSYNCED)
        return super().exists(path)


class Counted:
    def __init__(self, file: ReadableFile, looked: Looked) -> None:
        self._file = file
        self._looked = looked
        self.path, self.close_when_idle = file.path, file.close_when_idle

    def pread(self, size: int, position: int) -> bytes:
        self._looked.slots += 1
        return self._file.pread(size, position)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


def test_a_sync_looks_once_for_the_marker_of_a_failed_one(tmp_path: Path) -> None:
    filesystem = Looked()
    partition = open_partition(tmp_path / "t-0", filesystem)
    partition.append(one("first"))
    for _ in range(3):
        filesystem.markers = 0
        partition.append(one("x"))
        assert filesystem.markers == 1


def test_a_fetch_reads_the_slots_once(tmp_path: Path) -> None:
    filesystem = Looked()
    with Log(tmp_path / "log", filesystem=filesystem) as log:
        partition = topic_of(log, "t")
        with Consumer(log, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            partition.append([ProducerRecord(b"x")], acks=1)
            assert len(consumer.poll(0)) == 1
            for _ in range(3):
                assert consumer.poll(0) == []
                filesystem.slots = 0
                partition.append([ProducerRecord(b"x")], acks=1)
                assert len(consumer.poll(0)) == 1
                assert filesystem.slots == 1
            filesystem.slots = 0
            assert consumer.poll(0) == []
            assert filesystem.slots == 1
