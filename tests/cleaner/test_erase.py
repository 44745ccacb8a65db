"""``Log.erase``: all partitions of a topic, and what follows it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Consumer, Log, Producer, ProducerRecord
from pylog.catalog import disposal
from pylog.catalog.layout import Layout
from pylog.cleaner import erasure
from pylog.errors import (
    ConfigError,
    CorruptRecord,
    InvalidTopicName,
    LogLocked,
    ReadOnlyLog,
    StorageError,
    TopicChanged,
    TopicNotFound,
)
from pylog.partition.compact.erasure import erase
from pylog.partition.partition_log import PartitionLog
from pylog.storage import FileSystem
from pylog.testing import ManualClock
from pylog.topic_changes.copying import TopicCopy
from tests.partition.logs import flip, log_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


def fill(log: Log, topic: str, **options: object) -> None:
    log.create_topic(topic, partitions=3, segment_bytes=1024, **options)
    with Producer(log) as producer:
        for number in range(100):
            producer.send(topic, b"value-%d-" % (number % 10), key=b"k%d" % (number % 10))
        for number in range(3):
            producer.send(topic, b"value-7-", key=b"k7", partition=number)


def bytes_in(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", "none"])
def test_the_records_go_from_every_partition(root: Path, policy: str) -> None:
    with Log(root) as log:
        fill(log, "t", cleanup_policy=policy)
        ends = [log.partition("t", number).latest_offset for number in range(3)]
        report = log.erase("t", b"k7")
        assert (report.records, report.tombstones) == (13, 3 if "compact" in policy else 0)
        assert [done.end_offset for done in report.partitions] == ends
        assert b"value-7-" not in bytes_in(root)
        found = [record for number in range(3) for record in log.partition("t", number).scan()]
        assert [record.value for record in found if record.key == b"k7"] == [None] * report.tombstones
        assert len(found) == 90 + report.tombstones
        assert log.verify().problems == []
        assert log.erase("t", [b"k7"], tombstones=True)[0][0].segments_read > 0


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_records_that_stay_are_no_younger_by_the_clock_of_appends(root: Path, policy: str) -> None:
    """Nor those that a compaction leaves: a file has the time of the last append to what it was
    made of."""
    clock = ManualClock()
    with Log(root, clock=clock) as log:
        log.create_topic(
            "t", segment_bytes=1024, cleanup_policy=policy, retention_ms=1000, retention_clock="append",
            min_cleanable_dirty_ratio=0.01,
        )  # fmt: skip
        partition = log.partition("t", 0)
        for number in range(12):
            partition.append([ProducerRecord(b"x" * 400, key=b"k%d" % (number % 3), timestamp_ms=1)], acks=1)
            appended_ns = clock.now_ms() * 1_000_000
            os.utime(partition.segments[-1].path, ns=(appended_ns, appended_ns))
            clock.advance(0.05)
        os.utime(partition.segments[0].path, ns=(2**62, 2**62))  # the clock was ahead
        before = {segment.end_offset: os.stat(segment.path).st_mtime_ns for segment in partition.segments}
        assert log.erase("t", b"k0", tombstones=False).records == 4
        assert log.maintain().deleted_segments == 0
        left = [segment for segment in partition.segments if segment.size_bytes]
        assert {segment.end_offset: os.stat(segment.path).st_mtime_ns for segment in left}.items() <= before.items()
        assert len(left) == (6 if policy == "delete" else 3)
        clock.advance(0.9)
        assert log.maintain().deleted_segments > 0
        assert partition.earliest_offset == 10
        assert log.verify().problems == []


def test_a_table_that_follows_learns_of_it(root: Path) -> None:
    with Log(root) as log:
        fill(log, "t", cleanup_policy="compact")
        with pylog.table(log, "t") as table, pylog.table(log, "t", values="positions") as positions:
            assert b"k7" in table
            assert b"k7" in positions
            log.erase("t", [b"k7", b"k8"])
            assert {*table} == {*positions} == {b"k%d" % number for number in range(7)} | {b"k9"}
        with pylog.table(log, "t") as table:
            assert b"k7" not in table


def test_groups_keep_their_positions(root: Path) -> None:
    with Log(root) as log:
        fill(log, "t")
        with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            read = [consumer.poll(1.0, max_records=10) for _ in range(3)]
            consumer.commit()
        before = log.describe_group("g").partitions
        log.erase("t", b"k7")
        assert log.describe_group("g").partitions == before
        with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            rest = []
            while records := consumer.poll(0.2):
                rest += records
        seen = {(r.partition, r.offset) for some in read for r in some}
        again = {(r.partition, r.offset) for r in rest}
        assert not seen & again
        assert {r.key for r in rest}.isdisjoint([b"k7"])
        assert len({(r.partition, r.offset) for some in read for r in some if r.key != b"k7"} | again) == 90


def test_a_repartition_meanwhile_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was in a later partition may be in one now that was done."""
    with Log(root) as log, Log(root) as other:
        fill(log, "t")

        def then_repartition(partition: PartitionLog, *args: Any, **kwargs: Any) -> object:
            done = erase(partition, *args, **kwargs)
            if partition.number == 0:
                other.repartition("t", 4)
            return done

        monkeypatch.setattr(erasure, "erase", then_repartition)
        with pytest.raises(TopicChanged, match="call again"):
            log.erase("t", b"k7")
        monkeypatch.undo()
        log.erase("t", b"k7")
        assert b"value-7-" not in bytes_in(root)


@pytest.mark.parametrize("remove", [lambda log: log.erase("t", b"k7"), lambda log: log.maintain()])
def test_the_copy_of_a_repartition_that_was_killed_goes(root: Path, remove: Callable[[Log], object]) -> None:
    with Log(root) as log:
        fill(log, "t")
        before = log.describe_topic("t")
        copy = TopicCopy(
            log.manager, before, before._replace(id=log.manager.writable_catalog().new_id(), partitions=2), bool
        )
        copy.copy()
        copy.sync()
        assert len([*root.glob("t-*-future")]) == 2
        remove(log)
        assert [*root.glob("t-*-future")] == []


@pytest.mark.parametrize("remove", [lambda log: log.erase("t", b"k7"), lambda log: log.maintain()])
def test_a_partition_whose_removal_was_killed_goes(root: Path, remove: Callable[[Log], object]) -> None:
    """Also without the topic, or the change of it, that removed it. What is not pylog's is kept,
    and read by nothing."""
    with Log(root) as log:
        fill(log, "t")
        for number in range(3):
            shutil.copytree(root / "t-0", root / f"gone-{number}.{number:032x}-delete")
        (root / f"gone-2.{2:032x}-delete" / "notes").write_text("a user's")
        remove(log)
        assert [*root.glob("*-delete")] == []
        assert [path.name for path in root.glob("gone-*/*")] == ["notes"]


@pytest.mark.slow
def test_an_erasure_waits_for_the_removal_of_what_was_left(root: Path) -> None:
    clock = ManualClock()
    with Log(root, clock=clock) as log:
        fill(log, "t")
        shutil.copytree(root / "t-0", root / f"gone-0.{0:032x}-delete")
        with closing(log.manager.filesystem.lock(log.manager.layout.catalog_lock)) as lock:
            assert lock.try_acquire()
            log.maintain()
            with pytest.raises(LogLocked):
                log.erase("t", b"k7")
        log.erase("t", b"k7")
        assert [*root.glob("*-delete")] == []


def test_a_removal_that_fails_keeps_nothing_else_waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an erasure of its own topic fails, after it has erased the rest: it may hold such
    records."""
    remove = disposal._remove_condemned

    def refuse(filesystem: FileSystem, layout: Layout, topic: str, number: int, condemned: str) -> None:
        if topic == "gone" or number == 7:
            raise StorageError(f"cannot list {condemned!r}: Permission denied", path=condemned)
        remove(filesystem, layout, topic, number, condemned)

    monkeypatch.setattr(disposal, "_remove_condemned", refuse)
    with Log(root) as log:
        fill(log, "t")
        kept, mine = (root / f"{name}.{0:032x}-delete" for name in ("gone-0", "t-7"))
        for left in (kept, root / f"gone-1.{1:032x}-delete", root / f"other-0.{0:032x}-delete"):
            shutil.copytree(root / "t-0", left)
        assert log.maintain().problems == []
        assert log.erase("t", b"k7").records > 0
        log.rename_topic("t", "u")
        assert log.topics() == ["u"]
        log.rename_topic("u", "t")
        assert sorted(path.name[:6] for path in root.glob("*-delete")) == ["gone-0", "gone-1"]
        kept.rename(mine)
        with pytest.raises(StorageError, match=r"cannot list .*t-7"):
            log.erase("t", b"k8")
        assert b"k8" not in {record.key for record in log.partition("t", 0).scan()}


def test_damage_in_one_partition_is_told_after_the_others(root: Path) -> None:
    with Log(root) as log:
        fill(log, "t")
        log.partition("t", 0).log.roll()
        flip(log_file(root / "t-0"), 100)
        with pytest.raises(CorruptRecord, match="t-0"):
            log.erase("t", b"k7")
        assert b"value-7-" not in bytes_in(root / "t-1") + bytes_in(root / "t-2")


def test_what_is_refused(root: Path) -> None:
    with Log(root) as log:
        log.create_topic("t")
        for keys in (None, "text", [None], ["text"], [], [b"k", None], 7):
            with pytest.raises(ConfigError):
                log.erase("t", keys)
        with pytest.raises(ConfigError):
            log.erase("t", b"k", tombstones=1)
        with pytest.raises(ConfigError):
            log.erase("t", b"k", timeout_ms=-1)
        with pytest.raises(TopicNotFound):
            log.erase("u", b"k")
        for topic in ("__consumer_offsets", "__transaction_state"):
            with pytest.raises(InvalidTopicName):
                log.erase(topic, b"k")
    with Log(root, read_only=True) as log, pytest.raises(ReadOnlyLog):
        log.erase("t", b"k")


def test_progress_is_all_that_was_read(root: Path) -> None:
    with Log(root) as log:
        fill(log, "t")
        size_bytes = sum(log.partition("t", number).size_bytes for number in range(3))
        done: list[int] = []
        log.erase("t", b"absent", progress=done.append)
        assert sum(done) == size_bytes
