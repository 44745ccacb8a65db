"""Looking for whole batches behind damage: what it finds, and that bytes made for it cannot keep it
busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.codec.batch import check_header, read_header, stamp
from pylog.codec.format import CRC_POSITION, HEADER_BYTES
from pylog.errors import CorruptSegment, NotAppended
from pylog.model import TopicPartition
from pylog.partition.verify import verify_partition
from pylog.segment import find_next_batch
from pylog.segment import scan as recovery
from pylog.storage import OsFileSystem
from tests.partition.logs import batch, headers_that_claim_everything, log_file, open_partition
from tests.storage.filesystems import OtherBoot


class Bytes:
    """A file in memory that counts what is read of it."""

    path = "file"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes_read = 0

    def pread(self, size: int, position: int) -> bytes:
        found = self.data[position : position + size]
        self.bytes_read += len(found)
        return found

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("size", [10_000, 200_000])
def test_made_up_headers_cost_a_few_readings_of_the_file_and_no_more(size: int) -> None:
    file = Bytes(headers_that_claim_everything(size))
    with pytest.raises(CorruptSegment, match="given up") as caught:
        find_next_batch(file, 0, size, 0)
    assert file.bytes_read <= 5 * size + size // 10
    assert (caught.value.path, caught.value.position) == ("file", 0)
    assert 0 < caught.value.given_up_at < size
    assert caught.value.limit_bytes == 4 * size


def made_up_small_headers(count: int) -> bytes:
    """Headers one behind the other, each a batch of its own with a wrong checksum."""
    header = bytearray(batch(b"a value", b"another"))
    header[CRC_POSITION] ^= 1
    return bytes(header) * count


@pytest.mark.parametrize(
    "filling",
    [b"\x02", b"\x02\x02\x02\x02\x02\x00", bytes(7) + b"\x02", bytes(3) + b"\x02", bytes(range(256))],
    ids=["magic bytes", "magic and attributes", "64 bit twos", "32 bit twos", "all bytes"],
)
@pytest.mark.parametrize("path", ["file", f"a/{5:020d}.log"])
def test_bytes_that_are_no_header_cost_no_step_each(path: str, filling: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(recovery, "read_header", lambda data, at: looked_at.append(at) or read_header(data, at))
    file = Bytes(filling * ((1 << 20) // len(filling)))
    file.path = path
    assert find_next_batch(file, 0, file.size(), 5) is None
    assert len(looked_at) < 100


@pytest.mark.slow
def test_looking_is_given_up_after_so_many_headers_that_were_none(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(recovery, "check_header", lambda header: looked_at.append(1) or check_header(header))
    whole = bytes(batch(b"whole"))
    file = Bytes(made_up_small_headers(16_385) + whole)
    with pytest.raises(CorruptSegment, match="given up") as caught:
        find_next_batch(file, 0, file.size(), 0)
    assert caught.value.limit_headers == 16_384
    assert len(looked_at) < 4 * 16_384
    file = Bytes(made_up_small_headers(16_383) + whole)
    found = find_next_batch(file, 0, file.size(), 0)
    assert found is not None
    assert found[0] == file.size() - len(whole)


@pytest.mark.parametrize("base", [0, 2**31, 2**32 - 2, 2**32 + 5, 2**62])
@pytest.mark.parametrize("ahead", [0, 1, 2**31 - 1, 2**31])
def test_every_offset_that_the_segment_may_have_is_found(base: int, ahead: int) -> None:
    whole = batch(b"whole", producer_id=2**40, epoch=0, sequence=0)
    stamp(whole, base + ahead, -1)
    file = Bytes(b"junk" + bytes(whole))
    file.path = f"a/{base:020d}.log"
    for minimum in (0, base, base + ahead):
        assert (find_next_batch(file, 0, file.size(), minimum) is not None) == (ahead < 2**31)
    assert find_next_batch(file, 0, file.size(), base + ahead + 1) is None
    file.path = "another"
    assert find_next_batch(file, 0, file.size(), 0) is not None


@pytest.mark.parametrize("before", [0, 1, 60, 61, 1 << 20, (1 << 20) - 1, (1 << 20) - 30, (1 << 20) + 1])
def test_a_whole_batch_is_found_wherever_it_stands(before: int) -> None:
    whole = batch(b"whole")
    stamp(whole, 7, 0)
    file = Bytes(b"\x02" * before + bytes(whole) + b"behind it")
    found = find_next_batch(file, 0, file.size(), 7)
    assert found == (before, read_header(whole))
    assert find_next_batch(file, 0, file.size(), 8) is None


def test_a_whole_batch_behind_some_made_up_headers_is_found() -> None:
    whole = bytes(batch(b"w" * 1000))
    front = headers_that_claim_everything(HEADER_BYTES + len(whole) + 40)[:HEADER_BYTES]
    file = Bytes(front * 2 + whole)
    found = find_next_batch(file, 0, file.size(), 0)
    assert found is not None
    assert found[0] == 2 * HEADER_BYTES


def test_a_segment_of_made_up_headers_is_damaged_and_never_cut(directory: Path) -> None:
    partition = open_partition(directory)
    partition.log.append_batch(batch(b"first"))
    partition.close()
    with log_file(directory).open("ab") as file:
        file.write(headers_that_claim_everything(20_000, 1))
    (directory / ".commit").unlink()
    before = log_file(directory).read_bytes()
    other_boot = open_partition(directory, OtherBoot())
    with pytest.raises(NotAppended, match="given up"):
        other_boot.log.append_batch(batch(b"second"))
    other_boot.close()
    assert log_file(directory).read_bytes() == before
    (found,) = verify_partition(OsFileSystem(), str(directory), TopicPartition("t", 0))
    assert (found.kind, found.first_offset) == ("batch", 1)
    assert "given up" in found.problem
