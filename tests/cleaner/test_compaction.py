"""Compaction as a step of maintenance: when it is due, what it reports, and pylog's own topics over
it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.cleaner import compaction
from pylog.cleaner.report import PartitionMaintenance
from pylog.partition.compact import engine, segment_batches
from pylog.partition.compact.engine import IS_BUSY
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.compact.plan import ClosedSegment
from pylog.partition.partition_log import PartitionLog
from pylog.segment import SegmentReader
from pylog.segment.naming import CLEANER_LOCK
from pylog.storage import OsFileSystem
from pylog.testing import ManualClock
from pylog.transaction.needed import NAMED, UNMARKED
from pylog.transaction.records import Decision
from pylog.transaction.state import Status
from pylog.transaction.table import TransactionTable

VALUE = b"x" * 900  # two fill a segment
COMPACTED: dict[str, Any] = {"segment_bytes": 2000, "cleanup_policy": "compact"}
DAY_MS = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_log_dir: Path, clock: ManualClock) -> Iterator[Log]:
    with Log(tmp_log_dir, clock=clock) as log:
        yield log


def put(log: Log, *keys: str, topic: str = "t", value: bytes | None = VALUE) -> None:
    partition = log.partition(topic, 0)
    for key in keys:
        partition.append([ProducerRecord(value, key=key.encode(), timestamp_ms=log.clock.now_ms())], acks=1)


def step(log: Log, name: str = "compaction", topic: str = "t", **options: Any) -> PartitionMaintenance:
    (done,) = (done for done in log.maintain(**options).partitions if (done.step, done.topic) == (name, topic))
    return done


def keys(log: Log, topic: str = "t") -> list[tuple[int, str]]:
    return [(record.offset, (record.key or b"").decode()) for record in log.partition(topic, 0).scan()]


def test_only_the_newest_record_of_each_key_stays(log: Log) -> None:
    log.create_topic("t", **COMPACTED)
    put(log, *"abababab", "c")
    would = step(log, dry_run=True)
    assert (would.rules, would.bytes_before > 7000, len(keys(log))) == (("dirty ratio",), True, 9)
    done = step(log)
    assert (done.rules, done.records_kept, done.records_dropped, done.error) == (("dirty ratio",), 2, 6, "")
    assert done.bytes_before == would.bytes_before
    assert 1800 < done.bytes_after < 2500
    assert keys(log) == [(6, "a"), (7, "b"), (8, "c")]
    assert log.verify().ok
    assert step(log).kept == "nothing is dirty"


def test_little_that_is_dirty_waits(log: Log) -> None:
    log.create_topic("t", **COMPACTED)
    put(log, *"abcdefghi")
    step(log)
    put(log, *"ab")
    assert step(log).kept == "too little is dirty"
    log.alter_topic("t", min_cleanable_dirty_ratio=0.1)
    assert step(log).rules == ("dirty ratio",)


def test_the_lags_decide_too_and_the_active_segment_is_closed_for_it(log: Log, clock: ManualClock) -> None:
    log.create_topic("t", min_compaction_lag_ms=1000, max_compaction_lag_ms=5000, **COMPACTED)
    put(log, *"ababa")
    assert step(log).kept == "records are younger than min_compaction_lag_ms"
    clock.advance(2)
    assert step(log).rules == ("dirty ratio",)
    assert len(keys(log)) == 3
    clock.advance(4)
    assert step(log, dry_run=True).rules == ("max_compaction_lag_ms",)
    assert step(log).rules == ("max_compaction_lag_ms",)
    assert keys(log) == [(3, "b"), (4, "a")]
    assert step(log).kept == "nothing is dirty"


@pytest.mark.parametrize("closed", [False, True])
def test_a_segment_whose_first_records_were_deleted_is_closed_and_compacted_in_time(
    log: Log, tmp_log_dir: Path, clock: ManualClock, closed: bool
) -> None:
    log.create_topic("t", max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1, cleanup_policy="compact")
    os.utime(tmp_log_dir / ".pylog" / "topics" / "t.json", (0, 0))  # the options are old
    put(log, *"aaaaaa")
    if closed:
        log.partition("t", 0).log.roll()
    log.delete_records(TopicPartition("t", 0), 3)
    assert step(log).kept == ("too little is dirty" if closed else "nothing is dirty")
    clock.advance(4 * DAY_MS / 1000)
    would = step(log, dry_run=True)
    assert would.rules == ("max_compaction_lag_ms",)
    assert would.overdue_ms == 4 * DAY_MS - 5000
    assert step(log).rules == ("max_compaction_lag_ms",)
    assert keys(log) == [(5, "a")]


def test_too_little_memory_is_a_problem_that_is_said(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise MemoryError

    log.create_topic("t", **COMPACTED)
    put(log, *"abababab")
    monkeypatch.setattr("pylog.partition.compact.engine.KeyMap", refused)
    assert log.maintain().problems == ["t-0: compaction failed: too little memory for the map of its keys"]


def test_what_keeps_a_partition_from_it_is_said(log: Log) -> None:
    log.create_topic("t", **COMPACTED)
    put(log, *"abababab")
    with Log(log.path, clock=log.clock) as other:
        lock = other.manager.filesystem.lock(f"{log.partition('t', 0).log.directory.path}/{CLEANER_LOCK}")
        assert lock.try_acquire()
        assert step(log).kept == IS_BUSY
        lock.close()
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"open", key=b"a").result()
        put(log, *"abababab")
        assert step(log).kept == "a transaction is open"
        assert len(keys(log)) < 12
        producer.abort_transaction()


def test_damage_ends_the_compaction_of_one_partition_only(log: Log, tmp_log_dir: Path) -> None:
    for topic in "tu":
        log.create_topic(topic, **COMPACTED)
        put(log, *"abababab", topic=topic)
    path = tmp_log_dir / "t-0" / f"{2:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    report = log.maintain()
    assert [(done.topic, bool(done.error)) for done in report.partitions] == [("t", True), ("u", False)]
    assert len(report.problems) == 1
    assert len(keys(log, "u")) == 2 + 2


def test_compact_and_delete_do_both(log: Log, clock: ManualClock) -> None:
    log.create_topic("t", retention_ms=1000, **{**COMPACTED, "cleanup_policy": "compact,delete"})
    put(log, *"abababab")
    assert (step(log).records_dropped, step(log, "retention").kept) == (4, "not due")
    assert keys(log)[0] == (4, "a")
    clock.advance(2)
    assert step(log, "retention").deleted_segments > 0
    assert keys(log) == []


def test_tombstones_stay_for_their_time(log: Log, clock: ManualClock) -> None:
    log.create_topic("t", delete_retention_ms=1000, min_cleanable_dirty_ratio=0, **COMPACTED)
    put(log, *"ab")
    put(log, *"a", value=None)
    put(log, *"cdef")
    step(log)
    assert (2, "a") in keys(log)
    clock.advance(2)
    put(log, *"cdef")
    step(log)
    assert "a" not in [key for _, key in keys(log)]


def test_doctor_tells_of_a_compaction_that_is_overdue(log: Log, tmp_log_dir: Path, clock: ManualClock) -> None:
    log.create_topic("t", max_compaction_lag_ms=1000, **COMPACTED)
    put(log, *"ab")
    clock.advance(1)
    assert log.maintain(dry_run=True).problems == []
    os.utime(tmp_log_dir / ".pylog" / "topics" / "t.json", (0, 0))  # the options are old
    clock.advance(3 * DAY_MS / 1000)
    (problem,) = log.maintain(dry_run=True).problems
    assert problem.startswith("t-0: compaction has been due for")
    log.maintain()
    assert log.maintain(dry_run=True).problems == []


def test_a_compaction_that_has_been_held_for_a_day_is_a_problem(
    log: Log, tmp_log_dir: Path, clock: ManualClock
) -> None:
    log.create_topic("t", max_compaction_lag_ms=1000, **COMPACTED)
    os.utime(tmp_log_dir / ".pylog" / "topics" / "t.json", (0, 0))  # the options are old
    with Producer(log, transactional_id="x", transaction_timeout_ms=20 * DAY_MS) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", VALUE, key=b"open", timestamp_ms=clock.now_ms()).result()
        put(log, *"abab")
        clock.advance(3 * DAY_MS / 1000)
        for dry_run in (False, True):
            done = step(log, dry_run=dry_run)
            assert (done.kept, done.held_rule, done.held_ms) == (
                *("a transaction is open", "max_compaction_lag_ms", 3 * DAY_MS - 1000),
            )  # fmt: skip
            assert log.maintain(dry_run=dry_run).problems == [
                "t-0: compaction has been due for 2 d by max_compaction_lag_ms, but is held: a transaction is open"
            ]
        producer.commit_transaction()
    assert step(log).rules == ("max_compaction_lag_ms",)
    assert log.maintain(dry_run=True).problems == []


def test_a_compaction_that_another_process_holds_up_for_a_day_is_a_problem(
    log: Log, tmp_log_dir: Path, clock: ManualClock
) -> None:
    log.create_topic("t", max_compaction_lag_ms=1000, **COMPACTED)
    os.utime(tmp_log_dir / ".pylog" / "topics" / "t.json", (0, 0))
    put(log, *"ababc")
    clock.advance(3 * DAY_MS / 1000)
    lock = log.manager.filesystem.lock(f"{log.partition('t', 0).log.directory.path}/{CLEANER_LOCK}")
    assert lock.try_acquire()
    (problem,) = log.maintain().problems
    assert problem.endswith(f"but is held: {IS_BUSY}")
    lock.close()
    assert log.maintain().problems == []


@pytest.mark.parametrize("call", ["planned", "compact"])
def test_a_segment_that_retention_deletes_meanwhile_is_no_error(
    log: Log, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log.create_topic("t", **{**COMPACTED, "cleanup_policy": "compact,delete"})
    put(log, *"abababab", "c")
    original = getattr(compaction, call)

    def with_a_deletion(partition: PartitionLog, options: CompactionOptions) -> object:
        """Another process deletes segments before this one looks at those that it has listed."""
        closed = engine._closed

        def after_a_deletion(*arguments: Any) -> ClosedSegment:
            log.delete_records(TopicPartition("t", 0), 4)
            return closed(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(engine, "_closed", after_a_deletion)
            return original(partition, options)

    with monkeypatch.context() as patched:
        patched.setattr(compaction, call, with_a_deletion)
        done = step(log)
    assert (done.error, done.kept) == ("", "its segments were changed meanwhile")
    assert step(log).rules == ("dirty ratio",)
    assert [key for _, key in keys(log)] == ["a", "b", "c"]


@pytest.mark.parametrize("erases", [False, True])
def test_a_segment_with_gaps_that_is_deleted_as_it_is_read_is_no_damage(
    log: Log, monkeypatch: pytest.MonkeyPatch, erases: bool
) -> None:
    """Its seal is gone before it is asked whether offsets may be missing."""
    log.create_topic("t", **{**COMPACTED, "cleanup_policy": "compact,delete"})
    put(log, *"abababab", "c")
    assert step(log).records_dropped == 6
    put(log, *"abab")

    class DeletedOnceOpen(SegmentReader):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if self.base_offset == 0:
                log.delete_records(TopicPartition("t", 0), 8)

    with monkeypatch.context() as patched:
        patched.setattr(segment_batches, "SegmentReader", DeletedOnceOpen)
        if erases:
            assert log.erase("t", b"a").records == 2
        else:
            done = step(log)
            assert (done.error, done.kept) == ("", "its segments were changed meanwhile")
    assert log.maintain().problems == []


def test_a_segment_that_is_missing_is_an_error(log: Log, tmp_log_dir: Path) -> None:
    log.create_topic("t", **COMPACTED)
    put(log, *"abababab", "c")
    (tmp_log_dir / "t-0" / f"{2:020d}.log").unlink()
    assert "missing" in step(log).error


# pylog's own topics


def small_own_topics(log: Log) -> None:
    with Producer(log, transactional_id="first") as producer:
        producer.init_transactions()
    log.create_topic("t", if_not_exists=True)
    with Consumer(log, group_id="g0") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(0)
        consumer.commit({TopicPartition("t", 0): 0})
    for topic in ("__consumer_offsets", "__transaction_state"):
        log.alter_topic(topic, segment_bytes=1500, min_cleanable_dirty_ratio=0, delete_retention_ms=1000)


def test_own_topics_of_earlier_versions_are_compacted_from_now_on(log: Log) -> None:
    small_own_topics(log)
    config = log.describe_topic("__consumer_offsets").config
    assert config.cleanup_policy == "compact"
    log.alter_topic("__consumer_offsets", cleanup_policy="delete", segment_bytes=128 << 20)
    log.maintain(dry_run=True)
    assert log.describe_topic("__consumer_offsets").config.cleanup_policy == "delete"
    log.maintain()
    config = log.describe_topic("__consumer_offsets").config
    assert (config.cleanup_policy, config.segment_bytes) == ("compact", 4 << 20)
    log.alter_topic("__consumer_offsets", cleanup_policy="none")
    log.maintain()
    assert log.describe_topic("__consumer_offsets").config.cleanup_policy == "none"


def test_a_process_that_has_read_commits_does_not_miss_a_deletion_that_was_compacted(
    tmp_log_dir: Path, log: Log, clock: ManualClock
) -> None:
    small_own_topics(log)
    with Log(tmp_log_dir, clock=clock) as other:
        with Consumer(log, group_id="gone") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0)
            consumer.commit({TopicPartition("t", 0): 0})
        assert "gone" in other.groups()
        log.delete_group("gone")
        for _ in range(3):
            with Consumer(log, group_id="busy") as consumer:
                consumer.subscribe(["t"])
                consumer.poll(0)
                for _ in range(20):
                    consumer.commit({TopicPartition("t", 0): 0})
            step(log, topic="__consumer_offsets")  # what the committer has left
            clock.advance(2)
        partition = log.partition("__consumer_offsets", 0)
        assert partition.earliest_offset == 0
        assert sum(1 for _ in partition.scan()) < partition.latest_offset - 20
        assert "gone" not in {key for _, key in keys(log, "__consumer_offsets") if "gone" in key}
        assert sorted(other.groups()) == sorted(log.groups())
        assert "gone" not in other.groups()


def test_a_live_producer_keeps_its_name_if_its_successor_has_died_half_way(log: Log, tmp_log_dir: Path) -> None:
    """It had appended its own record, and not yet published that it is the owner."""
    small_own_topics(log)
    log.create_topic("data")
    table = log.partition("__transaction_state", 0).log
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("data", b"v").result()
        dead = Decision("x", log.manager.next_producer_id(), 0, 60_000, Status.EMPTY, frozenset(), 0, -1)
        log.manager.part(TransactionTable).append("x", [dead], bool)
        table.roll()
        assert step(log, topic="__transaction_state").kept == NAMED
        with Log(tmp_log_dir, clock=log.clock) as other:
            assert list(other.partition("data", 0).scan(isolation_level="read_committed")) == []
        producer.commit_transaction()
    with Log(tmp_log_dir, clock=log.clock) as other:
        assert len(list(other.partition("data", 0).scan(isolation_level="read_committed"))) == 1


@pytest.mark.slow
def test_a_commit_without_durable_markers_is_not_compacted_away(
    log: Log, tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its record its transaction would be aborted. A writer of its partition is stopped."""
    small_own_topics(log)
    log.create_topic("data")
    table = log.partition("__transaction_state", 0).log
    with monkeypatch.context() as patched:
        patched.setattr("pylog.producer.transactions.ProducerTransactions._write_markers", lambda self: None)
        with Producer(log, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in (b"1", b"2"):
                producer.send("data", value).result()
            producer.commit_transaction()
    held = OsFileSystem().lock(f"{tmp_log_dir}/data-0/.lock")
    assert held.try_acquire()
    with Producer(log, transactional_id="x") as successor:
        successor.init_transactions()
    table.roll()
    assert step(log, topic="__transaction_state").kept == UNMARKED
    assert "'x': its commit stays unfinished for now" in caplog.text
    held.close()
    step(log, topic="__transaction_state")
    with Log(tmp_log_dir, clock=log.clock) as other:
        found = other.partition("data", 0).scan(isolation_level="read_committed")
        assert [record.value for record in found] == [b"1", b"2"]


def test_who_had_an_id_like_kafka_s_is_not_compacted_away(log: Log) -> None:
    """A transaction of such an id without an owner would stay open for ever."""
    small_own_topics(log)
    for producer_id in (7, 8):
        kafkas = Decision("kafka", producer_id, 0, 60_000, Status.EMPTY, frozenset(), 0, -1)
        log.manager.part(TransactionTable).append("kafka", [kafkas], bool)
    log.partition("__transaction_state", 0).log.roll()
    assert step(log, topic="__transaction_state").kept == NAMED
    assert [log.manager.part(TransactionTable).transactional_id(id_) for id_ in (7, 8)] == ["kafka", "kafka"]


@pytest.mark.slow
def test_groups_and_transactions_go_on_over_compacted_topics(
    tmp_log_dir: Path, log: Log, clock: ManualClock, seed: int
) -> None:
    """Beside a model: committed records and offsets, by long-lived and by new processes."""
    random = Random(seed)
    small_own_topics(log)
    log.create_topic("data")
    offsets: dict[str, int] = {}
    expected: list[bytes] = []
    producers: dict[str, Producer] = {}
    other = Log(tmp_log_dir, clock=clock)
    dropped = 0

    def transaction(number: int) -> None:
        name = f"id{random.randrange(4)}"
        if name not in producers or random.random() < 0.2:
            old = producers.get(name)
            producers[name] = Producer(log, transactional_id=name)
            producers[name].init_transactions()
            if old is not None:
                old.close()
        producer = producers[name]
        producer.begin_transaction()
        values = [b"%d-%d" % (number, at) for at in range(2)]
        for value in values:
            producer.send("data", value).result()
        group = f"g{random.randrange(3)}"
        with Consumer(log, group_id=group) as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0)
            producer.send_offsets_to_transaction({TopicPartition("t", 0): number}, consumer.group_metadata())
            if random.random() < 0.3:
                producer.abort_transaction()
                return
            producer.commit_transaction()
        expected.extend(values)
        offsets[group] = number

    try:
        put(log, *"a" * 400, topic="t", value=b"")
        for number in range(120):
            transaction(number)
            if random.random() < 0.2:
                report = log.maintain()
                assert report.problems == []
                dropped += sum(done.records_dropped for done in report.partitions)
                clock.advance(random.choice([0, 0.5, 2]))
            if random.random() < 0.1:
                found = [record.value for record in other.partition("data", 0).scan(isolation_level="read_committed")]
                assert found == expected
        for reader in (log, other, Log(tmp_log_dir, clock=clock)):
            found = [record.value for record in reader.partition("data", 0).scan(isolation_level="read_committed")]
            assert found == expected
            for group, offset in offsets.items():
                committed = reader.describe_group(group).partitions[TopicPartition("t", 0)].committed
                assert committed is not None
                assert committed.offset == offset
        assert dropped > 100
        assert log.verify().ok
    finally:
        for producer in producers.values():
            producer.close()
        other.close()
