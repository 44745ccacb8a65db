"""Batches, seals and commit slots that lie about times: what would hide records is refused, or
found."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path

import crc32c
import pytest

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.format import CRC_POSITION, CRC_START, MAX_TIMESTAMP_POSITION
from pylog.errors import CorruptRecord
from pylog.model import ProducerRecord
from pylog.partition import Partition
from pylog.partition.commit_slots import latest, whole_file
from pylog.partition.verify import segment as verify_segment
from pylog.segment import seal
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, file_of, open_partition, problems, spans

FS = OsFileSystem()
COUNT = 600


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """More than half a megabyte."""
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    for first in range(0, COUNT, 20):
        append(partition, range(first, first + 20))
    partition.close()
    return directory


def append(partition: Partition, numbers: range) -> None:
    partition.append([ProducerRecord(b"x" * 1000, timestamp_ms=START_MS + number) for number in numbers], acks=1)


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
    blocks = -(-right.size_bytes // seal.LEAST_EVERY_BYTES)  # the readable codec seals without the least times
    wrong = array("q", [START_MS + 40] * blocks if field == "least_ms" else [0] * len(right.greatest_ms))
    path.write_bytes(seal.encode(right._replace(**{field: wrong})))
    [problem] = problems(directory)
    assert ".seal" in problem
    assert ("no record of block 0 is before" if field == "least_ms" else "the first 1 batches reach 0") in problem


@pytest.mark.parametrize("is_compiled", [True, False], ids=["from the bytes", "from decoded records"])
def test_verify_finds_slots_whose_least_time_is_not_that_of_the_records(
    directory: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    monkeypatch.setattr(verify_segment, "COMPILED", is_compiled)
    path = directory / ".commit"
    state = latest(path.read_bytes())
    assert state is not None
    assert state.least_timestamp_ms == START_MS
    path.write_bytes(whole_file(state._replace(least_timestamp_ms=START_MS + 1)))
    [problem] = problems(directory)
    assert ".commit" in problem
    assert f"no record of the active segment is before {START_MS + 1}, one has {START_MS}" in problem
