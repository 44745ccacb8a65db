"""Values that all rooms use. All are immutable and independent of files, clocks and threads.

Offsets are logical record numbers. Timestamps are milliseconds since 1970-01-01 UTC; -1 means none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from pylog.kafka_names import answers_kafkas_names

Header = tuple[str, bytes | None]
Headers = tuple[Header, ...]
GivenHeaders = Sequence[Header] | Mapping[str, bytes | None]
"""The headers of a record to write: pairs, or a dict. No iterator: a record may be encoded
twice."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1

EARLIEST = -2
LATEST = -1


@answers_kafkas_names
class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


# a NamedTuple: the compiled decoder builds it as fast as a tuple
@answers_kafkas_names
class Record(NamedTuple):
    """One record as read. ``key`` and ``value`` are bytes or None, or a deserializer's result."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


class ProducerRecord(NamedTuple):
    """A record to append. ``timestamp_ms=None``: the clock's time. ``headers``: pairs or a dict."""

    value: bytes | None
    key: bytes | None = None
    headers: GivenHeaders = ()
    timestamp_ms: int | None = None


@answers_kafkas_names
class RecordMetadata(NamedTuple):
    """The place of a record. ``offset`` is -1 under ``acks=0``, which waits for nothing."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class AppendResult(NamedTuple):
    """The place of appended records: ``base_offset`` to ``last_offset``, both inclusive.

    ``timestamp_ms`` is the append time of a LogAppendTime topic, else -1. ``duplicate`` is True if
    the batch was in the log already; the offsets are then those of the first time.
    """

    base_offset: int
    last_offset: int
    timestamp_ms: int
    duplicate: bool


@answers_kafkas_names
class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset and its own timestamp."""

    offset: int
    timestamp_ms: int


@answers_kafkas_names
class OffsetAndMetadata(NamedTuple):
    """A committed offset (the next one to read) and the application's note with it."""

    offset: int
    metadata: str = ""


Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
"""Offsets to commit: the next to read of each partition."""


@answers_kafkas_names
class ConsumerGroupMetadata(NamedTuple):
    """A member, for commits that others make in its name. ``generation`` is -1 for a non-member.
    ``topic_ids`` has the topic that is read of each partition: another may get its name."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    topic_ids: Mapping[TopicPartition, str] = MappingProxyType({})


class OffsetRange(NamedTuple):
    """Offsets from ``start`` (inclusive) to ``end`` (exclusive)."""

    start: int
    end: int


class Flushable(Protocol):
    """A part of a producer, as its log sees it."""

    def log_closes(self) -> None:
        """Accept no more records, and write all, or let them fail."""
