"""Commit slots whose checksum is right and whose content lies: no good record goes, and appends go
where the log ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pylog.partition.commit_slots import latest, whole_file
from tests.partition.logs import append_encoded, batch, everything, log_file, one, open_partition

RECORDS = 30
LIES: dict[str, dict[str, Any]] = {
    "the end is ahead": {"log_end_offset": 1000, "high_watermark": 1000, "last_stable_offset": 1000},
    "the end is behind": {"log_end_offset": 29, "high_watermark": 29, "last_stable_offset": 29},
    "the position is in mid-batch": {"written_end": 50},
    "the position is in the first batch": {
        "written_end": 10,
        "log_end_offset": 0,
        "high_watermark": 0,
        "last_stable_offset": 0,
    },
    "the position is beyond the file": {"written_end": 1 << 30},
    "they are of two other batches": {
        "written_end": 0,
        "log_end_offset": 7,
        "high_watermark": 7,
        "last_stable_offset": 7,
    },
}


def lie(directory: Path, changes: dict[str, Any]) -> None:
    path = directory / ".commit"
    state = latest(path.read_bytes())
    assert state is not None
    path.write_bytes(whole_file(state._replace(**changes)))


@pytest.mark.parametrize("changes", LIES.values(), ids=LIES)
@pytest.mark.parametrize("is_open", [False, True], ids=["opened later", "open already"])
def test_a_slot_that_lies_about_the_end_costs_no_record(
    directory: Path, changes: dict[str, Any], is_open: bool
) -> None:
    partition = open_partition(directory)
    for number in range(RECORDS):
        partition.append(one(f"{number}"), acks=1)
    lie(directory, changes)
    writer = partition if is_open else open_partition(directory)
    assert writer.append(one("after"), acks=1).base_offset == RECORDS
    found = everything(open_partition(directory))
    assert [value for _, value in found] == [*(b"%d" % n for n in range(RECORDS)), b"after"]
    assert log_file(directory).stat().st_size > 0


@pytest.mark.parametrize("stable", [1, 1000], ids=["a transaction is open", "none is open"])
def test_a_reader_of_slots_that_promise_more_than_there_is_gets_what_there_is(directory: Path, stable: int) -> None:
    """It neither hangs nor fails; the next writer recovers."""
    partition = open_partition(directory)
    partition.append(one("a"), acks=1)
    append_encoded(partition, batch(b"b", producer_id=1, epoch=0, sequence=0, transactional=stable == 1))
    lie(directory, {"log_end_offset": 1000, "high_watermark": 1000, "last_stable_offset": stable})
    reader = open_partition(directory, read_only=True)
    assert everything(reader) == [(0, b"a"), (1, b"b")]
    assert everything(reader, "read_committed") == [(0, b"a"), (1, b"b")][:stable]
    open_transactions = [(found.producer_id, found.first_offset) for found in reader.log.reader.open_transactions()]
    assert open_transactions == ([(1, 1)] if stable == 1 else [])


@pytest.mark.parametrize("changes", [{"leader_epoch": -7}, {"leader_epoch": -1}], ids=str)
def test_a_slot_that_no_writer_can_have_written_is_none(directory: Path, changes: dict[str, Any]) -> None:
    open_partition(directory).append(one("a"), acks=1)
    state = latest((directory / ".commit").read_bytes())
    assert state is not None
    assert latest(whole_file(state)) == state
    assert latest(whole_file(state._replace(**changes))) is None
