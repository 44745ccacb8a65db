"""A range of times in a segment that is open still: what is left out is known to have none of them, and most is left out."""

from __future__ import annotations

import random
import shutil
from array import array
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.codec import COMPILED, RecordEncoder
from pylog.codec.batch import build_batch
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.verify import VerifyReport, verify_partition
from pylog.segment import Seal, SegmentScan, block_times, times
from pylog.segment.block_times import BLOCK_BYTES, EMPTY, ENTRY, BlockTimes, decode, encode, runs_that_may_hold
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, TP, file_of, open_partition
from tests.storage.filesystems import Faulty, io_error

FS = OsFileSystem()
SECOND = 1_000


def append(partition: Partition, times_ms: list[int], size: int = 1_000) -> None:
    partition.append([ProducerRecord(b"x" * size, timestamp_ms=at) for at in times_ms], acks=1)


def filled(directory: Path, count: int = 2_000, from_second: int = 0, **changes: Any) -> Partition:
    """Two megabytes, a record a second, twenty a batch."""
    partition = open_partition(directory, **changes)
    for first in range(from_second, from_second + count, 20):
        append(partition, [START_MS + SECOND * number for number in range(first, first + 20)])
    return partition


def spans(partition: Partition, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
    return partition.log.reader.spans_of_times(0, partition.latest_offset, first_ms, last_ms)


def offsets_in(found: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in found)


def times_file(directory: Path, base: int = 0) -> Path:
    return file_of(directory, base, ".times")


def problems(directory: Path) -> list[str]:
    return [str(p) for p in verify_partition(FS, str(directory), TP, dense=True, report=VerifyReport())]


# What is left out


@pytest.mark.parametrize("percent", [0, 37, 50, 90])
def test_a_range_of_times_leaves_out_what_is_before_and_behind_it(tmp_path: Path, percent: int) -> None:
    partition = filled(tmp_path / "t-0", 4_000)
    first = 40 * percent
    found = spans(partition, START_MS + SECOND * first, START_MS + SECOND * (first + 40) - 1)
    assert any(start <= first and first + 40 <= end for start, end in found)
    assert (
        offsets_in(found) < 40 + 8 * BLOCK_BYTES // 1_000
    )  # two blocks at its sides, and five at most at the end of the log


def test_what_was_appended_last_is_not_known_yet(tmp_path: Path) -> None:
    partition = filled(tmp_path / "t-0")
    assert spans(partition, START_MS - 2, START_MS - 1)[-1][1] == 2_000


def test_a_time_behind_all_of_them_reads_nothing(tmp_path: Path) -> None:
    assert spans(filled(tmp_path / "t-0"), START_MS + SECOND * 2_000, 2**62) == []


def test_times_that_do_not_rise_are_found_wherever_they_are(tmp_path: Path) -> None:
    partition = filled(tmp_path / "t-0", 6_000)
    append(partition, [START_MS + 7])
    for first in range(6_000, 12_000, 20):
        append(partition, [START_MS + SECOND * number for number in range(first, first + 20)])
    early, late, last = spans(partition, START_MS, START_MS + 10)
    assert early[0] == 0
    assert late[0] <= 6_000 < late[1]
    assert early[1] < 200
    assert late[1] - late[0] < 200
    assert last[1] == 12_001


def test_the_log_append_time_is_known_of_compressed_batches(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    rng = random.Random(1)
    for _ in range(40):
        partition.append([ProducerRecord(rng.randbytes(20_000))], acks=1)
    now = partition.log.directory.clock.now_ms()
    assert offsets_in(spans(partition, now - 10, now - 1)) < 20
    assert offsets_in(spans(partition, now, now)) == 40


# Who appended


def test_nothing_is_known_of_blocks_that_two_appended_to(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    one, other = filled(directory, 20), open_partition(directory)
    for first in range(20, 2_000, 20):
        one, other = other, one
        append(one, [START_MS + SECOND * number for number in range(first, first + 20)])
    assert spans(one, START_MS, START_MS + SECOND) == [(0, 2_000)]
    assert problems(directory) == []


def test_each_of_two_that_take_turns_tells_of_its_own_blocks(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    one, other = filled(directory, 20), open_partition(directory)
    for first in range(20, 12_000, 20):
        if first % 3_000 == 0:
            one, other = other, one
        append(one, [START_MS + SECOND * number for number in range(first, first + 20)])
    assert 40 <= offsets_in(spans(one, START_MS + SECOND * 4_500, START_MS + SECOND * 4_540)) < 1_500
    assert problems(directory) == []


def test_a_log_that_was_opened_again_goes_on_and_keeps_what_was_written_down(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    filled(directory).close()
    before = list(decode(times_file(directory).read_bytes()))
    partition = open_partition(directory)
    for first in range(2_000, 4_000, 20):
        append(partition, [START_MS + SECOND * number for number in range(first, first + 20)])
    after = list(decode(times_file(directory).read_bytes()))
    assert after[: len(before) - 1] == before[:-1]
    assert len(after) > 2 * len(before) - 5
    assert None not in after
    assert problems(directory) == []


def test_processes_that_append_a_little_each_tell_of_their_blocks_together(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    filled(directory, 300).close()
    for first in range(300, 1_500, 10):
        partition = open_partition(directory)
        append(partition, [START_MS + SECOND * number for number in range(first, first + 10)])
        partition.close()
    known = [block is not None for block in decode(times_file(directory).read_bytes())]
    assert known.count(False) <= 6
    assert all(known[6:])
    found = spans(open_partition(directory, read_only=True), START_MS + SECOND * 900, START_MS + SECOND * 910)
    assert offsets_in(found) < 700
    assert problems(directory) == []


def test_small_partitions_have_no_such_file(tmp_path: Path) -> None:
    filled(tmp_path / "t-0", 240)
    assert not times_file(tmp_path / "t-0").exists()


# Seals


def test_a_seal_takes_the_least_times_from_it_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_into = []
    look = SegmentScan.least_timestamp_ms
    monkeypatch.setattr(
        SegmentScan, "least_timestamp_ms", lambda scan, at, header: looked_into.append(at) or look(scan, at, header)
    )
    for name, is_kept in (("kept-0", True), ("removed-0", False)):
        partition = filled(tmp_path / name)
        if not is_kept:
            times_file(tmp_path / name).unlink()
        looked_into.clear()
        partition.log.roll()
        assert len(looked_into) < 30 if is_kept else len(looked_into) == 100
        assert not times_file(tmp_path / name).exists()
        partition.close()
    one, other = (file_of(tmp_path / name, 0, ".seal").read_bytes() for name in ("kept-0", "removed-0"))
    assert one == other or not COMPILED  # the readable codec looks into no batch


def test_a_seal_takes_nothing_from_that_of_another_segment(tmp_path: Path) -> None:
    directory, another = tmp_path / "t-0", tmp_path / "another-0"
    partition = filled(directory)
    filled(another, from_second=9_000)
    shutil.copy(times_file(another), times_file(directory))
    partition.log.roll()
    partition.close()
    again = open_partition(directory, read_only=True)
    [(start, end)] = spans(again, START_MS + SECOND * 500, START_MS + SECOND * 510)
    assert start <= 500 < 510 < end


# Damage


def test_no_damage_to_it_hides_a_record(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = filled(directory)
    whole = times_file(directory).read_bytes()
    rng = random.Random(20261122)
    for _ in range(400):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        times_file(directory).write_bytes(data)
        first = rng.randrange(2_000)
        found = spans(partition, START_MS + SECOND * first, START_MS + SECOND * first)
        assert any(start <= first < end for start, end in found), first


def test_that_of_another_segment_leaves_nothing_out_and_is_found(tmp_path: Path) -> None:
    directory, another = tmp_path / "t-0", tmp_path / "another-0"
    partition = filled(directory)
    filled(another, from_second=9_000)
    shutil.copy(times_file(another), times_file(directory))
    assert spans(partition, START_MS + SECOND, START_MS + SECOND * 20) == [(0, 2_000)]
    [problem] = problems(directory)
    assert "entry of block 0 says that another batch is the first" in problem


@pytest.mark.parametrize(
    "wrong",
    [{"least_ms": START_MS + 10**9}, {"greatest_ms": START_MS - 1}, {"position": 7}, {"front_crc": 7}, EMPTY._asdict()],
)
def test_verify_finds_entries_that_are_wrong(tmp_path: Path, wrong: dict[str, int]) -> None:
    directory = tmp_path / "t-0"
    partition = filled(directory)
    data = bytearray(times_file(directory).read_bytes())
    block = list(decode(data))[3]
    assert block is not None
    data[3 * ENTRY.size : 4 * ENTRY.size] = encode(3, block._replace(**wrong))
    times_file(directory).write_bytes(data)
    [problem] = problems(directory)
    assert "the entry of block 3 says" in problem
    partition.close()


def test_a_file_that_claims_to_be_long_is_read_no_further_than_the_segment_goes(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = filled(directory, 200)
    with open(times_file(directory), "wb") as file:
        file.truncate(1 << 40)
    assert spans(partition, START_MS, START_MS) == [(0, 200)]
    append(partition, [START_MS])
    partition.close()
    partition = open_partition(directory)
    append(partition, [START_MS])
    assert times_file(directory).stat().st_size < 10 * ENTRY.size


def test_the_layout_is_the_one_of_the_documentation() -> None:
    block = BlockTimes(START_MS, START_MS + 7, 0, 0x618F10FC, 0x10050)
    assert encode(0, block).hex(" ", 4) == "0000018b cfe56800 0000018b cfe56807 00000000 618f10fc 00010050 3b0a3347"
    assert list(decode(encode(0, block))) == [block]


def test_an_entry_says_nothing_in_the_place_of_another() -> None:
    block = BlockTimes(1, 2, 3, 4, 5)
    assert list(decode(encode(0, block) + encode(0, block) + bytes(ENTRY.size) + encode(3, EMPTY) + b"torn")) == [
        block, None, None, EMPTY,
    ]  # fmt: skip


# Failures, cuts


@pytest.mark.parametrize("operation", ["open", "pwrite", "wrote"])
def test_what_the_disk_refuses_to_note_is_not_known_and_fails_no_append(
    tmp_path: Path, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory, filesystem = tmp_path / "t-0", Faulty()

    def fail(happened: str, path: str) -> None:
        if happened == operation and path.endswith(".times"):
            raise io_error(path)

    partition = open_partition(directory, filesystem)
    filesystem.hook = fail
    for first in range(0, 2_000, 20):
        append(partition, [START_MS + SECOND * number for number in range(first, first + 20)])
    assert caplog.text.count("going on without the times of blocks") == 1
    filesystem.hook = lambda operation, path: None
    for first in range(2_000, 4_000, 20):
        append(partition, [START_MS + SECOND * number for number in range(first, first + 20)])
    assert spans(partition, 0, 2**62) == [(0, 4_000)]
    assert problems(directory) == []
    partition.log.roll()  # the seal knows all the same
    partition.close()
    found = spans(open_partition(directory, read_only=True), START_MS + SECOND * 500, START_MS + SECOND * 500)
    assert found[0][0] <= 500 < found[0][1]
    assert offsets_in(found) < 200 or not COMPILED


def test_recovery_removes_it(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    filled(directory).close()
    assert times_file(directory).exists()
    (directory / ".commit").write_bytes(b"")
    partition = open_partition(directory)
    append(partition, [START_MS])
    assert times_file(directory).stat().st_size == 0
    assert spans(partition, START_MS, START_MS) == [(0, 2_001)]


# Seals and runs of blocks

TIMES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1_000, 200_000)), min_size=1, max_size=80)


@given(TIMES, st.booleans(), st.integers(0, 9), st.integers(0, 3))
def test_a_seal_tells_where_all_batches_of_these_times_are(
    made: list[tuple[int, int, int]], has_least: bool, first: int, more: int
) -> None:
    positions = [0, *accumulate(size for _, _, size in made)]
    end = positions.pop()
    least = [2**63 - 1] * -(-end // BLOCK_BYTES)
    for position, (at, _, _) in zip(positions, made, strict=True):
        least[position // BLOCK_BYTES] = min(least[position // BLOCK_BYTES], at)
    latest = [at + later for at, later, _ in made]
    greatest = [max(latest[: number + 64]) for number in range(0, len(made), 64)]
    seal = Seal(
        end, 0, len(made) - 1, 0, 0, array("I", positions), array("I", [0] * len(made)), array("q", greatest), "",
        array("q", least if has_least else []),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "NEAR_BLOCKS", 2)
        ranges = list(times.batches_of(seal, first, first + more))
    inside = {number for low, high in ranges for number in range(low, high)}
    assert {n for n, (at, later, _) in enumerate(made) if at <= first + more and at + later >= first} <= inside
    assert all(low < high for low, high in ranges)
    assert all(before <= behind for (_, before), (behind, _) in pairwise(ranges))


BLOCK = (
    st.none()
    | st.just(EMPTY)
    | st.builds(lambda at, more: BlockTimes(at, at + more, 1, 1, 1), *[st.integers(0, 9)] * 2)
)


@given(st.lists(BLOCK, max_size=60), st.integers(0, 9), st.integers(0, 3))
def test_runs_have_all_that_may_hold_and_stand_apart(blocks: list[BlockTimes | None], first: int, more: int) -> None:
    runs = runs_that_may_hold(blocks, first, first + more)
    inside = {number for low, high in runs for number in range(low, high)}
    wanted = {n for n, b in enumerate(blocks) if b is None or (b.least_ms <= first + more and b.greatest_ms >= first)}
    assert wanted | {len(blocks)} <= inside
    assert runs[-1][1] == len(blocks) + 1
    for (_, low), (high, _) in pairwise([(0, 0), *runs]):
        gap = blocks[low:high]
        assert not gap or any(b is not None and b != EMPTY for b in gap)
        assert not gap or low == 0 or len(gap) >= 16


# Whatever happens


class Life:
    """A partition with two writers, and what it has to hold."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writers = [open_partition(directory, segment_bytes=3_000_000) for _ in range(2)]
        self.times_ms: list[int] = []
        self.rng = random.Random(1)

    def append(self, writer: int, times_ms: list[int], size: int, *, is_compressed: bool, is_told: bool) -> None:
        encoder = RecordEncoder(10_000_000)
        for at in times_ms:
            assert encoder.append(START_MS + at, None, self.rng.randbytes(size // 2) + bytes(size // 2), ())
        least_ms = encoder.min_timestamp_ms
        assert least_ms == START_MS + min(times_ms)
        batch = build_batch(encoder, codec=4 if is_compressed else 0)
        self.writers[writer].log.append_batch(batch, min_timestamp_ms=least_ms if is_told else None)
        self.times_ms += times_ms

    def open_again(self, writer: int, *, is_killed: bool) -> None:
        if not is_killed:
            self.writers[writer].close()
        self.writers[writer] = open_partition(self.directory, segment_bytes=3_000_000)

    def check(self, first: int, last: int) -> None:
        for partition in (*self.writers, open_partition(self.directory, read_only=True)):
            found = spans(partition, START_MS + first, START_MS + last)
            inside = {number for start, end in found for number in range(start, end)}
            assert {offset for offset, at in enumerate(self.times_ms) if first <= at <= last} <= inside


def live(life: Life, rng: random.Random) -> None:
    """Mostly one of the two appends, and now and then the other: else no block would be of one alone."""
    for _ in range(12):
        writer, step = int(rng.random() < 0.1), rng.random()
        if step < 0.02:
            life.writers[writer].log.roll()
        elif step < 0.12:
            life.open_again(writer, is_killed=rng.random() < 0.3)
        else:
            at = rng.randrange(30)
            times_ms = [at + rng.randrange(3) for _ in range(rng.randint(1, 4))]
            size = rng.choice([1_000, 5_000, 10_000, 70_000])
            life.append(writer, times_ms, size, is_compressed=rng.random() < 0.2, is_told=rng.random() < 0.7)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_no_record_is_left_out(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_times, "NEAR_BLOCKS", 1)
        patch.setattr(block_times, "_WRITTEN_AT_ONCE", 1)
        life = Life(tmp_path_factory.mktemp("life") / "t-0")
        for _ in range(15):
            live(life, rng)
            for first in rng.sample(range(32), 6):
                life.check(first, first + rng.randrange(3))
            assert problems(life.directory) == []
