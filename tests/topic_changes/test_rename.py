"""A topic gets another name: its records, its id and its groups' positions stay, whatever happens
in between."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.catalog import Catalog
from pylog.catalog.changes import TopicChange
from pylog.errors import (
    CommitFailed,
    DeliveryTimeout,
    InvalidTopicName,
    LogLocked,
    NotAppended,
    OutcomeUnknown,
    ReadOnlyLog,
    StorageFull,
    TopicChanged,
    TopicExists,
    TopicNotFound,
)
from pylog.manager.changes import changes_of
from pylog.manager.manager import LogManager
from pylog.partition.partition_log import PartitionLog
from pylog.segment.naming import LOCK
from pylog.testing.machine import Machine
from pylog.testing.machine.every_step import for_every_kill, for_every_power_loss
from pylog.transaction.outcomes import Outcomes
from tests.partition.logs import values_of_topic
from tests.system import fail

COMMITTED = {0: 2, 1: 1}


def fill(log: Log, topic: str = "old") -> None:
    """Three records in each of two partitions, of which group ``g`` has committed some."""
    log.create_topic(topic, partitions=2)
    for number in range(2):
        log.partition(topic, number).append([ProducerRecord(b"%d %d" % (number, n)) for n in range(3)], acks="all")
    with Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        consumer.poll(1)
        consumer.commit({TopicPartition(topic, number): offset for number, offset in COMMITTED.items()})


def committed(log: Log, topic: str, group: str = "g") -> dict[int, int]:
    progress = log.describe_group(group).partitions.items()
    return {name.partition: at.committed.offset for name, at in progress if name.topic == topic and at.committed}


@contextmanager
def taken(log: Log, partition: str) -> Iterator[None]:
    """The lock of a partition is held, as by a process that is stopped."""
    lock = log.manager.filesystem.lock(f"{log.path}/{partition}/{LOCK}")
    assert lock.try_acquire()
    yield
    lock.release()
    lock.close()


ALL = [b"%d %d" % (number, n) for number in range(2) for n in range(3)]


def test_records_id_and_positions_stay_and_both_names_can_be_used(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        before = log.describe_topic("old")
        assert log.rename_topic("old", "new") == before._replace(name="new") == log.describe_topic("new")
        assert log.topics() == ["__consumer_offsets", "new"]
        assert (values_of_topic(log, "new"), committed(log, "new"), committed(log, "old")) == (ALL, COMMITTED, {})
        with Consumer(log, group_id="g") as consumer:
            consumer.subscribe(["new"])
            assert sorted(record.value for record in consumer.poll(1)) == [b"0 2", b"1 1", b"1 2"]
        log.create_topic("old", partitions=3)
        assert (values_of_topic(log, "old"), committed(log, "old")) == ([], {})
        log.partition("new", 0).append([ProducerRecord(b"x")])
        assert not log.verify().problems
    with Log(tmp_log_dir) as log:
        assert values_of_topic(log, "new") == [*ALL[:3], b"x", *ALL[3:]]


def test_handles_of_another_process_get_a_typed_error_or_follow(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, linger_ms=60_000) as producer:
        fill(log)
        partition = other.partition("old", 0)
        partition.append([ProducerRecord(b"last")], acks="all")
        kept = producer.send("old", b"buffered", partition=0)
        member = Consumer(other, group_id="g")
        member.subscribe(["old"])
        by_name = Consumer(other, group_id="all", auto_offset_reset="earliest")
        by_name.subscribe(re.compile("old|new"))
        by_name.poll(0)
        log.rename_topic("old", "new")
        with pytest.raises(TopicNotFound):
            partition.append([ProducerRecord(b"late")])
        assert isinstance(kept.exception(), NotAppended)
        other.clock.sleep(0.02)
        with pytest.raises(TopicNotFound):
            producer.send("old", b"late")
        assert [record.value for record in partition.scan()] == [*ALL[:3], b"last"]
        assert member.poll(0) == []
        assert member.assignment() == set()
        member.close()
        seen: list[bytes | None] = []
        while len(seen) < 7:
            seen += [record.value for record in by_name.poll(1)]
        assert by_name.assignment() == {TopicPartition("new", 0), TopicPartition("new", 1)}
        by_name.close()
        other.create_topic("old")
        with pytest.raises(TopicNotFound):
            partition.append([ProducerRecord(b"late")])
        assert values_of_topic(log, "old") == []
        assert committed(log, "new") == COMMITTED


@pytest.mark.parametrize("has_rolled", [True, False])
def test_an_append_that_a_rename_meets_before_its_sync_has_an_unknown_outcome(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, *, has_rolled: bool
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("old", segment_bytes=1 << 20)
        partition = other.partition("old", 0)
        sync = partition.log.sync

        def rename_first(end_offset: int) -> None:
            log.rename_topic("old", "new")
            sync(end_offset)

        if has_rolled:
            partition.append([ProducerRecord(b"before")], acks="all")
            partition.log.roll()
        monkeypatch.setattr(partition.log, "sync", rename_first)
        with pytest.raises(OutcomeUnknown, match=r"the topic was renamed \(the records are in it then\) or deleted"):
            partition.append([ProducerRecord(b"last")], acks="all")
        assert values_of_topic(log, "new")[-1] == b"last"
        assert not log.verify().problems


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_producer_continues_under_the_new_name(tmp_log_dir: Path, transactional_id: str | None) -> None:
    with Log(tmp_log_dir) as log, Producer(log, transactional_id=transactional_id) as producer:
        log.create_topic("old")
        if transactional_id is not None:
            producer.init_transactions()
        for before, after in [("old", "new"), ("new", "third"), ("third", "old"), ("old", "new")]:
            with producer.transaction() if transactional_id else nullcontext():
                producer.send(before, before.encode())
            producer.flush()
            log.rename_topic(before, after)
        with producer.transaction() if transactional_id else nullcontext():
            producer.send("new", b"end")
        producer.flush()
        assert values_of_topic(log, "new") == [b"old", b"new", b"third", b"old", b"end"]


def test_a_start_without_a_commit_moves_too(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        fill(log)
        with Consumer(other, group_id="late", auto_offset_reset="latest") as consumer:
            consumer.subscribe(["old"])
            consumer.poll(0)
            log.rename_topic("old", "new")
        assert committed(log, "new", "late") == {0: 3, 1: 3}


@pytest.mark.slow
def test_a_start_moves_in_a_log_without_any_commit(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("old")
        log.partition("old", 0).append([ProducerRecord(b"before")])
        with Consumer(other, group_id="late", auto_offset_reset="latest") as consumer:
            consumer.subscribe(["old"])
            consumer.poll(0)
            log.partition("old", 0).append([ProducerRecord(b"after")])
            assert log.topics() == ["old"]
            log.rename_topic("old", "new")
            consumer.subscribe(["new"])
            assert [record.value for _ in range(3) for record in consumer.poll(0.3)] == [b"after"]


@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("by_member", [False, True])
def test_a_transaction_with_offsets_of_the_topic_is_refused_and_its_work_is_done_again(
    tmp_log_dir: Path, by_member: bool, appended: bool
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, transactional_id="t") as producer:
        fill(log)
        log.create_topic("out")
        producer.init_transactions()
        with Consumer(other, group_id="g", enable_auto_commit=False) as consumer:
            consumer.subscribe(["old"])
            records = consumer.poll(1)
            producer.begin_transaction()
            for record in records:
                producer.send("out", record.value)
            member = consumer.group_metadata()
            if not by_member:
                consumer.close()
            producer.send_offsets_to_transaction({TopicPartition("old", 0): 3}, member if by_member else "g")
            producer.flush()
            if appended:
                transactions = producer._transactions
                assert transactions is not None
                assert transactions._owner is not None
                transactions._append_offsets(transactions._owner)
            log.rename_topic("old", "new")
            with pytest.raises(CommitFailed, match="another name"):
                producer.commit_transaction()
            producer.abort_transaction()
        assert committed(log, "new") == COMMITTED
        with Consumer(log, isolation_level="read_committed", auto_offset_reset="earliest") as reader:
            reader.assign([TopicPartition("out", 0)])
            assert reader.poll(0.1) == []


def test_an_open_transaction_in_the_topic_delays_it(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.topic_changes.switch._TIMEOUT_S", 0.05)
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other, Producer(other, transactional_id="t") as producer:
        fill(log)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("old", b"x", partition=0)
        producer.flush()
        with pytest.raises(LogLocked, match="a transaction is open in old-0 from offset 3 on"):
            log.rename_topic("old", "new")
        assert log.topics() == ["__consumer_offsets", "__transaction_state", "old"]
        producer.commit_transaction()
        log.rename_topic("old", "new")
        assert len(values_of_topic(log, "new")) == 7


def test_a_stopped_writer_delays_it(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.topic_changes.switch._LOCK_TIMEOUT_S", 0.01)
    with Log(tmp_log_dir) as log:
        fill(log)
        with taken(log, "old-0"), pytest.raises(LogLocked, match="old-0 stayed locked"):
            log.rename_topic("old", "new")
        log.rename_topic("old", "new")


def test_a_topic_that_is_renamed_while_a_log_is_checked_is_no_damage(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        fill(log)
        names, calls = Catalog.names, count()

        def renamed_meanwhile(catalog: Catalog) -> list[str]:
            if next(calls) != 1:
                return names(catalog)
            monkeypatch.undo()  # after the directories were listed
            other.rename_topic("old", "new")
            found = names(catalog)
            other.rename_topic("new", "old")
            return found

        monkeypatch.setattr(Catalog, "names", renamed_meanwhile)
        assert not log.verify().problems
        assert next(calls) > 1


@pytest.mark.parametrize("call", ["rename", "repartition"])
def test_a_topic_that_is_created_again_with_fewer_partitions_meanwhile_has_changed(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        log.create_topic("old", partitions=2)
        find = LogManager.partition

        def created_again_meanwhile(manager: LogManager, topic: str, number: int) -> PartitionLog:
            monkeypatch.undo()
            other.delete_topic("old")
            other.create_topic("old", partitions=1)
            return find(manager, topic, 1)

        monkeypatch.setattr(LogManager, "partition", created_again_meanwhile)
        with pytest.raises(TopicChanged, match="call again"):
            log.rename_topic("old", "new") if call == "rename" else log.repartition("old", 3)


def test_a_busy_writer_of_a_partition_with_a_transaction_of_a_dead_owner_delays_it(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise DeliveryTimeout("old-0 stayed locked")

    with Log(tmp_log_dir) as log:
        fill(log)
        with monkeypatch.context() as patch:
            patch.setattr(Outcomes, "settle", busy)
            with pytest.raises(LogLocked, match="old-0 stayed locked"):
                log.rename_topic("old", "new")
        log.rename_topic("old", "new")


def test_commits_that_a_stopped_writer_delays_are_written_by_the_next_change(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.group.offsets.LOCK_TIMEOUT_MS", 10)
    with Log(tmp_log_dir) as log:
        fill(log)
        with taken(log, "__consumer_offsets-0"):
            with pytest.raises(LogLocked, match="__consumer_offsets-0 stayed locked"):
                log.rename_topic("old", "new")
            with pytest.raises(TopicChanged):
                log.describe_topic("old")
            assert not log.verify().problems
        log.create_topic("old")
        assert committed(log, "new") == COMMITTED


def test_what_is_refused_changes_nothing(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        log.create_topic("other")
        for new in ("old", "other", "OTHER", "Old"):
            with pytest.raises(TopicExists):
                log.rename_topic("old", new)
        for new in ("__transaction_state", "-x", "a/b", ""):
            with pytest.raises(InvalidTopicName):
                log.rename_topic("old", new)
        with pytest.raises(InvalidTopicName):
            log.rename_topic("__consumer_offsets", "new")
        with pytest.raises(TopicNotFound):
            log.rename_topic("missing", "new")
        assert (values_of_topic(log, "old"), committed(log, "old")) == (ALL, COMMITTED)
    with Log(tmp_log_dir, read_only=True) as log, pytest.raises(ReadOnlyLog):
        log.rename_topic("old", "new")


def test_directories_of_no_topic_at_the_new_name_are_moved_aside(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        (tmp_log_dir / "new-1").mkdir()
        (tmp_log_dir / "new-1" / "mine").write_text("kept")
        log.rename_topic("old", "new")
        assert values_of_topic(log, "new") == ALL
        assert [path.read_text() for path in tmp_log_dir.glob("new-1.*-stray/mine")] == ["kept"]


@pytest.mark.parametrize(
    "for_every",
    [
        pytest.param(for_every_kill, id="kill"),
        pytest.param(partial(for_every_power_loss, at_most=6), id="power", marks=pytest.mark.slow),
    ],
)
@pytest.mark.one_in(4)
def test_a_kill_or_a_power_loss_at_any_step_leaves_the_old_or_the_new_name(
    for_every: Callable[..., int], seed: int
) -> None:
    machine = Machine(seed)
    process = machine.process()
    log = process.open_log("/log")
    fill(log)
    has_returned: list[bool] = []

    def rename() -> None:
        log.rename_topic("old", "new")
        has_returned.append(True)

    found = []

    def check(machine: Machine) -> None:
        with machine.process().open_log("/log") as after:
            names = [name for name in after.topics() if name != "__consumer_offsets"]
            assert names in (["old"], ["new"])
            found.append(names[0])
            assert values_of_topic(after, names[0]) == ALL
            assert committed(after, names[0]) == COMMITTED
            assert names == ["new"] or not has_returned
            after.partition(names[0], 1).append([ProducerRecord(b"x")])
            if names == ["old"]:
                after.rename_topic("old", "new")
            after.create_topic("old")
            assert values_of_topic(after, "new") == [*ALL, b"x"]
            assert not after.verify().problems

    assert for_every(machine, rename, check) > 20
    assert set(found) == {"old", "new"}


def test_a_process_that_creates_a_topic_completes_what_a_killed_one_has_left(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        fill(log)
        other.describe_topic("old")
        before = log.describe_topic("old")
        change = TopicChange(before, before._replace(name="new"), False, [])
        log.manager.writable_catalog().locked(lambda: changes_of(log.manager, 1).decide(change))
        with pytest.raises(TopicChanged) as caught:
            other.describe_topic("old")
        assert caught.value.retriable
        other.create_topic("old")
        assert (values_of_topic(other, "new"), values_of_topic(other, "old")) == (ALL, [])


def test_maintenance_completes_what_a_full_disk_has_stopped(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        write_commits = log.manager.write_commits
        monkeypatch.setattr(log.manager, "write_commits", lambda *_: fail(StorageFull("no space", path="x")))
        with pytest.raises(StorageFull):
            log.rename_topic("old", "new")
        log.maintain()
        with pytest.raises(TopicChanged):
            log.describe_topic("old")
        monkeypatch.setattr(log.manager, "write_commits", write_commits)
        log.maintain(dry_run=True)
        with pytest.raises(TopicChanged):
            log.describe_topic("old")
        log.maintain()
        assert (values_of_topic(log, "new"), committed(log, "new")) == (ALL, COMMITTED)


def test_a_reader_of_a_renamed_topic_does_not_take_it_for_damaged(tmp_log_dir: Path) -> None:
    """It has looked at the commit slots before, and at no segment."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        fill(log)
        partition = other.partition("old", 0)
        assert partition.latest_offset > 0
        log.rename_topic("old", "new")
        for look in (lambda: partition.read(0), lambda: partition.segments):
            with pytest.raises(TopicNotFound, match="'old' is gone"):
                look()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b'{"name": "../x", "after": {}, "is_copy": false, "commits": []}',
        b'{"name": "new", "after": {"id": "../x", "partitions": 1, "config": {}}, "is_copy": true, "commits": []}',
        b'{"name": "new", "after": {"id": "x", "partitions": 1, "config": {}}, "is_copy": 1, "commits": []}',
        b'{"name": "new", "after": {"id": "x", "partitions": 1, "config": {}}, "is_copy": true, "commits": [["a"]]}',
        b'{"name": "new", "after": {"id": "x", "partitions": 1, "config": {}}, "is_copy": true, "commits": {}}',
        None,
    ],
)
def test_a_change_whose_draft_is_damaged_is_left_as_it_is(
    tmp_log_dir: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
    topics = tmp_log_dir / ".pylog/topics"
    (topics / "old.json").rename(topics / "old.moved")
    if damage is not None:
        (topics / "old.next").write_bytes(damage)
    with Log(tmp_log_dir) as log:
        with pytest.raises(TopicChanged):
            log.describe_topic("old")
        with pytest.raises(
            LogLocked, match=r"cannot be completed.* remove .*old\.next, and rename .*old\.moved to .*old\.json"
        ):
            log.rename_topic("__other", "new")
        log.create_topic("unconcerned")
        (tmp_log_dir / "new-1").mkdir()
        for concerned in ("old", "OLD", "new"):
            with pytest.raises(TopicChanged):
                log.create_topic(concerned, partitions=2)
    assert "is left as it is" in caplog.text
    assert (tmp_log_dir / "old-0").is_dir()
    (topics / "old.next").unlink(missing_ok=True)
    (topics / "old.moved").rename(topics / "old.json")
    with Log(tmp_log_dir) as log:
        assert values_of_topic(log, "old") == ALL


def test_a_topic_that_has_the_old_name_again_keeps_its_directories(
    tmp_log_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier version, which knows no changes, has created it; or a copy was restored over the
    log."""
    with Log(tmp_log_dir) as log:
        fill(log)
        before = log.describe_topic("old")
        change = TopicChange(before, before._replace(name="new"), False, [])
        log.manager.writable_catalog().locked(lambda: changes_of(log.manager, 1).decide(change))
    topics = tmp_log_dir / ".pylog/topics"
    (topics / "old.json").write_bytes((topics / "old.moved").read_bytes().replace(before.id.encode(), b"another"))
    with Log(tmp_log_dir) as log:
        assert log.topics() == ["__consumer_offsets", "old"]
    assert "there is a topic 'old' again" in caplog.text
    assert (tmp_log_dir / "old-0").is_dir()


def test_a_partition_whose_directory_a_killed_change_has_moved_is_of_a_topic_that_changes(tmp_log_dir: Path) -> None:
    """It is not deleted: the next call finds the topic, once the change is completed."""
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        fill(log)
        partition, before = other.partition("old", 0), log.describe_topic("old")
        change = TopicChange(before, before._replace(name="new"), False, [])
        log.manager.writable_catalog().locked(lambda: changes_of(log.manager, 1).decide(change))
        (tmp_log_dir / "old-0").rename(tmp_log_dir / "new-0")
        with pytest.raises(TopicChanged) as caught:
            partition.log.roll()
        assert caught.value.retriable
        other.create_topic("old")
        assert (values_of_topic(other, "new"), values_of_topic(other, "old")) == (ALL, [])
