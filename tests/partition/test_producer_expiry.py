"""How long a producer is remembered whose records are of long ago: a backfill sends yesterday's, and may repeat a batch too."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import OutOfOrderSequence
from pylog.partition import Partition
from pylog.partition.snapshots import PRODUCER_EXPIRATION_MS
from tests.partition.logs import START_MS, batch, open_partition

OLD_MS = START_MS - PRODUCER_EXPIRATION_MS - 1


def send_old(partition: Partition, sequence: int) -> bool:
    """Whether it was taken for a repeat."""
    made = batch(b"flight %d" % sequence, timestamp_ms=OLD_MS, producer_id=7, epoch=0, sequence=sequence)
    return partition.append_batch(made).duplicate


def reopened(partition: Partition, directory: Path) -> Partition:
    partition.close()
    return open_partition(directory)


@pytest.mark.parametrize("rolls", [0, 1])
def test_a_repeat_of_an_old_record_is_known_while_it_is_in_the_last_two_segments(tmp_path: Path, rolls: int) -> None:
    partition = open_partition(tmp_path / "p")
    assert not send_old(partition, 0)
    for _ in range(rolls):
        partition.roll()
        partition.append_batch(batch(b"of now"))
    partition = reopened(partition, tmp_path / "p")
    assert send_old(partition, 0), "a batch was appended twice"
    with pytest.raises(OutOfOrderSequence):
        send_old(partition, 2)


def test_a_producer_of_old_records_before_those_is_forgotten(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "p")
    send_old(partition, 0)
    for _ in range(2):
        partition.roll()
        partition.append_batch(batch(b"of now"))
    partition = reopened(partition, tmp_path / "p")
    assert not send_old(partition, 5), "any sequence is a first one"
