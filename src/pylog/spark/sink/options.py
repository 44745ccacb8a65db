"""The sink's options: ``topic`` as in Spark's Kafka sink, the rest of ``Producer`` and ``Log``.

Names have Spark's spelling. An option without effect is refused by name. Spark's own ones stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.limits import DEFAULT_TIMEOUT_MS
from pylog.spark.source.offset_options import wrong
from pylog.spark.source.options import SUPPORTED as OF_THE_SOURCE
from pylog.spark.source.options import absolute_path, boolean, count, no_option, refuse_a_brokers

SUPPORTED = (
    "path", "topic", "autoCreateTopics", "compression", "compressionLevel", "partitioner", "partitionerOverride",
    "batchBytes", "deliveryTimeoutMs",
)  # fmt: skip
SPARKS_OWN = ("checkpointLocation", "queryName")
KAFKAS = {
    "kafka.compression.type": "compression",
    "kafka.compression.level": "compressionLevel",
    "kafka.batch.size": "batchBytes",
    "kafka.delivery.timeout.ms": "deliveryTimeoutMs",
    "kafka.partitioner.class": "partitioner",
}
WITHOUT_EFFECT = {
    "includeHeaders": "the column headers is written where there is one",
    "kafka.acks": "a commit is synced to the disk",
    "kafka.enable.idempotence": "what is committed is in the log once",
}

_OF_THE_PRODUCER = {
    "compression": "compression",
    "compressionLevel": "compression_level",
    "partitioner": "partitioner",
    "partitionerOverride": "partitioner_override",
    "batchBytes": "batch_bytes",
}


@dataclass(frozen=True)
class SinkOptions:
    """Checked options of a query. ``producer`` holds those of ``Producer``, by its names."""

    path: str
    topic: str | None
    auto_create_topics: bool
    delivery_timeout_ms: int
    producer: Mapping[str, Any]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options from Spark, names in any case. ``ConfigError`` names the wrong one.

        ``MissingCodec`` for a compression library that is not installed.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_others(given)
        producer = {
            theirs: _of_the_producer(given, ours) for ours, theirs in _OF_THE_PRODUCER.items() if ours.lower() in given
        }
        _check_producer(producer)
        return cls(
            absolute_path(given.get("path")),
            _topic(given),
            boolean(given, "autoCreateTopics", default=False),
            count(given, "deliveryTimeoutMs", DEFAULT_TIMEOUT_MS),
            producer,
        )


def _refuse_others(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in SUPPORTED}
    theirs = {name.lower(): name for name in OF_THE_SOURCE}
    has_another_name = {*KAFKAS, *(name.lower() for name in WITHOUT_EFFECT)}
    refuse_a_brokers(given.keys() - known - has_another_name, "the log is written at 'path'")
    for name in sorted(given.keys() - known - {name.lower() for name in SPARKS_OWN}):
        if name == "paths":
            raise wrong("path", given[name], "one path")
        raise ConfigError(_why_not(name, theirs), option=theirs.get(name, name), value=given[name])


def _why_not(name: str, theirs: Mapping[str, str]) -> str:
    for option, why in WITHOUT_EFFECT.items():
        if name == option.lower():
            return f"option {option!r} has no effect on a sink: {why}. Remove it"
    if name in KAFKAS:
        return f"option {name!r} is for a broker, and here is none: here it is {KAFKAS[name]!r}"
    if name in theirs:
        return f"option {theirs[name]!r} is the source's, not the sink's; remove it"
    return no_option(name, SUPPORTED, " of the sink")


def _topic(given: Mapping[str, str]) -> str | None:
    from pylog.catalog import check_topic_name

    topic = given.get("topic")
    return None if topic is None else check_topic_name(topic.strip())


def _of_the_producer(given: Mapping[str, str], option: str) -> object:
    if option == "partitionerOverride":
        return boolean(given, option, default=False)
    return _number(given, option) if option in ("compressionLevel", "batchBytes") else given[option.lower()].strip()


def _number(given: Mapping[str, str], option: str) -> int:
    text = given[option.lower()].strip()
    try:
        return int(text)
    except own(ValueError):
        raise wrong(option, text, "a whole number") from None


def _check_producer(options: Mapping[str, Any]) -> None:
    from pylog.producer.config import ProducerConfig

    try:
        ProducerConfig(**options)
    except own(ConfigError) as error:
        named = {theirs: ours for ours, theirs in _OF_THE_PRODUCER.items()}
        option = str(error.facts.get("option", ""))
        raise ConfigError(f"option {named.get(option, option)!r}: {error}", **error.facts) from error
