"""What may be asked of the source, and what is refused, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import ConfigError
from pylog.model import EARLIEST, LATEST, TopicPartition
from pylog.spark.source.offset_options import OffsetOption
from pylog.spark.source.options import FOR_A_BROKER, OF_BATCHES, OF_STREAMS, Limits, Selection, SourceOptions, Splitting


def parse(**given: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/log", **given})


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    assert parse() == SourceOptions(
        "/log", Selection(), OffsetOption("startingOffsets", EARLIEST), OffsetOption("endingOffsets", LATEST), "error",
        Splitting(512 << 20, 0, 0), False, True, "read_committed", False, Limits(0, 0, 0, 900.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"subscribe": "a, b,a,"}, "selection", Selection(topics=("a", "b"))),
        ({"SubscribePattern": "or.*s"}, "selection", Selection(pattern="or.*s")),
        (
            {"assign": '{"a": [1, 0, 1], "b": [2]}'},
            "selection",
            Selection(partitions=(TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2))),
        ),
        ({"onCorruption": " Skip"}, "skip_damage", True),
        ({"onCorruption": "fail"}, "skip_damage", False),
        ({"startingOffsets": "Earliest"}, "starting", OffsetOption("startingOffsets", EARLIEST)),
        ({"startingOffsets": '{"a": {"0": 5, "10": -2}}'}, "starting",
         OffsetOption("startingOffsets", EARLIEST, {TopicPartition("a", 0): 5, TopicPartition("a", 10): EARLIEST})),
        ({"endingOffsets": '{"a": {"0": 5, "1": -1}}'}, "ending",
         OffsetOption("endingOffsets", LATEST, {TopicPartition("a", 0): 5, TopicPartition("a", 1): LATEST})),
        ({"startingTimestamp": "7"}, "starting", OffsetOption("startingTimestamp", 7, is_time=True)),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 5}}'}, "ending",
         OffsetOption("endingOffsetsByTimestamp", 0, {TopicPartition("a", 0): 5}, is_time=True)),
        ({"startingOffsetsByTimestampStrategy": "Latest"}, "late_start", "latest"),
        ({"splitBytes": "10", "minPartitions": "2", "maxRecordsPerPartition": "3"}, "splitting", Splitting(10, 2, 3)),
        ({"includeheaders": "TRUE"}, "include_headers", True),
        ({"failOnDataLoss": "false"}, "fail_on_data_loss", False),
        ({"isolationLevel": "read_uncommitted"}, "isolation_level", "read_uncommitted"),
    ],
)  # fmt: skip
def test_an_option_means_what_it_means_in_sparks_kafka_source(given: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse(**given), field) == value


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/log", "/log"),
        ("/log/", "/log"),
        ("var/log", str(Path.cwd() / "var/log")),
        ("file:/a", "/a"),
        ("file:///a%20b/c", "/a b/c"),
        ("file://localhost/a", "/a"),
    ],
)
def test_the_path_is_absolute_whatever_it_was(given: str, path: str) -> None:
    assert parse(path=given).path == path


@pytest.mark.parametrize(("names", "streaming"), [(OF_STREAMS, False), (OF_BATCHES, True)])
def test_options_of_the_other_kind_are_refused_by_name(names: tuple[str, ...], streaming: bool) -> None:
    for name in names:
        with pytest.raises(ConfigError, match=f"option '{name}' is for .*: remove it") as caught:
            SourceOptions.parse({"path": "/log", name.lower(): "1"}, streaming=streaming)
        assert caught.value.option == name


def test_before_it_is_known_what_it_will_be_only_what_is_wrong_for_both_is() -> None:
    for fine in ({"maxOffsetsPerTrigger": "5"}, {"endingOffsets": "latest"}, {"startingOffsets": "latest"}):
        assert SourceOptions.parse_any({"path": "/log", **fine}).path == "/log"
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger='x', expected a whole number"):
        SourceOptions.parse_any({"path": "/log", "maxOffsetsPerTrigger": "x"})
    with pytest.raises(ConfigError, match="is for batch queries"):
        SourceOptions.parse_any({"path": "/log", "maxOffsetsPerTrigger": "5", "endingTimestamp": "7"})
    with pytest.raises(ConfigError, match="failOnDataLoss='maybe', expected true or false"):
        SourceOptions.parse_any({"path": "/log", "failOnDataLoss": "maybe"})


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, Limits(0, 0, 0, 900.0)),
        ({"maxoffsetspertrigger": "7", "maxBytesPerTrigger": "8", "minOffsetsPerTrigger": "6"}, Limits(7, 8, 6, 900.0)),
        ({"maxTriggerDelay": "500"}, Limits(0, 0, 0, 0.5)),
        ({"maxTriggerDelay": "90S"}, Limits(0, 0, 0, 90.0)),
        ({"maxTriggerDelay": "2h"}, Limits(0, 0, 0, 7200.0)),
    ],
)
def test_limits_of_a_stream(given: dict[str, str], limits: Limits) -> None:
    assert SourceOptions.parse({"path": "/log", **given}, streaming=True).limits == limits


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxTriggerDelay": "soon"}, "expected a duration such as 30s, 15m or 500ms"),
        ({"maxTriggerDelay": "5 weeks"}, "expected a duration"),
        ({"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "7"}, "expected at most maxOffsetsPerTrigger=7"),
        ({"maxBytesPerTrigger": "0"}, "expected a whole number from 1 on"),
    ],
)
def test_wrong_limits_are_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SourceOptions.parse({"path": "/log", **given}, streaming=True)


@pytest.mark.parametrize("name", [*FOR_A_BROKER, "kafka.bootstrap.servers", "kafka.group.id"])
def test_options_for_a_broker_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{name}' is for a broker, and here is none") as caught:
        parse(**{name.lower(): "1"})
    assert caught.value.option == name


def test_all_options_for_a_broker_are_named_at_once() -> None:
    of_a_job = {"kafka.security.protocol": "SSL", "groupIdPrefix": "a", "kafka.bootstrap.servers": "host:9092"}
    with pytest.raises(ConfigError) as caught:
        parse(**of_a_job, subscribe="orders")
    assert str(caught.value) == (
        "options 'groupIdPrefix', 'kafka.bootstrap.servers', 'kafka.security.protocol' are for a broker, and here is none: "
        "the log is read from 'path'. Remove them"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"colour": "red"}, "no option 'colour'; there are path, subscribe, "),
        ({"path": ""}, "path='', expected a log's directory"),
        ({"path": "s3://bucket/log"}, "path='s3://bucket/log', expected a directory of a mounted filesystem"),
        ({"path": "file://host/log"}, "path='file://host/log', expected a directory of a mounted filesystem"),
        ({"paths": '["a","b"]'}, "expected one path"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "options 'subscribe' and 'assign' exclude each other"),
        ({"subscribe": " , "}, "subscribe=',', expected names of topics"),
        ({"subscribePattern": ""}, "subscribePattern='', expected a regular expression"),
        ({"subscribePattern": "(a"}, "subscribePattern='(a', expected a regular expression (missing )"),
        ({"assign": "a"}, "assign='a', expected partitions by topic"),
        ({"assign": "{}"}, "assign='{}', expected partitions by topic"),
        ({"assign": '["a"]'}, "expected partitions by topic"),
        ({"assign": '{"a": 0}'}, "expected partitions by topic"),
        ({"assign": '{"a": [-1]}'}, "expected partitions by topic"),
        ({"assign": '{"a": [true]}'}, "expected partitions by topic"),
        ({"assign": '{"a": [0], "a": [1]}'}, "a name stands there twice"),
        ({"startingOffsets": "latest"}, "startingOffsets='latest', expected 'earliest' or offsets by partition"),
        ({"endingOffsets": "earliest"}, "endingOffsets='earliest', expected 'latest' or offsets by partition"),
        ({"startingOffsets": "first"}, "startingOffsets='first', expected 'earliest' or offsets by partition"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "a batch query can't have -1 (latest) there"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "a batch query can't have -2 (earliest) there"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"0": 1.5}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"0": "5"}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"0": 9223372036854775808}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"x": 5}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"00": 5}}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": [5]}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": "[5]"}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"0": 5}'}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a":' * 100_000}, "expected 'earliest' or offsets"),
        ({"startingOffsets": '{"a": {"0": 6}}', "endingOffsets": '{"a": {"0": 5}}'}, "has 6 for a-0, after its 5 in ending"),
        ({"includeHeaders": "yes"}, "includeHeaders='yes', expected true or false"),
        ({"failOnDataLoss": ""}, "failOnDataLoss='', expected true or false"),
        ({"isolationLevel": "serializable"}, "isolationLevel='serializable', expected read_committed or read_uncommitted"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_with_what_is_expected(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**given)
    assert said in str(caught.value)
    assert caught.value.option in {"path", *map(str.lower, given), *given}


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"path=None, expected a log's directory: \.load\(path\)"):
        SourceOptions.parse({})


def test_equal_start_and_end_are_an_empty_range() -> None:
    both: dict[str, Any] = {"a": {"0": 5}}
    given = parse(startingOffsets=json.dumps(both), endingOffsets=json.dumps(both))
    assert given.starting.of(TopicPartition("a", 0)) == given.ending.of(TopicPartition("a", 0)) == 5
