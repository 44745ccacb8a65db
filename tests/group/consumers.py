"""Consumers in groups, over a real log: what the tests of them share."""

from __future__ import annotations

from typing import Any

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.group.membership import Membership
from pylog.group.offsets import OffsetStore
from pylog.storage import FileLock

ROUNDS = 6


def place(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def member(log: Log, group: str = "g", topics: Any = "t", **options: Any) -> Consumer:
    told: dict[str, Any] = {name: options.pop(name) for name in list(options) if name.startswith("on_")}
    consumer = Consumer(log, group_id=group, **{"auto_offset_reset": "earliest", **options})
    consumer.subscribe(topics, **told)
    return consumer


def membership_of(consumer: Consumer) -> Membership:
    """How the consumer is a member of its group."""
    assert consumer._group is not None
    return consumer._group.membership


def lock_of(consumer: Consumer) -> FileLock:
    """What a member holds as long as its process lives."""
    lock = membership_of(consumer)._alive
    assert lock is not None
    return lock


def settle(*consumers: Consumer) -> list[list[TopicPartition]]:
    """Let all of them follow the group in turn, as a poll does before it reads; what each has
    then."""
    for _ in range(ROUNDS):
        for consumer in consumers:
            consumer._assignment.refresh()
    return [sorted(consumer.assignment()) for consumer in consumers]


def fill(log: Log, count: int = 10, topic: str = "t") -> None:
    with Producer(log, acks=1) as producer:
        for partition in range(log.describe_topic(topic).partitions):
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition)


def checkpoint(store: OffsetStore, group: str = "g") -> None:
    """Write a checkpoint of the group's commits if enough of them came since the last one."""
    partition = store.partition_of(group)
    assert partition is not None
    store.checkpoint_if_due(partition, lambda: 30.0)


def offsets_of(records: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record.offset)
    return found
