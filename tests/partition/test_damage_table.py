"""A table of named disasters: what is broken, what must be there afterwards, and that looking
changes nothing.

Each row starts from one log of three segments (offsets 0 to 29, ten records of one batch each in a
segment), breaks it, and opens it again: for reading only, which must not change a byte, and for
writing, which repairs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from pylog.errors import CorruptSegment, PylogError
from pylog.index.offset_index import ENTRY as OFFSET_ENTRY
from pylog.partition import Partition
from pylog.partition.commit_slots import CommitSlots, latest, next_version
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    add,
    append_encoded,
    assert_indexes_follow_from_the_log,
    batch,
    cut,
    everything,
    file_of,
    flip,
    headers,
    log_file,
    open_partition,
    snapshot_of,
)
from tests.storage.filesystems import Patient

INTERVAL_BYTES = 256
RECORDS = 30
Break = Callable[[Path], None]


def lay_out(directory: Path, *, durable: bool) -> None:
    partition = open_again(directory, 0)
    for offset in range(RECORDS):
        if offset in (10, 20):
            partition.log.roll()
        append_encoded(
            partition,
            batch(b"v%d" % offset, timestamp_ms=START_MS + offset, producer_id=7, epoch=0, sequence=offset),
        )
    if durable:
        partition.log.sync(RECORDS)
    partition.log.close()


def open_again(directory: Path, boot: int, *, read_only: bool = False) -> Partition:
    return open_partition(directory, Patient(boot), read_only=read_only, index_interval_bytes=INTERVAL_BYTES)


def stamped(value: bytes, offset: int) -> bytes:
    """A batch as a writer would have put it at ``offset``."""
    from pylog.codec.batch import stamp

    made = batch(value, timestamp_ms=START_MS + offset, producer_id=7, epoch=0, sequence=offset)
    stamp(made, offset, 0)
    return bytes(made)


def with_a_wrong_byte(data: bytes) -> bytes:
    return data[:67] + bytes([data[67] ^ 1]) + data[68:]


def all_of(*steps: Break) -> Break:
    def run(directory: Path) -> None:
        for step in steps:
            step(directory)

    return run


def behind_the_end(data: bytes) -> Break:
    return lambda directory: add(log_file(directory, 20), data)


def without(*names: str) -> Break:
    def run(directory: Path) -> None:
        for name in names:
            (directory / name).unlink()

    return run


def holding(name: str, data: bytes) -> Break:
    def run(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return run


def without_all(pattern: str) -> Break:
    def run(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return run


def cut_by(base: int, size: int, kind: str = ".log") -> Break:
    def run(directory: Path) -> None:
        path = file_of(directory, base, kind)
        cut(path, path.stat().st_size - size)

    return run


def cut_after(offset: int) -> Break:
    """The active segment ends behind this offset, at the end of a batch."""

    def run(directory: Path) -> None:
        path = log_file(directory, 20)
        cut(path, next(position for position, header in headers(path) if header.base_offset == offset + 1))

    return run


def flipped(base: int, offset: int, byte: int) -> Break:
    def run(directory: Path) -> None:
        path = log_file(directory, base)
        flip(path, next(position for position, header in headers(path) if header.base_offset == offset) + byte)

    return run


def zero_tail(directory: Path) -> None:
    """The size reached the disk, the bytes did not: the last two batches read as zeros."""
    path = log_file(directory, 20)
    start = next(position for position, header in headers(path) if header.base_offset == 28)
    size = path.stat().st_size
    cut(path, start)
    cut(path, size + 4096)


def roll_was_published(directory: Path) -> None:
    """A writer died in a roll: the new segment is published, its file was never made."""
    state = latest((directory / ".commit").read_bytes())
    assert state is not None
    slots = CommitSlots(OsFileSystem().open_appendable(str(directory / ".commit")))
    slots.publish(
        state.successor(active_base=RECORDS, written_end=0, segments_version=next_version(state.segments_version))
    )
    slots.close()  # the time index has its closing entry: the partition was closed


def new_segment_is_empty(directory: Path) -> None:
    log_file(directory, RECORDS).touch()


def positions_off_by_one(directory: Path) -> None:
    """An index whose entries look as good as any."""
    path = file_of(directory, 20, ".index")
    entries = [(offset, position + 1) for offset, position in OFFSET_ENTRY.iter_unpack(path.read_bytes())]
    assert entries
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))


def active_base(directory: Path) -> int:
    state = latest((directory / ".commit").read_bytes())
    assert state is not None
    return state.active_base


class Disaster(NamedTuple):
    name: str
    break_it: Break
    boot: int = 0
    durable: bool = False
    end: int = RECORDS  # what a writer recovers: offsets below; -1: CorruptSegment and not a byte changed
    seen: int | None = None  # what a reader without permission to repair sees, if that is another end
    unreadable: tuple[int, ...] = ()
    indexes: bool = True  # made whole again by the writer; False where only damage from outside can have done this
    bug: str = ""
    fails: str = ""  # which of the three tests the bug makes fail: writer, handle, reader


TABLE = [
    Disaster("nothing", all_of()),
    Disaster("nothing, power lost", all_of(), boot=1),
    Disaster("a killed writer left garbage", behind_the_end(b"\xde\xad" * 50), end=30),
    Disaster("a killed writer left a few bytes", behind_the_end(b"\x00"), end=30),
    Disaster("a killed writer left zeros", behind_the_end(bytes(5000)), end=30),
    Disaster("a killed writer left half a batch", behind_the_end(stamped(b"half", 30)[:40]), end=30),
    Disaster("a killed writer left all but one byte", behind_the_end(stamped(b"half", 30)[:-1]), end=30),
    Disaster("a killed writer left a whole batch", behind_the_end(stamped(b"v30", 30)), end=31, seen=30),
    Disaster(
        "a killed writer left a whole batch and half of one",
        behind_the_end(stamped(b"v30", 30) + stamped(b"v31", 31)[:50]),
        end=31,
        seen=30,
    ),
    Disaster("a killed writer left a batch of another offset", behind_the_end(stamped(b"v99", 99)), end=30),
    Disaster("a killed writer left a batch with a wrong byte", behind_the_end(with_a_wrong_byte(stamped(b"v30", 30)))),
    Disaster("power lost, garbage behind", behind_the_end(b"\xde\xad" * 50), boot=1),
    Disaster("power lost, whole batch behind", behind_the_end(stamped(b"v30", 30)), boot=1, end=31),
    Disaster("power lost, a page inside a batch", flipped(20, 25, 67), boot=1, end=25),
    Disaster("power lost, zeros at the end", zero_tail, boot=1, end=28),
    Disaster("power lost, zeros in durable data", zero_tail, boot=1, durable=True, end=-1),
    Disaster("power lost, half a batch", cut_by(20, 10), boot=1, end=29),
    Disaster("power lost, half a durable batch", cut_by(20, 10), boot=1, durable=True, end=-1),
    Disaster(
        "power lost, whole durable batches",
        cut_after(24),
        boot=1,
        durable=True,
        end=-1,
    ),
    Disaster(
        "somebody cut durable batches off, same boot",
        cut_after(24),
        durable=True,
        end=-1,
    ),
    Disaster(
        "somebody cut batches off, same boot, not durable",
        cut_after(24),
        end=25,
        seen=-1,
    ),
    Disaster(
        "somebody cut half a batch off, same boot, not durable",
        cut_by(20, 10),
        end=29,
        seen=-1,
    ),
    Disaster(
        "a roll was published, no file",
        roll_was_published,
    ),
    Disaster("a roll was published, power lost", roll_was_published, boot=1),
    Disaster("a roll was published, the file is empty", all_of(roll_was_published, new_segment_is_empty)),
    Disaster(
        "a roll was published, the old index is not closed",
        all_of(roll_was_published, new_segment_is_empty, cut_by(20, 12, ".timeindex")),
        indexes=False,
    ),
    Disaster("a new segment's file is there, not published", new_segment_is_empty),
    Disaster(
        "a new segment's file is there, power lost",
        new_segment_is_empty,
        boot=1,
    ),
    Disaster("the slots are lost", without(".commit")),
    Disaster("the slots are lost, power lost", without(".commit"), boot=1),
    Disaster("the slots are empty", holding(".commit", b"")),
    Disaster("the slots are garbage", holding(".commit", b"\x5a" * 128)),
    Disaster("the slots are zeros", holding(".commit", bytes(128))),
    Disaster("slots lost, a batch of another offset", all_of(without(".commit"), behind_the_end(stamped(b"v99", 99)))),
    Disaster("slots lost, torn tail", all_of(without(".commit"), cut_by(20, 3)), end=29),
    Disaster("slots lost, damage before whole batches", all_of(without(".commit"), flipped(20, 24, 67)), end=-1),
    Disaster(
        "the indexes of the active segment are lost",
        without(f"{20:020d}.index", f"{20:020d}.timeindex"),
    ),
    Disaster(
        "the indexes of the active segment are lost, power lost",
        without(f"{20:020d}.index", f"{20:020d}.timeindex"),
        boot=1,
    ),
    Disaster(
        "the indexes of a closed segment are lost, power lost",
        without(f"{0:020d}.index", f"{0:020d}.timeindex"),
        boot=1,
    ),
    Disaster(
        "the indexes of a closed durable segment are lost, power lost",
        without(f"{0:020d}.index", f"{0:020d}.timeindex"),
        boot=1,
        durable=True,
        indexes=False,
    ),
    Disaster("an index is garbage, power lost", holding(f"{20:020d}.index", b"\x11" * 37), boot=1),
    Disaster("an index has wrong positions, power lost", positions_off_by_one, boot=1),
    Disaster("a time index is garbage, power lost", holding(f"{20:020d}.timeindex", b"\x11" * 37), boot=1),
    Disaster(
        "the middle segment is missing, power lost",
        without(f"{10:020d}.log"),
        boot=1,
        durable=True,
        unreadable=tuple(range(10, 20)),
    ),
    Disaster("the middle segment is missing, nothing durable, power lost", without(f"{10:020d}.log"), boot=1, end=10),
    Disaster(
        "the middle segment is missing, slots lost",
        all_of(without(f"{10:020d}.log"), without(".commit")),
        end=-1,
    ),
    Disaster("damage in a durable closed segment", flipped(0, 4, 67), durable=True, unreadable=(4,)),
    Disaster("damage in a durable closed segment's header", flipped(0, 4, 11), durable=True, unreadable=(4,)),
    Disaster(
        "damage in a durable closed segment, power lost", flipped(0, 4, 67), boot=1, durable=True, unreadable=(4,)
    ),
    Disaster("damage in the durable active segment, power lost", flipped(20, 24, 67), boot=1, durable=True, end=-1),
    Disaster("damage in the active segment, same boot", flipped(20, 24, 67), unreadable=(24,)),
    Disaster("a removal was interrupted", holding(f"{0:020d}.log.deleted", b"old"), boot=1),
    Disaster("a rewrite was interrupted", holding(f"{20:020d}.log.rewrite", b"half"), boot=1),
    Disaster("a replacement was interrupted", holding("leader-epoch-checkpoint.tmp", b"half"), boot=1),
    Disaster("the newest snapshot is corrupt", holding(f"{20:020d}.snapshot", b"\x00\x01garbage"), boot=1),
    Disaster("every snapshot is lost", without(f"{10:020d}.snapshot", f"{20:020d}.snapshot"), boot=1),
    Disaster("a snapshot lies beyond the end", holding(f"{99:020d}.snapshot", b"\x00\x01garbage"), boot=1),
    Disaster("the epochs are lost", without("leader-epoch-checkpoint"), boot=1),
    Disaster("the epochs are empty", holding("leader-epoch-checkpoint", b""), boot=1),
    Disaster(
        "the epochs are torn",
        holding("leader-epoch-checkpoint", b"0\n1\n"),
        boot=1,
    ),
    Disaster("the seals are lost", without(f"{0:020d}.seal", f"{10:020d}.seal")),
    Disaster(
        "a seal is garbage",
        holding(f"{0:020d}.seal", b"PYLGSEAL" + bytes(60)),
    ),
    Disaster("a seal is torn", cut_by(0, 5, ".seal")),
    Disaster(
        "all files are gone, nothing durable",
        without_all("*"),
        end=0,
    ),
    Disaster(
        "all segments are gone, durable",
        without_all("0*"),
        boot=1,
        durable=True,
        end=-1,
    ),
    Disaster(
        "all segments are gone, durable, same boot",
        without_all("0*"),
        durable=True,
        end=-1,
    ),
    Disaster("a directory of no meaning lies about", lambda directory: (directory / "lost+found").mkdir(), boot=1),
]


def rows(test: str) -> list[ParameterSet]:
    """The table as parameters; rows with a known bug are expected to fail."""
    found = []
    for row in TABLE:
        marks = [pytest.mark.xfail(strict=True, reason=f"BUG: {row.bug}")] if test in row.fails else []
        found.append(pytest.param(row, id=row.name, marks=marks))
    return found


def expect(partition: Partition, end: int, unreadable: tuple[int, ...]) -> None:
    """Offsets below ``end`` are readable with their values, but for the unreadable ones, which
    raise; nothing else is."""
    assert partition.latest_offset == end
    for offset in range(end):
        if offset in unreadable:
            with pytest.raises(CorruptSegment):
                partition.read(offset, max_records=1, max_bytes=1)
        else:
            read = partition.read(offset, max_records=1, max_bytes=1)
            assert [(r.offset, r.value) for r in read] == [(offset, b"v%d" % offset)]
            if not unreadable:
                found = partition.offset_for_time(START_MS + offset)
                assert found is not None
                assert found.offset == offset
    assert partition.read(end) == []


@pytest.mark.parametrize("row", rows("w"))
def test_a_writer_recovers_what_is_whole_and_goes_on(row: Disaster, directory: Path) -> None:
    lay_out(directory, durable=row.durable)
    row.break_it(directory)
    before = snapshot_of(directory)
    partition = open_again(directory, row.boot)
    if row.end < 0:
        with pytest.raises(PylogError) as caught:
            partition.append(batch(b"more"))
        assert isinstance(
            caught.value if isinstance(caught.value, CorruptSegment) else caught.value.__cause__, CorruptSegment
        )
        after = snapshot_of(directory)
        assert {name: after[name] for name in before if name != ".lock"} == {
            n: d for n, d in before.items() if n != ".lock"
        }
        return
    appended = append_encoded(partition, batch(b"v%d" % row.end, timestamp_ms=START_MS + row.end))
    assert appended == row.end
    expect(partition, row.end + 1, row.unreadable)
    partition.log.close()
    again = open_again(directory, row.boot)
    expect(again, row.end + 1, row.unreadable)
    again.log.close()
    if row.indexes and not row.unreadable:
        assert_indexes_follow_from_the_log(directory, INTERVAL_BYTES, active_base=active_base(directory))


def expect_seen(row: Disaster, partition: Partition) -> None:
    """Read what the row says before anything was appended, and close the partition."""
    end = row.end if row.seen is None else row.seen
    if end < 0:
        with pytest.raises(CorruptSegment):
            everything(partition)
    else:
        expect(partition, end, row.unreadable)
    partition.log.close()


@pytest.mark.parametrize("row", rows("h"))
def test_a_handle_that_only_reads_sees_the_same_at_once(row: Disaster, directory: Path) -> None:
    """Before anything was appended: opening for reading and writing, and reading."""
    lay_out(directory, durable=row.durable)
    row.break_it(directory)
    expect_seen(row, open_again(directory, row.boot))


@pytest.mark.parametrize("row", rows("r"))
def test_reading_only_changes_no_byte(row: Disaster, directory: Path) -> None:
    lay_out(directory, durable=row.durable)
    row.break_it(directory)
    before = snapshot_of(directory)
    times = {path: os.stat(path).st_mtime_ns for path in directory.rglob("*")}
    expect_seen(row, open_again(directory, row.boot, read_only=True))
    assert snapshot_of(directory) == before
    assert {path: os.stat(path).st_mtime_ns for path in directory.rglob("*")} == times
