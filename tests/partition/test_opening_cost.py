"""What opening a partition for its first append reads does not grow with what was written before,
whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.codec.batch import BatchHeader, read_header
from pylog.partition import Partition
from tests.partition.logs import append_encoded, batch, one, open_partition

HEADERS_MAX = 2000


@pytest.fixture
def headers_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each batch header that is read from a segment."""
    read: list[int] = []

    def counted(*where: object) -> BatchHeader:
        read.append(1)
        return read_header(*where)

    for module in ("scan", "reader", "time_lookup"):
        monkeypatch.setattr(f"pylog.segment.{module}.read_header", counted, raising=False)
    return read


def idempotent(partition: Partition, first: int, end: int) -> None:
    for sequence in range(first, end):
        append_encoded(partition, batch(b"x", producer_id=7, epoch=0, sequence=sequence))


def of_many_producers(partition: Partition, first: int, end: int) -> None:
    for number in range(first, end):
        append_encoded(partition, batch(b"x", producer_id=number % 900, epoch=0, sequence=number // 900))


def of_no_producer(partition: Partition, first: int, end: int) -> None:
    for _ in range(first, end):
        append_encoded(partition, batch(b"x"))


@pytest.mark.parametrize("batches_each", [5000, 50], ids=["one writer", "writers of 50 batches"])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("fill", [idempotent, of_many_producers, of_no_producer])
@pytest.mark.one_in(8)
def test_opening_reads_a_bounded_number_of_headers(
    tmp_path: Path,
    headers_read: list[int],
    fill: Callable[[Partition, int, int], None],
    is_closed: bool,
    batches_each: int,
) -> None:
    for first in range(0, 5000, batches_each):
        partition = open_partition(tmp_path / "t-0")
        fill(partition, first, first + batches_each)
        if is_closed:
            partition.close()
    headers_read.clear()
    assert open_partition(tmp_path / "t-0").append(one("x"), acks=1).base_offset == 5000
    assert len(headers_read) <= HEADERS_MAX


def test_few_snapshots_stay_inside_of_the_active_segment_however_many_writers_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BATCHES", 10)
    for first in range(0, 600, 30):
        idempotent(open_partition(tmp_path / "t-0"), first, first + 30)
    assert [int(path.stem) for path in sorted(tmp_path.glob("t-0/*.snapshot"))] == [590, 600]


def test_a_snapshot_that_cannot_be_read_costs_one_interval_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers_read: list[int]
) -> None:
    idempotent(open_partition(tmp_path / "t-0"), 0, 3200)
    newest = max(tmp_path.glob("t-0/*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:20])
    headers_read.clear()
    reopened = open_partition(tmp_path / "t-0")
    assert reopened.log.append_batch(batch(b"x", producer_id=7, epoch=0, sequence=3199)).duplicate
    assert reopened.log.append_batch(batch(b"x", producer_id=7, epoch=0, sequence=3200)).base_offset == 3200
    assert len(headers_read) <= HEADERS_MAX
