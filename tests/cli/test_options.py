"""How the values of options are read."""

from __future__ import annotations

import argparse

import pytest

from pylog.cli.exits import UsageError
from pylog.cli.options import header_pair, moment_ms, topic_config, whole_number

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20.500+00:00", NOW_MS + 500),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14", NOW_MS - 80_000_000),
        ("1969-01-01", 0),
        ("PT1H", NOW_MS - 3_600_000),
        ("pt0.5s", NOW_MS - 500),
        ("P100000D", 0),
    ],
)
def test_a_time_is_milliseconds_iso_8601_or_a_duration_ago(text: str, moment: int) -> None:
    assert moment_ms(text, NOW_MS) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "1e9", "2023-13-01", "99999999999999999999", "٣"])
def test_another_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="PT1H"):
        moment_ms(text, NOW_MS)


@pytest.mark.parametrize("text", ["", "x", "1.5", "--1", "9" * 20, "٣", " 1", "1_0", "-"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no whole number"):
        whole_number()(text)


def test_a_whole_number_has_a_least_value() -> None:
    assert (whole_number()("-3"), whole_number(1)("1")) == (-3, 1)
    with pytest.raises(argparse.ArgumentTypeError, match="0: expected 1 or more"):
        whole_number(1)("0")


def test_topic_options_go_by_our_names_and_kafkas() -> None:
    assert topic_config(["retention.ms=5", "segment_bytes=2048", "compression.type=zstd"]) == {
        "retention_ms": 5, "segment_bytes": 2048, "compression_type": "zstd",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ("retention_ms", "--config 'retention_ms': expected OPTION=VALUE"),
        ("", "--config '': expected OPTION=VALUE"),
        ("retention.ms=soon", "--config retention_ms=soon: 'soon' is no whole number"),
        ("retention_ms=", "--config retention_ms=: '' is no whole number"),
        ("foo=1", "--config 'foo=1': no option 'foo'; there are segment_bytes, "),
        ("=1", "--config '=1': no option ''; there are "),
        ("num.partitions=3", "--config 'num.partitions=3': no option 'num.partitions'; how many partitions "),
        (
            "min.insync.replicas=2",
            "--config 'min.insync.replicas=2': no option 'min.insync.replicas'; there are no replicas",
        ),
    ],
)
def test_a_topic_option_that_is_none_is_refused(pair: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        topic_config([pair])
    assert str(caught.value).startswith(problem)


def test_a_header_is_a_pair() -> None:
    assert header_pair("a=b=c") == ("a", b"b=c")
    assert header_pair("a=\udcff") == ("a", b"\xff")
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=VALUE"):
        header_pair("a")
