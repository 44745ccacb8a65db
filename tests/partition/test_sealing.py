"""Seals are written a little after each append, whoever appends, and in the end they say what the
segment holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pylog import ProducerRecord
from pylog.partition import Partition
from pylog.partition.commit_slots import FILE_BYTES
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.write import sealing
from pylog.segment import AbortedDigest, Seal, SealBuilder, SegmentScan, check_seal, read_seal
from pylog.segment.naming import is_leftover
from pylog.segment.seal import encode
from pylog.storage import FileSystem, OsFileSystem
from tests.partition.logs import cut, everything, file_of, log_file, one, open_partition, problems
from tests.storage.filesystems import Faulty, OtherBoot

SEGMENT_BYTES = 40_000


class Counting(SealBuilder):
    """Counts the batches it is told of, over all seals."""

    batches = 0

    def add(self, *arguments: object) -> None:
        Counting.batches += 1
        super().add(*arguments)


def filled(directory: Path) -> Partition:
    """A partition that has just rolled, with nothing sealed yet."""
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    while len(partition.segments) < 2:
        partition.append(one("x"), acks=1)
    assert not has_seal(directory, 0)
    return partition


def has_seal(directory: Path, base: int) -> bool:
    return file_of(directory, base, ".seal").exists()


def test_no_append_seals_more_than_a_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SealBuilder", Counting)
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    most, appends = 0, 0
    while not has_seal(directory, 0):
        before = Counting.batches
        partition.append(one("x"), acks=1)
        most, appends = max(most, Counting.batches - before), appends + 1
    of_first = partition.segments[0].end_offset
    assert Counting.batches == of_first
    assert of_first > 400
    assert 0 < most <= 64
    assert appends <= of_first + of_first // 60 + 1  # and none of them is idle


def test_the_seal_made_in_pieces_is_the_seal_made_at_once(tmp_path: Path) -> None:
    for directory, in_pieces in ((tmp_path / "pieces-0", True), (tmp_path / "once-0", False)):
        partition = filled(directory)
        if in_pieces:
            while not has_seal(directory, 0):
                partition.append(one("x"), acks=1)
        else:
            assert not has_seal(directory, 0)
            partition.log.roll()
        partition.log.close()
    one_seal, other = (file_of(tmp_path / name, 0, ".seal").read_bytes() for name in ("pieces-0", "once-0"))
    assert one_seal == other


def test_what_a_process_left_unsealed_the_next_roll_seals(directory: Path) -> None:
    filled(directory)  # and never closed
    other = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    other.append(one("x"), acks=1)
    assert not has_seal(directory, 0)
    other.log.roll()
    assert has_seal(directory, 0)


def test_closing_seals_what_is_due(directory: Path) -> None:
    partition = filled(directory)
    partition.log.close()
    assert has_seal(directory, 0)
    seal = read_seal(OsFileSystem(), str(directory), 0, log_file(directory).stat().st_size)
    assert seal is not None
    assert seal.size_bytes == log_file(directory).stat().st_size


def segments_of_one_record(directory: Path, count: int) -> None:
    partition = open_partition(directory)
    for _ in range(count):
        partition.append(one("x"), acks=1)
        partition.log.roll()
    partition.close()


def test_leftovers_anywhere_are_found_and_sealed_a_few_at_each_roll(directory: Path) -> None:
    segments_of_one_record(directory, 12)
    unsealed = {0, 1, 3, 4, 8, 9, 11}
    for base in unsealed:
        file_of(directory, base, ".seal").unlink()
    rolls = 0
    while unsealed:
        partition = open_partition(directory)  # a process that lives for one roll
        partition.append(one("x"), acks=1)
        partition.log.roll()
        partition.close()
        rolls += 1
        left = {base for base in range(12 + rolls) if not has_seal(directory, base)}
        assert left < unsealed
        assert len(left) >= len(unsealed) - sealing.LEFTOVERS_PER_ROLL
        unsealed = left
    assert rolls == 4


def test_one_process_finds_what_another_left_between_its_own_rolls(directory: Path) -> None:
    partition = open_partition(directory)
    for value in "ab":
        partition.append(one(value), acks=1)
        partition.log.roll()
    segments_of_one_record(directory, 3)
    for base in (2, 3, 4):
        file_of(directory, base, ".seal").unlink()
    for value in "cd":
        partition.append(one(value), acks=1)
        partition.log.roll()
    assert [base for base in range(7) if not has_seal(directory, base)] == []


def test_a_seal_that_was_interrupted_is_made_after_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(SealBuilder):
        def build(self, next_base: int = -1, aborted: AbortedDigest | None = None) -> Seal:
            raise KeyboardInterrupt

    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    partition.append(one("x"), acks=1)
    with monkeypatch.context() as patch:
        patch.setattr(sealing, "SealBuilder", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            partition.log.roll()
    assert not has_seal(directory, 0)
    for value in "yz":
        partition.append(one(value), acks=1)
    assert has_seal(directory, 0)


@pytest.mark.parametrize("damage", [b"", b"PYLGSEAL", None], ids=["empty", "torn", "a flipped bit"])
def test_a_seal_that_cannot_be_read_is_made_anew(directory: Path, damage: bytes | None) -> None:
    segments_of_one_record(directory, 4)
    path = file_of(directory, 1, ".seal")
    good = path.read_bytes()
    path.write_bytes(damage if damage is not None else bytes([*good[:-1], good[-1] ^ 1]))
    segments_of_one_record(directory, 1)
    assert path.read_bytes() == good


def test_a_lost_seal_of_a_segment_with_gaps_inside_of_batches_records_them_again(directory: Path) -> None:
    """Readers take the number of a batch's records from its offsets if the seal says that there are
    no gaps."""
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    partition.append([ProducerRecord(b"x", key=key) for key in (b"a", b"b", b"c")], acks=1)
    partition.append([ProducerRecord(b"x", key=b"b")], acks=1)
    partition.log.roll()
    partition.append(one("x"), acks="all")
    assert compact(partition.log, CompactionOptions()).records_dropped == 1
    path = file_of(directory, 0, ".seal")
    assert not sealed(directory).is_dense
    partition.close()
    path.unlink()
    with closing(open_partition(directory, segment_bytes=SEGMENT_BYTES)) as again:
        again.append(one("x"), acks="all")
        again.log.roll()
        while not path.exists():
            again.append(one("x"), acks=1)
    assert not sealed(directory).is_dense
    assert sealed(directory).next_base == 4


def sealed(directory: Path) -> Seal:
    seal = read_seal(OsFileSystem(), str(directory), 0, file_of(directory, 0, ".log").stat().st_size)
    assert seal is not None
    return seal


def test_a_good_seal_that_differs_from_its_segment_stays_and_accuses_it(directory: Path) -> None:
    segments_of_one_record(directory, 2)
    path = file_of(directory, 0, ".seal")
    before = path.read_bytes()
    cut(log_file(directory), 0)
    segments_of_one_record(directory, 1)
    assert path.read_bytes() == before


def test_old_seals_are_checked_a_bounded_number_at_each_roll(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments_of_one_record(directory, 100)
    checked: list[int] = []

    def check(filesystem: FileSystem, directory: str, base: int) -> Iterator[int]:
        checked.append(base)
        return check_seal(filesystem, directory, base)

    monkeypatch.setattr(sealing, "check_seal", check)
    partition = open_partition(directory)
    for _ in range(3):
        partition.append(one("x"), acks=1)
        before = len(checked)
        partition.log.roll()
        assert len(checked) - before <= 65
    assert sorted(checked) == list(range(103))


def test_a_seal_is_synced_under_a_name_of_its_own_before_it_takes_its_place(tmp_path: Path) -> None:
    happened: list[tuple[str, str]] = []
    directory = tmp_path / "t-0"
    for _ in range(2):
        partition = open_partition(directory, Faulty(lambda operation, path: happened.append((operation, path))))
        partition.append(one("x"), acks=1)
        partition.log.roll()
    of_seals = [(operation, path) for operation, path in happened if ".seal" in path]
    steps = ("pwrite", "sync", "replace")
    assert [operation for operation, _ in of_seals if operation in steps] == [*steps, *steps]
    names = {path.rpartition("/")[2] for operation, path in of_seals if operation == "sync"}
    assert len({name.partition(".seal")[2] for name in names}) == 2
    assert all(map(is_leftover, names))


def test_two_that_seal_one_segment_at_a_time_leave_a_whole_seal(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    while len(first.segments) < 2:
        first.append(one("x"), acks=1)
    other = open_partition(directory)
    other.append(one("x"), acks=1)
    hooked: list[str] = []

    def other_seals(operation: str, path: str) -> None:
        if operation == "pwrite" and ".seal" in path and not hooked:
            hooked.append(path)
            first.close()

    slow = open_partition(directory, Faulty(other_seals))
    slow.append(one("x"), acks=1)
    slow.log.roll()
    assert hooked
    assert read_seal(OsFileSystem(), str(directory), 0, log_file(directory).stat().st_size) is not None
    assert [path.name for path in directory.iterdir() if path.name.endswith(".tmp")] == []


def test_a_topic_created_anew_under_the_name_gets_no_seal_of_the_old_one(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = filled(directory)
    directory.rename(tmp_path / "old-0")
    anew = open_partition(directory)
    anew.append(one("new"), acks=1)
    partition.log.close()
    assert not has_seal(directory, 0)


def test_a_signal_handler_that_appends_while_a_seal_is_made_is_no_harm(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    inside: list[int] = []

    class Interrupted(SealBuilder):
        def add(self, *arguments: object) -> None:
            super().add(*arguments)
            inside.append(partition.append(one("from the handler"), acks=1).base_offset)

    monkeypatch.setattr(sealing, "SealBuilder", Interrupted)
    while not has_seal(directory, 0):
        partition.append(one("x"), acks=1)
    assert inside
    assert read_seal(OsFileSystem(), str(directory), 0, log_file(directory).stat().st_size) is not None
    assert [offset for offset, _ in everything(partition)] == list(range(partition.latest_offset))


def test_a_damaged_segment_gets_no_seal_and_the_append_stands(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    partition.append(one("x"), acks=1)
    with log_file(directory).open("r+b") as file:
        file.seek(62)
        file.write(b"\xff")
    with caplog.at_level(logging.WARNING, "pylog.partition"):
        partition.log.roll()
        offset = partition.append(one("y"), acks=1).base_offset
    assert offset == 1
    assert not has_seal(directory, 0)
    assert "could not seal" in caplog.text


def test_a_seal_whose_segment_is_removed_meanwhile_does_not_stay(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem, segment_bytes=SEGMENT_BYTES)
    partition.append(one("x"), acks=1)

    def remove_segment(operation: str, path: str) -> None:
        if operation == "sync" and ".seal" in path:
            log_file(directory).unlink()

    filesystem.hook = remove_segment
    partition.log.roll()
    assert not log_file(directory).exists()
    assert not has_seal(directory, 0), "the next segment of this name would be held to it"


@pytest.mark.parametrize("lost", ["slots", "boot", "roll"])
def test_a_segment_that_may_be_another_when_its_seal_is_made_gets_none(tmp_path: Path, lost: str) -> None:
    """Slots that say nothing, or of another boot: a recovery may cut the log, and close the segment
    again."""
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("x"), acks=1)
    slots = (directory / ".commit").read_bytes()  # as they were before the roll

    def lose(operation: str, path: str) -> None:
        if operation == "sync" and ".seal" in path:
            if lost == "boot":
                after = open_partition(directory, OtherBoot(1))
                assert after.append(one("y"), acks=1).base_offset == 1
            else:
                (directory / ".commit").write_bytes(slots if lost == "roll" else bytes(FILE_BYTES))

    filesystem.hook = lose
    partition.log.roll()
    assert not has_seal(directory, 0)
    assert [path.name for path in directory.iterdir() if path.name.endswith(".tmp")] == []


def test_a_segment_that_is_compacted_while_its_seal_is_made_keeps_the_seal_of_the_compaction(tmp_path: Path) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem)
    for key in (b"a", b"b", b"a"):
        partition.append([ProducerRecord(b"x", key=key)], acks=1)
    other, dropped = open_partition(directory), []

    def compacts(operation: str, path: str) -> None:
        if operation == "sync" and ".seal" in path and not dropped:
            other.append(one("y"), acks="all")
            dropped.append(compact(other.log, CompactionOptions()).records_dropped)

    filesystem.hook = compacts
    partition.log.roll()
    assert dropped == [1]
    assert (sealed(directory).is_dense, sealed(directory).next_base) == (False, 3)
    assert [offset for offset, _ in everything(partition)] == [1, 2, 3]
    assert problems(directory) == []


def test_the_seal_of_a_compaction_that_changes_no_byte_stays(tmp_path: Path) -> None:
    """It says where the next segment begins. The one that is being made would say that nothing is
    missing before it."""
    directory, filesystem = tmp_path / "t-0", Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("x"), acks=1)

    def compacts(operation: str, path: str) -> None:
        if operation == "sync" and ".seal" in path:
            with closing(OsFileSystem().open_readable(str(log_file(directory)))) as file:
                builder, scan = SealBuilder("id-0"), SegmentScan(file, 0, file.size(), next_offset=0)
                for position, header in scan:
                    least_ms = scan.least_timestamp_ms(position, header)
                    builder.add(position, header, scan.front(position), least_ms)
            file_of(directory, 0, ".seal").write_bytes(encode(builder.build(1)))

    filesystem.hook = compacts
    partition.log.roll()
    assert (sealed(directory).is_dense, sealed(directory).next_base) == (False, 1)


def test_a_seal_that_stands_beside_the_active_segment_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """Its maker died after it had put it there, and before it had looked once more whether the
    segment was the one it read."""
    seals = []
    for value in ("x", "y"):
        directory = tmp_path / value
        partition = open_partition(directory)
        partition.append(one(value), acks=1)
        for seal in seals:
            file_of(directory, 0, ".seal").write_bytes(seal)
        partition.log.roll()
        seals.append(file_of(directory, 0, ".seal").read_bytes())
    assert seals[0] != seals[1]
    assert everything(open_partition(directory)) == [(0, b"y")]
