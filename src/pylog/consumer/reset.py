"""``auto_offset_reset``: where a consumer starts if its position is missing or not in the log.

``earliest``, ``latest``, ``none`` (raise instead) and ``by_duration:<ISO 8601 duration>`` (before
now), as in Kafka (KIP-1106). A pure value; ``offset_lookup.py`` finds the offset.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pylog.consumer.subscription import name_of
from pylog.errors import ConfigError, NoOffsetForPartition
from pylog.model import EARLIEST, LATEST, TopicPartition

_BY_DURATION = "by_duration:"
_CHOICES = "earliest, latest, none or by_duration:<ISO 8601 duration such as PT1H>"

# PnDTnHnMn.nS: at least one number, also after T. Months and years are refused: no fixed length.
_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_DIGITS_MAX = 18
_MS_OF_DAY, _MS_OF_HOUR, _MS_OF_MINUTE, _MS_OF_SECOND = 86_400_000, 3_600_000, 60_000, 1_000


class OffsetReset(NamedTuple):
    """One policy. ``duration_ms`` is set for ``by_duration`` only."""

    name: str
    duration_ms: int | None = None

    @classmethod
    def parse(cls, text: object) -> OffsetReset:
        """The policy named ``text``; ``ConfigError`` if there is none."""
        if text in ("earliest", "latest", "none"):
            return cls(str(text))
        if isinstance(text, str) and text.startswith(_BY_DURATION):
            return cls("by_duration", parse_duration_ms(text[len(_BY_DURATION) :]))
        raise ConfigError(f"auto_offset_reset must be {_CHOICES}, not {text!r}", option="auto_offset_reset", value=text)

    @property
    def raises(self) -> bool:
        """True for ``none``: the application decides about a missing position."""
        return self.name == "none"

    def target(self, now_ms: int) -> int:
        """Where to start: ``EARLIEST``, ``LATEST``, or a timestamp (milliseconds, at least 0)."""
        if self.duration_ms is not None:
            return max(0, now_ms - self.duration_ms)
        return EARLIEST if self.name == "earliest" else LATEST


def no_position(topic_partition: TopicPartition) -> NoOffsetForPartition:
    """The error for a partition whose position the application has not set yet."""
    topic, partition = topic_partition
    return NoOffsetForPartition(
        f"{name_of(topic_partition)} has no position, and auto_offset_reset is none: seek first",
        topic=topic, partition=partition,
    )  # fmt: skip


def parse_duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration ``PnDTnHnMn.nS``, rounded up."""
    match = _DURATION.fullmatch(text)
    if match is None or any(len(digits or "") > _DIGITS_MAX for digits in match.groups()):
        raise ConfigError(
            f"{text!r} is not an ISO 8601 duration PnDTnHnMn.nS (such as PT1H, P7D or PT0.5S)",
            option="auto_offset_reset", value=text,
        )  # fmt: skip
    days, hours, minutes, seconds = (int(digits or 0) for digits in match.groups()[:4])
    nanoseconds = int((match[5] or "").ljust(9, "0"))
    whole_ms = days * _MS_OF_DAY + hours * _MS_OF_HOUR + minutes * _MS_OF_MINUTE + seconds * _MS_OF_SECOND
    return whole_ms - (-nanoseconds // 1_000_000)
