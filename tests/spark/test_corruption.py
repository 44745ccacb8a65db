"""onCorruption=skip: everything that is whole is read, nothing that was altered, and what was
passed over is named."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pylog import Log
from pylog.codec.batch import BatchHeader
from pylog.codec.format import HEADER_BYTES
from pylog.errors import ConfigError, CorruptSegment, OffsetOutOfRange
from pylog.model import ProducerRecord
from pylog.segment.naming import OFFSET_INDEX, SEAL
from tests.codec.reference import scan_headers
from tests.fuzz.record_targets import repair_crc
from tests.partition.logs import append_encoded, batch_of_size, cut, flip
from tests.spark.reading import KAFKA, offsets, read

EPOCH_BYTES = range(12, 16)  # what neither a checksum nor continuity covers without a seal; no record depends on it
SKIP = {"onCorruption": "skip"}


class Batch(NamedTuple):
    """One batch of the log before it was damaged."""

    path: Path
    position: int
    header: BatchHeader

    @property
    def offsets(self) -> range:
        return range(self.header.base_offset, self.header.last_offset + 1)


def batches_of(path: Path) -> list[Batch]:
    return [
        Batch(file, position, header)
        for file in sorted(path.glob("orders-0/*.log"))
        for position, header in scan_headers(file.read_bytes())
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty batches in several segments, in part of equal sizes that are powers of two."""
    path, chance = tmp_path_factory.mktemp("corruption") / "log", random.Random(5)
    with Log(path) as log:
        log.create_topic("orders", segment_bytes=1_300, index_interval_bytes=512)
        for number in range(30):
            size = 128 - 70 if number % 3 else chance.randrange(300)
            records = [ProducerRecord(chance.randbytes(size)) for _ in range(1 + number % 3 // 2)]
            log.partition("orders", 0).append(records, acks=1)
    return path


@pytest.fixture(params=["sealed", "unsealed", "no index"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def copy_of(whole: Path, state: str, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(whole, to)
    for kind in {"sealed": (), "unsealed": (SEAL,), "no index": (SEAL, OFFSET_INDEX)}[state]:
        for file in to.glob(f"orders-0/*{kind}"):
            file.unlink()
    return to


FLIPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["one batch", "anywhere"])
def test_any_flipped_bits_hide_the_batches_they_are_in_and_no_others(
    whole: Path, state: str, where: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    room = tmp_path_factory.mktemp("flipped") / "log"

    @settings(max_examples=25, deadline=None)
    @given(FLIPS, st.integers(0, 29), st.integers(0, 40))
    @example([(7, 3)], 3, 0)  # a base offset
    @example([(11, 7)], 4, 0)  # a length that leads to the batch after the next one
    def check(flips: list[tuple[int, int]], chosen: int, start: int) -> None:
        path = copy_of(whole, state, room)
        batches, damaged = batches_of(path), set()
        total = sum(one.header.size_bytes for one in batches)
        for at, bit in flips:
            number, inside = chosen, at % batches[chosen].header.size_bytes
            if where == "anywhere":
                number, inside = batch_at(batches, at % total)
            flip(batches[number].path, batches[number].position + inside, 1 << bit)
            flips_again = sum(1 for one in flips if one == (at, bit)) % 2 == 0
            if not flips_again and (
                inside not in EPOCH_BYTES or (state == "sealed" and batches[number].path != batches[-1].path)
            ):
                damaged.add(number)
        found = offsets(read(path, **SKIP, startingOffsets={"orders": {"0": start}}))
        clean = [
            offset for n, one in enumerate(batches) for offset in one.offsets if n not in damaged and offset >= start
        ]
        if (
            (state == "sealed" and batches[-1].path not in {batches[n].path for n in damaged})
            or where == "one batch"
            or len(damaged) == 1
        ):
            assert found == clean
        else:
            sure = [n for n in range(30) if not {n - 1, n, n + 1} & damaged]
            assert set(found) <= set(clean)
            assert {offset for n in sure for offset in batches[n].offsets if offset >= start} <= set(found)
            assert found == sorted(set(found))

    check()


def batch_at(batches: list[Batch], byte: int) -> tuple[int, int]:
    for number, one in enumerate(batches):
        if byte < one.header.size_bytes:
            return number, byte
        byte -= one.header.size_bytes
    raise AssertionError


def without_seals(path: Path, sizes: list[int]) -> list[Batch]:
    """A log of batches of these sizes, in one segment that is not sealed."""
    with Log(path) as log:
        log.create_topic("orders")
        for number, size in enumerate(sizes):
            append_encoded(log.partition("orders", 0), batch_of_size(size, number))
    return batches_of(path)


@pytest.mark.parametrize("bit", [0, 1, 4])
def test_a_damaged_offset_behind_a_damaged_batch_is_not_believed(tmp_log_dir: Path, bit: int) -> None:
    batches = without_seals(tmp_log_dir, [128] * 40)
    flip(batches[10].path, batches[10].position + 70)
    flip(batches[11].path, batches[11].position + 7, 1 << bit)
    found = offsets(read(tmp_log_dir, **SKIP))
    assert set(found) <= {*range(40)} - {10, 11}
    assert {*range(40)} - {10, 11, 12} <= set(found)


def test_a_damaged_length_that_leads_to_a_later_batch_hides_none(tmp_log_dir: Path) -> None:
    batches = without_seals(tmp_log_dir, [128] * 6)
    flip(batches[2].path, batches[2].position + 11, 128)
    assert offsets(read(tmp_log_dir, **SKIP)) == [0, 1, 3, 4, 5]


def test_reading_on_may_begin_before_the_first_offset_that_is_there(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders")
        for _ in range(4):
            log.partition("orders", 0).append([ProducerRecord(b"x")] * 3, acks=1)
        log.delete_records(("orders", 0), 4)
    first = batches_of(tmp_log_dir)[0]
    flip(first.path, first.position + 70)
    flip(first.path, first.position + 10)
    assert offsets(read(tmp_log_dir, **SKIP)) == [*range(4, 12)]


def test_without_the_option_damage_fails_the_query(whole: Path, state: str, tmp_path: Path) -> None:
    path = copy_of(whole, state, tmp_path / "log")
    one = batches_of(path)[7]
    flip(one.path, one.position + 70)
    for options in ({}, {"onCorruption": "fail"}, {"onCorruption": "FAIL"}):
        with pytest.raises(
            CorruptSegment, match=f"orders-0 is damaged at offset {one.header.base_offset}, file {one.path}"
        ):
            read(path, **options)
    with pytest.raises(ConfigError, match="onCorruption='ignore', expected fail or skip"):
        read(path, onCorruption="ignore")


def test_what_is_passed_over_is_named(
    whole: Path, state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = copy_of(whole, state, tmp_path / "log")
    batches = batches_of(path)
    for number in (7, 8, 20):
        flip(batches[number].path, batches[number].position + 70)
    with caplog.at_level(logging.WARNING, "pylog.spark"):
        read(path, **SKIP)
    said = [record.getMessage() for record in caplog.records if record.name == "pylog.spark"]
    assert len(said) == 2
    for text, (first, last) in zip(said, ((7, 8), (20, 20)), strict=True):
        one = batches[first]
        assert f"{one.path} is damaged at position {one.position}" in text
        assert f"offsets {one.header.base_offset} to {batches[last].header.last_offset} of orders-0 are skipped" in text


def test_a_segment_that_was_cut_or_is_missing_ends_before_the_next_one(whole: Path, state: str, tmp_path: Path) -> None:
    path = copy_of(whole, state, tmp_path / "log")
    batches = batches_of(path)
    files = sorted({one.path for one in batches})
    cut(files[1], batches[[one.path for one in batches].index(files[1]) + 2].position + 5)
    files[3].unlink()
    clean = [one for one in batches if one.path not in (files[1], files[3])]
    clean += [one for one in batches if one.path == files[1]][:2]
    found = offsets(read(path, **SKIP))
    assert found == sorted(offset for one in clean for offset in one.offsets)
    cut(files[-1], 30)
    assert offsets(read(path, **SKIP)) == [offset for offset in found if offset < int(files[-1].stem)]


def test_a_batch_whose_records_are_none_is_passed_over(tmp_log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders")
        for _ in range(3):
            log.partition("orders", 0).append([ProducerRecord(b"x")] * 2, acks=1)
    one = batches_of(tmp_log_dir)[1]
    data = bytearray(one.path.read_bytes())
    data[one.position + HEADER_BYTES] = 0x7E  # the first record's length
    repair_crc(data, one.position, one.position + one.header.size_bytes)
    one.path.write_bytes(data)
    with pytest.raises(CorruptSegment):
        read(tmp_log_dir)
    with caplog.at_level(logging.WARNING, "pylog.spark"):
        assert offsets(read(tmp_log_dir, **SKIP)) == [0, 1, 4, 5]
    assert "offsets 2 to 3 of orders-0 are skipped" in caplog.text


def test_loss_is_no_damage(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders")
        log.partition("orders", 0).append([ProducerRecord(b"x")] * 9, acks=1)
        log.delete_records(("orders", 0), 4)
    with pytest.raises(OffsetOutOfRange):
        read(tmp_log_dir, **SKIP, startingOffsets={"orders": {"0": 2}})
    assert offsets(read(tmp_log_dir, **SKIP)) == [*range(4, 9)]


def test_what_is_whole_is_the_same_with_it(whole: Path, state: str, tmp_path: Path) -> None:
    path = copy_of(whole, state, tmp_path / "log")
    assert read(path, **SKIP) == read(path)
    assert read(KAFKA / "log", **SKIP) == read(KAFKA / "log")
