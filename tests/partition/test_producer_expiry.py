"""How long a producer is remembered whose records are of long ago: a backfill sends yesterday's,
and may repeat a batch too."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import OutOfOrderSequence
from pylog.partition import Partition
from pylog.partition.producers import snapshots
from pylog.partition.producers import state as producer_state
from pylog.partition.producers.snapshots import PRODUCER_EXPIRATION_MS
from pylog.partition.verify import verify_partition
from pylog.storage import OsFileSystem
from tests.partition.logs import START_MS, TP, OwnPartition, batch, open_partition

OLD_MS = START_MS - PRODUCER_EXPIRATION_MS - 1


def send_old(partition: Partition, sequence: int) -> bool:
    """Whether it was taken for a repeat."""
    made = batch(b"flight %d" % sequence, timestamp_ms=OLD_MS, producer_id=7, epoch=0, sequence=sequence)
    return partition.log.append_batch(made).duplicate


def reopened(partition: Partition, directory: Path) -> OwnPartition:
    partition.log.close()
    return open_partition(directory)


@pytest.mark.parametrize("rolls", [0, 1])
def test_a_repeat_of_an_old_record_is_known_while_it_is_in_the_last_two_segments(tmp_path: Path, rolls: int) -> None:
    partition = open_partition(tmp_path / "p")
    assert not send_old(partition, 0)
    for _ in range(rolls):
        partition.log.roll()
        partition.log.append_batch(batch(b"of now"))
    partition = reopened(partition, tmp_path / "p")
    assert send_old(partition, 0), "a batch was appended twice"
    with pytest.raises(OutOfOrderSequence):
        send_old(partition, 2)


def test_a_producer_of_old_records_before_those_is_forgotten(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "p")
    send_old(partition, 0)
    for _ in range(2):
        partition.log.roll()
        partition.log.append_batch(batch(b"of now"))
    partition = reopened(partition, tmp_path / "p")
    assert not send_old(partition, 5), "any sequence is a first one"


def test_of_very_many_producers_the_longest_idle_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 40)
    monkeypatch.setattr(producer_state, "_FORGOTTEN_AT_ONCE", 4)
    directory = tmp_path / "t-0"
    partition = open_partition(directory)
    first = batch(b"in a transaction", producer_id=0, epoch=0, sequence=0, transactional=True)
    partition.log.append_batch(first)
    for producer_id in range(1, 100):
        partition.log.append_batch(batch(b"x", producer_id=producer_id, epoch=0, sequence=0))
        if producer_id == 70:
            partition.log.roll()
    for _ in range(2):
        for producer_id in (99, 98, 70):
            assert partition.log.append_batch(batch(b"x", producer_id=producer_id, epoch=0, sequence=0)).duplicate
        partition = reopened(partition, directory)
    partition.log.roll()
    states = snapshots.read(OsFileSystem(), str(directory), partition.latest_offset)
    assert 36 <= len(states.entries) <= 44
    assert states.first_open_offset() == 0, "a transaction is open"
    assert list(verify_partition(OsFileSystem(), str(directory), TP)) == []
    assert not partition.log.append_batch(batch(b"x", producer_id=1, epoch=0, sequence=0)).duplicate
