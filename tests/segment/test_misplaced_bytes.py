"""Bytes that are right and stand in a wrong place: sectors and batches swapped, old blocks come
back, files exchanged.

The segments have 65,536 bytes, in batches of 1,024 (64, two sectors each) or of 512 (128, a sector
each: then a swap of sectors is one of whole batches, whose checksums are right). What is not found
is said here, too, and in docs/guarantees.md.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from pylog.codec.format import HEADER_BYTES
from pylog.errors import CorruptSegment
from pylog.model import TopicPartition
from pylog.partition.verify import VerifyReport, verify_partition
from pylog.segment import SegmentReader
from pylog.storage import OsFileSystem
from tests.partition.logs import append_encoded, batch, batch_of_size, everything, log_file, open_partition
from tests.storage.filesystems import InMemory

# no record is decoded, so that one codec is enough
pytestmark = [pytest.mark.slow, pytest.mark.one_in(8)]
SEGMENT_BYTES, SECTOR_BYTES = 65_536, 512
SECTORS = SEGMENT_BYTES // SECTOR_BYTES
SIZES = pytest.mark.parametrize("batch_bytes", [1024, 512])


@cache
def smallest_filled(size_bytes: int, seed: int) -> bytes:
    return bytes(batch_of_size(size_bytes, seed))


def lay_out(directory: Path, batch_bytes: int, *, sealed: bool, generation: int = 0, number: int = 0) -> InMemory:
    """A segment full of batches; another generation has other values in the same places."""
    partition = open_partition(directory, number=number)
    for at in range(SEGMENT_BYTES // batch_bytes):
        append_encoded(partition, bytearray(smallest_filled(batch_bytes, at + 1000 * generation)))
    if sealed:
        partition.log.roll()
        append_encoded(partition, batch(b"in the next segment"))
    partition.close()
    filesystem = InMemory(str(directory))
    assert len(filesystem.contents[str(log_file(directory))]) == SEGMENT_BYTES
    return filesystem


class Segment:
    """A segment whose bytes can be put elsewhere in memory, and what reading it to the end
    gives."""

    def __init__(self, directory: Path, batch_bytes: int, *, sealed: bool) -> None:
        self.filesystem = lay_out(directory, batch_bytes, sealed=sealed)
        self.path = str(log_file(directory))
        self.right = self.filesystem.contents[self.path]
        self.data = bytearray(self.right)
        self.filesystem.contents[self.path] = self.data  # type: ignore[assignment]  # reads see every change
        self.batch_bytes = batch_bytes
        self.sealed = sealed
        self.reader = SegmentReader(self.filesystem, str(directory), 0, closed=sealed, dense=True)
        assert (self.reader.seal is not None) == sealed

    def swap(self, first: int, second: int, size: int) -> None:
        """Two pieces of this size change places; again, and they are back."""
        a, b = first * size, second * size
        self.data[a : a + size], self.data[b : b + size] = self.data[b : b + size], self.data[a : a + size]

    def damages(self) -> list[int]:
        """The positions of the batches named as damaged. What is read beside them is right, and in
        a sealed segment all else."""
        found, position, next_offset = [], 0, 0
        while position < SEGMENT_BYTES:
            try:
                views = self.reader.read(position, SEGMENT_BYTES, max_bytes=SEGMENT_BYTES, next_offset=next_offset)
            except CorruptSegment as error:
                damage = error
            else:
                size = sum(len(view.buffer) for view in views)
                read = b"".join(view.buffer for view in views)
                assert read == self.right[position : position + size], "altered or misplaced"
                position += size
                next_offset = views[-1].last_offset + 1
                continue
            assert (damage.position, damage.path) == (position, self.path)
            if damage.next_position is None:
                return [*found, position]
            assert self.sealed
            assert damage.next_position > position
            found += range(position, damage.next_position, self.batch_bytes)
            position, next_offset = damage.next_position, damage.next_offset
        return found

    def is_damaged(self, position: int) -> bool:
        """Whether the batch at the position is named as damaged."""
        try:
            self.reader.read(position, SEGMENT_BYTES, max_bytes=self.batch_bytes)
        except CorruptSegment as damage:
            return bool(damage.position == position)
        return False


@SIZES
def test_every_swap_of_two_sectors_of_a_sealed_segment_is_found(tmp_path: Path, batch_bytes: int, seed: int) -> None:
    """8,128 of 8,128. Of a few hundred all is read: exactly the batches that have one of the two
    are damaged."""
    segment = Segment(tmp_path / "t-0", batch_bytes, sealed=True)
    pairs = list(combinations(range(SECTORS), 2))
    read_whole = set(random.Random(seed).sample(pairs, 400)) | set(pairs[:140])
    for first, second in pairs:
        segment.swap(first, second, SECTOR_BYTES)
        touched = {sector * SECTOR_BYTES // batch_bytes * batch_bytes for sector in (first, second)}
        assert all(map(segment.is_damaged, touched)), f"sectors {first} and {second}"
        if (first, second) in read_whole:
            assert segment.damages() == sorted(touched), f"sectors {first} and {second}"
        segment.swap(first, second, SECTOR_BYTES)
    assert segment.damages() == []


@SIZES
def test_every_swap_of_two_sectors_of_an_active_segment_is_found(tmp_path: Path, batch_bytes: int) -> None:
    """8,128 of 8,128 by whoever reads in order: what comes before the first of the two is read, and
    nothing behind it."""
    segment = Segment(tmp_path / "t-0", batch_bytes, sealed=False)
    for first, second in combinations(range(SECTORS), 2):
        segment.swap(first, second, SECTOR_BYTES)
        assert segment.damages() == [first * SECTOR_BYTES // batch_bytes * batch_bytes], f"sectors {first} and {second}"
        segment.swap(first, second, SECTOR_BYTES)
    assert segment.damages() == []


@pytest.mark.parametrize("sealed", [True, False])
def test_every_swap_of_two_batches_is_found(tmp_path: Path, sealed: bool) -> None:
    """2,016 of 2,016: their checksums are right, their offsets are not."""
    segment = Segment(tmp_path / "t-0", 1024, sealed=sealed)
    for first, second in combinations(range(64), 2):
        segment.swap(first, second, 1024)
        assert segment.damages() == [first * 1024, second * 1024][: 2 if sealed else 1]
        segment.swap(first, second, 1024)


def test_batches_swapped_in_an_active_segment_never_pass_for_others(tmp_path: Path, seed: int) -> None:
    """Whoever asks for an offset gets its record, or an error, wherever it stands."""
    lay_out(directory := tmp_path / "t-0", 1024, sealed=False)
    right, chance = log_file(directory).read_bytes(), random.Random(seed)
    for first, second in chance.sample(list(combinations(range(64), 2)), 12):
        changed = bytearray(right)
        changed[first * 1024 : first * 1024 + 1024], changed[second * 1024 : second * 1024 + 1024] = (
            right[second * 1024 : second * 1024 + 1024],
            right[first * 1024 : first * 1024 + 1024],
        )
        log_file(directory).write_bytes(changed)
        partition = open_partition(directory, read_only=True)
        found = 0
        for offset in range(64):
            try:
                (record, *_) = partition.read(offset, max_records=1, max_bytes=1024)
            except CorruptSegment:
                found += 1
                continue
            assert (record.offset, record.timestamp_ms) == (offset, 1_700_000_000_000 + offset)
        assert found
        partition.close()


# Blocks of an older file


def recycled(segment: Segment, older: bytes, size: int) -> Iterator[int]:
    """Each place in turn has what an older file had there."""
    for at in range(0, SEGMENT_BYTES, size):
        segment.data[at : at + size] = older[at : at + size]
        yield at
        segment.data[at : at + size] = segment.right[at : at + size]


@SIZES
def test_a_sector_of_an_older_file_in_a_sealed_segment_is_found(tmp_path: Path, batch_bytes: int) -> None:
    """128 of 128, those among them that are a whole batch of the same offsets with a right
    checksum."""
    segment = Segment(tmp_path / "t-0", batch_bytes, sealed=True)
    older = lay_out(tmp_path / "older-0", batch_bytes, sealed=True, generation=1).contents[
        str(log_file(tmp_path / "older-0"))
    ]
    for at in recycled(segment, older, SECTOR_BYTES):
        assert segment.damages() == [at // batch_bytes * batch_bytes]


def test_a_sector_of_an_older_file_in_an_active_segment_is_found_unless_it_is_a_whole_batch_of_those_offsets(
    tmp_path: Path,
) -> None:
    """Nothing covers which of two batches with the same offsets was the last to stand there, until
    the segment is sealed."""
    halves = Segment(tmp_path / "halves-0", 1024, sealed=False)
    older = lay_out(tmp_path / "older-0", 1024, sealed=False, generation=1).contents[
        str(log_file(tmp_path / "older-0"))
    ]
    for at in recycled(halves, older, SECTOR_BYTES):
        assert halves.damages() == [at // 1024 * 1024]
    other_offsets = older[1024:] + older[:1024]
    for at in recycled(halves, other_offsets, 1024):
        assert halves.damages() == [at]
    not_found = 0
    for _ in recycled(halves, older, 1024):
        try:
            not_found += halves.damages() == []
        except AssertionError:  # read, and another generation's
            not_found += 1
    assert not_found == 64


# Segments of other partitions


def exchange(tmp_path: Path, kinds: tuple[str, ...]) -> tuple[bool, bool]:
    """Files of the closed segments of two partitions change places; whether reading finds it, and
    whether verifying does."""
    one, other = tmp_path / "one-0", tmp_path / "other-0"
    lay_out(one, 1024, sealed=True)
    lay_out(other, 1024, sealed=True, generation=1, number=1)
    for kind in kinds:
        a, b = one / f"{0:020d}{kind}", other / f"{0:020d}{kind}"
        content = a.read_bytes()
        shutil.copyfile(b, a)
        b.write_bytes(content)
    partition = open_partition(one, read_only=True)
    try:
        everything(partition)
    except CorruptSegment:
        read = True
    else:
        read = False
    partition.close()
    place, report = TopicPartition("t", 0), VerifyReport()
    return read, any(verify_partition(OsFileSystem(), str(one), place, report=report, topic_id="id"))


def test_a_segment_of_another_partition_is_found_by_its_seal(tmp_path: Path) -> None:
    assert exchange(tmp_path, (".log",)) == (True, True)
    assert exchange(tmp_path / "again", (".log", ".index", ".timeindex")) == (True, True)


def test_a_seal_of_another_partition_is_found_by_its_segment(tmp_path: Path) -> None:
    assert exchange(tmp_path, (".seal",)) == (True, True)


def test_a_segment_of_another_partition_with_its_seal_is_found_where_offsets_and_sizes_agree(tmp_path: Path) -> None:
    """By what the seal says of its home; more of that: tests/partition/test_swapped_segments.py."""
    assert exchange(tmp_path, (".log", ".seal", ".index", ".timeindex")) == (True, True)


# Two bits


def test_every_two_flipped_bits_in_a_batch_header_of_a_sealed_segment_are_found(tmp_path: Path) -> None:
    """118,828 of 118,828 pairs among the 488 bits of a header: none is read, as it was or
    altered."""
    segment = Segment(tmp_path / "t-0", 1024, sealed=True)
    position, found = 17 * 1024, 0
    read: Callable[..., object] = segment.reader.read
    for first, second in combinations(range(HEADER_BYTES * 8), 2):
        one, another = position + (first >> 3), position + (second >> 3)
        segment.data[one] ^= 1 << (first & 7)
        segment.data[another] ^= 1 << (second & 7)
        try:
            read(position, SEGMENT_BYTES, max_bytes=1024)
        except CorruptSegment as damage:
            found += damage.position == position
        segment.data[one] = segment.right[one]
        segment.data[another] = segment.right[another]
    assert found == 118_828
