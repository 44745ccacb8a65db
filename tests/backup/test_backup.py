"""``Log.backup``: what a copy holds, what a second one keeps, and what no backup may replace."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.backup.cut import take_cut
from pylog.backup.report import BackupReport
from pylog.errors import ConfigError, CorruptRecord, LogLocked, NotABackup, ReadOnlyLog, StorageError, StorageFull
from pylog.partition.commit_slots import CommitState
from pylog.partition.compact.engine import IS_BUSY, compact
from pylog.partition.compact.erasure import erase
from pylog.storage import OsFileSystem
from tests.partition.logs import snapshot_of, values_of_topic
from tests.simulation.backups import contents, write
from tests.storage.filesystems import Faulty, StandIn, full, nothing

VALUE = b"x" * 900  # one fills a segment
BESIDE = ("copy.unfinished-backup", "copy.backup-lock")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as log:
        log.create_topic("a", partitions=2, segment_bytes=1024)
        log.create_topic("c", cleanup_policy="compact", segment_bytes=1024)
        yield log


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copies" / "copy"


def fill(log: Log, count: int, number: int = 0) -> None:
    for _ in range(count):
        log.partition("a", number).append([ProducerRecord(VALUE, timestamp_ms=1000)], acks=1)


def commit(log: Log) -> None:
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("a")
        consumer.poll(1.0, max_records=1)
        consumer.commit()


def check(copy: Path, log: Log) -> None:
    """The copy holds what the log holds now; a writer of a duplicate finds the same, and
    continues."""
    expected = contents(log)
    with Log(copy, read_only=True) as copied:
        assert contents(copied) == expected
        assert copied.verify().problems == []
        assert copied.manifest == log.manifest
        assert [copied.describe_topic(name) for name in copied.topics()] == [
            log.describe_topic(name) for name in log.topics()
        ]
    duplicate = copy.with_name("duplicate")
    shutil.copytree(copy, duplicate)
    with Log(duplicate) as copied:
        assert contents(copied) == expected
        if {"a", "c"} <= {*copied.topics()}:
            write(copied, 7)
        assert copied.verify().problems == []
    shutil.rmtree(duplicate)
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_a_copy_is_a_log_with_the_same_records_positions_and_topics(log: Log, copy: Path) -> None:
    log.alter(max_bytes=10**9)
    for round_ in range(3):
        write(log, round_)
    report = log.backup(copy)
    check(copy, log)
    assert isinstance(report, BackupReport)
    assert (report.path, report.topics, report.partitions) == (str(copy), 4, 5)
    assert report.ends[TopicPartition("a", 0)] == log.partition("a", 0).latest_offset
    assert (report.kept_bytes, report.kept_segments) == (0, 0)
    with Log(copy, read_only=True) as copied:
        assert copied.settings() == log.settings()


def test_an_empty_log_has_a_copy(tmp_path: Path) -> None:
    with Log(tmp_path / "empty") as log:
        log.backup(tmp_path / "copies" / "copy")
        check(tmp_path / "copies" / "copy", log)


def test_what_comes_after_the_call_is_not_in_the_copy_and_a_new_epoch_begins_in_it(log: Log, copy: Path) -> None:
    fill(log, 2)
    log.backup(copy)
    fill(log, 1)
    with Log(copy) as copied:
        partition = copied.partition("a", 0)
        assert partition.latest_offset == 2
        assert partition.append([ProducerRecord(b"other")], acks=1).base_offset == 2
        assert partition.leader_epoch == log.partition("a", 0).leader_epoch + 1


def test_a_producer_of_the_copy_has_an_id_that_none_of_the_log_has(log: Log, copy: Path) -> None:
    ids = {log.manager.next_producer_id()}
    log.backup(copy)
    with Log(copy) as copied:
        assert copied.manager.next_producer_id() // 1000 not in {each // 1000 for each in ids}


@pytest.mark.slow
def test_a_second_backup_copies_what_is_new_and_keeps_the_rest(log: Log, copy: Path) -> None:
    fill(log, 40)
    fill(log, 20, number=1)
    first = log.backup(copy)
    before = {path.name: path.stat().st_ino for path in (copy / "a-0").iterdir() if path.suffix == ".log"}
    fill(log, 3)
    second = log.backup(copy)
    check(copy, log)
    assert first.copied_segments == 60
    assert second.kept_segments == 39 + 19
    new_bytes = 3 * 1024 + 2 * 1024  # and the active segments
    assert second.copied_bytes < 1.5 * new_bytes
    assert second.kept_bytes > 0.9 * first.copied_bytes
    after = {path.name: path.stat().st_ino for path in (copy / "a-0").iterdir() if path.suffix == ".log"}
    assert sum(after.get(name) == inode for name, inode in before.items()) == 39
    assert all(path.stat().st_nlink == 1 for path in copy.rglob("*.log"))


def test_compaction_and_retention_between_two_backups(log: Log, copy: Path) -> None:
    for round_ in range(4):
        write(log, round_)
    fill(log, 5)
    log.backup(copy)
    assert compact(log.partition("c", 0).log).records_dropped > 0
    log.delete_records(TopicPartition("a", 0), log.partition("a", 0).latest_offset - 2)
    log.delete_topic("c")
    log.create_topic("c", partitions=1, segment_bytes=1024)
    log.partition("c", 0).append([ProducerRecord(b"of another topic")])
    log.backup(copy)
    check(copy, log)


def test_without_links_a_second_backup_copies_all(tmp_path: Path) -> None:
    def refuse(operation: str, path: str) -> None:
        if operation == "link":
            raise StorageError("no links here", path=path, errno=errno.EPERM)

    copy = tmp_path / "copies" / "copy"
    with Log(tmp_path / "log", filesystem=Faulty(refuse)) as log:
        log.create_topic("a", partitions=2, segment_bytes=1024)
        fill(log, 4)
        log.backup(copy)
        assert log.backup(copy).kept_bytes == 0
        with Log(copy, read_only=True) as copied:
            assert contents(copied) == contents(log)


# The cut


class Between:
    """Lets something happen while a backup copies: when the first file of partition ``a-0`` is
    opened for it."""

    def __init__(self) -> None:
        self.work: list[object] = []

    def __call__(self, operation: str, path: str) -> None:
        if operation == "open" and path.endswith("unfinished-backup/a-0/00000000000000000000.log") and self.work:
            self.work.pop()()  # type: ignore[operator]


@pytest.fixture
def between(tmp_path: Path) -> Iterator[tuple[Log, Log, Between]]:
    """A log, another process's view of it, and what happens while the first one copies."""
    hook = Between()
    with Log(tmp_path / "log", filesystem=Faulty(hook)) as log, Log(tmp_path / "log") as other:
        log.create_topic("a", partitions=2, segment_bytes=1024)
        log.create_topic("c", cleanup_policy="compact", segment_bytes=1024)
        yield log, other, hook


def test_a_transaction_that_is_decided_while_the_data_are_copied_is_not_in_the_copy(
    between: tuple[Log, Log, Between], copy: Path
) -> None:
    log, other, hook = between
    write(other, 0)
    before = contents(other)
    hook.work.append(lambda: write(other, 1))
    log.backup(copy)
    assert hook.work == []
    with Log(copy, read_only=True) as copied:
        assert contents(copied) == before


def test_no_transaction_is_decided_while_the_ends_are_read(
    log: Log, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, 0)
    partition = log.manager.partition("__transaction_state", 0)
    held = []
    for name in ("a", "__consumer_offsets"):
        asked = log.manager.partition(name, 0)

        def current(name: str = name, original: object = asked.current) -> CommitState:
            with Log(log.path) as other:
                filesystem = other.manager.filesystem
                held.append((name, filesystem.is_locked(f"{partition.directory.path}/.lock")))
            return original()  # type: ignore[operator]

        monkeypatch.setattr(asked, "current", current)
    locks = type("Locks", (), {"hold": lambda *_: None})()
    take_cut(log.manager, locks, bool)
    assert held == [("__consumer_offsets", True), ("a", True)]


def test_a_topic_that_is_deleted_while_it_is_copied_is_not_in_the_copy(
    between: tuple[Log, Log, Between], copy: Path
) -> None:
    log, other, hook = between
    fill(other, 3)
    commit(other)
    hook.work.append(lambda: other.delete_topic("a"))
    report = log.backup(copy)
    assert {name.topic for name in report.ends} == {"c", "__consumer_offsets"}
    with Log(copy) as copied:
        assert copied.topics() == ["__consumer_offsets", "c"]
        assert "g" not in copied.groups()
        assert copied.verify().problems == []


def test_a_topic_that_is_created_again_while_it_is_copied(between: tuple[Log, Log, Between], copy: Path) -> None:
    log, other, hook = between
    fill(other, 3)

    def again() -> None:
        other.delete_topic("a")
        other.create_topic("a", partitions=1)
        other.partition("a", 0).append([ProducerRecord(b"another")])

    hook.work.append(again)
    log.backup(copy)
    with Log(copy) as copied:
        assert copied.topics() == ["c"]
        copied.create_topic("a")
        assert values_of_topic(copied, "a") == []


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_retention_while_a_partition_is_copied(between: tuple[Log, Log, Between], copy: Path, kept: int) -> None:
    log, other, hook = between
    fill(other, 10)

    def delete() -> None:
        fill(other, 2)
        other.delete_records(TopicPartition("a", 0), 10 - kept)

    hook.work.append(delete)
    log.backup(copy)
    with Log(copy, read_only=True) as copied:
        partition = copied.partition("a", 0)
        assert (partition.earliest_offset, partition.latest_offset) == (10 - kept, 10)
        assert len(values_of_topic(copied, "a")) == kept
        assert copied.verify().problems == []
    with Log(copy) as copied:
        assert copied.partition("a", 0).append([ProducerRecord(b"next")]).base_offset == 10
        assert copied.verify().problems == []


def test_compaction_waits_until_its_partition_is_copied(between: tuple[Log, Log, Between], copy: Path) -> None:
    """It would drop what newer records, which the copy does not have, replace."""
    log, other, _ = between
    found = []

    class Watching(OsFileSystem):
        def open_appendable(self, path: str, *, create: bool = True):  # type: ignore[no-untyped-def]
            if path.endswith("unfinished-backup/c-0/00000000000000000000.log"):
                other.partition("c", 0).append([ProducerRecord(b"new", key=b"k")])
                other.partition("c", 0).log.roll()
                found.append(compact(other.partition("c", 0).log).skipped)
            return super().open_appendable(path, create=create)

    for _ in range(3):
        other.partition("c", 0).append([ProducerRecord(b"old", key=b"k")])
        other.partition("c", 0).log.roll()
    with Log(log.path, filesystem=Watching()) as third:
        third.backup(copy)
    assert found == [(IS_BUSY,)]
    with Log(copy, read_only=True) as copied:
        assert values_of_topic(copied, "c") == [b"old"] * 3
    assert compact(other.partition("c", 0).log).records_dropped == 3


def test_a_topic_that_becomes_compacted_meanwhile_ends_the_backup(
    between: tuple[Log, Log, Between], copy: Path
) -> None:
    log, other, hook = between
    fill(other, 3)
    hook.work.append(lambda: other.alter_topic("a", cleanup_policy="compact"))
    with pytest.raises(StorageError, match="'a' was altered to be compacted during the backup"):
        log.backup(copy)
    assert not copy.exists()
    log.backup(copy)


@pytest.mark.parametrize("size", [900, 5])
def test_a_topic_that_was_compacted_meanwhile_ends_the_backup_also_if_it_was_altered_back(
    between: tuple[Log, Log, Between], copy: Path, size: int
) -> None:
    log, other, hook = between
    partition = other.partition("a", 1)
    for key in (b"1", b"2", b"3"):
        partition.append([ProducerRecord(b"old" * size, key=key)])
        partition.log.roll()

    def change() -> None:
        other.alter_topic("a", cleanup_policy="compact")
        partition.append([ProducerRecord(b"new", key=key) for key in (b"1", b"2")])
        partition.log.roll()
        partition.log.sync(partition.log.current().log_end_offset)
        assert compact(partition.log).records_dropped == 2
        other.alter_topic("a", cleanup_policy="delete")

    hook.work.append(change)
    fill(other, 3)
    with pytest.raises(StorageError, match="cleanup_policy is now 'delete'"):
        log.backup(copy)
    assert not copy.exists()
    log.backup(copy)
    check(copy, log)


def test_a_topic_that_is_altered_otherwise_meanwhile_is_copied(between: tuple[Log, Log, Between], copy: Path) -> None:
    log, other, hook = between
    fill(other, 3)
    partition = other.partition("a", 1)
    for key in (b"k", b"l"):
        partition.append([ProducerRecord(b"v", key=key)])
        partition.log.roll()

    def change() -> None:
        other.alter_topic("a", retention_bytes=10**12)
        assert erase(partition.log, frozenset({b"k"}), tombstones=False, timeout_ms=1000).records == 1
        fill(other, 5)
        fill(other, 5, 1)

    hook.work.append(change)
    log.backup(copy)
    with Log(copy, read_only=True) as copied:
        assert values_of_topic(copied, "a") == [VALUE] * 3 + [b"v"]
        assert copied.verify().problems == []


@pytest.mark.parametrize("name", [f"{1:020d}.timeindex", f"{1:020d}.snapshot"])
def test_a_damaged_side_file_of_the_earlier_copy_is_copied_again(log: Log, copy: Path, name: str) -> None:
    fill(log, 4)
    log.backup(copy)
    damaged = copy / "a-0" / name
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    assert log.backup(copy).kept_segments == 3
    check(copy, log)
    assert damaged.read_bytes() == (Path(log.path) / "a-0" / name).read_bytes()


# What no backup may replace


def test_the_copy_that_the_log_was_restored_from_stays(log: Log, copy: Path, tmp_path: Path) -> None:
    fill(log, 2)
    log.backup(copy)
    shutil.copytree(copy, tmp_path / "restored")
    with Log(tmp_path / "restored") as restored:
        fill(restored, 1)
        with pytest.raises(NotABackup, match="or the copy that it was restored from; it stays as it is: name another"):
            restored.backup(copy)
        restored.backup(copy.with_name("another"))


def test_a_copy_that_was_written_to_stays(log: Log, copy: Path) -> None:
    write(log, 0)
    log.backup(copy)
    with Log(copy) as copied:
        assert contents(copied) == contents(log)  # which recovers it, and changes no record
    log.backup(copy)
    with Log(copy) as copied:
        copied.partition("a", 0).append([ProducerRecord(b"precious")])
    before = snapshot_of(copy)
    with pytest.raises(NotABackup, match="was changed since it was made: in a-0, the last segment"):
        log.backup(copy)
    assert snapshot_of(copy) == before
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def _a_topic_more(copy: Path) -> None:
    with Log(copy) as copied:
        copied.create_topic("more")


def _records_less(copy: Path) -> None:
    with Log(copy) as copied:
        copied.delete_records(TopicPartition("a", 0), 1)


def _commits(copy: Path) -> None:
    with Log(copy) as copied:
        commit(copied)


@pytest.mark.parametrize(
    "change",
    [
        _a_topic_more,
        _records_less,
        _commits,
        lambda copy: (copy / "notes.txt").write_text("mine"),
        lambda copy: (copy / "a-0" / "notes.txt").write_text("mine"),
        lambda copy: (copy / ".pylog" / "backup.json").unlink(),
        lambda copy: (copy / ".pylog" / "backup.json").write_text("{"),
        lambda copy: (copy / ".pylog" / "manifest.json").unlink(),
        lambda copy: shutil.rmtree(copy / "a-1"),
    ],
)
def test_a_copy_that_was_changed_otherwise_stays(log: Log, copy: Path, change) -> None:  # type: ignore[no-untyped-def]
    fill(log, 3)
    log.backup(copy)
    change(copy)
    before = snapshot_of(copy)
    with pytest.raises(NotABackup):
        log.backup(copy)
    assert snapshot_of(copy) == before


def test_what_is_no_backup_stays(log: Log, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with Log(tmp_path / "another") as another:
        another.backup(tmp_path / "of-another")
    before = snapshot_of(tmp_path)
    for name, problem in {
        "file": "is no directory", "directory": "was not made by a backup", "link": "is a symbolic link",
        "another": "was not made by a backup", "of-another": "is a copy of another log",
    }.items():  # fmt: skip
        with pytest.raises(NotABackup, match=problem):
            log.backup(tmp_path / name)
    assert snapshot_of(tmp_path) == before
    log.backup(tmp_path / "empty")


def test_what_has_the_name_of_an_unfinished_copy_stays(log: Log, copy: Path) -> None:
    beside = copy.with_name(BESIDE[0])
    beside.mkdir(parents=True)
    (beside / "file").write_text("mine")
    with pytest.raises(NotABackup, match="needs this name"):
        log.backup(copy)
    assert (beside / "file").read_text() == "mine"
    assert not copy.exists()


@pytest.mark.parametrize("place", [".", "a-0", "a/b", ".pylog/copy", "..", "../log/copy"])
def test_a_place_in_the_log_or_around_it_is_refused(log: Log, place: str) -> None:
    before = snapshot_of(log.path)
    with pytest.raises((ConfigError, NotABackup)):
        log.backup(log.path / place)
    with pytest.raises(ConfigError):
        log.backup(f"{log.path.parent}/")
    assert snapshot_of(log.path) == before


def test_a_place_in_another_log_is_refused(log: Log, tmp_path: Path) -> None:
    with Log(tmp_path / "another"), pytest.raises(ConfigError, match="inside of the log"):
        log.backup(tmp_path / "another" / "copy")


def test_two_backups_to_one_place_at_once(between: tuple[Log, Log, Between], copy: Path) -> None:
    log, other, hook = between
    fill(other, 3)

    def second() -> None:
        with pytest.raises(LogLocked, match="another backup"):
            other.backup(copy)

    hook.work.append(second)
    log.backup(copy)
    assert hook.work == []
    check(copy, log)


def test_a_log_that_can_only_be_read_is_refused(log: Log, copy: Path) -> None:
    with Log(log.path, read_only=True) as reader, pytest.raises(ReadOnlyLog):
        reader.backup(copy)
    kafka = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
    with Log(kafka) as foreign, pytest.raises(ReadOnlyLog, match="stop the broker"):
        foreign.backup(copy)
    assert not copy.parent.exists()


# Failures


@pytest.mark.parametrize("operation", ["open", "pwrite", "sync", "sync_directory", "make_directory", "exchange"])
def test_a_full_disk_leaves_the_earlier_copy_and_nothing_else(tmp_path: Path, operation: str) -> None:
    filesystem = Faulty()
    copy = tmp_path / "copies" / "copy"
    with Log(tmp_path / "log", filesystem=filesystem) as log:
        log.create_topic("a", partitions=2, segment_bytes=1024)
        fill(log, 3)
        log.backup(copy)
        before = snapshot_of(copy)
        fill(log, 3)

        def fail(happened: str, path: str) -> None:
            if happened == operation and "/copies/" in path:
                raise full(path)

        filesystem.hook = fail
        with pytest.raises(StorageFull):
            log.backup(copy)
        filesystem.hook = nothing
        assert snapshot_of(copy) == before
        log.backup(copy)
        check(copy, log)


def test_damage_is_not_copied(log: Log, copy: Path) -> None:
    fill(log, 5)
    segment = Path(log.partition("a", 0).segments[1].path)
    data = bytearray(segment.read_bytes())
    data[-100] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptRecord, match=segment.name):
        log.backup(copy)
    assert not copy.exists()
    assert list(copy.parent.iterdir()) == []


def test_a_filesystem_that_can_not_exchange_names_keeps_the_earlier_copy(tmp_path: Path) -> None:
    class Old(StandIn):
        def exchange(self, first: str, second: str) -> None:
            raise StorageError(f"cannot exchange {first!r}", path=first, errno=errno.ENOSYS)

    copy = tmp_path / "copies" / "copy"
    with Log(tmp_path / "log", filesystem=Old()) as log:
        log.create_topic("a", segment_bytes=1024)
        log.backup(copy)
        before = snapshot_of(copy)
        with pytest.raises(StorageError, match="exchange"):
            log.backup(copy)
        assert snapshot_of(copy) == before
        log.backup(tmp_path / "copies" / "second")


def test_progress_counts_the_bytes_of_segments(log: Log, copy: Path) -> None:
    fill(log, 6)
    for _ in range(2):
        counts: list[int] = []
        log.backup(copy, progress=counts.append)
        assert sum(counts) == log.partition("a", 0).size_bytes


def test_a_relative_path(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert log.backup("copy/").path == str(tmp_path / "copy")
    assert os.path.isdir(tmp_path / "copy" / "a-0")


def test_a_producer_goes_on_numbering_in_the_copy(log: Log, copy: Path) -> None:
    """Snapshots and the last segment tell what each producer has sent."""
    with Producer(log) as producer:
        for _ in range(5):
            producer.send("a", VALUE, partition=0)
            producer.flush()
        log.backup(copy)
        before = {each.producer_id for each in _headers(log)}
    with Log(copy) as copied:
        (producer_id,) = before
        assert copied.partition("a", 0).log.next_sequence(producer_id) == 5


def _headers(log: Log):  # type: ignore[no-untyped-def]
    partition = log.partition("a", 0).log
    return [view.header for view in partition.batches(0, partition.latest_offset, "read_uncommitted")]
