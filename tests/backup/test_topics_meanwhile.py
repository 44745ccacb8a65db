"""``Log.backup`` beside changes of topics: no copy lacks a topic that the log has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
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
