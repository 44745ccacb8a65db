"""Which partitions a consumer reads, and what a catalog change means for them. Pure.

A subscription names topics, or a pattern of them, with all partitions, also later ones. An
assignment names partitions and never changes by itself. A consumer has one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pylog.catalog.topic import INTERNAL_TOPICS, check_topic_name
from pylog.errors import ConfigError, InvalidTopicName
from pylog.model import TopicPartition

_OF_PATTERNS = frozenset("^$*+?()[]{}|\\")  # never part of a topic's name

TopicId = object
"""Distinguishes a topic from a later one of the same name; only compared."""


class Subscription(NamedTuple):
    """The topics wanted: by name, or by a pattern that must match the whole name."""

    topics: frozenset[str]
    pattern: re.Pattern[str] | None = None

    @property
    def is_empty(self) -> bool:
        """True if no topic can ever match."""
        return self.pattern is None and not self.topics

    @classmethod
    def of(cls, topics: object) -> Subscription:
        """Parse the argument of ``subscribe``; ``ConfigError`` for anything else."""
        if isinstance(topics, re.Pattern):
            if not isinstance(topics.pattern, str):
                raise ConfigError("a pattern of topics must be made from str, not bytes", pattern=topics.pattern)
            return cls(frozenset(), topics)
        if isinstance(topics, str):
            topics = [topics]
        if not isinstance(topics, Iterable) or isinstance(topics, bytes | bytearray | memoryview):
            raise ConfigError(
                f"topics must be a name, several names or a compiled pattern, not {topics!r}", topics=topics
            )
        names = list(topics)
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if wrong is not None:
            raise ConfigError(f"a topic's name must be a str, not {wrong!r}", topic=wrong)
        for name in names:
            if _OF_PATTERNS & {*name}:
                raise InvalidTopicName(
                    f"{name!r:.80} is not a topic name; compile a pattern of topics: subscribe(re.compile({name!r:.80}))",
                    name=name,
                )
            check_topic_name(name)
        return cls(frozenset(names))

    def wanted(self, existing: Iterable[str]) -> list[str]:
        """The topics to look up, sorted. A pattern never matches an internal topic; a name may."""
        if self.pattern is None:
            return sorted(self.topics)
        return sorted(name for name in existing if name not in INTERNAL_TOPICS and self.pattern.fullmatch(name))


class Topic(NamedTuple):
    """A topic as in the catalog at one moment. ``numbers`` are those of its partitions."""

    name: str
    id: TopicId
    numbers: Sequence[int]


class Change(NamedTuple):
    """Changes to the partitions read. One in both lists was replaced by a new one of that name."""

    removed: list[TopicPartition]
    added: list[TopicPartition]


def change_of(current: Mapping[TopicPartition, TopicId], topics: Iterable[Topic]) -> Change:
    """The change from the current partitions (with topic ids) to all partitions of ``topics``."""
    wanted = {TopicPartition(topic.name, number): topic.id for topic in topics for number in topic.numbers}
    return Change(
        removed=[
            partition for partition, id_ in current.items() if partition not in wanted or wanted[partition] != id_
        ],
        added=[partition for partition, id_ in wanted.items() if partition not in current or current[partition] != id_],
    )


def name_of(partition: TopicPartition) -> str:
    """The name of a partition in messages and of its directory: ``orders-3``."""
    return f"{partition.topic}-{partition.partition}"
