"""``Log.backup`` beside changes of topics: no copy lacks a topic that the log has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.catalog.changes import TopicChange
from pylog.errors import StorageError
from pylog.manager.changes import changes_of
from pylog.manager.manager import LogManager
from pylog.partition.partition_log import PartitionLog
from tests.storage.filesystems import Faulty

VALUE = b"x" * 900  # one fills a segment


class Meanwhile:
    """Does ``work`` when the backup opens the first file of a partition."""

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []
        self.at = "a-0"

    def __call__(self, operation: str, path: str) -> None:
        if operation == "open" and f"unfinished-backup/{self.at}/" in path and path.endswith(".log") and self.work:
            self.work.pop()()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Log, Log, Meanwhile]]:
    """A log, another process's view of it, and what happens while the first one copies."""
    hook = Meanwhile()
    with Log(tmp_path / "log", filesystem=Faulty(hook)) as log, Log(tmp_path / "log") as other:
        log.create_topic("a", partitions=2, segment_bytes=1024)
        log.create_topic("b")
        log.create_topic("c", cleanup_policy="compact")
        yield log, other, hook


def fill(log: Log, topic: str, count: int, key: bytes | None = None) -> None:
    for number in range(log.describe_topic(topic).partitions):
        for _ in range(count):
            log.partition(topic, number).append([ProducerRecord(VALUE, key=key, timestamp_ms=1000)])


def held(log: Log, topic: str) -> int:
    return sum(len(list(log.partition(topic, number).scan())) for number in range(log.describe_topic(topic).partitions))


@pytest.mark.parametrize(
    "change",
    [lambda log: log.rename_topic("a", "z"), lambda log: log.repartition("a", 3)],
    ids=["rename", "repartition"],
)
def test_a_topic_that_changes_while_it_is_copied_ends_the_backup(
    both: tuple[Log, Log, Meanwhile], tmp_path: Path, change: Callable[[Log], object]
) -> None:
    log, other, hook = both
    fill(other, "a", 3)
    hook.work.append(lambda: change(other))
    with pytest.raises(StorageError, match="'a' got another name or other partitions during the backup"):
        log.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    log.backup(tmp_path / "copy")
    with Log(tmp_path / "copy", read_only=True) as copied:
        assert copied.topics() == log.topics()
        name = ({*copied.topics()} - {"b", "c"}).pop()
        assert held(copied, name) == 6


def test_a_topic_that_is_created_again_with_fewer_partitions_before_the_copy_is_looked_at_again(
    both: tuple[Log, Log, Meanwhile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other, _ = both
    find = LogManager.partition

    def created_again_meanwhile(manager: LogManager, topic: str, number: int) -> PartitionLog:
        if (topic, number) == ("a", 1):
            monkeypatch.undo()
            other.delete_topic("a")
            other.create_topic("a")
        return find(manager, topic, number)

    monkeypatch.setattr(LogManager, "partition", created_again_meanwhile)
    assert log.backup(tmp_path / "copy").partitions == 3


def test_a_change_that_a_killed_process_has_left_is_completed_first(
    both: tuple[Log, Log, Meanwhile], tmp_path: Path
) -> None:
    log, other, _ = both
    fill(other, "a", 3)
    before = other.describe_topic("a")
    change = TopicChange(before, before._replace(name="z"), False, [])
    other.manager.writable_catalog().locked(lambda: changes_of(other.manager, 1).decide(change))
    log.backup(tmp_path / "copy")
    with Log(tmp_path / "copy", read_only=True) as copied:
        assert copied.topics() == ["b", "c", "z"]
        assert held(copied, "z") == 6


@pytest.mark.parametrize("more", [0, 1])
def test_an_erasure_before_a_partition_is_copied(both: tuple[Log, Log, Meanwhile], tmp_path: Path, more: int) -> None:
    """The last segment of the cut is another file then, with batches at other positions."""
    log, other, hook = both
    partition = other.partition("b", 0)
    for key in (b"k", b"l", b"k", b"m"):
        partition.append([ProducerRecord(VALUE, key=key), ProducerRecord(b"", key=b"other")])
    fill(other, "c", 1, b"c")
    hook.at = "c-0"

    def erase() -> None:
        for _ in range(more):
            partition.append([ProducerRecord(VALUE, key=b"later")])
        assert other.erase("b", b"k").records == 2

    hook.work.append(erase)
    log.backup(tmp_path / "copy")
    assert not hook.work
    for read_only in (True, False):
        with Log(tmp_path / "copy", read_only=read_only) as copied:
            assert [record.key for record in copied.partition("b", 0).scan()] == [
                b"other", b"l", b"other", b"other", b"m", b"other"
            ]  # fmt: skip
            assert copied.partition("b", 0).latest_offset == 8
            assert copied.verify().problems == []
            if not read_only:
                assert copied.partition("b", 0).append([ProducerRecord(b"next")]).base_offset == 8
                assert copied.verify().problems == []
