"""The offsets of a stream, as Spark keeps them in a query's checkpoint: the JSON of its Kafka source.

    {"orders": {"0": 23, "1": 0}}

Where a batch does not start where the one before has ended, its end says so in one entry more, ``"$from"``: the first one, for
which Spark would ask again where to start if it had to be replayed, when ``latest`` means another place; and one that comes to
a topic that was created anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pylog.errors import ConfigError
from pylog.model import TopicPartition
from pylog.spark.bounds import is_int

FROM = "$from"  # no topic can be called so

Positions = dict[TopicPartition, int]


def encode(ends: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int] | None = None) -> dict[str, Any]:
    """Of equal positions always the same text: Spark compares that. ``starts``: those that no batch has ended at."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    if starts is not None:
        found[FROM] = encode(starts)
    return found


def decode(offsets: Mapping[str, Any]) -> Positions:
    """The next offset to be read, by partition. ``ConfigError`` for what is no such thing."""
    return {
        partition: offset
        for topic, numbers in offsets.items()
        if topic != FROM
        for partition, offset in _of_topic(topic, numbers).items()
    }


def starts(start: Mapping[str, Any], end: Mapping[str, Any]) -> Positions:
    """Where the batch between the two starts."""
    return decode(start) | decode(end.get(FROM, {}))


def _of_topic(topic: str, numbers: object) -> Positions:
    if not isinstance(numbers, dict) or not all(
        re.fullmatch("0|[1-9][0-9]{0,9}", number) and is_int(offset, 0) for number, offset in numbers.items()
    ):
        raise ConfigError(
            f"the checkpoint has {numbers!r} for topic {topic!r}, expected offsets by partition; it is of another source, "
            "or damaged: start with a new checkpointLocation",
            option="checkpointLocation",
            topic=topic,
            value=numbers,
        )
    return {TopicPartition(topic, int(number)): offset for number, offset in numbers.items()}
