"""auto_offset_reset as a value: the four policies and ISO 8601 durations."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.consumer.reset import OffsetReset, parse_duration_ms
from pylog.errors import ConfigError
from pylog.model import EARLIEST, LATEST

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("by_duration:PT1H", NOW_MS - 3_600_000),
        ("by_duration:PT0S", NOW_MS),
        ("by_duration:P30000D", 0),  # before 1970: all of it
    ],
)
def test_a_policy_says_where_to_start(text: str, target: int) -> None:
    policy = OffsetReset.parse(text)
    assert policy.target(NOW_MS) == target
    assert not policy.raises


def test_none_raises_instead_of_starting_anywhere() -> None:
    assert OffsetReset.parse("none").raises


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Latest",
        "smallest",
        "by_duration",
        "by_duration:",
        "by_duration:1h",
        "by_duration:-PT1H",
        None,
        0,
        b"latest",
    ],
)
def test_anything_else_is_refused_with_the_choices_named(text: object) -> None:
    with pytest.raises(
        ConfigError, match=r"PnDTnHnMn|auto_offset_reset must be earliest, latest, none or by_duration"
    ) as caught:
        OffsetReset.parse(text)
    assert caught.value.option == "auto_offset_reset"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P7DT12H30M5.5S", 7 * 86_400_000 + 12 * 3_600_000 + 30 * 60_000 + 5_500),
        ("PT90M", 5_400_000),
        ("PT0.001S", 1),
        ("PT0.000000001S", 1),  # a part of a millisecond counts as one
        ("PT0,25S", 250),
        ("PT.5S", None),
        ("pt1h", 3_600_000),
        ("PT36H", 129_600_000),
        ("P0D", 0),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("PT1", None),
        ("1H", None),
        ("P1H", None),
        ("PT1D", None),
        ("PT1M1H", None),
        ("P1M", None),  # a month has no fixed length
        ("P1Y", None),
        ("P1W", None),
        ("-PT1H", None),
        ("PT-1H", None),
        ("+PT1H", None),
        ("PT1.0H", None),
        ("PT0.0000000001S", None),
        (" PT1H", None),
        ("PT1H\n", None),
        ("PT\u0661H", None),  # an Arabic digit
        ("PT1\u017f", None),  # a long s, which is an S in capitals
        ("PT" + "9" * 19 + "S", None),
    ],
)
def test_a_duration_is_read_as_iso_8601_says(text: str, milliseconds: int | None) -> None:
    if milliseconds is None:
        with pytest.raises(ConfigError, match="ISO 8601"):
            parse_duration_ms(text)
    else:
        assert parse_duration_ms(text) == milliseconds


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999))
def test_every_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int, ms: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{seconds}.{ms:03}S"
    assert parse_duration_ms(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + ms


@given(st.text(alphabet="PTDHMS0123456789.,-+ ", max_size=12))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(ConfigError):
        assert parse_duration_ms(text) >= 0
