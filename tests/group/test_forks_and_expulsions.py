"""What comes seldom in a group: a fork, an exit, an expulsion between two looks, refusals, and
bytes that nobody writes."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.consumer import group_assignment
from pylog.errors import (
    ConfigError,
    CorruptRecord,
    CorruptSegment,
    ForkedHandle,
    LogLocked,
    LogNotFound,
    OffsetOutOfRange,
    ReadOnlyLog,
    StorageError,
)
from pylog.group import lock as group_lock
from pylog.group import offsets as offsets_module
from pylog.group import offsets_checkpoint
from pylog.group.admin import GroupAdmin
from pylog.group.directory import GroupDirectory
from pylog.group.lock import GroupGrant, GroupLock
from pylog.group.offset_records import Committed, decode_key, decode_value, encode_value
from pylog.group.offsets import OffsetStore
from pylog.group.offsets_checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from pylog.group.state import Group, Member
from pylog.group.state_file import StateFile
from pylog.storage import OsFileSystem, fork
from pylog.transaction.offsets import TransactionOffsets
from tests.group.consumers import checkpoint, lock_of, membership_of

T0 = TopicPartition("t", 0)
FS = OsFileSystem()


@pytest.fixture
def log(tmpfs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(fork, "_methods", {})  # of this log alone: see ``as_in_a_child``
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=2)
        yield opened


def as_in_a_child() -> None:
    """What is done in a forked child is done here, where its lines are counted."""
    fork._run()


def member(log: Log, **options: Any) -> Consumer:
    consumer = Consumer(log, group_id="g", **{"auto_offset_reset": "earliest", **options})
    consumer.subscribe("t")
    return consumer


def send(log: Log, *values: bytes) -> None:
    with Producer(log, acks=1) as producer:
        for value in values:
            producer.send("t", value, partition=0)


# Members


def test_a_child_goes_on_as_another_member(log: Log) -> None:
    send(log, b"1")
    consumer = member(log)
    assert len(consumer.poll()) == 1
    consumer.commit()
    before = consumer.group_metadata().member_id
    as_in_a_child()
    assert consumer.group_metadata().generation == -1
    send(log, b"2")
    assert [record.value for record in consumer.poll()] == [b"2"]
    assert consumer.group_metadata().member_id not in ("", before)
    assert log.lag("g")[T0] == 1
    consumer.close()


def test_the_exit_of_the_interpreter_is_told_at_once_and_commits_nothing(log: Log) -> None:
    send(log, b"1")
    consumer = member(log, enable_auto_commit=True)
    consumer.poll()
    group_assignment._leave_all()
    assert log.groups() == []
    group_assignment._leave_all()


def test_a_subscription_may_change_while_it_is_a_member(log: Log) -> None:
    log.create_topic("u")
    consumer = member(log)
    generation = consumer.group_metadata().generation
    consumer.subscribe(["t", "u"])
    assert consumer.assignment() == {T0, TopicPartition("t", 1), TopicPartition("u", 0)}
    assert consumer.group_metadata().generation == generation + 1
    consumer.subscribe("u")
    assert consumer.assignment() == {TopicPartition("u", 0)}
    consumer.close()


def test_a_consumer_assigned_by_hand_waits_as_any_other(log: Log) -> None:
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert consumer.poll(0.01) == []
        send(log, b"1")
        assert len(consumer.poll(1.0)) == 1
        consumer.commit_async()
    assert log.lag("g") == {T0: 0}


def test_who_is_expelled_between_two_looks_takes_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with member(log) as consumer:
        other = member(log)
        for _ in range(4):
            consumer.poll()
            other.poll()
        assert len(other.assignment()) == 1
        monkeypatch.setattr(membership_of(other), "reconcile", lambda _released, _timeout_s: Group())
        consumer.close()
        assert other.poll() == []
        assert len(other.assignment()) == 1
        monkeypatch.undo()
        other.poll()
        assert len(other.assignment()) == 2
        other.close()


def test_a_consumer_in_no_group_commits_nowhere(log: Log) -> None:
    with Consumer(log) as consumer:
        consumer.assign([T0])
        with pytest.raises(ConfigError, match="in no group"):
            consumer.commit()


def test_a_group_whose_members_are_dead_is_reset(log: Log) -> None:
    send(log, b"1")
    consumer = member(log)
    lock_of(consumer).close()  # as with the end of its process
    assert log.reset_offsets("g", ["t"], to="latest")[T0].after == 1
    assert log.describe_group("g").members == ()
    membership_of(consumer).id = ""
    consumer.close()


@pytest.mark.parametrize("name", ["\ud800", "", "x" * 300, 7, None])
def test_what_can_be_no_name_of_a_group_is_refused(log: Log, name: Any) -> None:
    with pytest.raises(ConfigError, match="group"):
        log.lag(name)


# Commits


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 4_000, 20_000])
def test_metadata_of_any_length_comes_back(size: int) -> None:
    committed = Committed(7, 3, "m" * size, 9, "")
    assert decode_value(encode_value(committed)) == committed


def test_a_topic_without_an_id_of_kafkas_is_committed_without_one() -> None:
    for id_ in ("no id", "é", "AAAA"):
        assert decode_value(encode_value(Committed(7, 3, "", 9, id_))).topic_id == ""


def test_a_length_without_end_is_damage() -> None:
    with pytest.raises(CorruptRecord, match="more than 5 bytes"):
        decode_value(bytes.fromhex("0004 0000000000000007 00000005") + b"\xff" * 9)
    assert decode_key(b"\0\2") is None


def test_commits_that_are_removed_of_a_group_that_has_none_are_nothing(log: Log) -> None:
    store = log.manager.part(GroupAdmin).offsets
    assert store.all_commits("g") is None  # there is no log of commits yet
    store.append("g", {T0: None}, None)
    assert store.groups() == set()


def test_commits_are_read_on_in_the_midst_of_a_batch(log: Log) -> None:
    store = log.manager.part(GroupAdmin).offsets
    store.append("g", {T0: Committed(1, -1, "", 9, ""), TopicPartition("t", 1): Committed(2, -1, "", 9, "")}, None)
    partition = log.partition("__consumer_offsets", 0)
    partition.log.roll()
    partition.log.delete_before(1)
    with Log(log.path) as other:
        assert other.manager.part(GroupAdmin).offsets.committed("g") == {
            TopicPartition("t", 1): Committed(2, -1, "", 9, "")
        }


def test_a_checkpoint_that_another_process_writes_is_left_to_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 1)
    store = log.manager.part(GroupAdmin).offsets
    store.append("g", {T0: Committed(1, -1, "", 9, "")}, None)
    path = log.path / ".pylog" / "offsets-0.checkpoint"
    held = FS.lock(f"{path}.lock")
    assert held.try_acquire()
    checkpoint(store)
    assert not path.exists()
    held.close()
    store.append("g", {T0: Committed(2, -1, "", 9, "")}, None)
    checkpoint(store)
    newest = path.read_bytes()
    partition = store.partition_of("g")
    assert partition is not None
    write_checkpoint(FS, str(path), Checkpoint(partition.log.topic_id, 1, []))
    assert path.read_bytes() == newest


def test_a_checkpoint_that_cannot_be_written_is_told_and_missed_by_nobody(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageError("no more ink", path="x")

    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 1)
    monkeypatch.setattr(offsets_module, "write_checkpoint", refuse)
    store = log.manager.part(GroupAdmin).offsets
    store.append("g", {T0: Committed(1, -1, "", 9, "")}, None)
    with caplog.at_level(logging.WARNING):
        checkpoint(store)
    assert "no checkpoint of committed offsets: no more ink" in caplog.text
    assert store.committed("g")[T0].offset == 1


def test_a_checkpoint_that_would_be_too_large_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "checkpoint")
    monkeypatch.setattr(offsets_checkpoint, "LIMIT_BYTES", 100)
    write_checkpoint(FS, path, Checkpoint("id", 7, [(b"k" * 100, b"v")]))
    assert read_checkpoint(FS, path) is None
    write_checkpoint(FS, path, Checkpoint("id", 7, [(b"k", b"v")]))
    assert read_checkpoint(FS, path) == Checkpoint("id", 7, [(b"k", b"v")])


def test_a_checkpoint_that_is_larger_than_any_that_is_written_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not read to its end: nothing says how much of memory that would take."""
    path = str(tmp_path / "checkpoint")
    write_checkpoint(FS, path, Checkpoint("id", 7, [(b"k" * 100, b"v")]))
    monkeypatch.setattr(offsets_checkpoint, "LIMIT_BYTES", 100)
    with pytest.raises(CorruptSegment, match="more than 100 bytes"):
        read_checkpoint(FS, path)


def test_what_is_no_checkpoint_of_commits_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"short")
    with pytest.raises(CorruptSegment, match="5 bytes"):
        read_checkpoint(FS, str(path))
    write_checkpoint(FS, str(path), Checkpoint("id", 7, [(b"k", b"v")]))
    head, body = path.read_bytes()[:10], bytearray(path.read_bytes()[14:])
    struct.pack_into(">I", body, 8, 2)  # so many entries
    path.write_bytes(head + struct.pack(">I", crc32c(bytes(body))) + body)
    with pytest.raises(CorruptSegment, match="1 entries of 2"):
        read_checkpoint(FS, str(path))


# The state


def state(directory: Path) -> StateFile:
    return StateFile(FS.open_appendable(f"{directory}/state"), 1)


@pytest.mark.parametrize(
    "wrong",
    [
        Group(1, "by lot", {"0" * 32: Member("0" * 32, "", "", "h", 1, 1, 0, 1, 1)}),
        Group(1, "range", {"0" * 32: Member("0" * 32, "", "", "h", 1, 1 << 40, 0, 1, 1)}),
    ],
)
def test_a_state_that_nobody_writes_is_a_group_without_members(tmp_path: Path, wrong: Group) -> None:
    state(tmp_path).publish(wrong)
    assert state(tmp_path).read() == Group(1)


def test_a_state_that_changes_with_every_look_is_read_all_the_same(tmp_path: Path) -> None:
    """Both places of the state are written over after each look at the slots."""
    reader, writer = state(tmp_path), state(tmp_path)
    generations, raw = iter(range(1, 10_000)), reader.raw
    writer.publish(Group(next(generations)))

    def look() -> bytes:
        found = raw()
        for _ in range(3):
            generation = next(generations)
            writer.publish(Group(generation, "x" * generation))
        return found

    reader.raw = look
    assert reader.read().members == {}


def test_a_log_of_commits_that_begins_nowhere_is_told(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than looked for without end."""
    store = log.manager.part(GroupAdmin).offsets
    store.append("g", {T0: Committed(1, -1, "", 9, "")}, None)
    partition = store.partition_of("g")
    assert partition is not None

    def fetch(*_: object, **__: object) -> None:
        raise OffsetOutOfRange("not there", offset=0, earliest=partition.next_offset, latest=1)

    monkeypatch.setattr(partition.log.reader, "fetch", fetch)
    with pytest.raises(OffsetOutOfRange):
        store.committed("g")


def test_what_a_dead_process_left_of_a_commit_waits_for_who_holds_the_log_of_commits(log: Log) -> None:
    """A poll tries again; who subscribes, or assigns by hand, is told."""
    send(log, b"1")
    with member(log) as one:
        one.poll()
        one.commit()
    held = FS.lock(f"{log.path}/__consumer_offsets-0/.lock")
    assert held.try_acquire()
    store = log.manager.part(GroupAdmin).offsets
    with pytest.raises(LogLocked, match="another group may be stopped"):
        store.recover_last_commit("g", 0.0)
    held.close()
    store.recover_last_commit("g", 0.0)


def test_a_subscription_that_finds_a_lock_taken_is_told(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> None:
        raise LogLocked("by somebody")

    monkeypatch.setattr(log.manager.part(GroupAdmin).offsets, "recover_last_commit", locked)
    with Consumer(log, group_id="g") as consumer:
        with pytest.raises(LogLocked):
            consumer.subscribe("t")
        assert consumer.poll() == []
        assert consumer.assignment() == set()
        monkeypatch.undo()
        consumer.poll()
        assert len(consumer.assignment()) == 2


def test_a_log_that_is_only_read_is_not_settled(log: Log) -> None:
    with Log(log.path, read_only=True) as reader, pytest.raises(ReadOnlyLog):
        reader.partition("t", 0).log.settle(0)


def test_a_typed_error_that_is_a_missing_file_stays_what_it_is(log: Log) -> None:
    """``LogNotFound`` is a ``FileNotFoundError``, and says more than that files of the group were
    removed."""
    files = GroupLock(log.manager.part(GroupAdmin).directory("g"))

    def missing(_: object) -> None:
        raise LogNotFound("gone", path="x")

    with pytest.raises(LogNotFound):
        files.holding(missing)
    files.close()


def test_a_grant_ends_with_its_call(log: Log) -> None:
    files = GroupLock(log.manager.part(GroupAdmin).directory("g"))
    grant = files.holding(lambda grant: grant)
    with pytest.raises(AssertionError, match="has ended"):
        grant.publish(Group(1))
    files.holding(lambda grant: grant.publish(Group(1)))
    assert files.state.read().generation == 1
    files.close()


def test_a_change_that_a_fork_came_into_is_not_the_childs(log: Log) -> None:
    files = GroupLock(log.manager.part(GroupAdmin).directory("g"))

    def forked(grant: GroupGrant) -> None:
        grant.holder += 1
        raise ValueError("whatever comes of files that are the parent's")

    with pytest.raises(ForkedHandle):
        files.holding(forked)
    files.close()


def forked_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, grants: list[GroupGrant]) -> None:
    """A signal handler forks at the end of this method, while the group's lock is held: what
    follows is the child's."""
    right = getattr(owner, name)

    def then_forked(self: Any, *arguments: Any) -> Any:
        result = right(self, *arguments)
        grants[-1].holder += 1
        return result

    monkeypatch.setattr(owner, name, then_forked)


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> list[GroupGrant]:
    """Those that were made, in their order."""
    made: list[GroupGrant] = []

    class Noted(GroupGrant):
        __slots__ = ()

        def __init__(self, directory: GroupDirectory) -> None:
            super().__init__(directory)
            made.append(self)

    monkeypatch.setattr(group_lock, "GroupGrant", Noted)
    return made


def test_a_fork_before_the_lock_was_taken_leaves_the_change_to_the_parent(
    log: Log, grants: list[GroupGrant], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = GroupLock(log.manager.part(GroupAdmin).directory("g"))
    forked_in(monkeypatch, GroupLock, "_open", grants)
    with pytest.raises(ForkedHandle):
        files.holding(lambda _: pytest.fail("the child does its parent's work"))
    files.close()


def test_a_fork_in_a_commit_leaves_it_to_the_parent(
    log: Log, grants: list[GroupGrant], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, b"1")
    with member(log) as one:
        one.poll()
        forked_in(monkeypatch, OffsetStore, "encoded", grants)
        with pytest.raises(ForkedHandle):
            one.commit()
        monkeypatch.undo()
        assert log.manager.part(GroupAdmin).committed("g") == {}


def test_a_fork_in_a_deletion_leaves_the_rest_to_the_parent(
    log: Log, grants: list[GroupGrant], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, b"1")
    with member(log) as one:
        one.poll()
        one.commit()
    forked_in(monkeypatch, OffsetStore, "append", grants)
    with pytest.raises(ForkedHandle):
        log.delete_group("g")
    assert log.manager.part(GroupAdmin).in_files() == ["g"]


def test_a_fork_in_the_commit_of_a_transaction_leaves_the_decision_to_the_parent(
    log: Log, grants: list[GroupGrant], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, b"1")
    with member(log) as one, Producer(log, transactional_id="x") as producer:
        one.poll()
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"2", partition=1)
        producer.send_offsets_to_transaction({T0: 1}, one.group_metadata())
        forked_in(monkeypatch, TransactionOffsets, "_of_deleted_topics", grants)
        with pytest.raises(ForkedHandle):
            producer.commit_transaction()
        monkeypatch.undo()
        producer.abort_transaction()
        assert log.manager.part(GroupAdmin).committed("g") == {}


def test_a_child_that_a_fork_made_while_the_state_was_opened_gets_a_typed_error(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, open_files = GroupLock(log.manager.part(GroupAdmin).directory("g")), GroupLock._open

    def then_forked(lock: GroupLock) -> object:
        opened = open_files(lock)
        as_in_a_child()
        return opened

    monkeypatch.setattr(GroupLock, "_open", then_forked)
    with pytest.raises(StorageError):
        files.state.raw()


def test_nothing_new_is_published_of_what_is_as_it_should_be(log: Log) -> None:
    consumer = member(log)
    membership = membership_of(consumer)
    before = membership._files.state.raw()
    membership.reconcile(frozenset(), 1.0)
    assert membership._files.state.raw() == before
    assert membership._heartbeats is not None
    membership._heartbeats.close()
    membership._heartbeats = None
    consumer.commit({T0: 0})  # shows no sign of life, and is one all the same
    assert log.lag("g")[T0] == 0
    consumer.close()
