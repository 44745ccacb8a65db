"""A broker's directory that does not hold every partition of a topic, or that names impossible
ones."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pylog.consumer import Consumer
from pylog.errors import InvalidPartition, TopicNotFound
from pylog.log import Log
from pylog.model import TopicPartition
from pylog.spark.source.directory import LogDirectory
from pylog.testing import consume_all
from tests.cli.conftest import Run

KAFKA_LOG = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
KEYED_1 = TopicPartition("keyed", 1)


@pytest.fixture
def broker(log_dir: Path) -> Path:
    """Of the three partitions of ``keyed``, this broker has the second."""
    shutil.copytree(KAFKA_LOG / "keyed-1", log_dir / "keyed-1")
    shutil.copytree(KAFKA_LOG / "rolled-0", log_dir / "rolled-0")
    return log_dir


@pytest.fixture
def expected() -> int:
    with Log(KAFKA_LOG) as log:
        return len(consume_all(log, "keyed", partition=1))


def test_a_description_tells_which_partitions_are_here(broker: Path, pylog: Run) -> None:
    with Log(broker) as log:
        topic = log.describe_topic("keyed")
        assert (topic.partitions, topic.present, list(topic.numbers)) == (2, (1,), [1])
        whole = log.describe_topic("rolled")
        assert (whole.partitions, whole.present, list(whole.numbers)) == (1, None, [0])
    assert pylog("topics", "describe", "keyed").lines[0].startswith("keyed  2 partitions (here: 1)  id ")
    (shown,) = pylog("topics", "describe", "keyed", "--json").objects
    assert (shown["partitions"], shown["present"]) == (2, [1])


@pytest.mark.parametrize("topics", ["keyed", re.compile("key.*")])
def test_a_subscription_reads_the_partitions_that_are_here(broker: Path, expected: int, topics: str) -> None:
    with Log(broker) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topics)
        assert consumer.assignment() == {KEYED_1}
        assert consumer.partitions_for_topic("keyed") == {1}
        found = 0
        while records := consumer.poll():
            found += len(records)
        assert found == expected > 0
        assert len(consume_all(log, "keyed")) == expected


@pytest.mark.parametrize("number", [0, 2])
def test_a_partition_of_another_broker_is_refused_by_name(broker: Path, pylog: Run, number: int) -> None:
    message = rf"topic 'keyed' has here only partition 1, got {number}"
    with Log(broker) as log, Consumer(log) as consumer:
        with pytest.raises(InvalidPartition, match=message):
            log.partition("keyed", number)
        with pytest.raises(InvalidPartition, match=message):
            consumer.assign([TopicPartition("keyed", number)])
    with pytest.raises(InvalidPartition):
        LogDirectory(str(broker)).partition(TopicPartition("keyed", number))
    ran = pylog("consume", "keyed", "--partition", str(number), "--from-beginning")
    assert (ran.code, ran.out) == (3, "")
    assert re.search(message, ran.err)


def test_the_commands_work_with_the_partitions_that_are_here(broker: Path, pylog: Run, expected: int) -> None:
    ran = pylog("consume", "keyed", "--from-beginning", "--json")
    assert (ran.code, {found["partition"] for found in ran.objects}, len(ran.objects)) == (0, {1}, expected)
    assert pylog("verify").code == 0
    ran = pylog("stats", "--json")
    assert [(found["topic"], found["partition"]) for found in ran.objects] == [("keyed", 1), ("rolled", 0)]
    assert ran.code == 0
    assert [source.topic_partition for source in LogDirectory(str(broker)).partitions("keyed")] == [KEYED_1]


@pytest.mark.parametrize("digits", ["100000", "9999999999", "9" * 240])
def test_a_number_that_no_partition_has_makes_nobody_count_to_it(log_dir: Path, pylog: Run, digits: str) -> None:
    for name in ("t-99999", f"t-{digits}", f"u-{digits}"):
        (log_dir / name).mkdir(parents=True)
        (log_dir / name / f"{0:020d}.log").touch()
    with Log(log_dir) as log:
        assert log.topics() == ["t"]
        assert list(log.describe_topic("t").numbers) == [99999]
        with pytest.raises(TopicNotFound):
            log.describe_topic("u")
    assert len(pylog("stats", "--json").objects) == 1
    assert pylog("verify").code == 0
