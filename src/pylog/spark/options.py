"""The options of the source: Spark's Kafka source's names, meanings and defaults, for those that are supported.

Owns which options there are and what their values may be. Pure: knows no directory, so whether a topic exists is asked
elsewhere. Nothing is ignored: an option that has no effect here is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pylog.errors import ConfigError
from pylog.model import EARLIEST, LATEST, TopicPartition
from pylog.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED

SUPPORTED = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "failOnDataLoss",
    "isolationLevel",
)
NOT_YET = (
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "splitBytes",
    "onCorruption",
)
FOR_A_BROKER = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")

_INT64_MAX = 2**63 - 1
_EXAMPLE_OF_PARTITIONS = '{"orders": [0, 1]}'
_EXAMPLE_OF_OFFSETS = '{"orders": {"0": 23, "1": -2}}'


class Offsets(NamedTuple):
    """Where to start or to end: the same everywhere, or by partition. -2 is the earliest offset, -1 the latest."""

    everywhere: int
    each: Mapping[TopicPartition, int] | None = None

    def of(self, topic_partition: TopicPartition) -> int:
        return self.everywhere if self.each is None else self.each[topic_partition]


class Selection(NamedTuple):
    """The partitions to read: by topic, by a pattern of topics, or one by one. Without any of these all of them."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query, checked. ``path`` is absolute: executors have other working directories."""

    path: str
    selection: Selection
    starting: Offsets
    ending: Offsets
    include_headers: bool
    fail_on_data_loss: bool
    isolation_level: str

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options as Spark hands them over, names in any case. ``ConfigError`` names the one that is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        _refuse_others(given)
        starting = _offsets(given, "startingOffsets", EARLIEST, LATEST)
        ending = _offsets(given, "endingOffsets", LATEST, EARLIEST)
        _check_order(starting, ending)
        return cls(
            _path(given.get("path")),
            _selection(given),
            starting,
            ending,
            _boolean(given, "includeHeaders", default=False),
            _boolean(given, "failOnDataLoss", default=True),
            _choice(given, "isolationLevel", READ_COMMITTED, READ_UNCOMMITTED),
        )


def _refuse_others(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in SUPPORTED}
    spelled = {name.lower(): name for name in (*SUPPORTED, *NOT_YET, *FOR_A_BROKER)}
    for name in sorted(given.keys() - known):
        if name == "paths":
            raise _wrong("path", given[name], "one path; read several logs one by one and union them")
        if name.startswith("kafka.") or name in map(str.lower, FOR_A_BROKER):
            raise ConfigError(
                f"option {spelled.get(name, name)!r} is for a broker, and here is none: the log is read from 'path'. Remove it",
                option=spelled.get(name, name),
            )
        if name in spelled:
            raise ConfigError(f"option {spelled[name]!r} is not supported yet", option=spelled[name])
        meant = [f"; did you mean {spelled[other]!r}?" for other in get_close_matches(name, known, n=1)]
        raise ConfigError(
            f"no option {name!r}{''.join(meant) or '; there are ' + ', '.join(SUPPORTED)}",
            option=name,
            value=given[name],
        )


def _wrong(option: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{option}={value!r}, expected {expected}", option=option, value=value)


def _path(value: str | None) -> str:
    """An absolute path. ``file:`` URIs are paths too; other schemes name filesystems that are not mounted here."""
    if not value:
        raise _wrong("path", value, "a log's directory: .load(path)")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", value):
        uri = urlsplit(value)
        if uri.scheme != "file" or uri.netloc not in ("", "localhost"):
            raise _wrong("path", value, "a directory of a mounted filesystem")
        value = unquote(uri.path)
    return str(Path(value).absolute())


def _selection(given: Mapping[str, str]) -> Selection:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(named) > 1:
        raise ConfigError(
            f"options {' and '.join(map(repr, named))} exclude each other: give one of them", option=named[1]
        )
    if not named:
        return Selection()
    value = given[named[0].lower()].strip()
    if named == ["assign"]:
        return Selection(partitions=_partitions(value))
    if named == ["subscribe"]:
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise _wrong("subscribe", value, "names of topics, separated by commas")
        return Selection(topics=topics)
    try:
        re.compile(value)
    except re.error as error:
        raise _wrong("subscribePattern", value, f"a regular expression ({error})") from error
    if not value:
        raise _wrong("subscribePattern", value, "a regular expression")
    return Selection(pattern=value)


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    expected = f"partitions by topic as in {_EXAMPLE_OF_PARTITIONS}"
    found: list[TopicPartition] = []
    for topic, numbers in _json("assign", text, expected).items():
        if not isinstance(numbers, list) or not all(_is_int(number, 0) for number in numbers):
            raise _wrong("assign", text, expected)
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise _wrong("assign", text, expected)
    return tuple(dict.fromkeys(found))


def _offsets(given: Mapping[str, str], option: str, default: int, never: int) -> Offsets:
    """``never`` is the place a batch query can't have there: a start at the latest offset, an end at the earliest."""
    words = {"earliest": EARLIEST, "latest": LATEST}
    names = {value: word for word, value in words.items()}
    value = given.get(option.lower(), names[default]).strip()
    expected = f"{names[default]!r} or offsets by partition as in {_EXAMPLE_OF_OFFSETS}"
    if value.lower() in words:
        if words[value.lower()] == never:
            raise _wrong(option, value, f"{expected}; a batch query can't have {names[never]!r} there")
        return Offsets(words[value.lower()])
    each: dict[TopicPartition, int] = {}
    for topic, offsets in _json(option, value, expected).items():
        if not isinstance(offsets, dict):
            raise _wrong(option, value, expected)
        for number, offset in offsets.items():
            if not re.fullmatch("0|[1-9][0-9]{0,9}", number) or not _is_int(offset, EARLIEST):
                raise _wrong(option, value, expected)
            if offset == never:
                raise _wrong(option, value, f"{expected}; a batch query can't have {never} ({names[never]}) there")
            each[TopicPartition(topic, int(number))] = offset
    return Offsets(default, each)


def _check_order(starting: Offsets, ending: Offsets) -> None:
    for topic_partition, start in (starting.each or {}).items():
        end = (ending.each or {}).get(topic_partition, LATEST)
        if 0 <= end < start:
            topic, partition = topic_partition
            raise ConfigError(
                f"startingOffsets has {start} for {topic}-{partition}, behind its {end} in endingOffsets",
                option="startingOffsets",
                value=start,
            )


def _json(option: str, text: str, expected: str) -> dict[str, Any]:
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _wrong(option, text, f"{expected} ({error})") from error
    if not isinstance(content, dict):
        raise _wrong(option, text, expected)
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name stands there twice")
    return content


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _INT64_MAX


def _boolean(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    value = given.get(option.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise _wrong(option, value, "true or false")
    return value == "true"


def _choice(given: Mapping[str, str], option: str, default: str, other: str) -> str:
    value = given.get(option.lower(), default).strip().lower()
    if value not in (default, other):
        raise _wrong(option, value, f"{default} or {other}")
    return value
