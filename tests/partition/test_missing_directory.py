"""A partition's directory that somebody has removed: what is said is that it is missing, not that
the topic was deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog.cli.exits import CORRUPT
from pylog.cli.main import main
from pylog.consumer import Consumer
from pylog.errors import CorruptSegment, NotAppended, TopicNotFound
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from pylog.producer import Producer
from pylog.spark.source.directory import LogDirectory
from tests.partition.logs import one

MISSING = "the directory of partition 0 of 't' is missing, but the topic was not deleted: put .*t-0 back from a copy"
DELETED = "partition 0 of 't' is gone: the topic was deleted"


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    """A log with a record in each of two partitions, both open."""
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("t", partitions=2)
        for number in (0, 1):
            opened.partition("t", number).append(one("v"), acks=1)
        yield opened


def polled(log: Log, **options: object) -> object:
    with Consumer(log, auto_offset_reset="earliest", **options) as consumer:
        consumer.subscribe("t")
        return [consumer.poll(0) for _ in range(3)]


def sent(log: Log) -> object:
    with Producer(log, acks=1) as producer:
        return producer.send("t", b"v", partition=0).result()


def cause_of(send: Callable[[], object]) -> object:
    """Nothing was appended, and why."""
    try:
        return send()
    except NotAppended as error:
        raise error.__cause__ or error from None


USES: dict[str, Callable[[Log], object]] = {
    "read": lambda log: log.partition("t", 0).read(0),
    "append": lambda log: cause_of(lambda: log.partition("t", 0).append([ProducerRecord(b"v")])),
    "delete records": lambda log: log.delete_records(TopicPartition("t", 0), 1),
    "segments": lambda log: log.partition("t", 0).segments,
    "send": lambda log: cause_of(lambda: sent(log)),
    "poll": polled,
    "poll in a group": lambda log: polled(log, group_id="g"),
    "spark": lambda log: [source.published() for source in LogDirectory(str(log.path)).partitions("t")],
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_directory_that_was_removed_is_missing(log: Log, use: Callable[[Log], object], is_open: bool) -> None:
    """A member of a group read the other partitions, and never said a word."""
    shutil.rmtree(log.path / "t-0")
    with log if is_open else Log(log.path) as used, pytest.raises(CorruptSegment, match=MISSING) as caught:
        use(used)
    assert caught.value.path == str(log.path / "t-0")


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_partition_that_was_open_when_its_topic_was_deleted_is_gone(log: Log, use: Callable[[Log], object]) -> None:
    partition, source = log.partition("t", 0), LogDirectory(str(log.path)).partition(TopicPartition("t", 0))
    with Log(log.path) as other:
        other.delete_topic("t")
    with pytest.raises(TopicNotFound):
        partition.read(0)
    with pytest.raises(TopicNotFound, match=DELETED):
        source.published()
    with Log(log.path) as other:
        other.create_topic("t", partitions=2)
        shutil.rmtree(log.path / "t-0")
    with pytest.raises(TopicNotFound, match=DELETED):
        source.published()
    with Log(log.path) as used, pytest.raises(CorruptSegment, match=MISSING):
        use(used)


@pytest.mark.parametrize("command", [["stats"], ["consume", "t", "--from-beginning"], ["consume", "t", "--group", "g"]])
def test_commands_say_so(log: Log, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(log.path / "t-0")
    assert main([*command, "--log", str(log.path)]) == CORRUPT
    assert "the directory of partition 0 of 't' is missing" in capsys.readouterr().err


def test_the_topic_can_be_deleted_and_the_partition_can_come_back(log: Log) -> None:
    """What the message says."""
    copy = log.path.parent / "copy"
    shutil.copytree(log.path / "t-0", copy)
    shutil.rmtree(log.path / "t-0")
    with Log(log.path) as other, pytest.raises(CorruptSegment):
        other.partition("t", 0).read(0)
    copy.rename(log.path / "t-0")
    with Log(log.path) as other:
        assert [record.value for record in other.partition("t", 0).read(0)] == [b"v"]
        shutil.rmtree(log.path / "t-0")
        other.delete_topic("t")
        assert other.topics() == []
        assert other.verify().problems == []


def test_a_log_that_was_removed_whole_is_not_found(log: Log) -> None:
    partition = log.partition("t", 0)
    shutil.rmtree(log.path)
    with pytest.raises(FileNotFoundError, match="was moved or removed while it was open"):
        partition.append(one("v"))
