"""A reader that looks in the moment between publishing a new segment and creating its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import CorruptSegment, NotAppended
from pylog.storage.filesystem import AppendableFile
from tests.partition.logs import durability_of
from tests.storage.filesystems import StandIn


class LookBeforeNewFile(StandIn):
    """Calls ``look`` whenever a segment file is about to be created."""

    def __init__(self) -> None:
        self.look = lambda: None

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        if path.endswith(".log") and not self.exists(path):
            self.look()
        return super().open_appendable(path, create=create)


def test_a_reader_that_lists_segments_before_the_new_file_is_there_finds_it_later(tmp_path: Path) -> None:
    filesystem = LookBeforeNewFile()
    with Log(tmp_path / "log", filesystem=filesystem) as log, Log(tmp_path / "log") as other:
        log.create_topic("events", segment_bytes=2000)
        reader = other.partition("events", 0)
        seen: list[int] = []
        filesystem.look = lambda: seen.append(len(reader.read(max(reader.latest_offset - 1, 0))))
        for _ in range(10):
            log.partition("events", 0).append([ProducerRecord(bytes(900))], acks=1)
        assert len(reader.segments) == 5
        assert seen == [1, 1, 1, 1]
        assert [record.offset for record in reader.scan()] == list(range(10))


def test_a_sync_between_publishing_a_new_segment_and_creating_its_file_covers_what_was_there(tmp_path: Path) -> None:
    filesystem = LookBeforeNewFile()
    with Log(tmp_path / "log", filesystem=filesystem) as log, Log(tmp_path / "log") as other:
        log.create_topic("events", segment_bytes=2000)
        partition, neighbour = log.partition("events", 0), other.partition("events", 0)
        neighbour.append([ProducerRecord(bytes(900))], acks=1)
        waiting = durability_of(neighbour)
        waiting._writer.publish_durable = lambda *_: True  # its lock is held by the one who rolls
        filesystem.look = lambda: waiting.sync(1)
        for _ in range(3):
            partition.append([ProducerRecord(bytes(900))], acks=1)
        assert waiting._durable_offset >= 1
        assert len(partition.segments) == 2


def test_a_segment_whose_roller_died_before_sealing_is_sealed_by_the_next_roll(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("events")
        partition = log.partition("events", 0)
        for _ in range(3):
            partition.append([ProducerRecord(b"x")], acks=1)
            partition.log.roll()
        seals = sorted((tmp_path / "log" / "events-0").glob("*.seal"))
        assert len(seals) == 3
        for seal in seals[1:]:
            seal.unlink()
    with Log(tmp_path / "log") as log:
        partition = log.partition("events", 0)
        partition.append([ProducerRecord(b"x")], acks=1)
        partition.log.roll()
        assert len(list((tmp_path / "log" / "events-0").glob("*.seal"))) == 4


def test_damage_at_the_end_of_a_closed_segment_deletes_no_later_one_when_the_slots_are_lost(tmp_path: Path) -> None:
    """The last batch of a closed segment has nothing behind it in its own file, but whole segments
    follow."""
    with Log(tmp_path / "log") as log:
        log.create_topic("events")
        for _ in range(3):
            log.partition("events", 0).append([ProducerRecord(b"a"), ProducerRecord(b"b")])
            log.partition("events", 0).log.roll()
    directory = tmp_path / "log" / "events-0"
    (directory / ".commit").unlink()
    segment = directory / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-2] ^= 1
    segment.write_bytes(data)
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    with Log(tmp_path / "log") as log, pytest.raises(NotAppended) as caught:
        log.partition("events", 0).append([ProducerRecord(b"c")])
    assert isinstance(caught.value.__cause__, CorruptSegment)
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == before
