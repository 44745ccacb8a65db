"""A topic gets other partitions in another process: from the next send on, keys go where all
producers send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer
from pylog.errors import FormatVersionError, InvalidPartition, TopicChanged
from pylog.producer.buffer import PartitionBuffer
from pylog.testing import ManualClock

KEYS = [b"k%d" % number for number in range(20)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logs(tmp_log_dir: Path, clock: ManualClock) -> Iterator[tuple[Log, Log]]:
    with Log(tmp_log_dir, clock=clock) as log, Log(tmp_log_dir) as other:
        yield log, other


def recreated(log: Log, partitions: int) -> None:
    log.delete_topic("t")
    log.create_topic("t", partitions=partitions)


def grown(log: Log, partitions: int) -> None:
    log.add_partitions("t", partitions)


def one_by_one(producer: Producer) -> list[int]:
    return [producer.send("t", b"v", key=key).result().partition for key in KEYS]


def many(producer: Producer) -> list[int]:
    return [delivery.result().partition for delivery in producer.send_many("t", [b"v"] * len(KEYS), keys=KEYS)]


def table(producer: Producer, **more: Any) -> list[int]:
    pyarrow = pytest.importorskip("pyarrow")
    rows = pyarrow.table({"key": KEYS, "value": [b"v"] * len(KEYS), **more})
    return [delivery.result().partition for delivery in producer.send_arrow("t", rows)]


def table_with_headers(producer: Producer) -> list[int]:
    return table(producer, headers=[[{"key": "h", "value": b"x"}]] * len(KEYS))


@pytest.mark.parametrize("send", [one_by_one, many, table, table_with_headers])
@pytest.mark.parametrize(
    ("change", "before", "after"),
    [(recreated, 2, 5), (recreated, 5, 2), (recreated, 3, 1), (grown, 2, 5), (grown, 1, 3)],
)
def test_each_key_goes_to_its_partition_of_the_changed_topic(
    logs: tuple[Log, Log],
    clock: ManualClock,
    send: Callable[[Producer], list[int]],
    change: Callable[[Log, int], None],
    before: int,
    after: int,
) -> None:
    log, other = logs
    other.create_topic("t", partitions=before)
    with Producer(log, acks=1) as producer:
        send(producer)
        change(other, after)
        clock.sleep(1)
        placed = send(producer)
    with Producer(other, acks=1) as new:
        assert placed == send(new)


@pytest.mark.parametrize("partitioner", ["sticky", "round_robin", None])
def test_a_record_without_a_key_is_never_for_a_partition_that_is_gone(
    logs: tuple[Log, Log], clock: ManualClock, partitioner: str | None
) -> None:
    log, other = logs
    options: dict[str, Any] = {} if partitioner is None else {"partitioner": partitioner, "partitioner_override": True}
    with Producer(log, acks=1, **options) as producer:
        for number in range(10):
            other.create_topic("t", partitions=5)
            clock.sleep(1)
            for _ in range(number + 1):
                producer.send("t", b"v").result()
            recreated(other, 1)
            clock.sleep(1)
            assert producer.send("t", b"v").result().partition == 0
            assert [delivery.result().partition for delivery in producer.send_many("t", [b"v"] * 3)] == [0, 0, 0]
            other.delete_topic("t")
            clock.sleep(1)


def test_a_partition_that_the_application_names_is_not_chosen_again(logs: tuple[Log, Log], clock: ManualClock) -> None:
    log, other = logs
    other.create_topic("t", partitions=3)
    with Producer(log, acks=1) as producer:
        assert producer.send("t", b"v", key=b"k", partition=2).result().partition == 2
        grown(other, 5)
        clock.sleep(1)
        assert producer.send("t", b"v", key=b"k", partition=2).result().partition == 2
        recreated(other, 1)
        clock.sleep(1)
        with pytest.raises(InvalidPartition, match="created again with partitions 0 to 0, the record is for 2"):
            producer.send("t", b"v", key=b"k", partition=2)


@pytest.mark.parametrize("partition", [None, 0])
def test_the_first_record_after_a_repartition_is_refused(
    logs: tuple[Log, Log], clock: ManualClock, partition: int | None
) -> None:
    """Those before it may have failed."""
    log, other = logs
    other.create_topic("t", partitions=3)
    with Producer(log, acks=1) as producer:
        producer.send("t", b"v", key=b"k", partition=partition).result()
        other.repartition("t", 5)
        clock.sleep(1)
        with pytest.raises(TopicChanged, match="send"):
            producer.send("t", b"v", key=b"k", partition=partition)
        producer.send("t", b"v", key=b"k", partition=partition).result()


@pytest.mark.parametrize("renames", ["this", "another"])
def test_a_topic_that_has_its_name_again_is_sent_to(logs: tuple[Log, Log], clock: ManualClock, renames: str) -> None:
    log, other = logs
    other.create_topic("t")
    other.create_topic("another")
    renaming = log if renames == "this" else other
    with Producer(log, acks=1) as producer:
        for offset in range(3):
            assert producer.send("t", b"v").result().offset == offset
            renaming.rename_topic("t", "new")
            clock.sleep(1)
            if offset != 1:
                producer.send("another", b"v").result()
            renaming.rename_topic("new", "t")
            clock.sleep(1)


def test_one_topic_that_cannot_be_read_stops_no_other(logs: tuple[Log, Log], clock: ManualClock) -> None:
    log, other = logs
    with Producer(log, acks=1) as producer:
        for name in ("good", "bad"):
            other.create_topic(name)
            producer.send(name, b"v").result()
        file = log.path / ".pylog" / "topics" / "bad.json"
        file.write_text(file.read_text().replace('"config": {', '"config": {"partitioner": "later", '))
        other.create_topic("another")
        clock.sleep(1)
        assert producer.send("good", b"v").result().offset == 1
        assert producer.send_many("good", [b"v"])[0].result().offset == 2
        with pytest.raises(FormatVersionError):
            producer.send("bad", b"v").result()


def test_a_batch_that_an_interrupted_append_has_left_is_acknowledged_after_a_change(
    logs: tuple[Log, Log], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = logs
    other.create_topic("t")
    other.create_topic("another")
    finish = PartitionBuffer.finish_in_flight
    with Producer(log) as producer:
        producer.send("t", b"v").result()

        def interrupted(_: PartitionBuffer) -> None:
            monkeypatch.setattr(PartitionBuffer, "finish_in_flight", finish)
            raise KeyboardInterrupt

        left = producer.send("t", b"v")
        monkeypatch.setattr(PartitionBuffer, "finish_in_flight", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        other.alter_topic("t", writable=False)
        clock.sleep(1)
        producer.send("another", b"v").result()
        producer.flush()
        assert left.result().offset == 1
