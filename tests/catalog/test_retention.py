"""Nothing is deleted unless somebody asked for it: this version has no retention, says so, and leaves no trap to a later one."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import ConfigError, CorruptSegment
from pylog.log import Log

DATA = Path(__file__).parents[1] / "data"
WEEK_MS = 604_800_000  # what the version before wrote for every topic
OPTIONS = ("retention_ms", "retention_bytes")


def recorded(root: Path, topic: str = "t") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / ".pylog/topics" / f"{topic}.json").read_text())
    return content


def record(root: Path, **changes: object) -> None:
    """As the version before recorded it."""
    content = recorded(root)
    content["config"] |= changes
    (root / ".pylog/topics/t.json").write_text(json.dumps(content))


def retention_of(log: Log, topic: str = "t") -> tuple[int, int]:
    config = log.describe_topic(topic).config
    return config.retention_ms, config.retention_bytes


def test_a_topic_keeps_everything(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.create_topic("said", retention_ms=-1, retention_bytes=-1)
        assert retention_of(log) == retention_of(log, "said") == (-1, -1)
        log.alter_topic("t", retention_ms=-1)
    with Log(DATA / "kafka-4.3.1" / "log") as log:
        assert retention_of(log, "keyed") == (-1, -1)


@pytest.mark.parametrize("value", [0, 1, WEEK_MS, -2, True, None, "1000", 2**63 - 1])
@pytest.mark.parametrize("option", OPTIONS)
def test_retention_is_refused_wherever_it_is_set(tmp_log_dir: Path, option: str, value: object) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        before = recorded(tmp_log_dir)
        calls: list[Callable[[Any], object]] = [
            lambda config: log.alter_topic("t", **config),
            lambda config: log.create_topic("new", **config),
            lambda config: log.create_topic("t", if_not_exists=True, **config),
            lambda config: Log(tmp_log_dir, **config),
        ]
        for call in calls:
            with pytest.raises(
                ConfigError, match=rf"{option}=.* this version deletes nothing by itself.* -1 .*delete_records"
            ) as caught:
                call({option: value})
            assert (caught.value.option, caught.value.value, caught.value.expected) == (option, value, -1)
        assert (log.topics(), recorded(tmp_log_dir)) == (["t"], before)


def test_the_week_that_was_recorded_for_every_topic_is_read_as_unlimited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(DATA / "pylog-0.1.0/log", tmp_path / "log")
    with Log(tmp_path / "log") as log:
        assert recorded(tmp_path / "log", "rolled")["config"]["retention_ms"] == WEEK_MS
        assert {retention_of(log, topic) for topic in log.topics()} == {(-1, -1)}
        log.alter_topic("rolled", segment_ms=5)
    assert recorded(tmp_path / "log", "rolled")["config"]["retention_ms"] == -1
    assert caplog.records == []


@pytest.mark.parametrize(("option", "value"), [("retention_ms", 1000), ("retention_bytes", 10), ("retention_ms", 0)])
def test_a_limit_that_was_set_and_never_held_is_read_as_unlimited_and_told_once(
    tmp_log_dir: Path, option: str, value: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        record(tmp_log_dir, **{option: value})
    with Log(tmp_log_dir, read_only=True) as log, caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert retention_of(log) == (-1, -1)
            log.verify()
        (told,) = caplog.records
        assert f"{option}={value}" in told.getMessage()
        assert "nothing was ever deleted by it" in told.getMessage()
    with Log(tmp_log_dir) as log:
        log.add_partitions("t", 2)
    assert recorded(tmp_log_dir)["config"][option] == -1


@pytest.mark.parametrize("value", [-2, 1.5, True, "1000", None, 2**63])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_limit_that_no_version_wrote_is_damage(tmp_log_dir: Path, option: str, value: object) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        record(tmp_log_dir, **{option: value})
    with Log(tmp_log_dir) as log, pytest.raises(CorruptSegment, match=option):
        log.describe_topic("t")
