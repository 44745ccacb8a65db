"""The options of the source, with the names, meanings and defaults of Spark's Kafka source.

Owns the supported options and their values. Reads no directory: other files check whether a topic
exists. An option without effect is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pylog.errors import ConfigError
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition
from pylog.partition.read.visibility import READ_COMMITTED, READ_UNCOMMITTED
from pylog.spark.source.offset_options import (
    OffsetOption,
    check_order,
    ending_option,
    is_int,
    json_object,
    starting_option,
    wrong,
)

SUPPORTED = (
    "path", "subscribe", "subscribePattern", "assign",
    "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestampStrategy",
    "minPartitions", "maxRecordsPerPartition", "splitBytes",
    "includeHeaders", "failOnDataLoss", "isolationLevel", "onCorruption",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay",
)  # fmt: skip
OF_BATCHES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")
FOR_A_BROKER = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")
# What a table of Spark's catalog has beside its options: PROP_* in
# org.apache.spark.sql.connector.catalog.TableCatalog.
_OF_TABLES = ("collation", "comment", "external", "is_managed_location", "location", "owner", "provider")
_AGAIN_OF_TABLES = "option."  # before the name of an option, which is there without it, too
TRUST_HEADERS = "trustHeaders"  # of format("pylog-jvm") alone: here every record is decoded

SPLIT_BYTES = 512 << 20
_TRIGGER_DELAY = "15m"
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_EXAMPLE_OF_PARTITIONS = '{"orders": [0, 1]}'


class Selection(NamedTuple):
    """The partitions to read: by topic, by a pattern of topics, or one by one. All by default."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def each(self) -> list[Selection]:
        """One selection for each named topic or partition."""
        if self.topics is not None:
            return [Selection(topics=(topic,)) for topic in self.topics]
        if self.partitions is not None:
            return [Selection(partitions=(partition,)) for partition in self.partitions]
        return [self]


class Splitting(NamedTuple):
    """Approximate bytes per task, minimum of tasks, maximum of offsets per task. 0: not set."""

    piece_bytes: int
    tasks_min: int
    offsets_max: int


class Limits(NamedTuple):
    """Limits of a micro-batch in offsets and stored bytes; 0: none. ``delay_s``: longest wait."""

    offsets_max: int = 0
    bytes_max: int = 0
    offsets_min: int = 0
    delay_s: float = 900.0


@dataclass(frozen=True)
class SourceOptions:
    """Checked options. ``path`` is absolute: executors have other working directories."""

    path: str
    selection: Selection
    starting: OffsetOption
    ending: OffsetOption
    late_start: str  # where to start when no record is as late: "error" or "latest"
    splitting: Splitting
    include_headers: bool
    fail_on_data_loss: bool
    isolation_level: str
    skip_damage: bool
    limits: Limits

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
        """The options from Spark, names in any case. ``ConfigError`` names the wrong one."""
        given = {name.lower(): value for name, value in options.items()}
        _refuse_others(given)
        _refuse_of_the_other_kind(given, streaming=streaming)
        starting, ending = starting_option(given, streaming=streaming), ending_option(given)
        check_order(starting, ending)
        return cls(
            absolute_path(given.get("path")),
            _selection(given),
            starting,
            ending,
            _choice(given, "startingOffsetsByTimestampStrategy", "error", "latest"),
            Splitting(
                count(given, "splitBytes", SPLIT_BYTES),
                count(given, "minPartitions", 0),
                count(given, "maxRecordsPerPartition", 0),
            ),
            boolean(given, "includeHeaders", default=False),
            boolean(given, "failOnDataLoss", default=True),
            _choice(given, "isolationLevel", READ_COMMITTED, READ_UNCOMMITTED),
            _choice(given, "onCorruption", "fail", "skip") == "skip",
            _limits(given),
        )

    @classmethod
    def parse_any(cls, options: Mapping[str, str]) -> SourceOptions:
        """Options of a batch query or a stream. ``ConfigError`` if they are wrong for both."""
        is_of_a_stream = not {name.lower() for name in OF_STREAMS}.isdisjoint(name.lower() for name in options)
        try:
            return cls.parse(options, streaming=is_of_a_stream)
        except own(ConfigError) as error:
            with suppress(ConfigError):
                return cls.parse(options, streaming=not is_of_a_stream)
            raise error from None


def without_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The options (names in lower case) without the properties that Spark adds for a table of its
    catalog."""
    if not _is_of_a_table(given):
        return dict(given)
    return {n: value for n, value in given.items() if n not in _OF_TABLES and not n.startswith(_AGAIN_OF_TABLES)}


def _is_of_a_table(given: Mapping[str, str]) -> bool:
    return "provider" in given


def _refuse_others(given: Mapping[str, str]) -> None:
    if _is_of_a_table(given):
        raise ConfigError(
            "PySpark gives a Python source no options of a table: CREATE TEMPORARY VIEW ... USING pylog OPTIONS (...), or "
            "CREATE TABLE ... USING `pylog-jvm`",
            option="provider",
        )
    others = sorted(given.keys() - {name.lower() for name in SUPPORTED})
    refuse_a_brokers(others, "the log is read from 'path'")
    for name in others:
        if name == "paths":
            raise wrong("path", given[name], "one path; read several logs one by one and union them")
        if name == TRUST_HEADERS.lower():
            raise ConfigError(
                f'option {TRUST_HEADERS!r} is for format("pylog-jvm"), and this format decodes every record: remove it',
                option=TRUST_HEADERS,
            )
        raise ConfigError(no_option(name, SUPPORTED), option=name, value=given[name])


def no_option(name: str, supported: Iterable[str], of: str = "") -> str:
    """What to say of an unknown option: the most similar one, or all."""
    spelled = {other.lower(): other for other in supported}
    meant = [f"; did you mean {spelled[other]!r}?" for other in get_close_matches(name, spelled, n=1)]
    return f"no option {name!r}{of}{''.join(meant) or '; there are ' + ', '.join(supported)}"


def refuse_a_brokers(names: Iterable[str], here: str) -> None:
    """Raises ``ConfigError`` with all broker options in ``names`` (lower case): a job may have
    several."""
    spelled = {name.lower(): name for name in FOR_A_BROKER}
    found = [spelled.get(name, name) for name in sorted(names) if name.startswith("kafka.") or name in spelled]
    if found:
        options, are, them = ("option", "is", "it") if len(found) == 1 else ("options", "are", "them")
        raise ConfigError(
            f"{options} {', '.join(map(repr, found))} {are} for a broker, and here is none: {here}. Remove {them}",
            option=found[0],
        )


def _refuse_of_the_other_kind(given: Mapping[str, str], *, streaming: bool) -> None:
    for name in OF_BATCHES if streaming else OF_STREAMS:
        if name.lower() in given:
            here, there = ("a stream", "batch queries") if streaming else ("a batch query", "streams")
            raise ConfigError(f"option {name!r} is for {there}, and this is {here}: remove it", option=name)


def _limits(given: Mapping[str, str]) -> Limits:
    limits = Limits(
        count(given, "maxOffsetsPerTrigger", 0),
        count(given, "maxBytesPerTrigger", 0),
        count(given, "minOffsetsPerTrigger", 0),
        _duration_s(given, "maxTriggerDelay", _TRIGGER_DELAY),
    )
    if 0 < limits.offsets_max < limits.offsets_min:
        raise wrong("minOffsetsPerTrigger", limits.offsets_min, f"at most maxOffsetsPerTrigger={limits.offsets_max}")
    return limits


def absolute_path(value: str | None) -> str:
    """An absolute path. ``file:`` URIs are paths; other schemes are not mounted here."""
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


def boolean(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    value = given.get(option.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise wrong(option, value, "true or false")
    return value == "true"


def _choice(given: Mapping[str, str], option: str, default: str, other: str) -> str:
    value = given.get(option.lower(), default).strip().lower()
    if value not in (default, other):
        raise wrong(option, value, f"{default} or {other}")
    return value


def count(given: Mapping[str, str], option: str, default: int) -> int:
    value = given.get(option.lower(), str(default)).strip()
    if not re.fullmatch("[0-9]{1,18}", value) or (option.lower() in given and int(value) == 0):
        raise wrong(option, value, "a whole number from 1 on")
    return int(value)


def _duration_s(given: Mapping[str, str], option: str, default: str) -> float:
    """Spark's notation (``JavaUtils.timeStringAsMs``): a plain number is in milliseconds."""
    value = given.get(option.lower(), default).strip().lower()
    match = re.fullmatch("([0-9]{1,15})([a-z]*)", value)
    if match is None or (match[2] or "ms") not in _UNITS_S:
        raise wrong(option, value, "a duration such as 30s, 15m or 500ms")
    return int(match[1]) * _UNITS_S[match[2] or "ms"]
