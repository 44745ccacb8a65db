"""A range of times: what is left out is known to have none of them, and most of what is closed is
left out."""

from __future__ import annotations

import random
from array import array
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.codec import COMPILED, RecordEncoder
from pylog.codec.batch import build_batch, header_crc, write_header
from pylog.codec.compression import codec_id
from pylog.codec.format import HEADER_BYTES, INT64_MAX, INT64_MIN
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.commit_slots import latest
from pylog.segment import Seal, SegmentReader, time_lookup
from pylog.segment.seal import LEAST_EVERY_BYTES, TIMES_EVERY, decode, encode
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, file_of, one, open_partition, problems, spans

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


def offsets_in(found: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in found)


def least_published(directory: Path) -> int:
    state = latest((directory / ".commit").read_bytes())
    assert state is not None
    return state.least_timestamp_ms


def compressed(times_ms: list[int]) -> tuple[bytearray, int]:
    encoder = RecordEncoder(1 << 20)
    for at in times_ms:
        assert encoder.append(at, None, bytes(5_000), ())
    least_ms = encoder.min_timestamp_ms
    return build_batch(encoder, codec=4), least_ms


# A closed segment


@pytest.mark.parametrize("percent", [0, 37, 50, 90])
def test_a_range_of_times_leaves_out_what_is_before_and_after_it(tmp_path: Path, percent: int) -> None:
    partition = filled(tmp_path / "t-0", 4_000)
    partition.log.roll()
    append(partition, [START_MS + SECOND * 4_000])
    first = 40 * percent
    found = spans(partition, START_MS + SECOND * first, START_MS + SECOND * (first + 40) - 1)
    assert any(start <= first and first + 40 <= end for start, end in found)
    assert offsets_in(found) < 40 + 2 * LEAST_EVERY_BYTES // 1_000 + 40 or not COMPILED


@pytest.mark.skipif(not COMPILED, reason="the readable codec looks into no batch that it seals")
def test_times_that_do_not_rise_are_found_wherever_they_are(tmp_path: Path) -> None:
    partition = filled(tmp_path / "t-0", 6_000)
    append(partition, [START_MS + 7])
    for first in range(6_000, 12_000, 20):
        append(partition, [START_MS + SECOND * number for number in range(first, first + 20)])
    partition.log.roll()
    early, late = spans(partition, START_MS, START_MS + 10)
    assert early[0] == 0
    assert late[0] <= 6_000 < late[1]
    assert early[1] < 200
    assert late[1] - late[0] < 200


def test_a_range_of_offsets_that_ends_before_the_times_do_leaves_them_out(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    for number in range(200):  # the times of 64 batches are known together
        append(partition, [START_MS + SECOND * number], 10)
    partition.log.roll()
    times = START_MS + SECOND * 150, START_MS + SECOND * 160
    reader = partition.log.reader
    assert reader.spans_of_times(0, 200, *times) == [(150, 200)]
    assert reader.spans_of_times(0, 155, *times) == [(150, 155)]
    assert reader.spans_of_times(0, 150, *times) == []


# The active segment


def test_the_active_segment_is_left_out_whole_by_what_the_slots_say_of_it(tmp_path: Path) -> None:
    partition = filled(tmp_path / "t-0", 200)
    assert spans(partition, START_MS - 2, START_MS - 1) == []
    assert spans(partition, START_MS, START_MS) == [(0, 200)]
    assert spans(partition, START_MS + SECOND * 200, INT64_MAX) == []
    append(partition, [START_MS - 1])
    assert spans(partition, START_MS - 2, START_MS - 1) == [(0, 201)]


def test_every_writer_keeps_the_least_time_of_the_active_segment(directory: Path) -> None:
    one, other = open_partition(directory), open_partition(directory)
    assert least_published(directory) == INT64_MAX
    known = INT64_MAX
    rng = random.Random(7)
    for number in range(40):
        at = START_MS + rng.randrange(1_000)
        writer = (one, other)[rng.randrange(2)]
        if number % 3:
            append(writer, [at + 5, at, at + 9], 10)
        else:
            batch, least_ms = compressed([at + 1, at, at + 3])
            writer.log.append_batch(batch, min_timestamp_ms=least_ms)
        known = min(known, at)
        assert least_published(directory) == known
        if number % 5 == 0:
            writer.log.sync(writer.latest_offset)
            assert least_published(directory) == known
    one.log.roll()
    assert least_published(directory) == INT64_MAX
    append(other, [START_MS], 10)
    assert least_published(directory) == START_MS


def test_the_log_append_time_is_known_of_compressed_batches(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    batch, least_ms = compressed([1, 2])
    partition.log.append_batch(batch, min_timestamp_ms=least_ms)
    now = partition.log.directory.clock.now_ms()
    assert 2 < least_published(tmp_path / "t-0") <= now


def test_a_compressed_batch_of_which_nobody_says_the_times_is_never_left_out(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.log.append_batch(compressed([START_MS + 9, START_MS])[0])
    assert least_published(tmp_path / "t-0") == INT64_MIN
    assert spans(partition, START_MS - 2, START_MS - 1) == [(0, 2)]


def test_an_encoded_batch_from_outside_is_looked_into(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(bytes(compressed([START_MS + 9, START_MS])[0]), acks=1)
    assert least_published(tmp_path / "t-0") == START_MS


def test_nothing_is_known_of_what_was_adopted_from_a_writer_that_died(directory: Path) -> None:
    partition = open_partition(directory)
    append(partition, [START_MS], 10)
    published = (directory / ".commit").read_bytes()
    append(partition, [START_MS - 5], 10)
    (directory / ".commit").write_bytes(published)  # killed between the batch and its publication
    other = open_partition(directory)
    append(other, [START_MS + 5], 10)
    assert other.latest_offset == 3
    assert least_published(directory) == INT64_MIN
    assert spans(other, START_MS - 5, START_MS - 5) == [(0, 3)]


def test_a_torn_batch_that_is_cut_off_changes_nothing_that_is_known(directory: Path) -> None:
    append(open_partition(directory), [START_MS], 10)
    with file_of(directory, 0, ".log").open("ab") as file:
        file.write(b"torn")
    append(open_partition(directory), [START_MS + 5], 10)
    assert least_published(directory) == START_MS


def test_nothing_is_known_after_a_recovery(directory: Path) -> None:
    append(open_partition(directory), [START_MS], 10)
    (directory / ".commit").write_bytes(b"")
    partition = open_partition(directory)
    append(partition, [START_MS + 5], 10)
    assert least_published(directory) == INT64_MIN
    assert spans(partition, START_MS - 2, START_MS - 1) == [(0, 2)]


# Seals


def sealed_least(directory: Path) -> list[int]:
    path = file_of(directory, 0, ".seal")
    return list(decode(path.read_bytes(), str(path)).least_ms)


@pytest.mark.skipif(not COMPILED, reason="the readable codec looks into no batch")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_seal_says_the_least_time_of_every_64_kib_whoever_has_appended(tmp_path: Path, codec: str) -> None:
    rng = random.Random(3)
    writers = [open_partition(tmp_path / "t-0") for _ in range(2)]
    for number in range(100):
        encoder = RecordEncoder(1 << 20)
        for at in (number + 2, number, number + 1):
            assert encoder.append(START_MS + at, None, rng.randbytes(4_000) + bytes(4_000), ())
        writers[number % 2].log.append_batch(build_batch(encoder, codec=codec_id(codec)))
    writers[0].log.roll()
    least = sealed_least(tmp_path / "t-0")
    assert len(least) > 10
    assert INT64_MIN not in least
    assert least == sorted(least)
    assert {START_MS + at for at in range(100)} >= set(least)
    assert problems(tmp_path / "t-0") == []


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_batch_that_cannot_be_decompressed_is_sealed_without_its_time(tmp_path: Path, codec: str) -> None:
    partition = open_partition(tmp_path / "t-0")
    batch = compressed([START_MS])[0]
    for broken in (batch[:-9], batch[:70] + bytes(20)):
        write_header(broken, codec_id(codec), 1, START_MS, START_MS, -1, -1, -1)
        partition.log.append_batch(broken)
    for _ in range(3):
        partition.append([ProducerRecord(b"x" * 70_000, timestamp_ms=START_MS)], acks=1)
    partition.log.roll()
    assert sealed_least(tmp_path / "t-0")[:2] == ([INT64_MIN, START_MS] if COMPILED else [])
    assert spans(partition, START_MS - 5, START_MS - 5)[0][0] == 0


TIMES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1_000, 200_000)), min_size=1, max_size=80)


@pytest.mark.slow
@given(TIMES, st.booleans(), st.integers(0, 9), st.integers(0, 3))
def test_a_seal_tells_where_all_batches_of_these_times_are(
    made: list[tuple[int, int, int]], has_least: bool, first: int, more: int
) -> None:
    positions = [0, *accumulate(size for _, _, size in made)]
    end = positions.pop()
    least = [2**63 - 1] * -(-end // LEAST_EVERY_BYTES)
    for position, (at, _, _) in zip(positions, made, strict=True):
        least[position // LEAST_EVERY_BYTES] = min(least[position // LEAST_EVERY_BYTES], at)
    latest = [at + later for at, later, _ in made]
    greatest = [max(latest[: number + 64]) for number in range(0, len(made), 64)]
    seal = Seal(
        end, 0, len(made) - 1, 0, 0, array("I", positions), array("I", [0] * len(made)), array("q", greatest), "",
        array("q", least if has_least else []),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_lookup, "NEAR_BLOCKS", 2)
        ranges = list(time_lookup.batches_of(seal, first, first + more))
    inside = {number for low, high in ranges for number in range(low, high)}
    assert {n for n, (at, later, _) in enumerate(made) if at <= first + more and at + later >= first} <= inside
    assert all(low < high for low, high in ranges)
    assert all(before <= after for (_, before), (after, _) in pairwise(ranges))


@pytest.mark.skipif(not COMPILED, reason="the readable codec looks into no batch that it seals")
@pytest.mark.parametrize("resealed", [False, True], ids=["", "also in its seal"])
def test_if_a_batch_has_another_offset_than_when_it_was_sealed_nothing_is_left_out(
    directory: Path, resealed: bool
) -> None:
    """No record is found twice, and who reads them meets the damage."""
    partition = open_partition(directory)
    for seconds in (0, 10, 0, 10, 0):  # the times of the first, the third and the fifth are sought
        for _ in range(4):
            append(partition, [START_MS + SECOND * seconds] * 60)
    partition.log.roll()
    partition.close()
    path, log = file_of(directory, 0, ".seal"), file_of(directory, 0, ".log")
    seal, data = decode(path.read_bytes(), ""), bytearray(log.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_lookup, "NEAR_BLOCKS", 1)
        assert len(spans(open_partition(directory), START_MS, START_MS + SECOND)) == 3
        _, (number, _), _ = time_lookup.batches_of(seal, START_MS, START_MS + SECOND)
        front = slice(seal.positions[number], seal.positions[number] + HEADER_BYTES)
        data[front] = (1).to_bytes(8, "big") + data[front][8:]
        log.write_bytes(data)
        if resealed:
            crcs = seal.header_crcs[:]
            crcs[number] = header_crc(data[front])
            path.write_bytes(encode(seal._replace(header_crcs=crcs)))
        assert spans(open_partition(directory), START_MS, START_MS + SECOND) == [(0, 1200)]


# Files of earlier versions


def test_times_of_an_earlier_version_are_no_fault_and_go_with_their_segment(directory: Path) -> None:
    partition = filled(directory, 400)
    partition.log.roll()
    append(partition, [START_MS])
    for base in (0, 400):
        file_of(directory, base, ".times").write_bytes(bytes(range(64)))
    assert problems(directory) == []
    assert spans(partition, START_MS - 2, START_MS - 1) == [] or not COMPILED
    partition.log.delete_before(400)
    assert not file_of(directory, 0, ".times").exists()
    assert file_of(directory, 400, ".times").exists()
    (directory / ".commit").write_bytes(b"")
    append(open_partition(directory), [START_MS])  # recovers
    assert not file_of(directory, 400, ".times").exists()
    assert problems(directory) == []


def test_a_directory_in_the_place_of_such_a_file_stops_nobody(directory: Path) -> None:
    append(open_partition(directory), [START_MS])
    file_of(directory, 0, ".times").mkdir()
    (directory / ".commit").write_bytes(b"")
    partition = open_partition(directory)
    partition.append(one("after"), acks=1)
    partition.log.roll()
    assert partition.latest_offset == 2
    assert problems(directory) == []


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
    """Mostly one of the two appends, and now and then the other: else no block would be of one
    alone."""
    for _ in range(12):
        writer, step = int(rng.random() < 0.1), rng.random()
        if step < 0.04:
            life.writers[writer].log.roll()
        elif step < 0.12:
            life.open_again(writer, is_killed=rng.random() < 0.3)
        else:
            at = rng.randrange(30)
            times_ms = [at + rng.randrange(3) for _ in range(rng.randint(1, 4))]
            size = rng.choice([1_000, 5_000, 10_000, 70_000])
            life.append(writer, times_ms, size, is_compressed=rng.random() < 0.2, is_told=rng.random() < 0.7)


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_no_record_is_left_out(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_lookup, "NEAR_BLOCKS", 1)
        life = Life(tmp_path_factory.mktemp("life") / "t-0")
        for _ in range(15):
            live(life, rng)
            for first in rng.sample(range(32), 6):
                life.check(first, first + rng.randrange(3))
            assert problems(life.directory) == []


def test_what_is_known_of_the_headers_counts_only_up_to_the_end_that_is_looked_at(tmp_path: Path) -> None:
    """Another process may have cut what this one has read."""
    partition, ends = open_partition(tmp_path / "t-0"), []
    for number in range(3 * TIMES_EVERY):
        partition.append([ProducerRecord(b"v", timestamp_ms=START_MS + number)], acks=1)
        ends.append(partition.log.current().written_end)
    last, middle = len(ends) - 1, TIMES_EVERY
    with closing(SegmentReader(OsFileSystem(), str(tmp_path / "t-0"), 0, closed=False, dense=True)) as segment:
        for since, end, expected in (
            (last, last, last),
            (middle, middle, middle),
            (last, middle, None),
            (last, last, last),
        ):
            found = time_lookup.first_batch_since(segment, START_MS + since, 0, ends[end])
            assert (None if found is None else found.base_offset) == expected
