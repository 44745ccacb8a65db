"""Files and directories on disk whose names no topic can have, and topics whose own file is
damaged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pylog.consumer import Consumer
from pylog.errors import TopicExists
from pylog.log import Log
from pylog.testing import produce_all
from tests.cli.conftest import Run

KAFKA_LOG = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
UNLAWFUL = ["we ird\x1b[31m", "x\\y", "..", "é", "\udcff", "n" * 250]


@pytest.fixture(params=["ours", "kafkas"])
def place(request: pytest.FixtureRequest, log_dir: Path) -> Path:
    """A log with the topic ``t`` and all the unlawful names; where one of them stands, to begin
    with."""
    if request.param == "ours":
        with Log(log_dir) as log:
            log.create_topic("t")
            produce_all(log, "t", [b"v"])
        for name in [*UNLAWFUL, ""]:
            (log_dir / ".pylog" / "topics" / f"{name}.json").write_text("{}")
        return log_dir / ".pylog" / "topics"
    shutil.copytree(KAFKA_LOG / "codec-none-0", log_dir / "t-0")
    for name in UNLAWFUL:
        (log_dir / f"{name}-0").mkdir()
    return log_dir


def test_other_topics_are_listed_and_read(place: Path, log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log(log_dir) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        for _ in range(3):
            assert log.topics() == ["t"]
        assert sorted(caplog.messages) == sorted(set(caplog.messages))
        assert len(caplog.messages) == len(UNLAWFUL) + (place != log_dir)
        assert all(str(place) in message and message.isprintable() for message in caplog.messages)
        consumer.subscribe(re.compile(".*"))
        assert consumer.poll()
        if not log.read_only:
            log.create_topic("u")
            with pytest.raises(TopicExists):
                log.create_topic("u")


def test_every_command_works_and_verify_names_them(place: Path, log_dir: Path, pylog: Run) -> None:
    for command in (["topics", "list"], ["topics", "describe"], ["stats"], ["consume", "t", "--from-beginning"]):
        ran = pylog(*command)
        assert ran.code == 0
        assert ran.out
        assert "\x1b" not in ran.out + ran.err
    assert ran.err.count("skipping") <= len(UNLAWFUL) + 1
    found = [shown for shown in pylog("verify", "--json").objects if shown["type"] == "problem"]
    assert {shown["topic"] for shown in found} - {""} == set(UNLAWFUL)
    assert all(shown["kind"] == "topic" and shown["file"].startswith(str(place)) for shown in found)
    assert pylog("verify").code == 1
    assert pylog("verify", "t").code == 0


def test_a_damaged_topic_does_not_hide_the_others(pylog: Run, log: Log, log_dir: Path) -> None:
    for name in ("a", "b", "c", "d"):
        log.create_topic(name)
    (log_dir / ".pylog" / "topics" / "b.json").write_text("{")
    (log_dir / ".pylog" / "topics" / "c.json").unlink()
    (log_dir / ".pylog" / "topics" / "c.json").mkdir()
    for command in (["stats", "--json"], ["topics", "describe", "--json"]):
        ran = pylog(*command)
        assert [shown["topic"] for shown in ran.objects] == ["a", "d"]
        assert ran.code in (5, 6)
        assert [line for line in ran.err.splitlines() if "b.json" in line]
        assert [line for line in ran.err.splitlines() if "c.json" in line]
