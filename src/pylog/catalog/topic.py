"""A topic's name and configuration, and which ones are allowed. Pure.

Names follow Kafka's rule, new ones a stricter one. Configuration keys are Kafka's in snake_case,
with Kafka's defaults unless documented otherwise.
"""

from __future__ import annotations

import logging
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypedDict

from pylog.checks import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pylog.codec.format import INT32_MAX, INT64_MAX
from pylog.errors import ConfigError, InvalidPartition, InvalidTopicName
from pylog.interrupts import own

logger = logging.getLogger("pylog.catalog")

NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{device}{n}" for device in ("com", "lpt") for n in range(10))}  # Windows
INTERNAL_TOPICS = frozenset({
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    "__share_group_state",
    "__cluster_metadata",
    "__remote_log_metadata",
})  # fmt: skip
"""Kafka's own. pylog creates only the first two: a broker would take others for its own state."""
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MURMUR3, MURMUR2 = _PARTITIONERS = ("murmur3", "murmur2")  # murmur2 is Kafka's
_COMPRESSION_TYPES = ("producer", "none", "gzip", "snappy", "lz4", "zstd")
UNLIMITED = -1
_OLD_LIMITS = {
    "retention_ms": 7 * 86_400_000,
    "retention_bytes": UNLIMITED,
}  # with every topic, and nothing was deleted
DELETE, COMPACT, KEEP = "delete", "compact", "none"
_POLICIES = (DELETE, COMPACT, f"{COMPACT},{DELETE}", KEEP)
RECORD_TIME, APPEND_TIME = _CLOCKS = ("record", "append")
CONSUMED = "consumed"
PARTITIONS_MAX = 100_000
_NUMBERS_SHOWN = 10


class TopicOptions(TypedDict, total=False):
    """The fields of ``TopicConfig`` as keywords: type checkers find a misspelt one."""

    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    message_timestamp_type: str
    compression_type: str
    retention_ms: int
    retention_bytes: int
    partitioner: str
    retention: str | None
    retention_clock: str
    cleanup_policy: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    writable: bool


class TopicConfig(NamedTuple):
    """How a topic stores its records.

    ``segment_bytes``: a segment is closed before it would exceed this size. ``segment_ms``: or when
    its first batch is older than this, by the records' timestamps. ``segment_index_bytes``: or when
    an index would exceed this size. ``index_interval_bytes``: bytes of log between two index
    entries. ``max_message_bytes``: largest encoded batch, with its header.
    ``message_timestamp_type``: ``CreateTime`` keeps the producer's timestamps, ``LogAppendTime``
    replaces them. ``compression_type``: the codec of producers that name none; ``producer`` is
    none. ``partitioner``: the hash of keys for producers: ``murmur3``, or ``murmur2`` for topics
    shared with Kafka's Java clients or to be moved to Kafka.

    ``retention_ms``: a segment is deleted when its newest record is older than this. -1: never.
    ``retention_bytes``: the oldest closed segments of a partition are deleted while the others have
    at least this size. -1: never. ``retention="consumed"``: only what all groups of the topic have
    committed, durably, is deleted; at once, unless a limit is set, too. ``retention_clock``: time
    counts from the record's timestamp (``record``) or from the append (``append``).

    ``cleanup_policy``: ``delete`` obeys retention, ``compact`` keeps the newest record of each key,
    ``compact,delete`` does both, ``none`` nothing. A partition is compacted when
    more than ``min_cleanable_dirty_ratio`` of its closed bytes is dirty, or a dirty record is older
    than ``max_compaction_lag_ms``. A record is not compacted before it is ``min_compaction_lag_ms``
    old. A tombstone stays for ``delete_retention_ms`` after its first compaction.

    ``writable=False`` makes it read-only: no process appends records. Its transactions end, and its
    policies stay in force; ``cleanup_policy="none"`` keeps what it has.
    """

    segment_bytes: int = 128 << 20
    segment_ms: int = 7 * 86_400_000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_type: str = "CreateTime"
    compression_type: str = "producer"
    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    partitioner: str = MURMUR3
    retention: str | None = None
    retention_clock: str = RECORD_TIME
    cleanup_policy: str = DELETE
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 86_400_000
    writable: bool = True

    def with_changes(self, changes: Mapping[str, Any]) -> TopicConfig:
        """A changed copy; itself, unchecked, without changes. ``ConfigError`` for unknown options
        and values out of range."""
        if not changes:
            return self
        for option in changes:
            if option not in self._fields:
                raise ConfigError(
                    f"no topic option {reprlib.repr(option)}; there are {', '.join(self._fields)}", option=option
                )
        changed = self._replace(**changes)
        if isinstance(changed.cleanup_policy, str):  # Kafka's spelling of several, in any order
            changed = changed._replace(cleanup_policy=",".join(sorted(changed.cleanup_policy.split(","))))
        changed.check()
        return changed

    def check(self) -> None:
        """Raises ``ConfigError`` for a value out of range."""
        _check_range("segment_bytes", self.segment_bytes, 1024, INT32_MAX)
        _check_range("segment_ms", self.segment_ms, 1, INT64_MAX)
        _check_range("segment_index_bytes", self.segment_index_bytes, 24, INT32_MAX)
        _check_range("index_interval_bytes", self.index_interval_bytes, 0, INT32_MAX)
        _check_range("max_message_bytes", self.max_message_bytes, 128, INT32_MAX)
        _check_range("retention_ms", self.retention_ms, -1, INT64_MAX)
        _check_range("retention_bytes", self.retention_bytes, -1, INT64_MAX)
        _check_choice("message_timestamp_type", self.message_timestamp_type, _TIMESTAMP_TYPES)
        _check_choice("compression_type", self.compression_type, _COMPRESSION_TYPES)
        _check_choice("partitioner", self.partitioner, _PARTITIONERS)
        _check_choice("retention", self.retention, (None, CONSUMED))
        _check_choice("retention_clock", self.retention_clock, _CLOCKS)
        _check_choice("cleanup_policy", self.cleanup_policy, _POLICIES)
        ratio = self.min_cleanable_dirty_ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio <= 1:
            raise ConfigError(
                f"min_cleanable_dirty_ratio={reprlib.repr(ratio)}, expected a number from 0 to 1",
                option="min_cleanable_dirty_ratio", value=ratio,
            )  # fmt: skip
        _check_range("min_compaction_lag_ms", self.min_compaction_lag_ms, 0, INT64_MAX)
        _check_range("max_compaction_lag_ms", self.max_compaction_lag_ms, 1, INT64_MAX)
        _check_range("delete_retention_ms", self.delete_retention_ms, 0, INT64_MAX)
        if not isinstance(self.writable, bool):
            raise ConfigError(
                f"writable={reprlib.repr(self.writable)}, expected True or False",
                option="writable",
                value=self.writable,
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min_compaction_lag_ms={self.min_compaction_lag_ms} is more than "
                f"max_compaction_lag_ms={self.max_compaction_lag_ms}",
                option="min_compaction_lag_ms", value=self.min_compaction_lag_ms, most=self.max_compaction_lag_ms,
            )  # fmt: skip

    @property
    def has_limit(self) -> bool:
        """Whether retention has a limit of time or of size."""
        return (self.retention_ms, self.retention_bytes) != (UNLIMITED, UNLIMITED)

    @property
    def is_deleted_from(self) -> bool:
        """Whether retention may delete records."""
        return DELETE in self.cleanup_policy

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest record of each key is kept."""
        return COMPACT in self.cleanup_policy

    def as_dict(self) -> dict[str, Any]:
        """The options by name."""
        return self._asdict()


OWN_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""The internal topics that pylog writes."""
OWN_TOPICS_OPTIONS = TopicConfig(segment_bytes=4 << 20, cleanup_policy=COMPACT)._asdict()
"""How they are created: whatever the log's defaults, with segments that are closed, and so
compacted, soon."""


def own_topic_changes(topic: TopicDescription) -> dict[str, Any]:
    """What to alter of an internal topic which a version has made that did not compact; {} of any
    other topic."""
    if topic.name not in OWN_TOPICS or topic.config.cleanup_policy != DELETE:
        return {}
    segment_bytes = min(topic.config.segment_bytes, OWN_TOPICS_OPTIONS["segment_bytes"])
    return {"cleanup_policy": COMPACT, "segment_bytes": segment_bytes}


class TopicDescription(NamedTuple):
    """A topic in the catalog. ``id`` is a UUID in Kafka's base64 form.

    A Kafka broker need not hold all ``partitions``: then ``present`` lists those in this directory,
    and ``partitions`` is the number that they imply. Else ``present`` is None. ``earlier_ids`` are
    those the topic had before it was repartitioned.
    """

    name: str
    id: str
    partitions: int
    config: TopicConfig
    present: tuple[int, ...] | None = None
    earlier_ids: tuple[str, ...] = ()

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the partitions in this directory, ascending."""
        return range(self.partitions) if self.present is None else self.present


def check_topic_name(name: object) -> str:
    """The name if it follows Kafka's rule, for topics to read; else ``InvalidTopicName``."""
    if not isinstance(name, str):
        raise InvalidTopicName(f"a topic name is a str, got {type(name).__name__}", name=name)
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidTopicName(f"a topic name has 1 to {NAME_LENGTH_MAX} characters, got {len(name)}", name=name)
    if name in (".", "..") or not _LEGAL.match(name):
        raise InvalidTopicName(f"{name!r} is no topic name: allowed are a-z A-Z 0-9 . _ - (not '.' or '..')", name=name)
    return name


def check_new_topic_name(name: object) -> str:
    """The name if a topic may be created with it; else ``InvalidTopicName``: it looks like an
    option, is hidden, or is not a file name on some systems."""
    checked = check_topic_name(name)
    if checked[0] in "-." or checked[-1] == "." or checked.partition(".")[0].lower() in _RESERVED:
        raise InvalidTopicName(
            f"no topic is created with the name {checked!r}: it begins with '-' or '.', or ends with '.', or is the name of a "
            "device elsewhere (con, nul, com1, ...); take another name",
            name=checked,
        )
    return checked


def check_no_internal_name(name: str) -> None:
    """Raises ``InvalidTopicName`` for a topic that Kafka itself writes to, or one too similar."""
    if collision_key(name) in map(collision_key, INTERNAL_TOPICS):
        raise InvalidTopicName(
            f"no topic is created with the name {name!r}: Kafka keeps its own state in it, and a broker that served this log "
            "would take these records for that; take another name"
            + (" (the first commit of a group creates this one)" if name == OFFSETS_TOPIC else ""),
            name=name,
        )


def lawful_names(found: Iterable[str], directory: str) -> list[str]:
    """The valid names of those on the disk, sorted. Each invalid one is logged once."""
    names = []
    for name in found:
        try:
            names.append(check_topic_name(name))
        except own(InvalidTopicName) as error:
            _warn_of_name(name, directory, str(error))
    return sorted(names)


def ignored_limits(path: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that ``path`` records as earlier versions did, as unlimited. Others than their
    defaults are logged once: nothing ever obeyed such a limit, so it must not take effect now."""
    found = {option: recorded[option] for option in _OLD_LIMITS if option in recorded}
    for option, value in found.items():
        if value not in (UNLIMITED, _OLD_LIMITS[option]):
            _warn_of_limit(path, option, value)
    return dict.fromkeys(found, UNLIMITED)


@cache
def _warn_of_name(name: str, directory: str, error: str) -> None:
    logger.warning("skipping %r in %r: %s", name, directory, error)


@cache
def _warn_of_limit(path: str, option: str, value: int) -> None:
    logger.warning(
        "%r records %s=%d, which an earlier version did not obey; it is read as -1, unlimited: to have it obeyed, "
        "alter_topic(..., %s=%d)", path, option, value, option, value,
    )  # fmt: skip


def collision_key(name: str) -> str:
    """Names with equal keys collide: in Kafka by ``.`` and ``_``, on some filesystems by case."""
    return name.replace(".", "_").lower()


def check_partition_count(partitions: object) -> int:
    _check_range("partitions", partitions, 1, PARTITIONS_MAX)
    assert isinstance(partitions, int)
    return partitions


def no_such_partition(topic: str, number: object, numbers: Sequence[int]) -> InvalidPartition:
    """The error for a partition not in ``numbers``, the topic's partitions in this directory."""
    if isinstance(numbers, range):
        there = f"partitions 0 to {numbers[-1]}"
    else:
        more = "" if len(numbers) <= _NUMBERS_SHOWN else ", …"
        shown = ", ".join(map(str, numbers[:_NUMBERS_SHOWN]))
        there = f"here only partition{'s' if len(numbers) > 1 else ''} {shown}{more}"
    return InvalidPartition(
        f"topic {topic!r} has {there}, got {number!r}", topic=topic, partition=number, partitions=len(numbers)
    )


def _check_range(option: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(
            f"{option}={reprlib.repr(value)}, expected an int from {least} to {most}", option=option, value=value
        )


def _check_choice(option: str, value: object, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        expected = ", ".join(f'"{choice}"' if "," in f"{choice}" else f"{choice}" for choice in choices)
        raise ConfigError(f"{option}={reprlib.repr(value)}, expected one of {expected}", option=option, value=value)
