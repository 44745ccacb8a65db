"""What a stream has processed, as a group's offsets: ``retention="consumed"`` keeps the rest.
Without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog import Consumer, Log, ProducerRecord
from pylog.errors import GroupNotEmpty
from pylog.model import TopicPartition
from pylog.spark import commit_progress
from tests.spark.streaming import Query

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"


@pytest.fixture
def log(tmp_log_dir: Path) -> Iterator[Log]:
    with Log(tmp_log_dir) as log:
        log.create_topic("orders", partitions=2, retention="consumed")
        yield log


def append(log: Log, count: int = 5, number: int = 0) -> None:
    """A closed segment."""
    log.partition("orders", number).append([ProducerRecord(b"v")] * count, acks=1)
    log.partition("orders", number).log.roll()


def progress_of(*ends: str, description: str = SOURCE) -> dict[str, Any]:
    return {"sources": [{"description": description, "endOffset": end, "latestOffset": end} for end in ends]}


def committed(log: Log, group: str = "copy") -> dict[TopicPartition, int]:
    return {partition: offset.after for partition, offset in log.reset_offsets(group, shift_by=0, dry_run=True).items()}


def test_retention_deletes_what_a_query_has_processed_and_no_more(log: Log) -> None:
    append(log)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()
    append(log)
    assert commit_progress(log, "copy", progress_of(query.offsets[-1])) == {FIRST: (None, 5), SECOND: (None, 0)}
    assert log.maintain().deleted_segments == 1
    assert log.partition(*FIRST).earliest_offset == 5
    query.batch()
    [source] = progress_of(query.offsets[-1])["sources"]
    as_object = SimpleNamespace(sources=[SimpleNamespace(**source)])  # as a listener gets it
    assert commit_progress(log, "copy", as_object) == {FIRST: (5, 10), SECOND: (0, 0)}
    assert log.maintain().deleted_segments == 1
    append(log, 3)
    query.restart()
    assert [row["offset"] for row in query.batch() or []] == [10, 11, 12]


def test_of_several_sources_the_least_counts(log: Log) -> None:
    append(log)
    query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    query.batch()
    query.batch()
    commit_progress(log, "copy", progress_of(*query.offsets))
    assert committed(log) == {FIRST: 2, SECOND: 0}


def test_a_topic_that_was_recreated_or_is_another_logs_holds_all(log: Log) -> None:
    append(log)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()
    log.delete_topic("orders")
    assert commit_progress(log, "copy", progress_of(query.offsets[-1])) == {}
    log.create_topic("orders", partitions=2, retention="consumed")
    append(log, 9)
    assert commit_progress(log, "copy", progress_of(query.offsets[-1])) == {}
    assert log.groups() == []


@pytest.mark.parametrize(
    "progress",
    [
        None,
        {"sources": []},
        progress_of(json.dumps({"orders": {"0": 5}}), description="KafkaV2[Subscribe[orders]]"),
        progress_of("null"),
        progress_of("17"),
        progress_of("{"),
        progress_of(json.dumps({"orders": {"0": 5}})),  # without the topic's id
        progress_of(json.dumps({"orders": {"0": 5}, "$ids": {"orders": "another"}})),
        progress_of(json.dumps({"orders": {"0": 5}, "$ids": ["orders"]})),
    ],
)
def test_what_is_no_progress_of_this_log_commits_nothing(log: Log, progress: Any) -> None:
    append(log)
    assert commit_progress(log, "copy", progress) == {}
    assert log.groups() == []


def test_a_group_with_members_is_refused(log: Log) -> None:
    append(log)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()
    with Consumer(log, group_id="copy") as consumer:
        consumer.subscribe("orders")
        consumer.poll(0)
        with pytest.raises(GroupNotEmpty):
            commit_progress(log, "copy", progress_of(query.offsets[-1]))
