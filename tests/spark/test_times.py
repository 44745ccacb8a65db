"""Starting and ending by time, as Spark's Kafka source does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import ConfigError, OffsetOutOfRange
from tests.spark.reading import KAFKA, offsets, planned, read

FIRST_MS, STEP_MS, COUNT = 1_700_000_000_000, 1_000, 20


@pytest.fixture
def log(tmp_log_dir: Path) -> Iterator[Log]:
    """Two partitions; a record a second in the first, every two seconds in the other; in several
    segments."""
    with Log(tmp_log_dir) as opened:
        opened.create_topic("orders", partitions=2, segment_bytes=1_024)
        for number in range(COUNT):
            record = ProducerRecord(b"x" * 100, timestamp_ms=FIRST_MS + number * STEP_MS)
            opened.partition("orders", 0).append([record], acks=1)
            if number % 2 == 0:
                opened.partition("orders", 1).append([record], acks=1)
        yield opened


def by_partition(log: Log, **given: Any) -> list[list[int]]:
    found: list[list[int]] = [[], []]
    for row in read(log.path, **given):
        found[row["partition"]].append(row["offset"])
    return found


@pytest.mark.parametrize("late_ms", [0, 1, 999])
def test_a_time_is_the_first_record_as_late_and_an_end_is_exclusive(log: Log, late_ms: int) -> None:
    start, end = FIRST_MS + 4_000 - late_ms, FIRST_MS + 10_000 - late_ms
    expected = [[*range(4, 10)], [*range(2, 5)]]
    assert by_partition(log, startingTimestamp=start, endingTimestamp=end) == expected
    each = [{"orders": {"0": at, "1": at}} for at in (start, end)]
    assert by_partition(log, startingOffsetsByTimestamp=each[0], endingOffsetsByTimestamp=each[1]) == expected
    assert by_partition(log, startingTimestamp=start) == [[*range(4, 20)], [*range(2, 10)]]
    assert by_partition(log, endingTimestamp=end) == [[*range(10)], [*range(5)]]


def test_a_time_for_all_goes_before_times_by_partition_and_these_before_offsets(log: Log) -> None:
    by_offset = {"orders": {"0": 15, "1": 9}}
    by_time = {"orders": {"0": FIRST_MS + 10_000, "1": FIRST_MS + 10_000}}
    given: dict[str, Any] = {"startingOffsets": by_offset}
    assert by_partition(log, **given) == [[*range(15, 20)], [9]]
    given["startingOffsetsByTimestamp"] = by_time
    assert by_partition(log, **given) == [[*range(10, 20)], [*range(5, 10)]]
    given["startingTimestamp"] = FIRST_MS
    assert by_partition(log, **given) == [[*range(20)], [*range(10)]]


def test_a_start_later_than_every_record_is_an_error_or_the_end(log: Log) -> None:
    late = FIRST_MS + 18_001
    with pytest.raises(
        OffsetOutOfRange, match=f"no record of orders-1 is as late as startingTimestamp {late}"
    ) as caught:
        planned(log.path, startingTimestamp=late)
    assert (caught.value.partition, caught.value.timestamp_ms) == (1, late)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert by_partition(log, startingTimestamp=late, **latest) == [[19], []]
    assert by_partition(log, startingTimestamp=late, failOnDataLoss=False, **latest) == [[19], []]
    assert by_partition(log, endingTimestamp=late + 10**6) == [[*range(20)], [*range(10)]]


def test_a_range_of_times_without_records_is_empty(log: Log) -> None:
    assert by_partition(log, startingTimestamp=FIRST_MS + 10, endingTimestamp=FIRST_MS + 20) == [[], []]


def test_times_and_offsets_may_be_mixed(log: Log) -> None:
    ends = {"orders": {"0": 3, "1": -1}}
    assert by_partition(log, startingTimestamp=FIRST_MS + 4_000, endingOffsets=ends) == [[], [*range(2, 10)]]
    beyond = {"orders": {"0": 30, "1": -1}}
    with pytest.raises(OffsetOutOfRange, match="never written"):
        planned(log.path, startingTimestamp=FIRST_MS + 4_000, endingOffsets=beyond)


def test_times_are_those_of_what_retention_left(log: Log) -> None:
    log.delete_records(("orders", 0), 12)
    assert by_partition(log, startingTimestamp=FIRST_MS, endingTimestamp=FIRST_MS + 15_000)[0] == [12, 13, 14]


def test_times_by_partition_name_exactly_the_partitions_that_are_read(log: Log) -> None:
    with pytest.raises(ConfigError, match="startingOffsetsByTimestamp lacks orders-1; it must name exactly"):
        planned(log.path, startingOffsetsByTimestamp={"orders": {"0": 0}})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingTimestamp": "noon"}, "startingTimestamp='noon', expected milliseconds since 1970"),
        ({"startingTimestamp": -1}, "startingTimestamp='-1'"),
        ({"endingTimestamp": ""}, "endingTimestamp=''"),
        (
            {"startingTimestamp": 10, "endingTimestamp": 9},
            "startingTimestamp=10, expected a time before endingTimestamp=9",
        ),
        ({"startingOffsetsByTimestamp": {"orders": {"0": -1, "1": 0}}}, "startingOffsetsByTimestamp="),
        ({"startingOffsetsByTimestamp": {"orders": 7}}, "milliseconds since 1970 by partition"),
        ({"endingOffsetsByTimestamp": "latest"}, "endingOffsetsByTimestamp='latest'"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "expected error or latest"),
    ],
)
def test_what_is_no_time_is_refused(log: Log, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(log.path, **given)


def test_a_brokers_directory_is_read_by_time() -> None:
    path = KAFKA / "log"
    everything = [row for row in read(path, isolationLevel="read_uncommitted") if row["timestampType"] == 0]
    topic = everything[0]["topic"]
    rows = [row for row in read(path, subscribe=topic) if row["partition"] == 0]
    middle = rows[len(rows) // 2]["timestamp"]
    at_ms = int(middle.timestamp() * 1000) if hasattr(middle, "timestamp") else int(middle) // 1000
    found = read(path, assign=f'{{"{topic}": [0]}}', startingTimestamp=at_ms)
    first = next(row["offset"] for row in rows if row["timestamp"] >= middle)
    assert offsets(found) == [row["offset"] for row in rows if row["offset"] >= first]
