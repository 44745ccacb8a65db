"""Seals are written a little after each append, whoever appends, and in the end they say what the segment holds."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pylog.partition import sealing
from pylog.segment import Seal, SealBuilder, read_seal
from pylog.storage import OsFileSystem
from tests.partition.logs import everything, file_of, log_file, one, open_partition

SEGMENT_BYTES = 40_000


class Counting(SealBuilder):
    """Counts the batches it is told of, over all seals."""

    batches = 0

    def add(self, *arguments: object) -> None:
        Counting.batches += 1
        super().add(*arguments)  # type: ignore[arg-type]


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
        partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
        while len(partition.segments) < 2:
            partition.append(one("x"), acks=1)
        if in_pieces:
            while not has_seal(directory, 0):
                partition.append(one("x"), acks=1)
        else:
            assert not has_seal(directory, 0)
            partition.roll()
        partition.close()
    one_seal, other = (file_of(tmp_path / name, 0, ".seal").read_bytes() for name in ("pieces-0", "once-0"))
    assert one_seal == other


def test_what_a_process_left_unsealed_the_next_roll_seals(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    while len(partition.segments) < 2:
        partition.append(one("x"), acks=1)
    assert not has_seal(directory, 0)
    other = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    other.append(one("x"), acks=1)
    assert not has_seal(directory, 0)
    other.roll()
    assert has_seal(directory, 0)


def test_closing_seals_what_is_due(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    while len(partition.segments) < 2:
        partition.append(one("x"), acks=1)
    assert not has_seal(directory, 0)
    partition.close()
    assert has_seal(directory, 0)
    seal = read_seal(OsFileSystem(), str(directory), 0, log_file(directory).stat().st_size)
    assert seal is not None
    assert seal.size_bytes == log_file(directory).stat().st_size


def segments_of_one_record(directory: Path, count: int) -> None:
    partition = open_partition(directory)
    for _ in range(count):
        partition.append(one("x"), acks=1)
        partition.roll()
    partition.close()


def test_leftovers_anywhere_are_found_and_sealed_a_few_at_each_roll(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    segments_of_one_record(directory, 12)
    unsealed = {0, 1, 3, 4, 8, 9, 11}
    for base in unsealed:
        file_of(directory, base, ".seal").unlink()
    rolls = 0
    while unsealed:
        partition = open_partition(directory)  # a process that lives for one roll
        partition.append(one("x"), acks=1)
        partition.roll()
        partition.close()
        rolls += 1
        left = {base for base in range(12 + rolls) if not has_seal(directory, base)}
        assert left < unsealed
        assert len(left) >= len(unsealed) - sealing.LEFTOVERS_PER_ROLL
        unsealed = left
    assert rolls == 4


def test_one_process_finds_what_another_left_between_its_own_rolls(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    for value in "ab":
        partition.append(one(value), acks=1)
        partition.roll()
    segments_of_one_record(directory, 3)
    for base in (2, 3, 4):
        file_of(directory, base, ".seal").unlink()
    for value in "cd":
        partition.append(one(value), acks=1)
        partition.roll()
    assert [base for base in range(7) if not has_seal(directory, base)] == []


def test_a_seal_that_was_interrupted_is_made_after_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(SealBuilder):
        def build(self) -> Seal:
            raise KeyboardInterrupt

    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    partition.append(one("x"), acks=1)
    with monkeypatch.context() as patch:
        patch.setattr(sealing, "SealBuilder", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            partition.roll()
    assert not has_seal(directory, 0)
    for value in "yz":
        partition.append(one(value), acks=1)
    assert has_seal(directory, 0)


def test_a_signal_handler_that_appends_while_a_seal_is_made_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    inside: list[int] = []

    class Interrupted(SealBuilder):
        def add(self, *arguments: object) -> None:
            super().add(*arguments)  # type: ignore[arg-type]
            inside.append(partition.append(one("from the handler"), acks=1).base_offset)

    monkeypatch.setattr(sealing, "SealBuilder", Interrupted)
    while not has_seal(directory, 0):
        partition.append(one("x"), acks=1)
    assert inside
    assert read_seal(OsFileSystem(), str(directory), 0, log_file(directory).stat().st_size) is not None
    assert [offset for offset, _ in everything(partition)] == list(range(partition.latest_offset))


def test_a_damaged_segment_gets_no_seal_and_the_append_stands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=SEGMENT_BYTES)
    partition.append(one("x"), acks=1)
    with log_file(directory).open("r+b") as file:
        file.seek(62)
        file.write(b"\xff")
    with caplog.at_level(logging.WARNING, "pylog.partition"):
        partition.roll()
        offset = partition.append(one("y"), acks=1).base_offset
    assert offset == 1
    assert not has_seal(directory, 0)
    assert "could not seal" in caplog.text
