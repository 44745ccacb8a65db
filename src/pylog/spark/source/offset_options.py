"""A query's start and end, offset or time, for all partitions or each, as in Spark's Kafka source.

A time for all partitions takes precedence over times by partition, and these over offsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pylog.codec.format import INT64_MAX
from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.model import EARLIEST, LATEST, TopicPartition

_EXAMPLE_OF_OFFSETS = '{"orders": {"0": 23, "1": -2}}'
_EXAMPLE_OF_TIMES = '{"orders": {"0": 1700000000000}}'
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


class OffsetOption(NamedTuple):
    """Offsets (-2 earliest, -1 latest) or times (ms since 1970), for all partitions or each."""

    option: str
    everywhere: int
    each: Mapping[TopicPartition, int] | None = None
    is_time: bool = False

    def of(self, topic_partition: TopicPartition) -> int:
        return self.everywhere if self.each is None else self.each[topic_partition]


def starting_option(given: Mapping[str, str], *, streaming: bool = False) -> OffsetOption:
    """The start in the given options, names in lower case. ``ConfigError`` names the wrong option.

    A batch query starts at earliest and cannot start at latest; a stream starts there by default.
    """
    return (
        _time(given, "startingTimestamp")
        or _times(given, "startingOffsetsByTimestamp")
        or _offsets(given, "startingOffsets", LATEST if streaming else EARLIEST, None if streaming else LATEST)
    )


def ending_option(given: Mapping[str, str]) -> OffsetOption:
    """The exclusive end in the given options, names in lower case."""
    return (
        _time(given, "endingTimestamp")
        or _times(given, "endingOffsetsByTimestamp")
        or _offsets(given, "endingOffsets", LATEST, EARLIEST)
    )


def check_order(starting: OffsetOption, ending: OffsetOption) -> None:
    """Raises ``ConfigError`` if a range would end before it starts."""
    if starting.is_time != ending.is_time:
        return
    for topic_partition, start in (starting.each or {}).items():
        end = ending.of(topic_partition) if topic_partition in (ending.each or {}) else LATEST
        if 0 <= end < start:
            topic, partition = topic_partition
            raise ConfigError(
                f"{starting.option} has {start} for {topic}-{partition}, after its {end} in {ending.option}",
                option=starting.option, value=start,
            )  # fmt: skip
    if starting.is_time and starting.each is ending.each is None and ending.everywhere < starting.everywhere:
        raise wrong(starting.option, starting.everywhere, f"a time before {ending.option}={ending.everywhere}")


def _time(given: Mapping[str, str], option: str) -> OffsetOption | None:
    value = given.get(option.lower())
    if value is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", value.strip()):
        raise wrong(option, value, "milliseconds since 1970")
    return OffsetOption(option, int(value), is_time=True)


def _times(given: Mapping[str, str], option: str) -> OffsetOption | None:
    value = given.get(option.lower())
    if value is None:
        return None
    expected = f"milliseconds since 1970 by partition as in {_EXAMPLE_OF_TIMES}"
    return OffsetOption(option, 0, _by_partition(option, value, expected, 0), is_time=True)


def _offsets(given: Mapping[str, str], option: str, default: int, never: int | None) -> OffsetOption:
    """``never``: what a batch query cannot have here, a start at latest or an end at earliest."""
    names = {value: word for word, value in _WORDS.items()}
    value = given.get(option.lower(), names[default]).strip()
    words = " or ".join(repr(word) for word, value in _WORDS.items() if value != never)
    expected = f"{words} or offsets by partition as in {_EXAMPLE_OF_OFFSETS}"
    if value.lower() in _WORDS:
        if _WORDS[value.lower()] == never:
            raise wrong(option, value, f"{expected}; a batch query can't have {names[never]!r} there")
        return OffsetOption(option, _WORDS[value.lower()])
    each = _by_partition(option, value, expected, EARLIEST)
    if never is not None and never in each.values():
        raise wrong(option, value, f"{expected}; a batch query can't have {never} ({names[never]}) there")
    return OffsetOption(option, default, each)


def _by_partition(option: str, value: str, expected: str, least: int) -> dict[TopicPartition, int]:
    each: dict[TopicPartition, int] = {}
    for topic, numbers in json_object(option, value, expected).items():
        if not isinstance(numbers, dict):
            raise wrong(option, value, expected)
        for number, wanted in numbers.items():
            if not re.fullmatch("0|[1-9][0-9]{0,9}", number) or not is_int(wanted, least):
                raise wrong(option, value, expected)
            each[TopicPartition(topic, int(number))] = wanted
    return each


# Values


def wrong(option: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{option}={value!r}, expected {expected}", option=option, value=value)


def json_object(option: str, text: str, expected: str) -> dict[str, Any]:
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except own(ValueError, RecursionError) as error:
        raise wrong(option, text, f"{expected} ({error})") from error
    if not isinstance(content, dict):
        raise wrong(option, text, expected)
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name stands there twice")
    return content


def is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= INT64_MAX
