"""Every single flipped bit of a sealed segment is found and named, and hides no other batch.

The segment is 65,536 bytes, 64 batches of 1,024. Flips are made in memory, on the way from the
file. The normal run reads every flipped batch at its position; all 524,288, each read through
offsets as a consumer reads:

    PYTHONPATH=src python -m pytest tests/segment/test_bit_flips.py -m soak -s
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from pylog.codec.format import HEADER_BYTES, LAST_OFFSET_DELTA_POSITION, LEADER_EPOCH_POSITION, MAGIC_POSITION
from pylog.errors import CorruptSegment
from pylog.partition import Cursor, Partition
from pylog.segment import SegmentReader
from pylog.storage import ReadableFile
from tests.partition.logs import append_encoded, batch, batch_of_size, log_file, open_partition
from tests.storage.filesystems import InMemory

BATCHES, BATCH_BYTES = 64, 1024
BITS = BATCHES * BATCH_BYTES * 8
NEGATIVE_LAST_OFFSET = ((BATCHES - 1) * BATCH_BYTES + LAST_OFFSET_DELTA_POSITION) * 8 + 7
HEADER_BITS = [number * BATCH_BYTES * 8 + bit for number in range(BATCHES) for bit in range(HEADER_BYTES * 8)]


def lay_out(directory: Path, *, sealed: bool) -> InMemory:
    partition = open_partition(directory)
    for number in range(BATCHES):
        append_encoded(partition, batch_of_size(BATCH_BYTES, number))
    if sealed:
        partition.log.roll()
        append_encoded(partition, batch(b"in the next segment"))
    partition.close()
    filesystem = InMemory(str(directory))
    assert len(filesystem.contents[str(log_file(directory))]) * 8 == BITS == 524_288
    assert (f"{directory}/{0:020d}.seal" in filesystem.contents) == sealed
    return filesystem


def content_of(filesystem: InMemory, path: str, number: int) -> bytes:
    return filesystem.contents[path][number * BATCH_BYTES : (number + 1) * BATCH_BYTES]


def check_at_positions(filesystem: InMemory, directory: Path, bits: Iterable[int]) -> int:
    """Read the flipped batch at its position, for one bit of each byte both neighbours, too; how
    many flips were found."""
    path = str(log_file(directory))
    reader = SegmentReader(filesystem, str(directory), 0, closed=True, dense=True)
    end, found = reader.size(), 0
    for bit in bits:
        filesystem.flip(path, bit)
        number = bit // 8 // BATCH_BYTES
        position = number * BATCH_BYTES
        damage = damage_of(partial(reader.read, position, end, max_bytes=BATCH_BYTES), bit)
        assert (damage.path, damage.position) == (path, position)
        assert (damage.next_position, damage.next_offset) == (position + BATCH_BYTES, number + 1)
        found += 1
        for other in (number - 1, number + 1) if (bit >> 3) % 8 == bit % 8 else ():
            if 0 <= other < BATCHES:
                (view,) = reader.read(other * BATCH_BYTES, end, max_bytes=BATCH_BYTES)
                assert bytes(view.buffer) == content_of(filesystem, path, other), f"flip {bit} changed batch {other}"
    return found


def check_at_offsets(directory: Path, bits: Iterable[int]) -> int:
    """Read through offsets: the flipped batch raises, its neighbours and the last batch come
    unchanged."""
    filesystem = InMemory(str(directory))
    path = str(log_file(directory))
    partition = open_partition(directory, filesystem, read_only=True)
    found = 0
    for bit in bits:
        filesystem.flip(path, bit)
        number = bit // 8 // BATCH_BYTES
        damage = damage_of(partial(fetch_one, partition, number), bit)
        assert damage.path == path
        assert damage.position == number * BATCH_BYTES, f"bit {bit % 8} of byte {bit // 8}"
        assert (damage.next_position, damage.next_offset) == ((number + 1) * BATCH_BYTES, number + 1)
        found += 1
        for other in {number - 1, number + 1, BATCHES - 1} - {number}:
            if 0 <= other < BATCHES:
                assert fetch_one(partition, other) == content_of(filesystem, path, other), f"flip {bit}, batch {other}"
    return found


def damage_of(read: Callable[[], object], bit: int) -> CorruptSegment:
    try:
        read()
    except CorruptSegment as damage:
        return damage
    raise AssertionError(f"bit {bit % 8} of byte {bit // 8} was flipped and not found")


def fetch_one(partition: Partition, offset: int) -> bytes:
    """The batch that holds the offset, fetched as a consumer does: from wherever the first fetch
    begins."""
    cursor = Cursor(offset)
    while True:
        fetched = partition.log.fetch(
            cursor, max_bytes=BATCH_BYTES, isolation_level="read_uncommitted", visibility="written"
        )
        if fetched.batches[0].last_offset >= offset:
            return bytes(fetched.batches[0].buffer)
        cursor = fetched.cursor


@pytest.mark.one_in(8)
@pytest.mark.slow
def test_every_flipped_bit_of_a_sealed_segment_is_found_at_its_position(directory: Path) -> None:
    filesystem = lay_out(directory, sealed=True)
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        halves = [range(BITS // 2), range(BITS // 2, BITS)]
        found = sum(pool.map(check_at_positions, [filesystem] * 2, [directory] * 2, halves))
    assert found == 524_288


@pytest.mark.slow
def test_flipped_bits_of_a_sealed_segment_are_found_at_positions(directory: Path, seed: int) -> None:
    sample = sorted(random.Random(seed).sample(range(BITS), 10_000))
    assert check_at_positions(lay_out(directory, sealed=True), directory, sample) == len(sample)


@pytest.mark.slow
def test_flipped_bits_of_a_sealed_segment_are_found_at_offsets(directory: Path, seed: int) -> None:
    lay_out(directory, sealed=True)
    sample = random.Random(seed).sample(HEADER_BITS, 2000) + random.Random(seed).sample(range(BITS), 1000)
    assert check_at_offsets(directory, sample) == len(sample)


@pytest.mark.parametrize(
    "byte",
    [0, 7, 11, 15, 16, 20, 21, 60, 61, BATCH_BYTES - 1],
)
def test_damage_of_a_sealed_batch_names_the_offset_that_was_asked_for(directory: Path, byte: int) -> None:
    filesystem = lay_out(directory, sealed=True)
    path = str(log_file(directory))
    partition = open_partition(directory, filesystem, read_only=True)
    for bit in range(8):
        filesystem.flip(path, (5 * BATCH_BYTES + byte) * 8 + bit)
        with pytest.raises(CorruptSegment) as caught:
            fetch_one(partition, 5)
        assert (caught.value.offset, caught.value.topic, caught.value.partition) == (5, "t", 0)


def test_a_negative_last_offset_of_the_last_batch_is_named_at_its_position(directory: Path) -> None:
    filesystem = lay_out(directory, sealed=True)
    filesystem.flip(str(log_file(directory)), NEGATIVE_LAST_OFFSET)
    partition = open_partition(directory, filesystem, read_only=True)
    assert (
        damage_of(partial(fetch_one, partition, BATCHES - 1), NEGATIVE_LAST_OFFSET).position
        == (BATCHES - 1) * BATCH_BYTES
    )


def test_a_record_behind_a_damaged_last_offset_is_read_whatever_the_size_of_the_read(directory: Path) -> None:
    filesystem = lay_out(directory, sealed=True)
    filesystem.flip(str(log_file(directory)), (60 * BATCH_BYTES + LAST_OFFSET_DELTA_POSITION) * 8)
    partition = open_partition(directory, filesystem, read_only=True)
    assert [record.offset for record in partition.read(63, max_records=1, max_bytes=1)] == [63]


@pytest.mark.one_in(8)
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_flipped_bit_of_a_sealed_segment_is_found_at_its_offset(directory: Path) -> None:
    lay_out(directory, sealed=True)
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        at_offsets = sum(pool.map(check_at_offsets, [directory] * 2, [range(0, BITS, 2), range(1, BITS, 2)]))
    print(f"{at_offsets} of {BITS} flips found at offsets")
    assert at_offsets == 524_288


def check_active(directory: Path, bits: Iterable[int]) -> tuple[int, int, list[int]]:
    """Read the flipped active segment from the start; flips found, flips of the leader epoch not
    found, others not found."""
    filesystem = InMemory(str(directory))
    path = str(log_file(directory))
    partition = open_partition(directory, filesystem, read_only=True)
    found, epochs, missed = 0, 0, []
    for bit in bits:
        filesystem.flip(path, bit)
        number = bit // 8 // BATCH_BYTES
        cursor = Cursor(max(number - 1, 0))
        try:
            while cursor.offset < min(number + 2, BATCHES):
                fetched = partition.log.fetch(
                    cursor, max_bytes=BATCH_BYTES, isolation_level="read_uncommitted", visibility="written"
                )
                cursor = fetched.cursor
        except CorruptSegment:
            found += 1
            continue
        if LEADER_EPOCH_POSITION <= bit // 8 % BATCH_BYTES < MAGIC_POSITION:
            epochs += 1
        else:
            missed.append(bit)
    return found, epochs, missed


@pytest.mark.slow
def test_flipped_bits_of_an_active_segment_are_found_in_order_but_for_the_leader_epoch(
    directory: Path, seed: int
) -> None:
    """The epoch stands outside Kafka's CRC and there is no seal yet; only its sign bit makes an
    impossible value."""
    lay_out(directory, sealed=False)
    sample = {*HEADER_BITS[: 8 * HEADER_BYTES * 8], *random.Random(seed).sample(range(BITS), 2000)}
    found, epochs, missed = check_active(directory, sorted(sample))
    assert missed == []
    assert epochs <= 31 * BATCHES
    assert found + epochs == len(sample)


@pytest.mark.one_in(8)
def test_a_flipped_offset_in_an_active_segment_never_passes_for_another_record(directory: Path) -> None:
    """Whatever single bit of a base offset is wrong, reading any offset gives the record of that
    offset or an error."""
    filesystem = lay_out(directory, sealed=False)
    path = str(log_file(directory))
    partition = open_partition(directory, filesystem, read_only=True)
    wrong = []
    for number in range(0, BATCHES, 5):
        for bit in range(64):
            filesystem.flip(path, number * BATCH_BYTES * 8 + bit)
            for offset in range(BATCHES):
                try:
                    read = partition.read(offset, max_records=1, max_bytes=BATCH_BYTES)
                except CorruptSegment:
                    continue
                expected = (offset, 1_700_000_000_000 + offset)
                if [(record.offset, record.timestamp_ms) for record in read] != [expected]:
                    wrong.append((number, bit, offset))
    assert wrong == []


@pytest.mark.slow
def test_a_flipped_bit_in_a_seal_costs_the_seal_and_no_record(directory: Path) -> None:
    filesystem = lay_out(directory, sealed=True)
    seal = f"{directory}/{0:020d}.seal"
    for bit in range(0, len(filesystem.contents[seal]) * 8, 3):
        filesystem.flip(seal, bit)
        partition = open_partition(directory, filesystem, read_only=True)
        assert fetch_one(partition, 40) == content_of(filesystem, str(log_file(directory)), 40), f"bit {bit}"


def test_a_second_thread_that_looks_while_the_seal_is_read_sees_it_too(directory: Path) -> None:
    lay_out(directory, sealed=True)
    seen: list[bool] = []

    class SecondLook(InMemory):
        def open_readable(self, path: str) -> ReadableFile:
            if path.endswith(".seal") and not seen:
                seen.append(False)
                seen[0] = reader.seal is not None
            return super().open_readable(path)

    reader = SegmentReader(SecondLook(str(directory)), str(directory), 0, closed=True, dense=True)
    assert reader.seal is not None
    assert seen == [True]
