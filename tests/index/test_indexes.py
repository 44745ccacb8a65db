"""Indexes: their bytes are Kafka's and follow from the log alone; what they answer equals a search
without them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import CorruptSegment, FormatVersionError
from pylog.index import (
    AbortedTransaction,
    OffsetIndexReader,
    OffsetIndexWriter,
    OffsetPosition,
    TimeIndexReader,
    TimeIndexWriter,
    TimestampOffset,
    TransactionIndexReader,
    TransactionIndexWriter,
)
from pylog.index.entries import EntryWriter
from pylog.index.offset_index import ENTRY as OFFSET_ENTRY
from pylog.index.transaction_index import ENTRY as TRANSACTION_ENTRY
from pylog.model import ProducerRecord
from pylog.storage import OsFileSystem
from tests.partition.logs import (
    START_MS,
    ManualClock,
    append_encoded,
    assert_indexes_follow_from_the_log,
    batch,
    everything,
    file_of,
    headers,
    log_file,
    many,
    one,
    open_partition,
    values,
)
from tests.storage.filesystems import Faulty, OtherBoot

FS = OsFileSystem()


# Golden bytes


def test_an_offset_entry_has_kafkas_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "i")
    writer = OffsetIndexWriter(FS.open_appendable(path), 100)
    writer.append(120, 4096)
    assert Path(path).read_bytes().hex() == "0000001400001000"
    reader = OffsetIndexReader(FS.open_readable(path), 100)
    assert reader.floor(120) == OffsetPosition(120, 4096)
    assert reader.floor(10**6) == OffsetPosition(120, 4096)
    assert reader.floor(119) == OffsetPosition(100, 0)


def test_a_time_entry_has_kafkas_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    writer = TimeIndexWriter(FS.open_appendable(path), 100)
    writer.append_if_later(START_MS, 120)
    writer.append_if_later(START_MS, 130)  # not later
    assert Path(path).read_bytes().hex() == "0000018bcfe5680000000014"
    reader = TimeIndexReader(FS.open_readable(path), 100)
    assert reader.last() == TimestampOffset(START_MS, 120)
    assert (reader.before(START_MS), reader.before(START_MS + 1)) == (None, (START_MS, 120))


def test_an_aborted_transaction_has_kafkas_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    writer = TransactionIndexWriter(FS.open_appendable(path))
    aborted = AbortedTransaction(4000, 10, 19, 10)
    writer.append(aborted)
    golden = "00000000000000000fa0000000000000000a0000000000000013000000000000000a"
    assert Path(path).read_bytes().hex() == golden
    assert list(TransactionIndexReader(FS.open_readable(path)).entries()) == [aborted]
    writer.cut(19)
    assert Path(path).read_bytes() == b""


def test_a_transaction_index_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x00\x01" + bytes(32))
    with pytest.raises(FormatVersionError):
        list(TransactionIndexReader(FS.open_readable(str(tmp_path / "x"))).entries())


class Entries:
    """A transaction index made up as it is read, and what was read of it."""

    path = "entries.txnindex"

    def __init__(self, count: int, entry: Callable[[int], AbortedTransaction]) -> None:
        self._count = count
        self._entry = entry
        self.most_at_once = self.bytes_read = 0

    def size(self) -> int:
        return self._count * TRANSACTION_ENTRY.size

    def pread(self, size: int, position: int) -> bytes:
        self.most_at_once, self.bytes_read = max(self.most_at_once, size), self.bytes_read + size
        numbers = range(
            position // TRANSACTION_ENTRY.size, min((position + size) // TRANSACTION_ENTRY.size, self._count)
        )
        return b"".join(TRANSACTION_ENTRY.pack(0, *self._entry(number)) for number in numbers)

    def close(self) -> None:
        return None


def test_aborted_transactions_are_looked_up_and_read_in_pieces() -> None:
    file = Entries(10**9, lambda number: AbortedTransaction(7, number * 10, number * 10 + 5, number * 10 + 6))
    found = TransactionIndexReader(file).entries(8 * 10**9 + 1)
    assert [next(found).last_offset for _ in range(3)] == [8 * 10**9 + 5, 8 * 10**9 + 15, 8 * 10**9 + 25]
    assert file.most_at_once < 200_000
    assert file.bytes_read < 201_000


def test_more_aborts_than_the_segment_has_room_for_are_refused_unread() -> None:
    file = Entries(10**9, lambda number: AbortedTransaction(7, number, number, number + 1))
    with pytest.raises(CorruptSegment, match="room for 3 markers") as caught:
        TransactionIndexReader(file).refuse_more_than(3)
    assert (caught.value.path, caught.value.position, caught.value.entries) == ("entries.txnindex", 102, 10**9)
    assert file.bytes_read == 0
    TransactionIndexReader(file).refuse_more_than(10**9)


IMPOSSIBLE = {
    "not behind the one before": (7, 3, 5, 6),
    "ends where it begins": (7, 9, 9, 10),
    "no producer": (-1, 6, 8, 9),
    "no offset": (7, -1, 8, 9),
    "stable beyond its end": (7, 6, 8, 10),
    "zeros": (0, 0, 0, 0),
}


@pytest.mark.parametrize("second", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_an_abort_that_cannot_be_is_damage_and_hides_no_other(second: tuple[int, int, int, int]) -> None:
    entries = [AbortedTransaction(7, 3, 5, 6), AbortedTransaction(*second)]
    with pytest.raises(CorruptSegment, match="damaged") as caught:
        list(TransactionIndexReader(Entries(2, entries.__getitem__)).entries(1))
    assert (caught.value.path, caught.value.position) == ("entries.txnindex", 0)
    assert (caught.value.producer_id, caught.value.first_offset) == second[:2]


def test_entries_are_those_of_the_numbers_asked_for(tmp_path: Path) -> None:
    writer = EntryWriter(FS.open_appendable(f"{tmp_path}/entries"), OFFSET_ENTRY)
    for number in range(10):
        writer.add(number, number)
    for start in range(11):
        for end in range(start, 11):
            assert list(writer.reader.entries(start, end)) == [(number, number) for number in range(start, end)]
        assert list(writer.reader.entries(start)) == [(number, number) for number in range(start, 10)]


def test_a_huge_index_is_emptied_in_few_steps(tmp_path: Path) -> None:
    path = str(tmp_path / "i")
    file = FS.open_appendable(path)
    file.truncate(1 << 30)
    writer = OffsetIndexWriter(file, 0)
    writer.clear()
    assert (writer.count, FS.size(path)) == (0, 0)


# What is not an entry


def test_kafkas_preallocated_zeros_are_no_entries(tmp_path: Path) -> None:
    offsets, times = tmp_path / "i", tmp_path / "t"
    offsets.write_bytes(bytes.fromhex("0000001400001000" + "0000002800002000") + bytes(800))
    times.write_bytes(bytes.fromhex("0000018bcfe5680000000014" + "0000018bcfe5680100000028") + bytes(1200))
    index = OffsetIndexReader(FS.open_readable(str(offsets)), 100)
    assert [index.floor(offset).position for offset in (100, 119, 120, 139, 140, 10**9)] == [
        0,
        0,
        4096,
        4096,
        8192,
        8192,
    ]
    assert [index.at(position) for position in (0, 4095, 4096, 8191, 8192, 10**9)] == [
        (100, 0),
        (100, 0),
        (120, 4096),
        (120, 4096),
        (140, 8192),
        (140, 8192),
    ]
    time_index = TimeIndexReader(FS.open_readable(str(times)), 100)
    assert time_index.last() == TimestampOffset(START_MS + 1, 140)
    found = [time_index.before(START_MS + at) for at in (0, 1, 2, 10**9)]
    assert [entry and entry.offset for entry in found] == [None, 120, 140, 140]


@pytest.mark.parametrize("torn", range(1, 8))
def test_a_torn_entry_counts_as_absent_and_is_overwritten(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "i"
    path.write_bytes(bytes.fromhex("0000001400001000") + b"\x7f" * torn)
    assert OffsetIndexReader(FS.open_readable(str(path)), 100).floor(10**9).offset == 120
    writer = OffsetIndexWriter(FS.open_appendable(str(path)), 100)
    writer.append(140, 8192)
    assert path.read_bytes()[:16].hex() == "00000014000010000000002800002000"


def test_cutting_drops_what_lies_beyond_the_end_and_what_cannot_be_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "i"
    writer = OffsetIndexWriter(FS.open_appendable(str(path)), 0)
    for number in range(1, 6):
        writer.append(number * 10, number * 1000)
    with path.open("ab") as file:
        file.write(b"\xff" * 16 + bytes(8) + b"abc")
    writer.refresh()
    writer.cut(3001, 31)
    assert path.read_bytes() == b"".join(
        (number * 10).to_bytes(4, "big") + (number * 1000).to_bytes(4, "big") for number in range(1, 4)
    )
    assert (writer.count, writer.last_position) == (3, 3000)


class Shrinking:
    """A file that is cut between the question for its size and the read."""

    path = "shrinking.index"

    def size(self) -> int:
        return 16

    def pread(self, size: int, position: int) -> bytes:
        return b""

    def close(self) -> None:
        return None


def test_an_index_cut_while_it_is_searched_answers_as_if_it_were_empty() -> None:
    assert OffsetIndexReader(Shrinking(), 7).floor(9) == OffsetPosition(7, 0)


# Whoever writes, the bytes are the same


@pytest.mark.parametrize("round", range(6))
def test_indexes_follow_from_the_log_whoever_appends(tmp_path: Path, seed: int, round: int) -> None:
    """Two handles append in turn, roll, die and recover; the index bytes are those made from the
    log alone."""
    chance = random.Random(seed + round)
    directory = tmp_path / "t-0"
    options: dict[str, Any] = {
        "segment_bytes": 4096,
        "index_interval_bytes": chance.choice([0, 100, 700]),
        "segment_index_bytes": 240,
    }
    boot = 0
    handles = [open_partition(directory, OtherBoot(0), **options) for _ in range(2)]
    sent: list[tuple[int, bytes]] = []
    for _ in range(120):
        action = chance.random()
        handle = handles[chance.randrange(2)]
        if action < 0.8:
            values = [bytes(chance.randrange(90)) for _ in range(chance.randrange(1, 4))]
            base = append_encoded(handle, batch(*values, timestamp_ms=START_MS + chance.randrange(1000)))
            sent += [(base + number, value) for number, value in enumerate(values)]
        elif action < 0.87:
            handle.log.roll()
        elif action < 0.94:
            handles[chance.randrange(2)] = open_partition(directory, OtherBoot(boot), **options)
        else:
            boot += 1
            handles = [open_partition(directory, OtherBoot(boot), **options) for _ in range(2)]
            assert handles[0].latest_offset == len(sent)
        assert_indexes_follow_from_the_log(directory, options["index_interval_bytes"])
    assert everything(handles[0]) == sent


@pytest.mark.parametrize("round", range(4))
def test_lookups_equal_a_search_of_every_record(tmp_path: Path, seed: int, round: int) -> None:
    chance = random.Random(seed + round)
    partition = open_partition(tmp_path / "t-0", segment_bytes=2048, index_interval_bytes=200)
    times: list[int] = []
    while len(times) < 300:
        at = START_MS + len(times) * 3 + chance.choice([0, 0, 0, -400, 200])
        count = chance.randrange(1, 4)
        append_encoded(partition, batch(*[b"x" * 20] * count, timestamp_ms=at))
        times += [at] * count
    for offset in range(len(times)):
        assert partition.read(offset, max_records=1)[0].offset == offset
    for timestamp in {t + step for t in times for step in (-1, 0, 1)} | {0, START_MS * 2}:
        expected = next(((offset, at) for offset, at in enumerate(times) if at >= timestamp), None)
        found = partition.offset_for_time(timestamp)
        assert (tuple(found) if found else None) == expected, f"timestamp {timestamp}"


def test_a_segment_whose_times_begin_at_zero_has_no_entry_of_zeros(directory: Path) -> None:
    """A machine without a clock says 1970. An entry of zeros would count as none, and hide the ones
    behind it."""
    partition = open_partition(directory, index_interval_bytes=100)
    times = [*[0] * 8, *range(5)]
    for at in times:
        append_encoded(partition, batch(b"x" * 60, timestamp_ms=at))
    assert_indexes_follow_from_the_log(directory, 100)
    partition.log.roll()
    again = open_partition(directory, index_interval_bytes=100)
    append_encoded(again, batch(b"x", timestamp_ms=0))
    again.log.roll()
    again.append(one("last"), acks=1)
    again.close()
    assert_indexes_follow_from_the_log(directory, 100)
    for base in (0, len(times)):
        data = file_of(directory, base, ".timeindex").read_bytes()
        assert bytes(12) not in [data[at : at + 12] for at in range(0, len(data), 12)]
    assert [again_at.offset for at in range(5) if (again_at := open_partition(directory).offset_for_time(at))] == [
        0, 9, 10, 11, 12,
    ]  # fmt: skip


def test_an_index_that_points_to_other_batches_hides_no_record(directory: Path) -> None:
    """Each entry in turn is given the position of every other batch: as good an entry as any, but
    for the offset there."""
    partition = open_partition(directory, index_interval_bytes=200)
    for number in range(12):
        append_encoded(partition, batch(b"%d" % number * 40, timestamp_ms=START_MS + number))
    path = file_of(directory, 0, ".index")
    good = path.read_bytes()
    entries = list(OFFSET_ENTRY.iter_unpack(good))
    positions = [position for position, _ in headers(log_file(directory))]
    assert 2 < len(entries) < len(positions)
    for is_closed in (False, True):
        if is_closed:
            partition.log.roll()
            file_of(directory, 0, ".seal").unlink()
        for number, (relative, right) in enumerate(entries):
            for wrong in set(positions) - {right}:
                changed = [*entries[:number], (relative, wrong), *entries[number + 1 :]]
                path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in changed))
                reader = open_partition(directory, read_only=True)
                for offset in range(12):
                    assert values(reader.read(offset, max_records=1)) == [f"{offset}" * 40]
        path.write_bytes(good)


def test_offset_for_time_looks_inside_a_batch(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", clock=ManualClock())
    partition.append([ProducerRecord(b"a", timestamp_ms=at) for at in (5, 9, 7, 9)], acks=1)
    assert [partition.offset_for_time(at) for at in (0, 6, 9)] == [(0, 5), (1, 9), (1, 9)]
    assert partition.offset_for_time(10) is None


def test_offset_for_time_begins_at_the_log_start(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for at in range(10):
        partition.append(many(str(at), timestamp_ms=at), acks=1)
    partition.log.delete_before(4)
    assert partition.offset_for_time(0) == (4, 4)


@pytest.mark.processes
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".commit"])
def test_a_writer_killed_between_two_writes_leaves_indexes_that_are_made_whole(directory: Path, suffix: str) -> None:
    """The process dies before the write to this file; nothing is undone, as after SIGKILL."""
    healthy = open_partition(directory, index_interval_bytes=0)
    for number in range(3):
        append_encoded(healthy, batch(b"v%d" % number, timestamp_ms=START_MS + number))
    append_encoded(healthy, batch(b"v3", timestamp_ms=START_MS + 3))
    healthy.close()
    killed(directory, suffix)
    survivor = open_partition(directory, index_interval_bytes=0)
    end = append_encoded(survivor, batch(b"after", timestamp_ms=START_MS + 9))
    assert end == (4 if suffix == ".log" else 5)
    assert_indexes_follow_from_the_log(directory, 0)


def killed(directory: Path, suffix: str) -> None:
    """Append in a child that dies before it writes to the file with this suffix."""

    def die(operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(suffix):
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            partition = open_partition(directory, Faulty(die), index_interval_bytes=0)
            append_encoded(partition, batch(b"v4", timestamp_ms=START_MS + 4))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
