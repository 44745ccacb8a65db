"""The options of the source: Spark's Kafka source's names, meanings and defaults, for those that are supported.

Owns which options there are and what their values may be. Pure: knows no directory, so whether a topic exists is asked
elsewhere. Nothing is ignored: an option that has no effect here is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pylog.errors import ConfigError
from pylog.model import TopicPartition
from pylog.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED
from pylog.spark.bounds import Bound, check_order, end_bound, is_int, json_object, start_bound, wrong

SUPPORTED = (
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "splitBytes",
    "includeHeaders",
    "failOnDataLoss",
    "isolationLevel",
    "onCorruption",
)
NOT_YET = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
)
FOR_A_BROKER = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")

SPLIT_BYTES = 64 << 20
_EXAMPLE_OF_PARTITIONS = '{"orders": [0, 1]}'


class Selection(NamedTuple):
    """The partitions to read: by topic, by a pattern of topics, or one by one. Without any of these all of them."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


class Splitting(NamedTuple):
    """How many bytes of a partition a task reads, about; at least so many tasks; at most so many offsets each. 0: no matter."""

    piece_bytes: int
    tasks_min: int
    offsets_max: int


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query, checked. ``path`` is absolute: executors have other working directories."""

    path: str
    selection: Selection
    starting: Bound
    ending: Bound
    late_start: str  # where to start when no record is as late: "error" or "latest"
    splitting: Splitting
    include_headers: bool
    fail_on_data_loss: bool
    isolation_level: str
    skip_damage: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options as Spark hands them over, names in any case. ``ConfigError`` names the one that is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        _refuse_others(given)
        starting, ending = start_bound(given), end_bound(given)
        check_order(starting, ending)
        return cls(
            _path(given.get("path")),
            _selection(given),
            starting,
            ending,
            _choice(given, "startingOffsetsByTimestampStrategy", "error", "latest"),
            Splitting(
                _count(given, "splitBytes", SPLIT_BYTES),
                _count(given, "minPartitions", 0),
                _count(given, "maxRecordsPerPartition", 0),
            ),
            _boolean(given, "includeHeaders", default=False),
            _boolean(given, "failOnDataLoss", default=True),
            _choice(given, "isolationLevel", READ_COMMITTED, READ_UNCOMMITTED),
            _choice(given, "onCorruption", "fail", "skip") == "skip",
        )


def _refuse_others(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in SUPPORTED}
    spelled = {name.lower(): name for name in (*SUPPORTED, *NOT_YET, *FOR_A_BROKER)}
    for name in sorted(given.keys() - known):
        if name == "paths":
            raise wrong("path", given[name], "one path; read several logs one by one and union them")
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


def _path(value: str | None) -> str:
    """An absolute path. ``file:`` URIs are paths too; other schemes name filesystems that are not mounted here."""
    if not value:
        raise wrong("path", value, "a log's directory: .load(path)")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", value):
        uri = urlsplit(value)
        if uri.scheme != "file" or uri.netloc not in ("", "localhost"):
            raise wrong("path", value, "a directory of a mounted filesystem")
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
            raise wrong("subscribe", value, "names of topics, separated by commas")
        return Selection(topics=topics)
    try:
        re.compile(value)
    except re.error as error:
        raise wrong("subscribePattern", value, f"a regular expression ({error})") from error
    if not value:
        raise wrong("subscribePattern", value, "a regular expression")
    return Selection(pattern=value)


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    expected = f"partitions by topic as in {_EXAMPLE_OF_PARTITIONS}"
    found: list[TopicPartition] = []
    for topic, numbers in json_object("assign", text, expected).items():
        if not isinstance(numbers, list) or not all(is_int(number, 0) for number in numbers):
            raise wrong("assign", text, expected)
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise wrong("assign", text, expected)
    return tuple(dict.fromkeys(found))


def _boolean(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    value = given.get(option.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise wrong(option, value, "true or false")
    return value == "true"


def _choice(given: Mapping[str, str], option: str, default: str, other: str) -> str:
    value = given.get(option.lower(), default).strip().lower()
    if value not in (default, other):
        raise wrong(option, value, f"{default} or {other}")
    return value


def _count(given: Mapping[str, str], option: str, default: int) -> int:
    value = given.get(option.lower(), str(default)).strip()
    if not re.fullmatch("[0-9]{1,18}", value) or (option.lower() in given and int(value) == 0):
        raise wrong(option, value, "a whole number from 1 on")
    return int(value)
