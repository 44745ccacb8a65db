"""Where a range of offsets is cut into pieces, and how large it is: by the indexes, and without
them as well as may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.partition import Partition
from tests.partition.logs import file_of, log_file, one, open_partition

COUNT = 60


@pytest.fixture
def partition(directory: Path) -> Partition:
    """Three segments of twenty records of about 100 bytes each."""
    partition = open_partition(directory, index_interval_bytes=256)
    for number in range(COUNT):
        if number and number % 20 == 0:
            partition.log.roll()
        partition.append(one(b"x" * 30), acks=1)
    return partition


@pytest.mark.parametrize("piece_bytes", [1, 500, 2_000, 3_000, 100_000])
@pytest.mark.parametrize(("start", "end"), [(0, COUNT), (7, 55), (20, 40), (41, 43), (59, 60)])
def test_the_first_cut_is_the_first_of_all_and_the_end_without_one(
    partition: Partition, start: int, end: int, piece_bytes: int
) -> None:
    reader = partition.log.reader
    cuts = reader.cuts(start, end, piece_bytes)
    assert reader.first_cut(start, end, piece_bytes) == (cuts[0] if cuts else end)
    assert all(start < cut < end for cut in cuts)
    assert cuts == sorted(set(cuts))


def test_without_an_index_a_segment_counts_whole_and_is_cut_nowhere(directory: Path, partition: Partition) -> None:
    reader, size = partition.log.reader, log_file(directory, 20).stat().st_size
    assert reader.size_bytes(25, 30) < size / 2
    file_of(directory, 20, ".index").unlink()
    assert reader.size_bytes(25, 30) == size
    assert [cut for cut in reader.cuts(0, COUNT, 500) if 20 < cut < 40] == []


def test_a_segment_that_was_deleted_meanwhile_has_no_bytes(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = partition.log.reader
    first, *others = (segment.size_bytes for segment in partition.segments)
    assert reader.size_bytes(0, COUNT) == first + sum(others)
    state = partition.log.current()
    listed = reader.segments(state)
    partition.log.delete_before(20)
    monkeypatch.setattr(reader, "_indexed", lambda _: (partition.log.directory, listed, state))
    assert reader.size_bytes(0, COUNT) == sum(others)
