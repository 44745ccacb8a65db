"""Calls with wrong arguments: each raises one typed error, at once, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.errors import RecordTooLarge
from pylog.log import Log
from pylog.model import ProducerRecord


@pytest.fixture
def log(tmp_log_dir: Path) -> Iterator[Log]:
    """A log with one topic ``t`` of one partition and three records."""
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(3)], acks=1)
        yield log


@pytest.mark.parametrize("sized", [True, False], ids=["list", "generator"])
def test_records_that_do_not_fit_into_one_batch_are_refused_together(log: Log, sized: bool) -> None:
    partition = log.partition("t", 0)
    records = [ProducerRecord(b"x" * 500_000)] * 5
    with pytest.raises(RecordTooLarge, match=r"first 2 .*nothing was appended: append fewer") as caught:
        partition.append(records if sized else iter(records))
    limit = log.describe_topic("t").config.max_message_bytes
    assert caught.value.facts == {"limit_bytes": limit, "fitting": 2, "count": 5 if sized else None}
    assert partition.latest_offset == 3


def test_records_that_just_fit_into_one_batch_are_all_appended(log: Log) -> None:
    log.create_topic("small", max_message_bytes=128)
    partition = log.partition("small", 0)
    fitting = (128 - 61) // 8  # a record of one byte takes eight
    assert partition.append([ProducerRecord(b"x")] * fitting, acks=1).last_offset == fitting - 1
    with pytest.raises(RecordTooLarge, match=f"first {fitting} of {fitting + 1}"):
        partition.append([ProducerRecord(b"x")] * (fitting + 1))
    assert partition.latest_offset == fitting
