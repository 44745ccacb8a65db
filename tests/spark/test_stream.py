"""The streaming source, without Spark: every record once, whatever comes, goes, stops and starts
again."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows

from pylog import Log, ProducerRecord
from pylog.errors import ConfigError, OffsetOutOfRange, TopicNotFound
from pylog.model import TopicPartition
from pylog.spark import offsets_behind
from pylog.spark.source import watched_partitions
from pylog.spark.source.planning import select_partitions
from pylog.spark.source.stream_offsets import encode
from pylog.spark.source.watched_partitions import WatchedPartition
from pylog.storage import OsFileSystem
from pylog.testing import ManualClock
from tests.partition.logs import append_encoded, batch, marker
from tests.spark.reading import KAFKA
from tests.spark.streaming import Query


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("orders", partitions=2)
    return log


def append(log: Log, count: int = 1, topic: str = "orders", partition: int = 0, value: bytes = b"v") -> None:
    log.partition(topic, partition).append([ProducerRecord(value)] * count, acks=1)


def places(found: list[dict[str, Any]] | None) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in found or []]


def offsets(found: list[dict[str, Any]] | None, partition: int = 0) -> list[int]:
    return [row["offset"] for row in found or [] if row["partition"] == partition]


# Where it starts


def test_a_stream_starts_at_the_end_unless_it_is_told_otherwise(log: Log) -> None:
    append(log, 3)
    query, whole = Query(log.path), Query(log.path, startingOffsets="earliest")
    assert query.batch() == []
    append(log, 2)
    assert offsets(query.batch()) == [3, 4]
    assert query.batch() is None
    assert offsets(whole.batch()) == [0, 1, 2, 3, 4]


def test_it_starts_where_the_options_say(log: Log) -> None:
    append(log, 5)
    log.partition("orders", 1).append([ProducerRecord(b"v", timestamp_ms=n) for n in (10, 20, 30)])
    query = Query(log.path, startingOffsets={"orders": {"0": 3, "1": -2}})
    assert places(query.batch()) == [("orders", 0, 3), ("orders", 0, 4), *(("orders", 1, n) for n in range(3))]
    assert offsets(Query(log.path, startingTimestamp=20, assign={"orders": [1]}).batch(), 1) == [1, 2]
    with pytest.raises(OffsetOutOfRange, match="no record of orders-1 is as late as startingTimestamp 31"):
        Query(log.path, startingTimestamp=31, assign={"orders": [1]}).batch()
    late = Query(log.path, startingTimestamp=31, assign={"orders": [1]}, startingOffsetsByTimestampStrategy="latest")
    assert late.batch() == []
    with pytest.raises(OffsetOutOfRange, match="offsets 6 to 6 of orders-0 were asked for"):
        Query(log.path, startingOffsets={"orders": {"0": 6, "1": -1}}).batch()
    with pytest.raises(ConfigError, match="startingOffsets lacks orders-1"):
        Query(log.path, startingOffsets={"orders": {"0": 6}}).batch()


def test_offsets_are_those_of_sparks_kafka_source_and_say_which_topics_these_are(log: Log) -> None:
    append(log, 3)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()
    append(log, 1, partition=1)
    query.batch()
    ids = json.loads(query.offsets[0])["$ids"]
    assert ids.keys() == {"orders"}
    assert [json.loads(text) for text in query.offsets] == [
        {"orders": {"0": 3, "1": 0}, "$ids": ids, "$from": {"orders": {"0": 0, "1": 0}}},
        {"orders": {"0": 3, "1": 1}, "$ids": ids},
    ]
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert (reported["orders"], reported["$ids"]) == ({"0": 3, "1": 1}, ids)


def test_equal_offsets_are_equal_texts_whatever_partition_came_first() -> None:
    first, second = TopicPartition("b", 1), TopicPartition("a", 10)
    texts = [
        json.dumps(encode(dict.fromkeys(order, 1), {p.topic: "x" for p in order}))
        for order in ((first, second), (second, first))
    ]
    assert texts[0] == texts[1]


def test_where_it_started_is_known_after_a_crash_in_the_first_batch(log: Log) -> None:
    """Spark asks again for it, and ``latest`` is another place by then: the first batch's records
    would be lost."""
    append(log, 3)
    query = Query(log.path)
    append(log, 2)
    query.reader.initialOffset()
    append(log, 4)
    assert query.plan()
    query.restart()
    append(log, 1)
    assert offsets(query.batch()) == [5, 6, 7, 8]
    assert offsets(query.batch()) == [9]


def test_where_it_started_is_known_although_nothing_had_come_when_it_was_stopped(log: Log) -> None:
    query = Query(log.path)
    query.batch()
    append(log, 2)
    query.restart()
    assert offsets(query.batch()) == [0, 1]


# What is new


def test_topics_and_partitions_that_come_are_read_from_their_first_record(log: Log) -> None:
    query = Query(log.path, subscribePattern="orders.*")
    query.batch()
    log.create_topic("orders-eu")
    append(log, 2, "orders-eu")
    assert places(query.batch()) == [("orders-eu", 0, 0), ("orders-eu", 0, 1)]
    log.add_partitions("orders", 3)
    append(log, 1, partition=2)
    log.create_topic("payments")
    append(log, 1, "payments")
    assert places(query.batch()) == [("orders", 2, 0)]
    assert query.batch() is None


def test_a_pattern_that_finds_no_topic_is_warned_of_once(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(log.path, subscribePattern="^payments", startingOffsets="earliest")
    query.batch()
    for number in range(3):
        log.create_topic(f"orders-{number}")
        assert query.batch() is None
    [said] = [record.getMessage() for record in caplog.records]
    assert "subscribePattern '^payments' finds no topic" in said
    log.create_topic("payments-eu")
    append(log, 1, "payments-eu")
    assert places(query.batch()) == [("payments-eu", 0, 0)]


def test_a_log_without_topics_is_waited_for(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        query = Query(log.path)
        assert query.batch() == []
        log.create_topic("orders")
        append(log, 2)
        assert offsets(query.batch()) == [0, 1]


def test_what_is_open_in_a_transaction_is_waited_for_and_control_records_are_no_rows() -> None:
    committed, uncommitted = (
        Query(KAFKA / "log", startingOffsets="earliest", isolationLevel=level, subscribe="transactions")
        for level in ("read_committed", "read_uncommitted")
    )
    committed.batch()
    uncommitted.batch()
    assert len(uncommitted.rows) > len(committed.rows) > 0
    assert committed.batch() is None


# Limits


def test_a_batch_takes_of_each_partition_as_it_is_behind(log: Log) -> None:
    append(log, 97)
    append(log, 3, partition=1)
    query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(10)
    first = query.batch()
    assert [len(offsets(first, n)) for n in range(2)] == [9, 1]
    while query.batch() is not None:
        pass
    assert sorted(places(query.rows)) == [("orders", p, n) for p, count in ((0, 97), (1, 3)) for n in range(count)]
    append(log, 50)
    assert len(query.batch(everything=True) or []) == 50  # Trigger.Once asks for all


def test_a_batch_takes_about_as_many_bytes_as_are_asked_for(log: Log) -> None:
    for _ in range(300):
        append(log, value=bytes(1_000))
        append(log, value=bytes(500), partition=1)
    limit = 60_000
    query = Query(log.path, startingOffsets="earliest", maxBytesPerTrigger=limit)
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(limit)
    taken = []
    while (found := query.batch()) is not None:
        taken.append(sum(len(row["value"]) for row in found))
    assert len(query.rows) == 600
    assert all(limit / 2 < size < limit * 1.5 for size in taken[:-1])  # an index has an entry for every 4 KiB


@pytest.mark.slow
@pytest.mark.parametrize("segments", [10, 80])
def test_a_limit_in_bytes_costs_what_it_takes_not_what_there_is(
    tmp_log_dir: Path, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each partition as many segments are weighed, and looked into, as the limit needs."""
    with Log(tmp_log_dir, segment_bytes=20_000, index_interval_bytes=1_000) as log:
        log.create_topic("orders", partitions=2)
        for _ in range(segments * 18):
            append(log, value=bytes(1_000))
            append(log, value=bytes(1_000), partition=1)
        query = Query(log.path, startingOffsets="earliest", maxBytesPerTrigger=50_000)
        query.batch()
        asked: list[str] = []
        for method in ("size", "open_readable"):
            monkeypatch.setattr(OsFileSystem, method, noting(asked, getattr(OsFileSystem, method)))
        query.batch()
        monkeypatch.undo()
        touched = {path for path in asked if path.endswith((".log", ".index"))}
        assert 4 <= len(touched) <= 2 * 2 * 5  # of 2 partitions the log and the index of at most 5 segments
        assert len(asked) < 120
        while query.batch() is not None:
            pass
        assert len(query.rows) == 2 * 18 * segments


def test_a_limit_that_a_segment_fills_ends_there(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, segment_bytes=5_000, index_interval_bytes=1_000) as log:
        log.create_topic("orders")
        for _ in range(40):
            append(log, value=bytes(1_000))
        first, second = sorted((tmp_log_dir / "orders-0").glob("*.log"))[:2]
        query = Query(log.path, startingOffsets="earliest", maxBytesPerTrigger=first.stat().st_size)
        assert offsets(query.batch()) == list(range(int(second.stem)))
        while query.batch() is not None:
            pass
        assert len(query.rows) == 40


def noting(asked: list[str], method: Any) -> Any:
    def noted(filesystem: OsFileSystem, path: str, *arguments: Any) -> Any:
        asked.append(path)
        return method(filesystem, path, *arguments)

    return noted


def test_a_small_batch_waits_for_more_or_for_its_time(log: Log) -> None:
    clock = ManualClock()
    query = Query(log.path, clock, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="10s")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(5)
    append(log)
    assert len(query.batch() or []) == 1  # the first waits for nothing
    append(log, 4)
    clock.advance(9.9)
    assert query.batch() is None
    clock.advance(0.1)
    assert len(query.batch() or []) == 4
    append(log, 3)
    assert query.batch() is None
    append(log, 2, partition=1)
    assert len(query.batch() or []) == 5
    append(log)
    query.restart(available_now=True)
    assert len(query.batch() or []) == 1


def test_available_now_ends_at_what_was_there_when_it_began(log: Log) -> None:
    append(log, 10)
    query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.restart(available_now=True)
    append(log, 5)
    log.create_topic("later")
    append(log, 1, "later")
    while query.batch() is not None:
        pass
    assert offsets(query.rows) == list(range(10))
    query.restart(available_now=True)
    while query.batch() is not None:
        pass
    assert sorted(places(query.rows)) == [("later", 0, 0), *(("orders", 0, n) for n in range(15))]


def test_available_now_neither_waits_for_more_nor_takes_a_partition_that_came_since_for_lost(log: Log) -> None:
    append(log, 8)
    query = Query(log.path, startingOffsets="earliest", minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6)
    latest = Query(log.path)
    query.restart(available_now=True)
    latest.restart(available_now=True)
    log.create_topic("later")
    append(log, 2, "later")
    assert latest.batch() == []  # it starts behind those two: nobody asked where to start before they came
    assert latest.batch() is None
    assert [len(query.batch() or []), len(query.batch() or [])] == [6, 2]


def test_a_topic_that_goes_while_it_is_looked_at_is_one_that_is_gone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()

    def gone(*_: object) -> None:
        raise TopicNotFound("just now")

    monkeypatch.setattr(WatchedPartition, "published", gone)
    with pytest.raises(OffsetOutOfRange, match="from offset 1 on: it is not there any more"):
        query.batch()


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_record_comes_once_whatever_happens(tmpfs_dir: Path, data: st.DataObject) -> None:
    with Log(tempfile.mkdtemp(dir=tmpfs_dir)) as log:
        log.create_topic("t0", segment_bytes=1024)
        query = Query(log.path, startingOffsets="earliest")
        sent: list[tuple[str, int, int]] = []

        def send() -> None:
            topic = data.draw(st.sampled_from(log.topics()))
            number = data.draw(st.integers(0, log.describe_topic(topic).partitions - 1))
            first = log.partition(topic, number).latest_offset
            count = data.draw(st.integers(1, 30))
            append(log, count, topic, number, bytes(data.draw(st.integers(0, 300))))
            sent.extend((topic, number, first + n) for n in range(count))

        def restart() -> None:
            name = data.draw(st.sampled_from(["maxOffsetsPerTrigger", "maxBytesPerTrigger"]))
            query.restart(available_now=data.draw(st.booleans()), **{name: data.draw(st.integers(1, 100))})

        steps: dict[str, Callable[[], object]] = {
            "send": send,
            "batch": query.batch,
            "plan": query.plan,  # and a crash, or an attempt that failed
            "restart": restart,
            "topic": lambda: log.create_topic(f"t{len(log.topics())}"),
            "partition": lambda: log.add_partitions("t0", log.describe_topic("t0").partitions + 1),
        }
        for step in data.draw(st.lists(st.sampled_from(sorted(steps)), min_size=5, max_size=40)):
            steps[step]()
        query.restart()
        while query.batch() is not None:
            pass
        assert sorted(places(query.rows)) == sorted(sent)


# Loss


@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("loss", ["retention", "deleted", "anew", "anew while stopped", "anew when planned", "planned"])
def test_what_was_lost_fails_the_query_or_is_passed_over(
    log: Log, loss: str, available_now: bool, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, 5)
    how: dict[str, Any] = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 3}
    strict, lenient = Query(log.path, **how), Query(log.path, **how, failOnDataLoss=False)
    for query in (strict, lenient):
        query.batch()
    log.partition("orders", 0).log.roll()
    append(log, 2)
    if loss in ("planned", "anew when planned"):
        strict.plan()
        lenient.plan()
    if loss == "retention":
        log.partition("orders", 0).log.delete_before(5)
        problem = r"offsets 3 to 7 of orders-0 were asked for, read_committed can read 5 to 7: retention has removed"
    elif loss == "planned":
        log.partition("orders", 0).log.delete_before(7)
        problem = r"offsets 3 to 6 of orders-0 were asked for, read_committed can read 7 to 7: retention has removed"
    else:
        log.delete_topic("orders")
        problem = "is to read orders-0 from offset 3 on: it is not there any more, or the options don't select it"
    if loss.startswith("anew"):
        log.create_topic("orders", partitions=2)
        append(log, 1 if loss == "anew" else 4, value=b"new")
        problem = (
            "is to read orders-0 from offset 3 on: the topic was deleted, and created again, or .*; failOnDataLoss="
        )
    if loss == "anew while stopped" or available_now:
        for query in (strict, lenient):
            query.restart(available_now=available_now)
    for _ in range(2):  # not only once
        with pytest.raises(OffsetOutOfRange, match=problem):
            strict.batch()
        strict.restart(available_now=available_now)
    while lenient.batch() is not None:
        pass
    new = {"anew": [0], "anew while stopped": [0, 1, 2, 3], "anew when planned": [0, 1, 2, 3], "retention": [5, 6]}
    assert offsets(lenient.rows) == [0, 1, 2, *new.get(loss, [])]
    assert "continuing with what is there" in caplog.text


def test_what_a_loss_of_power_has_cut_is_noticed_where_the_log_is_shorter_now(log: Log) -> None:
    append(log, 5)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()
    end = json.loads(query.offsets[-1])
    query.offsets[-1] = json.dumps({**end, "orders": {"0": 9, "1": 0}})
    with pytest.raises(OffsetOutOfRange, match="from offset 9 on: it ends at 5: it was cut, or created again"):
        query.batch()
    query.restart(failOnDataLoss=False)
    query.batch()
    append(log, 1)
    assert offsets(query.batch()) == [5]


def test_offsets_that_are_not_decided_yet_are_no_loss(log: Log) -> None:
    """As after a query that read what was uncommitted, or before a transaction that began late."""
    append_encoded(log.partition("orders", 0), batch(b"v", producer_id=7, epoch=0, sequence=0, transactional=True))
    query = Query(log.path, startingOffsets="earliest", isolationLevel="read_uncommitted")
    assert offsets(query.batch()) == [0]
    query.restart(isolationLevel="read_committed")
    assert query.batch() is None
    append_encoded(log.partition("orders", 0), marker(7, 0, commit=True))
    append(log)
    assert offsets(query.batch()) == [2]


def test_what_is_gone_does_not_count_towards_a_limit(log: Log) -> None:
    append(log, 50)
    query = Query(log.path, startingOffsets="earliest", failOnDataLoss=False, maxOffsetsPerTrigger=5)
    query.batch()
    log.partition("orders", 0).log.roll()
    log.partition("orders", 0).log.delete_before(50)
    append(log, 4)
    assert offsets(query.batch()) == [50, 51, 52, 53]


def test_a_misspelt_topic_is_an_error_from_the_beginning_and_a_warning_later(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log.path, subscribe="orders,paymnets", failOnDataLoss=False)
    with pytest.raises(TopicNotFound, match="no topic 'paymnets'"):
        query.batch()
    query.restart(subscribe="orders")
    query.batch()
    query.restart(subscribe="orders,paymnets")
    append(log)
    assert offsets(query.batch()) == [0]
    for _ in range(3):
        assert query.batch() is None
    assert caplog.text.count("no topic 'paymnets'") == 1
    query.restart(failOnDataLoss=True)
    with pytest.raises(TopicNotFound, match="no topic 'paymnets'"):
        query.batch()


@pytest.mark.parametrize("limits", [{}, {"minOffsetsPerTrigger": 100}, {"maxOffsetsPerTrigger": 4}])
@pytest.mark.parametrize("count", [3, 5])
def test_a_topic_created_anew_is_noticed_although_it_has_as_many_records(
    log: Log, limits: dict[str, int], count: int
) -> None:
    append(log, 3)
    query = Query(log.path, startingOffsets="earliest", failOnDataLoss=False, **limits)
    strict = Query(log.path, startingOffsets="earliest")
    query.batch()
    strict.batch()
    log.delete_topic("orders")
    log.create_topic("orders", partitions=2)
    append(log, count, value=b"new")
    with pytest.raises(OffsetOutOfRange, match="from offset 3 on: the topic was deleted, and created again"):
        strict.batch()
    assert query.plan()
    query.restart()
    while query.batch() is not None:
        pass
    assert offsets([row for row in query.rows if row["value"] == b"new"]) == list(range(count))


def test_a_partition_that_comes_without_its_first_records_is_a_loss(log: Log) -> None:
    query = Query(log.path)
    query.batch()
    log.create_topic("late", segment_bytes=1024)
    append(log, 5, "late")
    log.partition("late", 0).log.roll()
    log.partition("late", 0).log.delete_before(5)
    append(log, 1, "late")
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to 6 of late-0 were asked for"):
        query.batch()
    query.restart(failOnDataLoss=False)
    assert offsets(query.batch()) == [5]


@pytest.mark.parametrize(
    "wrong",
    [
        '{"orders": 3}',
        '{"orders": {"x": 3}}',
        '{"orders": {"0": -1}}',
        '{"v": "1"}',
        "7",
        "null",
        "[]",
        '"x"',
        '{"$ids": 1}',
    ],
)
def test_a_checkpoint_of_something_else_is_refused(log: Log, wrong: str) -> None:
    query = Query(log.path)
    with pytest.raises(ConfigError, match="start with a new checkpointLocation"):
        query.reader.latestOffset(json.loads(wrong), query.reader.getDefaultReadLimit())


def test_what_is_warned_of_is_one_printable_line_whatever_a_checkpoint_names(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(log.path, failOnDataLoss=False)
    forged = {"a\nERROR root: all is lost\x1b[2J": {"0": 5}}
    assert query.reader.latestOffset(forged, query.reader.getDefaultReadLimit()) != forged
    query.reader.partitions({}, forged)
    assert len(caplog.messages) == 2
    assert all(message.isprintable() and "all is lost" in message for message in caplog.messages)


def test_a_batch_without_offsets_reads_nothing_and_one_that_starts_nowhere_is_refused(log: Log) -> None:
    append(log, 5)
    query = Query(log.path, startingOffsets="earliest")
    query.batch()
    end = json.loads(query.offsets[-1])
    assert query.reader.partitions(end, end) == []
    for wrong in (3, [1], {"orders": 1}):
        with pytest.raises(ConfigError, match="start with a new checkpointLocation"):
            query.reader.partitions({}, {**end, "$from": wrong})


# What looking costs


def test_only_what_is_new_is_looked_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed again when the catalog changes; beyond some partitions, descriptors are given back."""
    made, listed = [], []
    monkeypatch.setattr(watched_partitions, "_OPEN_MAX", 1)
    monkeypatch.setattr(
        watched_partitions,
        "WatchedPartition",
        lambda *given, **how: made.append(how) or WatchedPartition(*given, **how),
    )
    monkeypatch.setattr(
        watched_partitions, "select_partitions", lambda *given: listed.append(1) or select_partitions(*given)
    )
    query = Query(log.path, startingOffsets="earliest")
    for _ in range(3):
        append(log)
        query.batch()
    assert (made, len(listed)) == ([{"stays_open": True}, {"stays_open": False}], 1)
    log.create_topic("other")
    query.batch()
    assert (len(made), len(listed)) == (3, 2)


def test_a_log_of_kafkas_is_read_as_it_grows(tmp_path: Path) -> None:
    shutil.copytree(KAFKA / "log", tmp_path / "log")
    query = Query(tmp_path / "log", startingOffsets="earliest", subscribePattern="keyed")
    assert query.batch()
    assert query.batch() is None


# What it says of itself


def test_a_query_says_how_far_it_is_behind(log: Log) -> None:
    append(log, 5)
    query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    query.batch()
    ours = {"description": "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"}
    latest = json.dumps(query.reader.reportLatestOffset())
    source = {**ours, "endOffset": query.offsets[-1], "latestOffset": latest}
    further = {**ours, "endOffset": latest, "latestOffset": latest}
    kafka = {"description": "KafkaV2[Subscribe[orders]]", "endOffset": "{}", "latestOffset": '{"orders": {"0": 99}}'}
    expected = {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 0}
    others = [{**ours, "endOffset": "7", "latestOffset": "9"}, {**ours, "endOffset": None, "latestOffset": None}, kafka]
    assert offsets_behind({"sources": [*others, source, further]}) == expected
    assert offsets_behind(None) == {}
    as_objects = [
        SimpleNamespace(**given) for given in (source, others[0], {**ours, "endOffset": "x", "latestOffset": "[]"})
    ]
    assert offsets_behind(SimpleNamespace(sources=as_objects)) == expected


def test_a_querys_progress_has_the_path_and_the_metrics_of_sparks_kafka_source(log: Log) -> None:
    def metrics() -> tuple[float, ...]:
        found = query.reader.reportLatestOffset()
        assert found is not None
        assert found["$path"] == str(log.path)
        return tuple(found["$metrics"][f"{kind}OffsetsBehindLatest"] for kind in ("min", "max", "avg"))

    append(log, 5)
    query = Query(log.path, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    query.batch()
    assert metrics() == (0, 2, 1)
    log.create_topic("later")
    append(log, 7, "later")
    append(log, 1, partition=1)
    query.batch()
    assert query.rows[3:]
    assert sum(metrics()[2:]) * 3 == 5 + 7 + 1 - len(query.rows)
    while query.batch() is not None:
        pass
    assert metrics() == (0, 0, 0)
    assert not any("$path" in offsets or "$metrics" in offsets for offsets in query.offsets)


def test_a_log_without_partitions_has_no_metrics(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        query = Query(log.path)
        query.batch()
        assert query.reader.reportLatestOffset() == {"$path": str(log.path), "$metrics": {}}
        assert (
            offsets_behind(
                {
                    "sources": [
                        {
                            "description": "Python",
                            "endOffset": "{}",
                            "latestOffset": json.dumps(query.reader.reportLatestOffset()),
                        }
                    ]
                }
            )
            == {}
        )


@pytest.mark.parametrize("limit", [{}, {"maxBytesPerTrigger": 1}])
def test_no_directory_is_listed_for_what_is_new(
    log: Log, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    listed: list[str] = []
    names = OsFileSystem.names
    monkeypatch.setattr(OsFileSystem, "names", lambda self, path: listed.append(path) or names(self, path))
    append(log, 3)
    query = Query(log.path, startingOffsets="earliest", **limit)
    while query.batch() is not None:
        pass
    for _ in range(3):
        append(log, 3)
        listed.clear()
        assert query.plan()
        query.reader.partitions(json.loads(query._start()), json.loads(query.offsets[query.committed]))
        assert not [path for path in listed if path.endswith("orders-0")]
        while query.batch() is not None:
            pass
    assert offsets(query.rows) == [*range(12)]
