"""Files that claim sizes they cannot have, as sparse files may: they cost little and are named."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from pylog.errors import CorruptSegment, NotAppended
from pylog.model import TopicPartition
from pylog.partition.producers import snapshots
from pylog.partition.verify import verify_partition
from pylog.storage import OsFileSystem
from tests.partition.logs import append_encoded, batch, everything, log_file, open_partition
from tests.storage.filesystems import Faulty, Patient

FS = OsFileSystem()


class PatientHere(Patient):
    """Allows so many reads, and is of the boot that the directory was written in."""

    def boot_id(self) -> str:
        return FS.boot_id()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed segment of one batch, and an active one of another."""
    made = tmp_path / "t-0"
    partition = open_partition(made)
    append_encoded(partition, batch(b"a"))
    partition.log.roll()
    append_encoded(partition, batch(b"b"))
    partition.close()
    return made


@pytest.mark.parametrize("size", [1 << 31, 1 << 40])
def test_a_log_file_that_no_segment_can_be_is_named_at_once(directory: Path, size: int) -> None:
    os.truncate(log_file(directory), size)
    began = time.monotonic()
    problems = list(verify_partition(FS, str(directory), TopicPartition("t", 0)))
    assert f"{size} bytes, a segment has at most 2147483647" in problems[0].problem
    assert (problems[0].kind, problems[0].path) == ("segment", str(log_file(directory)))
    assert time.monotonic() - began < 2


def test_without_slots_a_log_file_that_no_segment_can_be_is_not_searched(directory: Path) -> None:
    (directory / ".commit").unlink()
    os.truncate(log_file(directory, 1), 1 << 40)
    partition = open_partition(directory)
    with pytest.raises(NotAppended, match="at most 2147483647"):
        append_encoded(partition, batch(b"x"))
    assert log_file(directory, 1).stat().st_size == 1 << 40


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_writer_does_not_look_through_a_sparse_index(directory: Path, kind: str) -> None:
    """It held the partition's lock for hours, dropping zeros from the end."""
    path = log_file(directory, 1).with_suffix(kind)
    os.truncate(path, 1 << 40)
    left = [1000]

    def count(operation: str, _path: str) -> None:
        left[0] -= operation == "pread"
        assert left[0], "it reads for ever"

    partition = open_partition(directory, Faulty(count))
    append_encoded(partition, batch(b"c"))
    assert [value for _, value in everything(partition)] == [b"a", b"b", b"c"]
    assert path.stat().st_size == 0
    partition.close()


@pytest.mark.parametrize("log_bytes", [None, 1 << 40])
def test_a_roll_does_not_read_a_sparse_seal_to_its_end(directory: Path, log_bytes: int | None) -> None:
    """Seals that were there before are checked when a segment is closed: one of a tebibyte took
    hours."""
    seal = log_file(directory).with_suffix(".seal")
    os.truncate(seal, 1 << 40)
    if log_bytes is not None:
        os.truncate(log_file(directory), log_bytes)
    reads = PatientHere(reads=1000)
    partition = open_partition(directory, reads)
    append_encoded(partition, batch(b"c"))
    partition.log.roll()
    assert (seal.stat().st_size < 1000) is (log_bytes is None)  # it is made again if its segment is right
    partition.close()


@pytest.mark.parametrize("count", [0, 1, 5, 2**31 - 1])
def test_a_sparse_snapshot_costs_what_it_says_at_most(tmp_path: Path, count: int) -> None:
    path = tmp_path / f"{10:020d}.snapshot"
    path.write_bytes(b"\x00\x01" + bytes(4) + count.to_bytes(4, "big"))
    os.truncate(path, 1 << 40)
    tracemalloc.start()
    began = time.monotonic()
    with pytest.raises(CorruptSegment):
        snapshots.read(FS, str(tmp_path), 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - began < 2
    assert peak < (1 << 20 if count < 10 else 150 << 20)
