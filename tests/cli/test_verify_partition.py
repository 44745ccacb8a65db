"""Whatever is damaged in a partition directory is found, named, and passed by."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from pylog.catalog.layout import parse_partition
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.compression import codec_id
from pylog.errors import CorruptSegment
from pylog.index.transaction_index import ENTRY
from pylog.model import TopicPartition
from pylog.partition import Partition
from pylog.partition.verify import Problem, VerifyReport, verify_partition
from pylog.segment.naming import COMMIT_SLOTS, EPOCH_CHECKPOINT
from pylog.storage import OsFileSystem, ReadableFile
from tests.partition.logs import (
    START_MS,
    TP,
    add,
    append_encoded,
    batch,
    cut,
    everything,
    file_of,
    flip,
    headers,
    log_file,
    marker,
    open_partition,
)
from tests.storage.filesystems import OtherBoot, StandIn

KAFKA_LOG = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
INTERVAL_BYTES = 60


def fill(partition: Partition) -> None:
    """Three segments: offsets 0 to 11 and 12 to 23 closed, 24 to 31 active; producers,
    transactions, two codecs."""
    sequences = {7: 0, 8: 0}

    def data(producer: int, *, transactional: bool = False, count: int = 1) -> None:
        values = [b"%d of %d" % (sequences[producer] + number, producer) for number in range(count)]
        made = batch(
            *values, timestamp_ms=START_MS + partition.latest_offset, producer_id=producer, epoch=0,
            sequence=sequences[producer], transactional=transactional,
        )  # fmt: skip
        sequences[producer] += count
        append_encoded(partition, made)

    def segment() -> None:
        data(7, count=3)
        data(8, transactional=True, count=2)
        append_encoded(partition, compressed(b"z" * 90, b"z" * 80, timestamp_ms=START_MS + partition.latest_offset))
        append_encoded(partition, marker(8, 0, commit=False, timestamp_ms=START_MS + partition.latest_offset))
        data(8, transactional=True)
        append_encoded(partition, marker(8, 0, commit=True, timestamp_ms=START_MS + partition.latest_offset))
        data(7, count=1)
        data(8, transactional=True)

    for _ in range(2):
        segment()
        partition.log.roll()
        append_encoded(partition, marker(8, 0, commit=False, timestamp_ms=START_MS + partition.latest_offset))
    data(7, count=6)
    data(8, transactional=True)


def compressed(*values: bytes, timestamp_ms: int) -> bytearray:
    encoder = RecordEncoder(1 << 20)
    for value in values:
        encoder.append(timestamp_ms, b"key", value, [("h", b"x")])
    return build_batch(encoder, codec=codec_id("zstd"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("verify") / "t-0"
    partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
    fill(partition)
    partition.log.sync(partition.latest_offset)
    partition.close()
    return directory


@pytest.fixture
def directory(template: Path, tmp_path: Path) -> Path:
    """A copy to break, with another one beside it to restore from."""
    shutil.copytree(template, tmp_path / "pristine")
    return Path(shutil.copytree(template, tmp_path / "t-0"))


def restore(directory: Path, path: Path) -> None:
    shutil.copy(directory.parent / "pristine" / path.name, path)


def check(directory: Path, filesystem: OsFileSystem | None = None) -> list[Problem]:
    return list(verify_partition(filesystem or OsFileSystem(), str(directory), TP))


def only(problems: list[Problem]) -> Problem:
    (problem,) = problems
    return problem


def bases_of(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def test_a_good_partition_has_no_problem_and_all_is_counted(directory: Path) -> None:
    report, passed = VerifyReport(), []
    problems = verify_partition(OsFileSystem(), str(directory), TP, report=report, progress=passed.append)
    assert list(problems) == []
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    batches = sum(len(headers(path)) for path in directory.glob("*.log"))
    assert (report.partitions, report.segments, report.unsealed_segments) == (1, 3, 0)
    assert (report.batches, report.size_bytes, sum(passed), report.unfinished_bytes) == (batches, size, size, 0)
    assert report.records == sum(h.count for path in directory.glob("*.log") for _, h in headers(path))
    assert report.ok


def test_a_partition_that_nobody_has_written_to_is_good(tmp_path: Path) -> None:
    for roll in (False, True):
        partition = open_partition(tmp_path / "t-0")
        assert check(tmp_path / "t-0") == []
        if roll:
            append_encoded(partition, batch(b"one"))
            partition.log.roll()
        partition.close()
        assert check(tmp_path / "t-0") == []


@pytest.mark.parametrize("topic", sorted(path.name for path in KAFKA_LOG.iterdir() if path.is_dir()))
def test_what_kafka_wrote_has_no_problem(topic: str) -> None:
    name = parse_partition(topic)
    assert name is not None
    assert list(verify_partition(OsFileSystem(), str(KAFKA_LOG / topic), name, is_kafka=True)) == []


# Every byte


def damageable(directory: Path) -> list[Path]:
    """Files whose every bit is vouched for by something else. The commit slots vouch for each
    other."""
    active = bases_of(directory)[-1]
    beside_active = {file_of(directory, active, kind) for kind in (".index", ".timeindex", ".txnindex")}
    kinds = {".log", ".index", ".timeindex", ".txnindex", ".seal", ".snapshot"}
    return sorted(path for path in directory.iterdir() if path.suffix in kinds and path not in beside_active)


@pytest.mark.slow
def test_a_flipped_bit_in_any_file_is_found_and_the_file_named(directory: Path, seed: int) -> None:
    """One bit of every fifth byte; which ones, the run's seed says."""
    randomness = random.Random(seed)
    files = damageable(directory)
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".seal", ".snapshot"}
    for path in files:
        for position in range(randomness.randrange(5), path.stat().st_size, 5):
            mask = 1 << randomness.randrange(8)
            flip(path, position, mask)
            problems = check(directory)
            assert problems, f"{path.name}, byte {position}, mask {mask:#x}"
            assert any(path.name in found.path or path.name in found.problem for found in problems), problems
            flip(path, position, mask)
    assert check(directory) == []


@pytest.mark.slow
def test_every_bit_in_the_head_of_every_batch_is_vouched_for(directory: Path) -> None:
    """The 21 bytes that the batch's own checksum leaves out: by the seal, and in the active segment
    by the neighbours."""
    for base in (bases_of(directory)[0], bases_of(directory)[-1]):
        path = log_file(directory, base)
        places = headers(path)
        for start, header in (places[0], places[-1]):
            for bit in range(21 * 8):
                flip(path, start + bit // 8, 1 << bit % 8)
                problems = check(directory)
                found = [(p.first_offset, p.end_offset) for p in problems if p.kind in ("batch", "epochs")]
                expected = [(header.base_offset, header.last_offset + 1)]
                assert found == expected == [(p.first_offset, p.end_offset) for p in problems], (base, start, bit)
                flip(path, start + bit // 8, 1 << bit % 8)


def test_damage_does_not_hide_what_is_behind_it(directory: Path) -> None:
    spoiled = []
    for base in bases_of(directory):
        places = headers(log_file(directory, base))
        for position, header in (places[0], places[-1]):
            spoiled.append((log_file(directory, base).name, position, header.base_offset, header.last_offset + 1))
            flip(log_file(directory, base), position + header.size_bytes - 1)
    all_batches = sum(len(headers(path)) for path in directory.glob("*.log"))
    report = VerifyReport()
    problems = list(verify_partition(OsFileSystem(), str(directory), TP, report=report))
    assert [(Path(p.path).name, p.position, p.first_offset, p.end_offset) for p in problems] == spoiled
    assert {p.kind for p in problems} == {"batch"}
    assert report.batches == all_batches - len(spoiled)


def test_damage_to_a_length_does_not_hide_what_is_behind_it(directory: Path) -> None:
    """Even where no seal tells where the next batch begins: it is looked for."""
    active = log_file(directory, bases_of(directory)[-1])
    (_, (position, header), *_) = headers(active)
    flip(active, position + 10, 0x40)
    problem = only(check(directory))
    assert (problem.position, problem.first_offset, problem.end_offset) == (
        position,
        header.base_offset,
        header.last_offset + 1,
    )
    assert problem.problem.startswith(f"batch of {header.size_bytes + 0x4000} bytes, but")
    assert "whole batches follow at position" in problem.problem


def test_a_batch_whose_records_are_damaged_under_a_right_checksum_is_found(directory: Path) -> None:
    from pylog.codec.batch import stamp

    active = log_file(directory, bases_of(directory)[-1])
    places = headers(active)
    position, header = places[1]
    data = bytearray(active.read_bytes())
    spoiled = data[position : position + header.size_bytes]
    spoiled[61] ^= 0x02  # the first record's length
    stamp(spoiled, header.base_offset, header.leader_epoch)
    import crc32c

    spoiled[17:21] = crc32c.crc32c(bytes(spoiled[21:])).to_bytes(4, "big")
    data[position : position + header.size_bytes] = spoiled
    active.write_bytes(data)
    problem = only(check(directory))
    assert (problem.kind, problem.position, problem.first_offset) == ("records", position, header.base_offset)
    assert "record 0" in problem.problem


# Segments and their places


def test_a_segment_cut_short_is_named_with_what_is_lost(directory: Path) -> None:
    base = bases_of(directory)[0]
    path = log_file(directory, base)
    places = headers(path)
    position, header = places[-2]
    cut(path, position + 7)
    kinds = {p.kind: p for p in check(directory)}
    assert (kinds["batch"].first_offset, kinds["batch"].end_offset) == (header.base_offset, bases_of(directory)[1])
    assert "its seal says" in kinds["segment"].problem


def test_a_segment_cut_at_a_batch_without_a_seal_leaves_a_gap(directory: Path) -> None:
    first, second, _ = bases_of(directory)
    position, header = headers(log_file(directory, first))[-1]
    cut(log_file(directory, first), position)
    file_of(directory, first, ".seal").unlink()
    gap = next(p for p in check(directory) if p.kind == "offsets")
    assert (Path(gap.path).name, gap.first_offset, gap.end_offset) == (f"{second:020d}.log", header.base_offset, second)


def test_a_missing_segment_is_a_gap(directory: Path) -> None:
    _, second, third = bases_of(directory)
    for path in directory.glob(f"{second:020d}.[!s]*"):
        path.unlink()
    problem = only([p for p in check(directory) if p.kind == "offsets"])
    assert (problem.first_offset, problem.end_offset) == (second, third)
    assert problem.problem == f"offsets {second} to {third - 1} are missing before it"


def test_a_missing_first_segment_is_a_gap(directory: Path) -> None:
    first, second, _ = bases_of(directory)
    log_file(directory, first).unlink()
    problem = only([p for p in check(directory) if p.kind == "segment"])
    assert (problem.first_offset, problem.end_offset) == (first, second)


def test_a_missing_active_segment_is_lost(directory: Path) -> None:
    active = bases_of(directory)[-1]
    log_file(directory, active).unlink()
    problem = only([p for p in check(directory) if p.kind == "segment"])
    assert problem.first_offset == active
    assert "the active segment is not there" in problem.problem


def test_all_segments_missing_are_lost(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()
    assert "there is no segment for them" in only(check(directory)).problem


def test_an_active_segment_shorter_than_published_is_lost_data(directory: Path) -> None:
    active = bases_of(directory)[-1]
    position, header = headers(log_file(directory, active))[-1]
    cut(log_file(directory, active), position)
    problem = next(p for p in check(directory) if p.kind == "segment")
    assert (problem.position, problem.first_offset, problem.end_offset) == (
        position,
        header.base_offset,
        header.last_offset + 1,
    )


def test_segments_exchanged_between_partitions_are_found(directory: Path, tmp_path: Path) -> None:
    other = tmp_path / "other-0"
    partition = open_partition(other, index_interval_bytes=INTERVAL_BYTES)
    for number in range(12):
        append_encoded(partition, batch(b"other %d" % number))
    partition.log.roll()
    partition.close()
    shutil.copy(log_file(other, 0), log_file(directory, 0))
    problems = check(directory)
    assert {"batch", "segment"} <= {p.kind for p in problems}


def test_a_batch_repeated_is_found(directory: Path) -> None:
    file_of(directory, 0, ".seal").unlink()
    path = log_file(directory, 0)
    position, header = headers(path)[1]
    data, behind = path.read_bytes(), position + header.size_bytes
    path.write_bytes(data[:behind] + data[position:behind] + data[behind:])
    problem = check(directory)[0]
    assert problem.problem == f"base offset {header.base_offset} again, expected {header.last_offset + 1}"


def test_a_directory_that_is_missing_is_one_problem(tmp_path: Path) -> None:
    problem = only(check(tmp_path / "nowhere"))
    assert (problem.kind, problem.position, problem.problem) == ("directory", 0, "the partition's directory is missing")
    assert str(problem).startswith("t-0: ")


class DeletingWhen(StandIn):
    """Deletes the records before an offset when somebody asks for the size of the first segment."""

    def __init__(self, directory: Path, before: int) -> None:
        super().__init__()
        self._directory = directory
        self._before = before

    def size(self, path: str) -> int:
        if path == str(log_file(self._directory, 0)):
            partition = open_partition(self._directory, index_interval_bytes=INTERVAL_BYTES)
            partition.log.delete_before(self._before)
            partition.close()
        return super().size(path)


def test_a_segment_deleted_while_it_is_checked_is_no_problem(directory: Path) -> None:
    assert check(directory, DeletingWhen(directory, bases_of(directory)[1])) == []
    assert bases_of(directory)[0] > 0


def test_a_segment_that_only_has_a_name_is_a_problem(directory: Path) -> None:
    base = bases_of(directory)[1]
    log_file(directory, base).unlink()
    log_file(directory, base).symlink_to("nowhere")
    problem = only([p for p in check(directory) if p.kind == "segment"])
    assert (problem.first_offset, problem.end_offset) == (base, bases_of(directory)[2])


def test_a_segment_that_vanishes_above_the_log_start_is_a_problem(directory: Path) -> None:
    class Losing(StandIn):
        def size(self, path: str) -> int:
            if path == str(log_file(directory, 0)):
                Path(path).unlink(missing_ok=True)
            return super().size(path)

    assert "segment" in {p.kind for p in check(directory, Losing())}


def test_records_deleted_while_they_are_checked_are_no_gap(directory: Path) -> None:
    """Segments go between reading what is published and listing what is there."""
    _, second, _ = bases_of(directory)

    class Deleting(StandIn):
        def names(self, path: str) -> list[str]:
            partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
            partition.log.delete_before(second)
            partition.close()
            return super().names(path)

    assert check(directory, Deleting()) == []
    assert bases_of(directory)[0] == second


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".seal"])
def test_a_segment_deleted_before_its_index_is_opened_is_no_problem(directory: Path, kind: str) -> None:
    class Deleting(StandIn):
        def open_readable(self, path: str) -> ReadableFile:
            if path == str(file_of(directory, 0, kind)) and Path(path).exists():
                partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
                partition.log.delete_before(bases_of(directory)[1])
                partition.close()
            return super().open_readable(path)

    assert check(directory, Deleting()) == []


# What a crash leaves


def test_bytes_behind_the_published_end_are_counted_and_no_damage(directory: Path) -> None:
    add(log_file(directory, bases_of(directory)[-1]), b"torn append")
    report = VerifyReport()
    assert list(verify_partition(OsFileSystem(), str(directory), TP, report=report)) == []
    assert report.unfinished_bytes == 11


def test_index_entries_of_an_unpublished_append_are_no_damage(directory: Path) -> None:
    active = bases_of(directory)[-1]
    add(file_of(directory, active, ".index"), bytes.fromhex("0000010000010000"))
    add(file_of(directory, active, ".timeindex"), bytes.fromhex("00000fffffffffff00000100"))
    add(file_of(directory, active, ".timeindex"), b"torn")
    assert check(directory) == []


@pytest.mark.parametrize("synced", [True, False])
def test_after_a_power_cut_a_torn_end_is_no_damage_above_the_durable_end_only(
    directory: Path, tmp_path: Path, synced: bool
) -> None:
    partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
    append_encoded(partition, batch(b"the last", timestamp_ms=START_MS + 1000))
    if synced:
        partition.log.sync(partition.latest_offset)
    partition.close()
    path = log_file(directory, bases_of(directory)[-1])
    cut(path, path.stat().st_size - 3)
    report = VerifyReport()
    problems = list(verify_partition(OtherBoot(), str(directory), TP, report=report))
    assert [p.kind for p in problems] == (["batch"] if synced else [])
    assert (report.unfinished_bytes > 0) is not synced


def test_after_a_power_cut_lost_segments_above_the_durable_end_are_no_damage(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
    for number in range(9):
        append_encoded(partition, batch(b"v%d" % number, timestamp_ms=START_MS + number))
        if number in (2, 5):
            partition.log.roll()
    partition.close()
    assert check(directory, OtherBoot()) == []
    cut(log_file(directory, 3), 0)
    report = VerifyReport()
    assert list(verify_partition(OtherBoot(), str(directory), TP, report=report)) == []
    assert report.unfinished_bytes == log_file(directory, 6).stat().st_size
    assert "offsets" in {p.kind for p in check(directory)}  # this boot did not lose power


def test_without_commit_slots_only_a_torn_end_of_the_last_segment_is_no_damage(directory: Path) -> None:
    (directory / COMMIT_SLOTS).unlink()
    assert check(directory) == []
    add(log_file(directory, bases_of(directory)[-1]), b"torn")
    assert check(directory) == []
    flip(log_file(directory, bases_of(directory)[-1]), 70)
    assert [p.kind for p in check(directory)] == ["batch"]
    flip(log_file(directory, bases_of(directory)[-1]), 70)
    last, header = headers(log_file(directory, bases_of(directory)[0]))[-1]
    file_of(directory, bases_of(directory)[0], ".seal").unlink()
    flip(log_file(directory, bases_of(directory)[0]), last + header.size_bytes - 1)
    problem = check(directory)[0]
    assert (problem.kind, problem.first_offset, problem.end_offset) == (
        "batch",
        header.base_offset,
        bases_of(directory)[1],
    )


def test_without_commit_slots_a_lost_first_segment_is_named_by_its_index(directory: Path) -> None:
    (directory / COMMIT_SLOTS).unlink()
    log_file(directory, 0).unlink()
    problem = only(check(directory))
    assert (problem.kind, Path(problem.path).suffix, problem.position) == ("segment", ".index", 0)
    assert (problem.first_offset, problem.end_offset) == (0, bases_of(directory)[0])


def test_a_roll_that_was_cut_off_before_its_file_is_no_damage(directory: Path) -> None:
    partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
    partition.log.roll()
    partition.close()
    assert check(directory) == []
    for path in directory.glob(f"{bases_of(directory)[-1]:020d}.*"):
        path.unlink()
    assert check(directory) == []


def test_a_seal_that_was_not_written_yet_is_only_counted(directory: Path) -> None:
    file_of(directory, 0, ".seal").unlink()
    report = VerifyReport()
    assert list(verify_partition(OsFileSystem(), str(directory), TP, report=report)) == []
    assert report.unsealed_segments == 1


def test_after_recovery_everything_is_good_again(directory: Path) -> None:
    add(log_file(directory, bases_of(directory)[-1]), b"torn append")
    for filesystem in (OsFileSystem(), OtherBoot()):
        partition = open_partition(directory, filesystem, index_interval_bytes=INTERVAL_BYTES)
        append_encoded(partition, batch(b"after", timestamp_ms=START_MS + 500))
        partition.close()
        assert check(directory, filesystem) == []


def test_after_records_were_deleted_everything_is_good(directory: Path) -> None:
    _, second, third = bases_of(directory)
    for before in (second + 1, third):
        partition = open_partition(directory, index_interval_bytes=INTERVAL_BYTES)
        partition.log.delete_before(before)
        partition.close()
        assert check(directory) == []
    assert bases_of(directory) == [third]


# Small files


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_missing_index_is_named(directory: Path, kind: str) -> None:
    file_of(directory, 0, kind).unlink()
    assert only(check(directory)).problem == "is missing; lookups read the segment instead"


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_index_of_nonsense_is_one_problem(directory: Path, kind: str) -> None:
    for base in bases_of(directory):
        file_of(directory, base, kind).write_bytes(b"\x00\x00\x00\x07" * 30)
        problem = check(directory)[0]
        assert problem.path.endswith(f"{base:020d}{kind}")
        assert "more like it)" in problem.problem
        restore(directory, file_of(directory, base, kind))


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_index_behind_zeros_is_wrong_and_zeros_behind_it_are_kafkas(directory: Path, kind: str) -> None:
    size = {".index": 8, ".timeindex": 12}[kind]
    path = file_of(directory, 0, kind)
    data = path.read_bytes()
    path.write_bytes(data + bytes(size))
    assert check(directory) == []
    path.write_bytes(data[:size] + bytes(size) + data[size:])
    assert "zeros at position" in only(check(directory)).problem


def test_a_closed_time_index_must_reach_the_greatest_timestamp(directory: Path) -> None:
    path = file_of(directory, 0, ".timeindex")
    cut(path, path.stat().st_size - 12)
    assert "the last entry says" in only(check(directory)).problem


def test_a_time_that_points_into_a_batch_is_wrong(directory: Path) -> None:
    path = file_of(directory, 0, ".timeindex")
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 12):
        offset = int.from_bytes(data[at + 8 : at + 12], "big")
        if any(h.base_offset < offset == h.last_offset for _, h in headers(log_file(directory, 0))):
            data[at + 8 : at + 12] = (offset - 1).to_bytes(4, "big")
            path.write_bytes(data)
            problem = only(check(directory))
            assert (problem.position, problem.first_offset) == (at, offset - 1)
            assert "is in the middle of a batch that ends at" in problem.problem
            return
    raise AssertionError("no entry is of a batch of several records")


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_long_index_is_read_in_pieces(directory: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.index.entries._AT_ONCE", 2)
    size = {".index": 8, ".timeindex": 12}[kind]
    assert check(directory) == []
    path = file_of(directory, 0, kind)
    entries = path.stat().st_size // size
    assert entries >= 4
    for number in range(entries):
        flip(path, number * size + size - 1, 1)
        assert only(check(directory)).position == number * size
        flip(path, number * size + size - 1, 1)


def test_an_entry_for_the_first_batch_is_wrong(directory: Path) -> None:
    """No writer makes one: zeros would look like it."""
    path = file_of(directory, 0, ".index")
    _, header = headers(log_file(directory, 0))[0]
    path.write_bytes(header.last_offset.to_bytes(4, "big") + bytes(4) + path.read_bytes())
    assert "the first batch is never indexed" in only(check(directory)).problem


def test_a_closed_index_has_whole_entries(directory: Path) -> None:
    add(file_of(directory, 0, ".index"), b"x")
    assert "expected entries of 8 bytes" in only(check(directory)).problem


def test_an_index_that_claims_a_terabyte_is_not_read(directory: Path) -> None:
    for kind in (".index", ".timeindex", ".txnindex"):
        path = file_of(directory, 0, kind)
        with path.open("r+b") as file:
            file.truncate(1 << 40)
        problem = only(check(directory))
        assert problem.path == str(path)
        restore(directory, path)


@pytest.mark.parametrize("base_number", [0, -1])
def test_a_transaction_index_that_lacks_an_abort_is_wrong(directory: Path, base_number: int) -> None:
    base = sorted(int(path.stem) for path in directory.glob("*.txnindex"))[base_number]
    file_of(directory, base, ".txnindex").unlink()
    problem = only(check(directory))
    assert (problem.kind, problem.position) == ("txnindex", 0)
    marker_at = next(h.base_offset for _, h in headers(log_file(directory, base)) if h.is_control)
    assert problem.end_offset == marker_at + 1
    assert f"to its abort at {marker_at}: read_committed would show it" in problem.problem


def test_a_transaction_index_that_lists_a_commit_is_wrong(directory: Path) -> None:
    path = file_of(directory, 0, ".txnindex")
    (entry, commit) = (
        path.read_bytes(),
        next(h for _, h in headers(log_file(directory, 0)) if h.is_control and h.base_offset > 8),
    )
    add(path, entry[:18] + commit.base_offset.to_bytes(8, "big") + entry[26:34])
    assert "it has no marker there" in only(check(directory)).problem


@pytest.mark.parametrize(
    "fields", [(0, 7, 1 << 50, 1 << 60, -1), (0, -1, 1 << 50, 1 << 60, 0), (0, 7, 1 << 60, 1 << 50, 0)]
)
def test_an_entry_after_the_end_that_no_log_may_have_is_wrong(directory: Path, fields: tuple[int, ...]) -> None:
    """A reader refuses it, because it cannot know where such an entry belongs."""
    active = max(int(path.stem) for path in directory.glob("*.log"))
    path = file_of(directory, active, ".txnindex")
    add(path, ENTRY.pack(*fields))
    problem = only(check(directory))
    assert (problem.kind, problem.path) == ("txnindex", str(path))
    with pytest.raises(CorruptSegment):
        everything(open_partition(directory, read_only=True), "read_committed")
    path.write_bytes(path.read_bytes()[: -ENTRY.size] + ENTRY.pack(0, 7, 1 << 50, 1 << 60, 1 << 50))
    assert not check(directory)  # of a writer that was killed before it published


def test_a_snapshot_that_says_something_else_is_wrong(directory: Path) -> None:
    from pylog.partition.producers.state import ProducerStates

    path = max(directory.glob("*.snapshot"))
    states = ProducerStates.decode(path.read_bytes(), str(path))
    states.entries[7].batches[-1] = states.entries[7].batches[-1]._replace(last_sequence=1)
    path.write_bytes(states.encode())
    assert only(check(directory)).problem.startswith("says of producer 7 other than the batches before")


def test_a_snapshot_under_another_name_is_wrong(directory: Path) -> None:
    one, two = sorted(directory.glob("*.snapshot"))[-2:]
    shutil.copy(one, two)
    assert "says that producer 8 has a transaction open since" in only(check(directory)).problem


def test_a_snapshot_without_an_open_transaction_is_wrong(directory: Path) -> None:
    from pylog.partition.producers.state import ProducerStates

    path = max(directory.glob("*.snapshot"))
    states = ProducerStates.decode(path.read_bytes(), str(path))
    del states.entries[8]
    path.write_bytes(states.encode())
    assert "says that producer 8 has no open transaction; it has one since " in only(check(directory)).problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "is missing"),
        (b"1\n1\n0 0\n", "version"),
        (b"0\n2\n0 0\n", "lines"),
        (b"0\n1\n0 x\n", "expected a number"),
        (b"0\n2\n1 0\n0 5\n", "follows"),
        (b"0\n1\n3 0\n", "the checkpoint says 3"),
        (b"0\n1\n0 5\n", "the checkpoint says None"),
    ],
)
def test_an_epoch_checkpoint_that_is_wrong_is_named(directory: Path, text: bytes | None, problem: str) -> None:
    path = directory / EPOCH_CHECKPOINT
    path.unlink() if text is None else path.write_bytes(text)
    found = check(directory)
    assert {(p.kind, p.position) for p in found[:1]} == {("epochs", 0)}
    assert {p.kind for p in found} == {"epochs"}
    assert problem in found[0].problem


def test_a_commit_slot_that_promises_more_than_there_is_is_wrong(directory: Path) -> None:
    from pylog.partition.commit_slots import latest, whole_file

    path = directory / COMMIT_SLOTS
    state = latest(path.read_bytes())
    assert state is not None
    more = state._replace(log_end_offset=state.log_end_offset + 5, high_watermark=state.high_watermark + 5)
    path.write_bytes(whole_file(more))
    problem = only(check(directory))
    assert (problem.kind, problem.problem) == (
        "slots", f"says that the log ends at offset {more.log_end_offset}, its batches end at {state.log_end_offset}",
    )  # fmt: skip


def test_a_seal_of_a_newer_version_is_named_and_not_believed(directory: Path) -> None:
    import crc32c

    path = file_of(directory, 0, ".seal")
    data = bytearray(path.read_bytes())
    data[8:10] = b"\x00\x09"
    data[48:52] = crc32c.crc32c(bytes(data[52:]), crc32c.crc32c(bytes(data[:48]))).to_bytes(4, "big")
    path.write_bytes(data)
    problem = only(check(directory))
    assert problem.kind == "seal"
    assert "version 9" in problem.problem


def test_a_codec_that_is_not_installed_is_told_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylog.codec import batch as batches
    from pylog.errors import MissingCodec

    def missing(*_: object) -> bytes:
        raise MissingCodec("zstd needs the package zstandard")

    monkeypatch.setattr(batches, "decompress", missing)
    problems = check(directory)
    assert {p.kind for p in problems} == {"unchecked"}
    assert all("not checked, nor others like it" in str(p) for p in problems)
    assert [p.problem for p in problems] == ["zstd needs the package zstandard"] * len(problems)
    assert len(problems) <= len(bases_of(directory))


def test_kafkas_damaged_directory_is_named_too(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(KAFKA_LOG / "rolled-0", tmp_path / "rolled-0"))
    for base in (0, 250):
        position, _ = headers(log_file(directory, base))[-1]
        flip(log_file(directory, base), position + 70)
    problems = list(verify_partition(OsFileSystem(), str(directory), TopicPartition("rolled", 0), is_kafka=True))
    assert [(p.kind, p.first_offset, p.end_offset) for p in problems] == [("batch", 100, 105), ("batch", 295, None)]


def test_a_transaction_index_of_kafkas_that_is_gone_or_cut_is_wrong(tmp_path: Path) -> None:
    for name in ("transactions", "transactions-tv1", "transactions-open"):
        directory = Path(shutil.copytree(KAFKA_LOG / f"{name}-0", tmp_path / f"{name}-0"))
        for path in directory.glob("*.txnindex"):
            whole = path.read_bytes()
            for size in range(0, len(whole), 34):
                cut(path, size)
                found = list(verify_partition(OsFileSystem(), str(directory), TopicPartition(name, 0), is_kafka=True))
                assert only(found).kind == "txnindex"
                path.write_bytes(whole)


def test_an_aborted_transaction_that_reaches_into_the_one_before_is_wrong(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(KAFKA_LOG / "transactions-0", tmp_path / "transactions-0"))
    path = max(directory.glob("*.txnindex"))
    data = bytearray(path.read_bytes())
    data[10:18] = (1).to_bytes(8, "big")
    path.write_bytes(data)
    problem = only(
        list(verify_partition(OsFileSystem(), str(directory), TopicPartition("transactions", 0), is_kafka=True))
    )
    assert "its transaction before that ended at" in problem.problem


def test_a_segment_of_kafkas_that_is_gone_is_named_by_its_index(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(KAFKA_LOG / "compacted-0", tmp_path / "compacted-0"))
    log_file(directory, 191).unlink()
    problem = only(
        list(verify_partition(OsFileSystem(), str(directory), TopicPartition("compacted", 0), is_kafka=True))
    )
    assert (problem.kind, problem.first_offset, problem.end_offset) == ("segment", 191, 233)


def test_a_snapshot_of_kafkas_with_a_transaction_that_ended_is_wrong(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(KAFKA_LOG / "transactions-0", tmp_path / "transactions-0"))
    shutil.copy(directory / f"{34:020d}.snapshot", directory / f"{75:020d}.snapshot")
    problem = only(
        list(verify_partition(OsFileSystem(), str(directory), TopicPartition("transactions", 0), is_kafka=True))
    )
    assert problem.problem == "says that producer 1010 has a transaction open since 19; it has none"


@pytest.mark.parametrize(
    "kind", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".seal", COMMIT_SLOTS, EPOCH_CHECKPOINT]
)
def test_a_file_that_cannot_be_read_is_named_and_passed(directory: Path, kind: str) -> None:
    from pylog.errors import StorageError

    class Failing(StandIn):
        def open_readable(self, path: str) -> ReadableFile:
            if path.endswith(kind):
                raise StorageError(f"cannot read {path!r}: Input/output error", path=path, errno=5)
            return super().open_readable(path)

    problems = check(directory, Failing())
    names = {Path(p.path).name for p in problems if "Input/output error" in p.problem}
    assert names == {path.name for path in directory.iterdir() if path.name.endswith(kind)}
