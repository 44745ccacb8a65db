"""What a roll costs does not grow with the number of segments, and opening costs one look at the
names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.partition import Partition
from pylog.partition.producers import snapshots
from pylog.partition.write.deletion import files_before
from pylog.storage import AppendableFile, ReadableFile
from tests.partition.logs import append_encoded, bases, batch, one, open_partition
from tests.storage.filesystems import StandIn


class Counting(StandIn):
    """Counts listings, and all other questions by name."""

    def __init__(self) -> None:
        self.listings = 0
        self.others = 0

    def names(self, directory: str) -> list[str]:
        self.listings += 1
        return super().names(directory)

    def open_readable(self, path: str) -> ReadableFile:
        self.others += 1
        return super().open_readable(path)

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        self.others += 1
        return super().open_appendable(path, create=create)

    def exists(self, path: str) -> bool:
        self.others += 1
        return super().exists(path)

    def size(self, path: str) -> int:
        self.others += 1
        return super().size(path)

    def remove(self, path: str) -> None:
        self.others += 1
        super().remove(path)


def roll(partition: Partition, times: int = 1) -> None:
    for _ in range(times):
        partition.append(one("x"), acks=1)
        partition.log.roll()


def test_who_writes_alone_lists_no_names_to_roll_and_asks_as_little_with_many_segments(tmp_path: Path) -> None:
    filesystem = Counting()
    partition = open_partition(tmp_path / "t-0", filesystem)
    roll(partition)
    filesystem.listings = 0
    costs = []
    for _ in range(2):
        filesystem.others = 0
        roll(partition)
        costs.append(filesystem.others)
        roll(partition, 40)
    assert filesystem.listings == 0
    assert costs[0] == costs[1]


def test_opening_to_write_and_to_read_lists_names_once_and_not_for_the_active_segment(tmp_path: Path) -> None:
    roll(open_partition(tmp_path / "t-0"), 5)
    writing, reading, reading_newest = Counting(), Counting(), Counting()
    open_partition(tmp_path / "t-0", writing).append(one("x"), acks=1)
    assert open_partition(tmp_path / "t-0", reading, read_only=True).read(0) != []
    assert open_partition(tmp_path / "t-0", reading_newest, read_only=True).read(5) != []
    assert (writing.listings, reading.listings, reading_newest.listings) == (1, 1, 0)


def test_what_lies_before_an_offset_is_listed_in_one_pass() -> None:
    names = sorted(f"{at:020d}{kind}" for at in range(0, 500, 2) for kind in (".log", ".index"))
    names += [f"{at:020d}.snapshot" for at in range(500)]
    found = list(files_before(names, 401))
    assert [name for name in found if name.endswith(".snapshot")] == [f"{at:020d}.snapshot" for at in range(400)]
    assert [name for name in found if name.endswith(".log")] == [f"{at:020d}.log" for at in range(0, 400, 2)]
    assert len(found) == 400 + 3 * 200
    assert found.index(f"{6:020d}.log") < found.index(f"{6:020d}.index") < found.index(f"{8:020d}.log")


def test_the_newest_snapshot_stays_wherever_it_stands() -> None:
    names = [f"{at:020d}{kind}" for at in (0, 10, 20) for kind in (".log",)]
    names += [f"{at:020d}.snapshot" for at in (3, 7, 10)]
    assert [name for name in files_before(names, 25) if name.endswith(".snapshot")] == [
        f"{at:020d}.snapshot" for at in (3, 7)
    ]
    assert list(files_before(names, 9)) == []
    assert list(files_before([], 9)) == []


def snapshots_in(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


def write(partition: Partition, producer_id: int, count: int) -> None:
    for sequence in range(count):
        append_encoded(partition, batch(b"x" * 100, producer_id=producer_id, epoch=0, sequence=sequence))


def test_snapshots_inside_of_segments_go_when_they_are_closed_whoever_took_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "INTERVAL_BYTES", 500)
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    for producer_id, other in ((1, None), (2, open_partition(directory)), (3, None)):
        write(partition, producer_id, 20)
        if other is not None:
            write(other, 10, 20)
        write(partition, producer_id + 100, 20)
        assert len(snapshots_in(directory)) > len(bases(directory))
        partition.log.roll()
        assert snapshots_in(directory) == bases(directory)[1:]


def test_the_snapshots_of_deleted_segments_go_with_them(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    roll(partition, 6)
    partition.log.delete_before(4)
    assert bases(tmp_path / "t-0") == snapshots_in(tmp_path / "t-0") == [4, 5, 6]
