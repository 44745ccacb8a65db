"""Damage in a segment that Kafka wrote: no seal records the offsets, and no checksum covers a
batch's base offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import CorruptSegment
from pylog.partition import Partition
from tests.partition.logs import append_encoded, batch, flip, headers, log_file, open_partition

BATCHES = 40


def read(reader: Partition, max_bytes: int, found: list[int]) -> None:
    for fetched in reader.log.reader.fetches(0, 2 * BATCHES + 1, max_bytes=max_bytes):
        found += [view.header.base_offset for view in fetched.batches]


@pytest.mark.slow
@pytest.mark.parametrize("index_interval_bytes", [1, 400, 1 << 20])
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_wrong_base_offset_is_met_and_nothing_is_passed_over(
    tmp_path: Path, index_interval_bytes: int, max_bytes: int
) -> None:
    """The batch itself is met if its offsets are lower, or after the segment; else the one after
    it, which seems lower.

    The reader then opens the segment again and asks the index, which must not lead it over what it
    has not read.
    """
    directory = tmp_path / "orders-0"
    partition = open_partition(directory, index_interval_bytes=index_interval_bytes)
    for number in range(BATCHES):
        append_encoded(partition, batch(b"%d" % number, b"x" * 50))
    partition.log.roll()
    append_encoded(partition, batch(b"next"))
    partition.close()
    for path in (*directory.glob("*.seal"), directory / ".commit"):
        path.unlink()
    path = log_file(directory)
    right = headers(path)
    for number in (1, 7, 20, BATCHES - 2):
        position, header = right[number]
        following, _ = right[number + 1]
        for bit in range(64):
            flip(path, position + 7 - bit // 8, 1 << bit % 8)
            wrong = header.base_offset ^ 1 << bit if bit < 63 else header.base_offset - (1 << 63)
            is_met_itself = wrong < header.base_offset or wrong + 1 >= 2 * BATCHES
            reader = open_partition(directory, is_kafka=True, read_only=True)
            found: list[int] = []
            with pytest.raises(CorruptSegment) as damage:
                read(reader, max_bytes, found)
            assert damage.value.facts["position"] == (position if is_met_itself else following), bit
            assert found == [*range(0, header.base_offset, 2)] + [wrong] * (not is_met_itself)
            reader.close()
            flip(path, position + 7 - bit // 8, 1 << bit % 8)
