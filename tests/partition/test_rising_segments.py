"""Segments whose seal allows gaps between offsets, as compaction leaves them: they are read, and
what is missing is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pylog.codec.batch import read_header
from pylog.errors import CorruptSegment, NotAppended
from pylog.partition.commit_slots import latest, whole_file
from pylog.partition.directory import home_of
from pylog.partition.partition import Partition
from pylog.partition.verify import Problem, verify_partition
from pylog.segment import SealBuilder, SegmentScan, write_seal
from pylog.segment.naming import OFFSET_INDEX, SEAL, TIME_INDEX
from pylog.segment.writer import SegmentWriter
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, TP, everything, file_of, log_file, one, open_partition
from tests.storage.filesystems import Faulty, OtherBoot, io_error

FS = OsFileSystem()
EACH = 10  # records of a segment
DROPPED = {10, 13, 14, 18, 19}  # at its start, in its middle, and at its end
LEFT = [*range(10), 11, 12, 15, 16, 17, *range(20, 35)]


def compact(directory: Path, base: int, following: int, dropped: set[int], *, sealed: bool = True) -> None:
    """Take batches of one record out of a closed segment, as compaction does, and make its other
    files again."""
    path = log_file(directory, base)
    data, kept = path.read_bytes(), bytearray()
    file = FS.open_readable(str(path))
    for position, header in SegmentScan(file, 0, len(data), next_offset=base):
        if header.base_offset not in dropped:
            kept += data[position : position + header.size_bytes]
    file.close()
    for kind in (OFFSET_INDEX, TIME_INDEX, SEAL):
        file_of(directory, base, kind).unlink()
    path.write_bytes(kept)
    writer = SegmentWriter(FS, str(directory), base, index_interval_bytes=100, index_max_bytes=1 << 20)
    writer.rebuild_start()
    builder = SealBuilder(home_of("id", 0))
    for position, header in SegmentScan(writer.file, 0, len(kept), next_offset=base, dense=False):
        writer.adopt(position, header)
        builder.add(position, header, kept[position:], header.max_timestamp_ms)
    writer.finish()
    writer.close()
    if sealed:
        write_seal(FS, str(directory), base, builder.build(following))


def with_a_compacted_segment(directory: Path, *, sealed: bool = True, dropped: set[int] = DROPPED) -> Path:
    """Three closed segments and an active one; the second is compacted. All of it is durable."""
    partition = open_partition(directory, index_interval_bytes=100)
    for offset in range(35):
        if offset and offset % EACH == 0:
            partition.log.roll()
        partition.append(one(f"{offset}", START_MS + offset), acks=1)
    partition.log.sync(35)
    partition.close()
    compact(directory, 10, 20, dropped, sealed=sealed)
    return directory


def problems(directory: Path, filesystem: OsFileSystem = FS) -> list[Problem]:
    return list(verify_partition(filesystem, str(directory), TP, topic_id="id"))


def offsets(partition: Partition) -> list[int]:
    found = everything(partition)
    assert all(value == b"%d" % offset for offset, value in found)
    return [offset for offset, _ in found]


def test_a_compacted_segment_is_read_verified_and_followed(tmp_path: Path) -> None:
    directory = with_a_compacted_segment(tmp_path / "t-0")
    partition = open_partition(directory)
    assert offsets(partition) == LEFT
    for offset in range(35):  # a gap is passed wherever one begins
        assert [record.offset for record in partition.scan(offset)] == [at for at in LEFT if at >= offset]
        first = next(at for at in LEFT if at >= offset)
        found = partition.offset_for_time(START_MS + offset)
        assert found is not None
        assert found.offset == first
    assert partition.to_arrow(12, 22)["offset"].to_pylist() == [12, 15, 16, 17, 20, 21]
    assert problems(directory) == []
    partition.append(one("35"), acks="all")
    assert offsets(partition) == [*LEFT, 35]


def test_a_time_leads_to_the_first_record_since_then_that_compaction_has_left(tmp_path: Path) -> None:
    partition = open_partition(with_a_compacted_segment(tmp_path / "t-0"))
    found = [partition.offset_for_time(START_MS + at) for at in range(35)]
    assert [at and at.offset for at in found] == [min(o for o in LEFT if o >= at) for at in range(35)]


def test_a_segment_that_compaction_has_emptied_is_passed(tmp_path: Path) -> None:
    directory = with_a_compacted_segment(tmp_path / "t-0", dropped=set(range(10, 20)))
    partition = open_partition(directory)
    assert offsets(partition) == [*range(10), *range(20, 35)]
    assert [record.offset for record in partition.scan(14)] == [*range(20, 35)]
    assert problems(directory) == []


@pytest.mark.parametrize("lost", [".index", ".commit", ""])
def test_a_compacted_segment_outlives_a_power_failure(tmp_path: Path, lost: str) -> None:
    directory = with_a_compacted_segment(tmp_path / "t-0")
    if lost:
        (directory / lost if lost == ".commit" else file_of(directory, 10, lost)).unlink()
    (directory / "leader-epoch-checkpoint").unlink()
    other = OtherBoot()
    assert offsets(open_partition(directory, other, read_only=True)) == LEFT
    partition = open_partition(directory, other)
    partition.append(one("35"), acks="all")
    assert offsets(partition) == [*LEFT, 35]
    partition.close()
    assert problems(directory, other) == []


def test_after_a_compacted_segment_the_active_one_begins_where_its_seal_says(tmp_path: Path) -> None:
    """A roll is published before its file is there: then a power failure may leave the compacted
    segment as the last."""
    directory = with_a_compacted_segment(tmp_path / "t-0", dropped={18, 19})
    for base in (20, 30):
        for path in directory.glob(f"{base:020d}.*"):
            path.unlink()
    (directory / ".commit").unlink()
    assert open_partition(directory, OtherBoot(), read_only=True).latest_offset == 20
    partition = open_partition(directory, OtherBoot())
    assert partition.append(one("20"), acks="all").base_offset == 20
    partition.append(one("21"), acks="all")
    assert offsets(partition) == [*range(18), 20, 21]
    assert log_file(directory, 20).stat().st_size > 0


def test_a_missing_batch_of_a_compacted_segment_is_noticed(tmp_path: Path) -> None:
    """The last one, whose absence the batches do not show."""
    directory = with_a_compacted_segment(tmp_path / "t-0")
    log = log_file(directory, 10)
    data, position = log.read_bytes(), 0
    while (following := position + read_header(data, position).size_bytes) < len(data):
        position = following
    os.truncate(log, position)
    for filesystem in (FS, OtherBoot()):
        with pytest.raises(CorruptSegment) as raised:
            list(open_partition(directory, filesystem, read_only=filesystem is not FS).scan(10))
        assert raised.value.offset == 17
        (problem, *_) = problems(directory, filesystem)
        assert problem.kind in ("segment", "seal")
    (directory / ".commit").unlink()  # else the durable end would tell, too
    with pytest.raises(NotAppended, match="offsets 17 to 19 are missing at position"):
        open_partition(directory, OtherBoot()).append(one("35"))


def test_a_missing_segment_after_a_compacted_one_is_noticed(tmp_path: Path) -> None:
    directory = with_a_compacted_segment(tmp_path / "t-0")
    for path in directory.glob(f"{20:020d}.*"):
        path.unlink()
    with pytest.raises(CorruptSegment, match="offsets 20 to 29 are missing") as raised:
        list(open_partition(directory).scan(10))
    assert raised.value.next_offset == 30
    assert [problem.problem for problem in problems(directory)][:1] == ["offsets 20 to 29 are missing before it"]


def test_without_a_seal_that_allows_them_gaps_are_damage(tmp_path: Path) -> None:
    directory = with_a_compacted_segment(tmp_path / "t-0", sealed=False)
    with pytest.raises(CorruptSegment, match="base offset 11, expected 10"):
        list(open_partition(directory).scan(10))
    assert problems(directory)


def test_a_compacted_segment_whose_sync_fails_is_copied(tmp_path: Path) -> None:
    """Its index is refused: the log is copied, and all that is derived from it is made again, gaps
    and all."""
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem, index_interval_bytes=100)
    for offset in range(20):
        partition.append(one(f"{offset}", START_MS + offset), acks=1)
        if offset == EACH - 1:
            partition.log.roll()
    compact(directory, 0, 10, {0, 4, 9})
    before = log_file(directory, 0).stat().st_ino
    refused: list[str] = []

    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(OFFSET_INDEX) and not refused:
            refused.append(path)
            raise io_error(path)

    filesystem.hook = hook
    partition.log.sync(20)
    assert refused
    assert log_file(directory, 0).stat().st_ino != before
    assert offsets(partition) == [1, 2, 3, 5, 6, 7, 8, *range(10, 20)]
    assert problems(directory) == []


def test_a_seal_that_contradicts_the_next_segment_stops_a_recovery(tmp_path: Path) -> None:
    """Nothing is cut for it: the segments after it are whole."""
    directory = with_a_compacted_segment(tmp_path / "t-0")
    compact(directory, 10, 25, set())
    slots = directory / ".commit"
    state = latest(slots.read_bytes())
    assert state is not None
    slots.write_bytes(whole_file(state._replace(durable_offset=15)))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    wrong = "records that the next segment begins at 25, but it begins at 20"
    for _ in range(2):
        with pytest.raises(NotAppended, match=wrong):
            open_partition(directory, OtherBoot()).append(one("35"))
    with pytest.raises(CorruptSegment, match=wrong):
        open_partition(directory, OtherBoot(), read_only=True).read(0)
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.name in before} == before


def test_a_next_segment_that_no_offset_of_this_one_can_reach_is_damage_of_the_seal(tmp_path: Path) -> None:
    directory = with_a_compacted_segment(tmp_path / "t-0", dropped=set())
    compact(directory, 10, 1 << 62, set())
    assert ["says what no segment" in str(problem) for problem in problems(directory)] == [True]
    assert offsets(open_partition(directory, OtherBoot(), read_only=True)) == [*range(35)]


def test_a_gap_before_an_active_segment_that_has_no_file_yet_is_the_end(tmp_path: Path) -> None:
    """A roll publishes the new segment before it creates its file."""
    directory = with_a_compacted_segment(tmp_path / "t-0")
    compact(directory, 20, 30, {28, 29})
    for path in directory.glob(f"{30:020d}.*"):
        path.unlink()
    slots = directory / ".commit"
    state = latest(slots.read_bytes())
    assert state is not None
    ends = dict.fromkeys(("log_end_offset", "durable_offset", "last_stable_offset", "high_watermark"), 30)
    slots.write_bytes(whole_file(state._replace(written_end=0, **ends)))
    partition = open_partition(directory)
    left = [offset for offset in LEFT if offset < 28]
    assert offsets(partition) == left
    assert partition.read(28) == partition.read(30) == []
    assert partition.append(one("30"), acks=1).base_offset == 30
    assert offsets(partition) == [*left, 30]
