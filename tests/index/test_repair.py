"""After a failure that could not be taken back, the next append makes the indexes what the log
alone says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from pylog.errors import PylogError
from pylog.partition import Partition
from tests.partition.logs import (
    START_MS,
    append_encoded,
    assert_indexes_follow_from_the_log,
    batch,
    everything,
    open_partition,
)
from tests.storage.filesystems import Faulty, io_error

CHANGES = {"open", "pwrite", "truncate"}


class Outage:
    """The n-th change fails (from 0), and those so many behind it: so what it was to be taken back
    with fails, too."""

    def __init__(self, n: int, behind: set[int]) -> None:
        self.number, self.failing = -1, {n, *(n + more for more in behind)}
        self.began = False

    def __call__(self, operation: str, path: str) -> None:
        if operation in CHANGES:
            self.number += 1
            if self.number in self.failing:
                self.began = True
                raise io_error(path)


def fill(partition: Partition, numbers: range, step_ms: int) -> None:
    for number in numbers:
        with suppress(PylogError):
            append_encoded(
                partition,
                batch(*[b"x" * (number * 7 % 40)] * (1 + number % 3), timestamp_ms=START_MS + number * step_ms),
            )


def next_is_the_same(faulty: Partition, other: Partition, opened: Callable[[], Partition]) -> Partition:
    return faulty


def next_is_one_that_looked_on(faulty: Partition, other: Partition, opened: Callable[[], Partition]) -> Partition:
    return other


def next_is_a_new_one(faulty: Partition, other: Partition, opened: Callable[[], Partition]) -> Partition:
    return opened()


@pytest.mark.parametrize("who", [next_is_the_same, next_is_one_that_looked_on, next_is_a_new_one])
@pytest.mark.parametrize("interval_bytes", [0, 200])
@pytest.mark.parametrize("behind", [{1, 2}, {2}, {3}, {2, 3, 4}], ids=str)
@pytest.mark.one_in(8)
def test_indexes_after_an_outage(
    tmpfs_dir: Path, who: Callable[..., Partition], interval_bytes: int, behind: set[int]
) -> None:
    n = 0
    while True:
        directory = tmpfs_dir / f"{n}" / "t-0"
        options = {"segment_bytes": 1024, "index_interval_bytes": interval_bytes}
        other = open_partition(directory, **options)
        fill(other, range(3), 10)
        outage = Outage(n, behind)
        faulty = open_partition(directory, Faulty(outage), **options)
        for number in range(10, 16):
            if not outage.began:
                fill(faulty, range(number, number + 1), 10)  # the last one is young, and may be gone
        if not outage.began:
            break
        outage.failing = set()
        following = who(faulty, other, partial(open_partition, directory, **options))
        for number in range(3):
            append_encoded(following, batch(b"y" * (60 * number), timestamp_ms=START_MS + 20))  # older
            assert_indexes_follow_from_the_log(directory, interval_bytes)
        fill(following, range(30, 50), 10)
        assert_indexes_follow_from_the_log(directory, interval_bytes)
        assert len(everything(following)) == following.latest_offset
        n += 1
    assert n > 10
