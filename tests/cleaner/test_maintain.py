"""``Log.maintain`` and the roll of a writer: what they delete of a log on a disk, what they leave,
and what they say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.cleaner import facts
from pylog.cleaner.report import PartitionMaintenance
from pylog.errors import Closed, ConfigError, CorruptSegment, ReadOnlyLog, StorageError, TopicNotFound
from pylog.log import cleaner_of
from pylog.manager.manager import LogManager
from pylog.storage.os_filesystem import OsFileSystem
from pylog.testing import ManualClock
from tests.partition.logs import snapshot_of
from tests.storage.filesystems import Faulty, Killed, nothing

DAY_MS = 86_400_000
VALUE = b"x" * 900  # two fill a segment
SMALL: dict[str, Any] = {"segment_bytes": 2000}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def small(tmp_log_dir: Path, clock: ManualClock) -> Iterator[Log]:
    with Log(tmp_log_dir, clock=clock) as log:
        yield log


def fill(log: Log, topic: str, count: int = 10, at_ms: int | None = None) -> None:
    """Ten records make five segments. Files get the time of the log's clock, which the kernel does
    not know."""
    partition = log.partition(topic, 0)
    for _ in range(count):
        now_ms = log.clock.now_ms()
        partition.append([ProducerRecord(VALUE, timestamp_ms=now_ms if at_ms is None else at_ms)], acks=1)
        base = partition.segments[-1].path
        os.utime(base, ns=(now_ms * 1_000_000, now_ms * 1_000_000))


def only(log: Log, **options: Any) -> PartitionMaintenance:
    report = log.maintain(**options)
    (done,) = (done for done in report.partitions if done.step == "retention")
    return done


def offsets(log: Log, topic: str) -> tuple[int, int]:
    partition = log.partition(topic, 0)
    return partition.earliest_offset, partition.latest_offset


# By time and size of a partition


def test_a_topic_without_a_policy_keeps_everything(small: Log, clock: ManualClock) -> None:
    small.create_topic("t", **SMALL)
    fill(small, "t")
    clock.advance(10**9)
    report = small.maintain()
    assert (report.partitions, report.unlimited, report.problems) == ((), 1, [])
    assert offsets(small, "t") == (0, 10)


def test_by_time_a_segment_goes_when_its_newest_record_is_too_old(small: Log, clock: ManualClock) -> None:
    small.create_topic("t", retention_ms=1000, **SMALL)
    for _ in range(5):
        fill(small, "t", 2)
        clock.advance(0.5)
    assert only(small).kept == "not due"
    assert offsets(small, "t") == (6, 10)
    clock.advance(0.2)
    assert only(small, dry_run=True).deleted_segments == 1
    assert offsets(small, "t") == (6, 10)
    done = only(small)
    assert (done.log_start_offset, done.deleted_segments, done.rules, done.kept) == (8, 1, ("time",), "not due")
    assert offsets(small, "t") == (8, 10)
    assert len(list(small.partition("t", 0).scan())) == 2
    assert small.verify().ok


def test_a_quiet_partition_is_rolled_and_emptied(small: Log, clock: ManualClock) -> None:
    """As in Kafka: its active segment is closed first, and the offsets go on."""
    small.create_topic("t", retention_ms=1000, **SMALL)
    fill(small, "t", 3)
    clock.advance(2)
    assert only(small, dry_run=True).deleted_segments == 2
    assert (only(small).log_start_offset, offsets(small, "t")) == (3, (3, 3))
    assert [segment.size_bytes for segment in small.partition("t", 0).segments] == [0]
    assert only(small) == PartitionMaintenance("t", 0, "retention", 3, kept="nothing to delete")
    fill(small, "t", 1)
    assert offsets(small, "t") == (3, 4)
    assert small.verify().ok


def test_by_size_the_oldest_closed_segments_go(small: Log) -> None:
    small.create_topic("t", **SMALL)
    fill(small, "t")
    small.alter_topic("t", retention_bytes=4000)
    done = only(small)
    assert (done.deleted_segments, done.rules, offsets(small, "t")) == (2, ("size",), (4, 10))
    small.alter_topic("t", retention_bytes=0)
    assert (only(small).kept, offsets(small, "t")) == ("active segment", (8, 10))


@pytest.mark.parametrize("rule", ["retention_bytes", "retention_ms"])
def test_segments_that_others_delete_while_they_are_looked_at_are_no_problem(
    small: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """For example a writer, which applies the limits after each roll."""
    small.create_topic("t", **SMALL)
    fill(small, "t", 30)
    clock.advance(2 * DAY_MS / 1000)
    partition = small.partition("t", 0)
    deletions = iter([segment.base_offset for segment in partition.segments][1:8])

    def delete_first() -> None:
        if (before := next(deletions, None)) is not None:
            with Log(small.path, clock=clock) as other:
                other.delete_records(TopicPartition("t", 0), before)

    small.alter_topic("t", **{rule: 300 if rule == "retention_bytes" else DAY_MS})
    if rule == "retention_bytes":
        filesystem = small.manager.filesystem
        size = filesystem.size
        monkeypatch.setattr(filesystem, "size", lambda path: (path.endswith(".log") and delete_first(), size(path))[1])
    else:
        monkeypatch.setattr(facts, "_sealed_ms", lambda *_: delete_first())
    assert small.maintain().problems == []
    assert list(deletions) == []
    assert partition.earliest_offset == partition.latest_offset - (0 if rule == "retention_ms" else 2)


def test_a_roll_applies_the_limits_to_its_partition(small: Log, clock: ManualClock) -> None:
    small.create_topic("size", retention_bytes=4000, **SMALL)
    small.create_topic("time", retention_ms=100, **SMALL)
    fill(small, "size", 20)
    assert offsets(small, "size") == (14, 20)
    for _ in range(20):
        fill(small, "time", 1)
        clock.advance(0.06)
    assert offsets(small, "time") == (16, 20)


def test_records_of_long_ago_do_not_begin_a_segment_with_each_append(small: Log) -> None:
    small.create_topic("t", retention_ms=1000, **SMALL)
    fill(small, "t", 20, at_ms=1)
    assert offsets(small, "t") == (18, 20)  # the active segment has two


def test_a_roll_keeps_the_whole_log_within_its_bound(small: Log) -> None:
    for name in ("a", "b", "c"):
        small.create_topic(name, retention="consumed" if name == "c" else None, **SMALL)
        fill(small, name, 6)
        small.clock.sleep(1)
    before = sizes(Path(small.path))
    small.alter(max_bytes=before)
    fill(small, "b", 8)
    assert offsets(small, "a") == (4, 6)
    assert offsets(small, "b")[0] in (2, 4)
    assert offsets(small, "c") == (0, 6)
    assert sizes(Path(small.path)) < before + 2500


def test_a_producer_rolls_too(small: Log) -> None:
    small.create_topic("t", retention_bytes=4000, **SMALL)
    with Producer(small, linger_ms=0) as producer:
        for _ in range(20):
            producer.send("t", VALUE).result()
    assert offsets(small, "t")[0] == 14


def test_what_is_known_of_a_deleted_topic_is_forgotten(small: Log) -> None:
    facts = small.manager.part(cleaner_of)._facts
    for name in ("stays", "goes"):
        small.create_topic(name, retention_ms=1000, **SMALL)
        fill(small, name, 4)
    small.maintain()
    both = {TopicPartition("stays", 0), TopicPartition("goes", 0)}
    assert facts._closed.keys() == facts._newest.keys() == both
    small.delete_topic("goes")
    small.maintain(["stays"])  # which does not look at the others
    assert facts._closed.keys() == both
    small.maintain()
    assert facts._closed.keys() == facts._newest.keys() == {TopicPartition("stays", 0)}


# What an erasure or a compaction that died has left


def died(root: Path, step: tuple[str, str]) -> list[Path]:
    """The files that an erasure leaves which dies before this step."""

    def die(operation: str, path: str) -> None:
        if (operation, Path(path).name) == step:
            raise Killed

    filesystem = Faulty()
    with Log(root, filesystem=filesystem) as log:
        log.create_topic("t", segment_bytes=2000)
        for at in range(6):
            log.partition("t", 0).append([ProducerRecord(VALUE, key=b"%d" % (at % 2))], acks=1)
        filesystem.hook = die
        with pytest.raises(Killed):
            log.erase("t", b"1")
        filesystem.hook = nothing
    return left_in(root)


def left_in(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("t-0/*") if path.name.endswith((".cleaned", ".swap", ".deleted")))


STEPS = {
    "while it writes": ("sync", f"{0:020d}.log.cleaned"),
    "before the swap is decided": ("replace", f"{0:020d}.seal.swap"),
    "after the swap was decided": ("replace", f"{0:020d}.log"),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_maintenance_removes_what_an_erasure_that_died_has_left(tmp_log_dir: Path, step: tuple[str, str]) -> None:
    left = died(tmp_log_dir, step)
    assert left
    sizes = [path.stat().st_size for path in left]
    with Log(tmp_log_dir) as log:
        before = [(record.offset, record.key) for record in log.partition("t", 0).scan()]
        (would,) = log.maintain(dry_run=True).partitions
        assert left_in(tmp_log_dir) == left
        (done,) = log.maintain().partitions
        assert (done.step, done.rules, done.error) == ("leftovers", ("left by a crash",), "")
        if step != STEPS["after the swap was decided"]:
            assert would == done._replace(log_start_offset=0)
            assert done.deleted_bytes == sum(sizes)
        assert left_in(tmp_log_dir) == []
        assert log.maintain().partitions == ()
        assert [(record.offset, record.key) for record in log.partition("t", 0).scan()] == before
        assert log.verify().problems == []


def test_a_deletion_removes_what_an_erasure_that_died_has_left(tmp_log_dir: Path) -> None:
    assert died(tmp_log_dir, STEPS["before the swap is decided"])
    with Log(tmp_log_dir) as log:
        log.delete_records(TopicPartition("t", 0), 1)
        assert left_in(tmp_log_dir) == []
        assert len(list(log.partition("t", 0).scan())) == 5


def test_the_files_of_an_erasure_under_way_stay(tmp_log_dir: Path) -> None:
    """Another process maintains the log, and deletes records, before each change that the erasure
    makes."""
    filesystem = Faulty()
    with Log(tmp_log_dir, filesystem=filesystem) as log, Log(tmp_log_dir) as other:
        log.create_topic("t", segment_bytes=2000)
        for at in range(6):
            log.partition("t", 0).append([ProducerRecord(VALUE, key=b"%d" % (at % 2))], acks=1)
        met = 0

        def maintain(operation: str, path: str) -> None:
            nonlocal met
            if path.endswith(".cleaned"):
                met += 1
                filesystem.hook = nothing
                assert other.maintain(dry_run=True).partitions == other.maintain().partitions == ()
                other.delete_records(TopicPartition("t", 0), 1)
                filesystem.hook = maintain

        filesystem.hook = maintain
        assert log.erase("t", b"1").records == 3
        assert met > 10
        filesystem.hook = nothing
        assert left_in(tmp_log_dir) == []


# Clocks


def test_a_future_timestamp_keeps_a_segment_and_the_report_says_so(small: Log, clock: ManualClock) -> None:
    small.create_topic("t", retention_ms=1000, **SMALL)
    fill(small, "t", 1, at_ms=clock.now_ms() + DAY_MS)
    fill(small, "t", 3)
    clock.advance(100)
    done = only(small)
    assert (done.kept, offsets(small, "t")) == ("timestamp in the future", (0, 4))
    assert 'retention_clock="append"' in done.detail
    small.alter_topic("t", retention_clock="append")
    assert (only(small).rules, offsets(small, "t")) == (("time",), (4, 4))


def test_records_of_long_ago_stay_if_the_append_counts(small: Log) -> None:
    small.create_topic("t", retention_ms=1000, retention_clock="append", **SMALL)
    fill(small, "t", 4, at_ms=1)
    assert (only(small).kept, offsets(small, "t")) == ("not due", (0, 4))
    small.alter_topic("t", retention_clock="record")
    assert (only(small).rules, offsets(small, "t")) == (("time",), (4, 4))


def test_a_file_time_in_the_future_counts_as_the_next_ones(small: Log, clock: ManualClock) -> None:
    """A machine whose clock was ahead for a while appended it before the later segments."""
    small.create_topic("t", retention_ms=1000, retention_clock="append", **SMALL)
    fill(small, "t", 6)
    first = small.partition("t", 0).segments[0].path
    os.utime(first, ns=(2**62, 2**62))
    clock.advance(2)
    assert only(small).deleted_segments == 3


@pytest.mark.parametrize("damage", ["none", "gone", "damaged", "of another"])
def test_a_time_is_believed_from_a_seal_or_from_checked_batches(small: Log, clock: ManualClock, damage: str) -> None:
    small.create_topic("t", retention_ms=1000, **SMALL)
    fill(small, "t", 4)
    clock.advance(0.9)
    fill(small, "t", 2)
    clock.advance(0.9)
    seals = sorted(Path(small.path, "t-0").glob("*.seal"))
    for seal in seals:
        if damage == "gone":
            seal.unlink()
        elif damage == "damaged":
            seal.write_bytes(seal.read_bytes()[:-1] + b"\0")
        elif damage == "of another":
            seal.write_bytes(seals[-1].read_bytes())
    for index in Path(small.path, "t-0").glob("*.timeindex"):
        index.write_bytes(bytes(12))  # no index is believed
    assert only(small).deleted_segments == 2


def test_a_segment_that_does_not_tell_its_time_stays_and_the_others_are_maintained(
    small: Log, clock: ManualClock
) -> None:
    for name in ("a", "b"):
        small.create_topic(name, retention_ms=1000, **SMALL)
        fill(small, name, 4)
    path = Path(small.partition("a", 0).segments[0].path)
    path.with_suffix(".seal").unlink(missing_ok=True)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    clock.advance(2)
    report = small.maintain()
    first, second = report.partitions
    assert "00000000000000000000.log" in first.error
    assert (first.deleted_segments, second.deleted_segments) == (0, 2)
    assert "a-0: retention failed" in report.problems[0]
    assert offsets(small, "a") == (0, 4)


# What holds records


def test_an_open_transaction_holds_its_segment(small: Log, clock: ManualClock) -> None:
    small.create_topic("t", retention_ms=1000, **SMALL)
    fill(small, "t", 4)
    with Producer(small, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", VALUE)
        producer.flush()
        fill(small, "t", 3)
        clock.advance(30)
        done = only(small)
        assert (done.kept, offsets(small, "t")[0]) == ("open transaction", 4)
        assert done.detail == "it begins at offset 4"
        producer.commit_transaction()
    for segment in small.partition("t", 0).segments:  # the last has a marker alone: the file's time counts
        os.utime(segment.path, ns=(0, 0))
    clock.advance(30)
    assert offsets(small, "t") == (4, 9)
    assert (only(small).kept, offsets(small, "t")) == ("nothing to delete", (9, 9))


def test_doctor_tells_of_a_quiet_partition_that_is_overdue(small: Log, tmp_log_dir: Path, clock: ManualClock) -> None:
    """All of it is in the active segment, which is due by the time of its last append at the
    latest."""
    small.create_topic("t", retention_ms=1000, **SMALL)
    os.utime(tmp_log_dir / ".pylog" / "topics" / "t.json", (0, 0))  # the options are old
    fill(small, "t", 1)
    clock.advance(0.5 * DAY_MS / 1000)
    assert small.maintain(dry_run=True).problems == []
    clock.advance(3 * DAY_MS / 1000)
    (problem,) = small.maintain(dry_run=True).problems
    assert problem.startswith("t-0: retention has been due for 3 d (")
    small.maintain()
    assert small.maintain(dry_run=True).problems == []


def test_what_has_been_held_for_a_day_is_a_problem(small: Log, tmp_log_dir: Path, clock: ManualClock) -> None:
    small.create_topic("t", retention_ms=1000, **SMALL)
    with Producer(small, transactional_id="x", transaction_timeout_ms=20 * DAY_MS) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", VALUE, timestamp_ms=clock.now_ms())
        producer.flush()
        fill(small, "t", 4)
        clock.advance(3 * DAY_MS / 1000)
        assert only(small).held_ms == 0  # the options are of now: the clock of the files is the machine's
        os.utime(tmp_log_dir / ".pylog" / "topics" / "t.json", (0, 0))
        for dry_run in (True, False):
            report = small.maintain(dry_run=dry_run)
            assert [problem for problem in report.problems if problem.startswith("t-0")] == [
                "t-0: retention has been due for 2 d by time, but is held: open transaction (it begins at offset 0)"
            ]
            (done,) = (done for done in report.partitions if done.topic == "t")
            assert (done.held_rule, done.held_ms, done.rules, done.overdue_ms) == ("time", 3 * DAY_MS - 1000, (), 0)
        producer.commit_transaction()
    clock.advance(1)
    assert only(small).rules == ("time",)
    assert small.maintain(dry_run=True).problems == []


def test_internal_topics_have_no_retention(small: Log, clock: ManualClock) -> None:
    small.create_topic("t")
    fill(small, "t", 1)
    with Consumer(small, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        consumer.poll()
        consumer.commit()
    small.alter_topic("__consumer_offsets", retention_ms=0)
    clock.advance(10)
    assert [done.step for done in small.maintain().partitions] == ["compaction"]
    assert small.partition("__consumer_offsets", 0).earliest_offset == 0


@pytest.mark.parametrize("policy", ["none", "delete"])
def test_a_policy_of_none_keeps_everything_until_it_is_taken_away(small: Log, clock: ManualClock, policy: str) -> None:
    small.create_topic("t", retention_ms=0, cleanup_policy=policy, **SMALL)
    small.alter(max_bytes=1000)
    fill(small, "t")
    clock.advance(1)
    report = small.maintain()
    if policy == "none":
        assert (offsets(small, "t"), report.unlimited) == ((0, 10), 1)
        assert dict(report.log.kept).keys() == {"cleanup_policy=none"}
    else:
        assert offsets(small, "t") == (10, 10)


@pytest.mark.parametrize("max_bytes", [-1, 3000])
def test_a_damaged_topic_file_keeps_no_other_topic_waiting(
    small: Log, tmp_log_dir: Path, clock: ManualClock, max_bytes: int
) -> None:
    for topic in ("a", "b", "c"):
        small.create_topic(topic, retention_ms=1000, **SMALL)
        fill(small, topic)
    small.alter(max_bytes=max_bytes)
    path = tmp_log_dir / ".pylog" / "topics" / "b.json"
    path.write_bytes(path.read_bytes().replace(b'"config"', b'"konfig"'))
    with Log(tmp_log_dir, clock=clock) as log:
        fill(log, "c", 2)  # a roll keeps the bound, too
        clock.advance(2000)
        report = log.maintain()
        assert (offsets(log, "a"), offsets(log, "c")) == ((10, 10), (12, 12))
        assert report.failures == list(report.unreadable)
        assert [str(path) in error for error in report.unreadable] == [True]
        with pytest.raises(CorruptSegment):
            log.maintain(["b"])


def test_a_log_that_another_thread_closes_meanwhile_is_not_damaged(small: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    small.create_topic("t", retention_ms=1000)
    describe = LogManager.describe_topic

    def closes(manager: LogManager, name: str) -> object:
        small.close()
        return describe(manager, name)

    monkeypatch.setattr(LogManager, "describe_topic", closes)
    with pytest.raises(Closed):
        small.maintain()


# The bound of the whole log


def sizes(root: Path) -> int:
    return sum(path.stat().st_size for directory in root.glob("*-[0-9]*") for path in directory.iterdir())


@pytest.mark.slow
def test_the_whole_log_keeps_within_its_bound_with_100_topics(tmp_log_dir: Path, clock: ManualClock, seed: int) -> None:
    with Log(tmp_log_dir, clock=clock, **SMALL) as log:
        for number in range(100):
            log.create_topic(f"t{number}", cleanup_policy="none" if number == 7 else "delete")
            fill(log, f"t{number}", 2 + number * (1 + seed % 10) % 11)
            clock.advance(1)
        before = sizes(tmp_log_dir)
        assert log.maintain().log.max_bytes == -1
        log.alter(max_bytes=before)
        assert log.maintain().deleted_segments == 0
        limit = before * 2 // 3
        log.alter(max_bytes=limit)
        dry = log.maintain(dry_run=True)
        report = log.maintain()
        assert {d[:6] for d in dry.partitions} == {d[:6] for d in report.partitions}
        assert report.log.excess_bytes == 0
        assert limit - 4000 < sizes(tmp_log_dir) <= limit
        assert offsets(log, "t7")[0] == 0
        oldest = [d.topic for d in report.partitions]
        assert oldest == sorted(oldest)
        untouched = [
            n
            for n in range(100)
            if n != 7 and offsets(log, f"t{n}")[0] == 0 and len(log.partition(f"t{n}", 0).segments) > 1
        ]
        touched = [n for n in range(100) if offsets(log, f"t{n}")[0]]
        assert max(touched) <= min(untouched, default=100)  # the oldest went first
        log.alter(max_bytes=10)
        report = log.maintain()
        assert sum(size for _, size in report.log.kept) == report.log.size_bytes
        assert 0 <= report.log.size_bytes - sizes(tmp_log_dir) < 3000  # snapshots went, too
        assert report.log.excess_bytes == report.log.size_bytes - 10
        assert "nothing more can go (active segment: " in report.problems[0]
        assert log.verify().ok


def test_the_bound_is_recorded_for_every_process(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        assert log.settings().max_bytes == -1
        assert log.alter(max_bytes=5) == other.settings()
        for wrong in (-2, 1.5, True, "5", 2**63):
            with pytest.raises(ConfigError, match="max_bytes"):
                log.alter(max_bytes=wrong)
        assert other.settings().max_bytes == 5
    with Log(tmp_log_dir, read_only=True) as log:
        assert log.settings().max_bytes == 5
        with pytest.raises(ReadOnlyLog):
            log.alter(max_bytes=6)


# Asking only


def test_a_dry_run_changes_nothing_and_needs_no_permission(tmp_log_dir: Path, clock: ManualClock) -> None:
    with Log(tmp_log_dir, clock=clock) as log:
        log.create_topic("t", retention_ms=1000, **SMALL)
        fill(log, "t")
    before = snapshot_of(tmp_log_dir)
    clock.advance(DAY_MS / 1000 * 3)
    with Log(tmp_log_dir, read_only=True, clock=clock) as log:
        assert only(log, dry_run=True).deleted_segments == 5
        with pytest.raises(ReadOnlyLog):
            log.maintain()
    assert snapshot_of(tmp_log_dir) == before


def test_a_dry_run_of_a_reader_that_may_not_ask_for_locks_finds_no_problem(
    small: Log, tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lock files are for writers: a reader cannot tell what a dead erasure has left."""
    small.create_topic("t", **SMALL)
    fill(small, "t")
    small.erase("t", b"k")

    def refuse(_: OsFileSystem, path: str) -> bool:
        raise StorageError(f"cannot open the lock file {path!r}: Permission denied", path=path)

    monkeypatch.setattr(OsFileSystem, "is_locked", refuse)
    for left in ((), (f"{0:020}.log.cleaned",)):
        for name in left:
            (tmp_log_dir / "t-0" / name).touch()
        assert small.maintain(dry_run=True).problems == []
    assert len(small.maintain().problems) == 1


def test_partitions_where_nothing_can_be_left_are_not_opened(small: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    small.create_topic("plain", partitions=3)
    small.create_topic("erased", partitions=3)
    small.erase("erased", b"k")
    opened = []
    real = LogManager.partition
    monkeypatch.setattr(LogManager, "partition", lambda *place: opened.append(place[1:]) or real(*place))
    small.maintain()
    assert opened == [("erased", number) for number in range(3)]


def test_only_the_named_topics_are_maintained(small: Log, clock: ManualClock) -> None:
    for name in ("a", "b"):
        small.create_topic(name, retention_ms=1000, **SMALL)
        fill(small, name)
    clock.advance(2)
    assert [done.topic for done in small.maintain(["b"]).partitions] == ["b"]
    assert (offsets(small, "a"), offsets(small, "b")) == ((0, 10), (10, 10))
    with pytest.raises(TopicNotFound):
        small.maintain(["c"])


def test_what_a_crash_left_of_a_deletion_is_removed(small: Log) -> None:
    small.create_topic("t", retention_bytes=10**9, **SMALL)
    fill(small, "t")
    first = Path(small.partition("t", 0).segments[0].path)
    content = first.read_bytes()
    small.delete_records(TopicPartition("t", 0), 4)
    first.write_bytes(content)
    small.close()
    with Log(small.path) as log:
        assert only(log).rules == ("deleted before",)
    assert not first.exists()
