"""Anything in the place of ``.times``, and batches whose headers lie: no record is hidden, and nobody is kept from reading."""

from __future__ import annotations

import logging
import os
import random
import struct
from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import crc32c
import pytest

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.format import CRC_POSITION, CRC_START, MAX_TIMESTAMP_POSITION
from pylog.errors import CorruptRecord, NotAppended
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.verify import VerifyReport, verify_partition
from pylog.segment import block_times, seal
from pylog.segment.block_times import ENTRY, BlockTimes, decode, encode
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, TP, file_of, log_file, open_partition
from tests.storage.filesystems import Faulty, Nth, io_error

FS = OsFileSystem()
COUNT = 600


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """More than half a megabyte, with times of its blocks written down."""
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    for first in range(0, COUNT, 20):
        append(partition, range(first, first + 20))
    partition.close()
    assert times_file(directory).stat().st_size > 8 * ENTRY.size
    return directory


def append(partition: Partition, numbers: range) -> None:
    partition.append([ProducerRecord(b"x" * 1000, timestamp_ms=START_MS + number) for number in numbers], acks=1)


def times_file(directory: Path) -> Path:
    return file_of(directory, 0, ".times")


def spans(partition: Partition, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
    return partition.log.reader.spans_of_times(0, partition.latest_offset, first_ms, last_ms)


def problems(directory: Path) -> list[str]:
    return [str(p) for p in verify_partition(FS, str(directory), TP, dense=True, report=VerifyReport())]


def is_a_directory(path: Path) -> None:
    path.mkdir()


def is_a_fifo(path: Path) -> None:
    os.mkfifo(path)


# What can't be read


@pytest.mark.parametrize("make", [is_a_directory, is_a_fifo])
def test_what_is_no_file_keeps_nobody_from_reading(
    directory: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    times_file(directory).unlink()
    make(times_file(directory))
    assert spans(open_partition(directory, read_only=True), START_MS, START_MS) == [(0, COUNT)]
    assert "going on without the times of blocks" in caplog.text
    [problem] = problems(directory)
    assert ".times" in problem


def is_a_link(path: Path) -> None:
    path.symlink_to(path.with_suffix(".log"))


def has_another_name(path: Path) -> None:
    path.with_name("another").hardlink_to(path)


@pytest.mark.parametrize("make", [is_a_directory, is_a_fifo, is_a_link, has_another_name])
def test_what_is_no_file_of_ours_keeps_nobody_from_appending(
    directory: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    log_bytes = log_file(directory).read_bytes()
    if make is not has_another_name:
        times_file(directory).unlink()
    make(times_file(directory))
    partition = open_partition(directory)
    for first in range(COUNT, 2 * COUNT, 20):
        append(partition, range(first, first + 20))
    partition.close()
    assert caplog.text.count("going on without the times of blocks") == 1
    assert log_file(directory).read_bytes().startswith(log_bytes)
    found = spans(open_partition(directory, read_only=True), START_MS + COUNT + 5, START_MS + COUNT + 5)
    assert any(start <= COUNT + 5 < end for start, end in found)


def test_the_times_of_an_earlier_segment_that_cannot_be_cut_are_not_kept(tmp_path: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(tmp_path / "t-0", filesystem)
    times_file(tmp_path / "t-0").write_bytes(encode(0, BlockTimes(0, 0, 0, 0, 1 << 16)))
    filesystem.hook = Nth(0, {"truncate"}, io_error, suffix=".times")
    with pytest.raises(NotAppended):
        append(partition, range(1))
    append(partition, range(1))
    assert times_file(tmp_path / "t-0").read_bytes() == b""


def test_a_segment_is_sealed_though_its_times_cannot_be_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = open_partition(directory)
    append(partition, range(COUNT, COUNT + 20))
    times_file(directory).unlink()
    times_file(directory).mkdir()
    with caplog.at_level(logging.ERROR, "pylog"):
        partition.log.roll()
    partition.close()
    assert file_of(directory, 0, ".seal").exists()
    assert spans(open_partition(directory, read_only=True), START_MS, START_MS)[0][0] == 0


def test_a_sparse_segment_with_sparse_times_is_looked_at_at_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(directory)
    partition.log.roll()
    partition.close()
    file_of(directory, 0, ".seal").unlink()
    os.truncate(log_file(directory), 1 << 40)
    times_file(directory).write_bytes(b"")
    os.truncate(times_file(directory), 1 << 40)
    monkeypatch.setattr(block_times, "decode", lambda data, first=0: pytest.fail(f"{len(data)} bytes were read"))
    assert spans(open_partition(directory, read_only=True), START_MS, START_MS) == [(0, COUNT)]


def test_entries_that_name_batches_in_the_wrong_order_lead_to_none_twice(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_times, "NEAR_BLOCKS", 1)
    rng = random.Random(7)
    right = [block for block in decode(times_file(directory).read_bytes()) if block is not None]
    partition = open_partition(directory, read_only=True)
    for _ in range(300):
        blocks = [
            rng.choice(right)._replace(
                least_ms=rng.choice([0, START_MS]), greatest_ms=rng.choice([0, START_MS]), end=2**32 - 1
            )
            for _ in right
        ]
        times_file(directory).write_bytes(b"".join(map(encode, range(len(blocks)), blocks)))
        found = spans(partition, START_MS, START_MS)
        assert all(behind <= start for (_, behind), (start, _) in pairwise(found)), found


# Batches that lie


def encoded(times_ms: list[int], max_timestamp_ms: int, codec: int) -> bytes:
    encoder = RecordEncoder(1 << 20)
    for at in times_ms:
        assert encoder.append(at, None, b"x" * 1000, ())
    batch = build_batch(encoder, codec=codec)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c.crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("said_ms", [-1, 0, START_MS + 6])
def test_a_batch_that_would_hide_its_own_records_is_refused(tmp_path: Path, codec: int, said_ms: int) -> None:
    partition = open_partition(tmp_path / "t-0")
    with pytest.raises(
        CorruptRecord, match=f"greatest timestamp is said to be {said_ms}, but a record has {START_MS + 7}"
    ):
        partition.append(encoded([START_MS, START_MS + 7, START_MS + 1], said_ms, codec))
    assert partition.latest_offset == 0


def test_a_batch_that_says_a_later_time_than_it_has_is_found_all_the_same(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(encoded([START_MS, START_MS + 7], 2**63 - 1, 0), acks=1)
    assert spans(partition, START_MS + 7, START_MS + 7) == [(0, 2)]


# Seals that lie


@pytest.mark.parametrize("field", ["least_ms", "greatest_ms"])
def test_verify_finds_a_seal_whose_times_are_not_those_of_the_records(directory: Path, field: str) -> None:
    partition = open_partition(directory)
    partition.log.roll()
    partition.close()
    path = file_of(directory, 0, ".seal")
    right = seal.decode(path.read_bytes(), str(path))
    assert problems(directory) == []
    wrong = array("q", [min(at + 40, 2**63 - 1) if field == "least_ms" else 0 for at in getattr(right, field)])
    path.write_bytes(seal.encode(right._replace(**{field: wrong})))
    [problem] = problems(directory)
    assert ".seal" in problem
    assert ("no record of block 0 is before" if field == "least_ms" else "the first 1 batches reach 0") in problem
