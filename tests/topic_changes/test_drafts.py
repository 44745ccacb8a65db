"""What a change of a topic writes before it is decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log
from pylog.catalog.changes import TopicChange
from pylog.errors import ConfigError, LogLocked
from pylog.manager.changes import changes_of
from tests.topic_changes.test_rename import ALL, fill, values

TOPIC_FILES = {"old.json", "__consumer_offsets.json"}


def test_a_change_with_more_commits_than_can_be_read_again_is_refused(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        monkeypatch.setattr("pylog.catalog.changes._LIMIT_BYTES", 500)
        for change in (lambda: log.rename_topic("old", "new"), lambda: log.repartition("old", 3)):
            with pytest.raises(ConfigError, match="delete groups that are not needed") as caught:
                change()
            assert caught.value.size_bytes > caught.value.limit_bytes == 500
            assert values(log, "old") == ALL
            assert {path.name for path in (tmp_log_dir / ".pylog/topics").iterdir()} == TOPIC_FILES
        for group in log.groups():
            log.delete_group(group)
        log.create_topic("other")
        log.rename_topic("other", "another")
        monkeypatch.undo()
        log.rename_topic("old", "new")
        assert values(log, "new") == ALL


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_topic_that_has_a_name_of_a_change_again_is_not_replaced(tmp_log_dir: Path, name: str) -> None:
    """A draft that could not be read, and was restored after the topic had been created."""
    with Log(tmp_log_dir) as log:
        fill(log)
        log.create_topic(name + "er")
        before = log.describe_topic("old")
        change = TopicChange(before, before._replace(name="new"), False, [])
        log.manager.writable_catalog().locked(lambda: changes_of(log.manager, 1).decide(change))
    topics = tmp_log_dir / ".pylog/topics"
    there = (topics / f"{name}er.json").rename(topics / f"{name}.json").read_bytes()
    with Log(tmp_log_dir) as log, pytest.raises(LogLocked, match="a topic of its name"):
        log.rename_topic("x", "y")
    assert (topics / f"{name}.json").read_bytes() == there
    assert (tmp_log_dir / "old-0").is_dir()
