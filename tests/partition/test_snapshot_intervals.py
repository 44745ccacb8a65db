"""How often what is known of the producers is written down: seldom enough to cost nothing, often
enough to open quickly."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pylog.errors import StorageFull
from pylog.partition import Partition
from pylog.partition.verify import verify_partition
from pylog.storage import OsFileSystem
from tests.partition.logs import TP, append_encoded, batch, headers, log_file, one, open_partition
from tests.storage.filesystems import Faulty, OtherBoot

INTERVAL = 1000


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BYTES", INTERVAL)


def append(partition: Partition, first: int, end: int) -> None:
    for sequence in range(first, end):
        append_encoded(partition, batch(b"x" * 150, producer_id=7, epoch=0, sequence=sequence))


def snapshots_seen(directory: Path, partition: Partition, first: int, end: int) -> list[int]:
    """The offsets of the snapshots that are taken while these are appended."""
    seen: set[int] = {int(path.stem) for path in directory.glob("*.snapshot")}
    taken = []
    for sequence in range(first, end):
        append(partition, sequence, sequence + 1)
        now = {int(path.stem) for path in directory.glob("*.snapshot")}
        taken += sorted(now - seen)
        seen |= now
    return taken


def due(directory: Path, since: int) -> list[int]:
    """The offsets behind which an interval is full, counted from position ``since``."""
    found = []
    for position, header in headers(log_file(directory)):
        end = position + header.size_bytes
        if end > since and end - since >= INTERVAL:
            found.append(header.last_offset + 1)
            since = end
    return found


def test_a_snapshot_is_taken_after_each_interval(directory: Path) -> None:
    taken = snapshots_seen(directory, open_partition(directory), 0, 30)
    assert taken == due(directory, 0)
    assert len(taken) > 4


def test_whoever_opens_a_partition_counts_from_where_it_ended(directory: Path) -> None:
    append(open_partition(directory), 0, 9)
    opened_at = log_file(directory).stat().st_size
    taken = snapshots_seen(directory, open_partition(directory), 9, 30)
    assert taken == due(directory, opened_at)


def test_recovery_counts_from_where_the_log_ended(directory: Path) -> None:
    append(open_partition(directory, OtherBoot(1)), 0, 9)
    recovered_at = log_file(directory).stat().st_size
    taken = snapshots_seen(directory, open_partition(directory, OtherBoot(2)), 9, 30)
    assert taken == due(directory, recovered_at)


def test_a_roll_counts_from_the_new_segment(directory: Path) -> None:
    partition = open_partition(directory)
    append(partition, 0, 7)
    partition.log.roll()
    taken = snapshots_seen(directory, partition, 7, 30)
    found, since = [], 0
    for position, header in headers(log_file(directory, 7)):
        if position + header.size_bytes - since >= INTERVAL:
            found.append(header.last_offset + 1)
            since = position + header.size_bytes
    assert taken == found
    assert len(taken) > 2


def test_without_producers_an_empty_snapshot_says_so(directory: Path) -> None:
    partition = open_partition(directory)
    for _ in range(20):
        append_encoded(partition, batch(b"x" * 150))
    assert {path.stat().st_size for path in directory.glob("*.snapshot")} == {10}


def test_one_is_taken_after_so_many_batches_too_counted_from_the_newest_whoever_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BYTES", 1 << 20)
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BATCHES", 20)
    directory = tmp_path / "t-0"
    taken = []
    for first in range(0, 90, 9):
        taken += snapshots_seen(directory, open_partition(directory), first, first + 9)
    assert taken == [20, 40, 60, 80]


def test_many_producers_are_written_down_after_as_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BYTES", 1 << 20)
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BATCHES", 5)
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    for producer_id in range(1280):
        append_encoded(partition, batch(b"x", producer_id=producer_id, epoch=0, sequence=0))
    for _ in range(100):
        append_encoded(partition, batch(b"x"))
    first, second = (int(path.stem) for path in sorted(directory.glob("*.snapshot")))
    assert second - first == 20, "one for each sixty-four"


def test_producers_are_the_same_after_any_number_of_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ids that come in any order, in one handle after another: each knows the next sequence of
    every producer."""
    monkeypatch.setattr("pylog.partition.producers.snapshots.INTERVAL_BATCHES", 5)
    directory, random = tmp_path / "t-0", Random(seed)
    following: dict[int, int] = {}
    partition = open_partition(directory)
    for _ in range(400):
        producer_id = random.randrange(30)
        sequence = following.get(producer_id, 0)
        made = batch(b"x", producer_id=producer_id, epoch=0, sequence=sequence)
        assert not partition.log.append_batch(bytearray(made)).duplicate
        following[producer_id] = sequence + 1
        if random.random() < 0.1:
            partition = open_partition(directory)
            assert partition.log.append_batch(made).duplicate
    reopened = open_partition(directory)
    assert {number: reopened.log.next_sequence(number) for number in range(30)} == {
        number: following.get(number) for number in range(30)
    }
    states = partition.log.writable()._end.producers
    assert len(states) == len(following) == len(states.entries)
    assert list(verify_partition(OsFileSystem(), str(directory), TP)) == []


@pytest.mark.parametrize("reason", ["full disk", "kill"])
def test_a_snapshot_that_was_begun_does_not_stay(directory: Path, reason: str) -> None:
    """Each has a name of its own, so no later one was written over it: a full disk filled up with
    them for good."""
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    partition.append(one("1"), acks=1)
    if reason == "kill":
        (directory / f"{1:020}.snapshot.tmp").write_bytes(b"half of o")
        open_partition(directory).append(one("2"), acks=1)
    else:

        def refuse(operation: str, path: str) -> None:
            if operation == "pwrite" and path.endswith(".snapshot.tmp"):
                raise StorageFull("cannot write: the disk is full", path=path)

        filesystem.hook = refuse
        for _ in range(3):
            with pytest.raises(StorageFull):
                partition.log.roll()
    assert list(directory.glob("*.tmp")) == []
