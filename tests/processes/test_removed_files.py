"""What keeps processes out of one another's way, removed or replaced by hand while a log is in use:
nothing is lost silently."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import CorruptSegment, NotAppended, TopicNotFound
from pylog.model import AppendResult
from pylog.partition import Partition
from tests.partition.logs import topic_of

SMALL = {"segment_bytes": 2048}


def append(partition: Partition, value: str) -> AppendResult:
    return partition.append([ProducerRecord(value.encode() + b"y" * 100)], acks=1)


def values(partition: Partition) -> list[str]:
    return [record.value.rstrip(b"y").decode() for record in partition.scan()]


def take_turns(first: Partition, second: Partition, count: int = 60) -> tuple[dict[int, str], set[str]]:
    """What was acknowledged, by offset, and what was said in refusals: one of the two is refused
    from some time on."""
    acknowledged: dict[int, str] = {}
    refusals: set[str] = set()
    for number in range(count):
        for name, partition in (("first", first), ("second", second)):
            value = f"{name} {number}"
            try:
                offset = append(partition, value).base_offset
            except NotAppended as error:
                refusals.add(str(error).partition(" while")[0].rpartition("/")[2])
            else:
                assert offset not in acknowledged, "given out twice"
                acknowledged[offset] = value
    return acknowledged, refusals


def test_two_processes_on_two_lock_files_overwrite_nothing(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as one, Log(tmp_log_dir) as two:
        first = topic_of(one, "t", **SMALL)
        offset = append(first, "before").base_offset
        (tmp_log_dir / "t-0" / ".lock").unlink()
        acknowledged, refusals = take_turns(first, two.partition("t", 0))
    acknowledged[offset] = "before"
    assert refusals == {".lock was removed or replaced"}
    with Log(tmp_log_dir) as log:
        assert dict(enumerate(values(log.partition("t", 0)))) == acknowledged
        assert log.verify().problems == []
        assert len(acknowledged) > 60


def test_a_writer_does_not_go_on_in_a_backup_that_was_put_in_its_place(tmp_log_dir: Path, tmp_path: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", **SMALL)
        append(log.partition("t", 0), "kept")
    shutil.copytree(tmp_log_dir, tmp_path / "backup")
    with Log(tmp_log_dir) as old:
        append(old.partition("t", 0), "of the old one")
        tmp_log_dir.rename(tmp_path / "aside")
        (tmp_path / "backup").rename(tmp_log_dir)
        for number in range(40):
            with pytest.raises(NotAppended, match="close the log in every process, then open it again"):
                append(old.partition("t", 0), f"{number}")
    with Log(tmp_log_dir) as log:
        assert values(log.partition("t", 0)) == ["kept"]
    with Log(tmp_path / "aside") as log:
        assert values(log.partition("t", 0)) == ["kept", "of the old one"]


def test_a_directory_that_is_gone_when_it_is_opened_is_missing(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        partition = topic_of(log, "t")
        shutil.rmtree(tmp_log_dir / "t-0")
        with pytest.raises(NotAppended, match="is missing, but the topic was not deleted"):
            append(partition, "lost")


def test_a_topic_that_is_another_when_it_is_opened_is_gone(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        partition = topic_of(log, "t")
        other.delete_topic("t")
        other.create_topic("t")
        with pytest.raises(TopicNotFound, match="created again since"):
            partition.log.roll()
        assert other.partition("t", 0).latest_offset == 0


def test_a_file_that_is_missing_while_the_lock_is_held_is_damage(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        writer = log.partition("t", 0).log.writable()
        with pytest.raises(CorruptSegment, match="is missing"):
            writer._lock.holding(1000, lambda _: (tmp_log_dir / "t-0" / "none").read_bytes())
