"""The two slots of ``.commit``: which of them counts, whatever was being written when the writer
died."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.codec.format import INT64_MIN
from pylog.partition.commit_slots import (
    FILE_BYTES,
    HEAD,
    SLOTS,
    CommitSlots,
    CommitState,
    latest,
    next_version,
    slots_in,
)
from pylog.storage import AppendableFile, Buffer, OsFileSystem
from tests.partition.version_1 import slots_of_two
from tests.storage.filesystems import Killed

STATE = CommitState(
    sequence=7, boot=1, leader_epoch=0, active_base=0, written_end=100, log_end_offset=3, durable_offset=2,
    last_stable_offset=3, log_start_offset=1, high_watermark=3, segments_version=0, least_timestamp_ms=-5,
)  # fmt: skip
AROUND_THE_WRAP = [0, 1, 2, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]


def slot_of(state: CommitState) -> bytes:
    return SLOTS.slot(state.body())[0]


def open_slots(path: Path) -> CommitSlots:
    slots = CommitSlots(OsFileSystem().open_appendable(str(path)))
    if not path.stat().st_size:
        slots.begin(None)
    return slots


def test_the_version_of_the_list_of_segments_wraps(tmp_path: Path) -> None:
    slots = open_slots(tmp_path / ".commit")
    state = slots.publish(STATE._replace(segments_version=2**32 - 1))
    state = slots.publish(state.successor(segments_version=next_version(state.segments_version)))
    assert (state.segments_version, slots.read()) == (0, state)


@pytest.mark.parametrize("sequence", AROUND_THE_WRAP)
def test_the_slot_published_last_is_the_one_that_counts(tmp_path: Path, sequence: int) -> None:
    path = tmp_path / ".commit"
    slots, watching = open_slots(path), open_slots(path)
    state = slots.publish(STATE._replace(sequence=sequence))
    for number in range(4):
        state = slots.publish(
            state.successor(written_end=200 + number, log_end_offset=10 + number, high_watermark=3 + number)
        )
        assert latest(path.read_bytes()) == state
        assert slots.read() == watching.read() == open_slots(path).read() == state
    assert path.stat().st_size == FILE_BYTES


class Torn:
    """A file of which a writer, killed in the midst of it, writes only the first bytes."""

    def __init__(self, file: AppendableFile, keep: int) -> None:
        self._file, self._keep = file, keep
        self.path, self.pread, self.size, self.close = file.path, file.pread, file.size, file.close
        self.truncate, self.sync = file.truncate, file.sync

    def pwrite(self, data: Buffer, position: int) -> None:
        self._file.pwrite(data[: self._keep], position)
        raise Killed


@pytest.mark.parametrize("sequence", [6, 7])
def test_a_torn_publication_leaves_what_was_published_before(tmp_path: Path, sequence: int) -> None:
    path = tmp_path / ".commit"
    slots = open_slots(path)
    first = slots.publish(STATE._replace(sequence=sequence))
    second = slots.publish(first.successor(written_end=200))
    whole = path.read_bytes()
    third = second.successor(boot=5, written_end=300, log_end_offset=9, segments_version=2**32 - 1)
    third = third._replace(least_timestamp_ms=2**62)
    for keep in range(76):
        path.write_bytes(whole)
        with pytest.raises(Killed):
            CommitSlots(Torn(OsFileSystem().open_appendable(str(path)), keep)).publish(third)
        assert open_slots(path).read() == second, f"{keep} bytes of the slot were written"
        repaired = open_slots(path)
        assert repaired.read() == second
        fourth = repaired.publish(second.successor(written_end=250))
        assert latest(path.read_bytes()) == fourth


@pytest.mark.parametrize("torn", [0, 1])
@pytest.mark.parametrize("claimed", [0, 6, 2**31, 2**32 - 1])
def test_a_torn_slot_is_not_believed_however_late_it_says_it_is(torn: int, claimed: int) -> None:
    good = STATE._replace(sequence=7 - torn)
    bad = bytearray(slot_of(STATE._replace(sequence=claimed)))
    bad[0] ^= 1
    slots = (bad, slot_of(good)) if torn == 0 else (slot_of(good), bad)
    assert latest(HEAD + b"".join(slots)) == good


def test_the_slots_that_count_are_listed_with_their_places() -> None:
    before = STATE._replace(sequence=6, log_end_offset=2, high_watermark=2, last_stable_offset=2)
    slots = slot_of(before) + slot_of(STATE)
    assert slots_in(HEAD + slots) == [(128, 256, before), (256, 384, STATE)]
    assert slots_in(HEAD + slots[:-1] + b"x") == [(128, 256, before), (256, 384, None)]


def test_the_slots_of_version_1_are_listed_where_that_version_has_them() -> None:
    before = STATE._replace(sequence=6, log_end_offset=2, high_watermark=2, last_stable_offset=2)
    unknown = {"least_timestamp_ms": INT64_MIN}  # version 1 did not record it
    old = slots_of_two(before, STATE)
    assert slots_in(old) == [(0, 64, before._replace(**unknown)), (64, 128, STATE._replace(**unknown))]
    assert slots_in(old[:64] + bytes(64)) == [(0, 64, before._replace(**unknown)), (64, 128, None)]
