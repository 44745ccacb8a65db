"""What a change of a topic writes before it is decided."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from pylog import Consumer, Log, TopicPartition
from pylog.catalog import Catalog, TopicDescription
from pylog.catalog.changes import Commit, TopicChange, write_draft
from pylog.catalog.topic_file import read_topic
from pylog.errors import ConfigError, LogLocked, LogNotFound, TopicChanged, TopicExists
from pylog.group.offset_records import Committed, encode_key, encode_value
from pylog.manager.changes import changed, changes_of, drop_leftovers
from pylog.storage import OsFileSystem
from tests.partition.logs import values_of_topic
from tests.storage.filesystems import Faulty, full, nothing
from tests.topic_changes.test_rename import ALL, fill

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
            assert values_of_topic(log, "old") == ALL
            assert {path.name for path in (tmp_log_dir / ".pylog/topics").iterdir()} == TOPIC_FILES
        for group in log.groups():
            log.delete_group(group)
        log.create_topic("other")
        log.rename_topic("other", "another")
        monkeypatch.undo()
        log.rename_topic("old", "new")
        assert values_of_topic(log, "new") == ALL


def decide(log: Log, commits: Sequence[Commit] = (), topic: str = "old", after: str = "new") -> TopicDescription:
    """Decide to rename the topic, and nothing more. Returns it as it was."""
    before = log.describe_topic(topic)
    change = TopicChange(before, before._replace(name=after), False, list(commits))
    log.manager.writable_catalog().locked(lambda: changes_of(log.manager, 1).decide(change))
    return before


def decided(directory: Path) -> None:
    """A log with a rename of ``old`` to ``new`` that was cut off when it was decided."""
    with Log(directory) as log:
        fill(log)
        decide(log, [(b"key", None)])


def test_a_log_opens_while_another_process_may_be_finishing_a_change(tmp_log_dir: Path) -> None:
    decided(tmp_log_dir)
    lock = OsFileSystem().lock(str(tmp_log_dir / ".pylog" / "catalog.lock"))
    assert lock.try_acquire()
    with Log(tmp_log_dir) as log, pytest.raises(TopicChanged):
        log.describe_topic("old")
    lock.close()
    with Log(tmp_log_dir) as log:
        assert values_of_topic(log, "new") == ALL


def test_creating_a_topic_finishes_a_change_that_is_in_its_way_and_no_other(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        before = decide(log)
        log.create_topic("other")
        assert (tmp_log_dir / ".pylog/topics/old.moved").exists()
        with pytest.raises(TopicExists) as caught:
            log.create_topic("new")
        assert caught.value.__context__ is None
        assert not (tmp_log_dir / ".pylog/topics/old.moved").exists()
        assert values_of_topic(log, "new") == ALL
        assert log.create_topic("old").id != before.id


def test_a_topic_that_is_deleted_during_its_change_does_not_come_back(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = Catalog.publish

    def dies(catalog: Catalog, topic: TopicDescription) -> None:
        publish(catalog, topic)
        raise KeyboardInterrupt

    with Log(tmp_log_dir) as log:
        fill(log)
        decide(log)
        monkeypatch.setattr(Catalog, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            log.manager.writable_catalog().locked(changes_of(log.manager, 1).finish)
        monkeypatch.undo()
        assert "new" in log.topics()
        log.delete_topic("new")
    with Log(tmp_log_dir) as log:
        assert "new" not in log.topics()
        assert log.verify().problems == []


def test_a_log_opens_if_a_change_cannot_be_finished_now(tmp_log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    decided(tmp_log_dir)
    filesystem = Faulty()

    def refuse(operation: str, path: str) -> None:
        if operation == "replace" and path.endswith("/new-0"):
            raise full(path)

    filesystem.hook = refuse
    with Log(tmp_log_dir, filesystem=filesystem) as log, pytest.raises(TopicChanged):
        log.describe_topic("old")
    assert "could not be finished" in caplog.text
    with Log(tmp_log_dir) as log:
        assert values_of_topic(log, "new") == ALL


@pytest.mark.parametrize(
    ("field", "said"),
    [("of_the_next_release", "upgrade pylog"), ("partitions", "partitions"), ("name", "topic name")],
    ids=["newer", "damaged", "hostile"],
)
def test_a_change_that_cannot_be_read_is_a_problem_and_its_directories_are_none(
    tmp_log_dir: Path, field: str, said: str
) -> None:
    decided(tmp_log_dir)
    draft = tmp_log_dir / ".pylog/topics/old.next"
    content = json.loads(draft.read_text())
    if field == "name":
        content["name"] = "../new"
    else:
        content["after"][field if field == "partitions" else "config"] = {field: 1}
    draft.write_text(json.dumps(content))
    (tmp_log_dir / "old-0").rename(tmp_log_dir / "new-0")
    with Log(tmp_log_dir, read_only=True) as log:
        (problem,) = log.verify().problems
    assert problem[:4] == ("old", None, "topic", str(draft))
    assert said in problem.problem


def test_a_change_that_is_completed_while_verify_looks_is_no_problem(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        monkeypatch.setattr(Catalog, "being_changed", lambda _: ["completed"])
        assert log.verify().problems == []


def test_a_log_that_is_removed_while_it_finishes_a_change_is_not_there(tmp_log_dir: Path) -> None:
    decided(tmp_log_dir)
    filesystem = Faulty()

    def remove(operation: str, path: str) -> None:
        if operation == "sync_directory" and path == str(tmp_log_dir):
            filesystem.hook = nothing
            shutil.rmtree(tmp_log_dir / ".pylog" / "topics")

    filesystem.hook = remove
    with pytest.raises(LogNotFound, match="no longer exists"):
        Log(tmp_log_dir, filesystem=filesystem)


def test_a_change_that_died_when_it_had_published_the_topic_is_finished(tmp_log_dir: Path) -> None:
    decided(tmp_log_dir)
    filesystem = Faulty()

    def die(operation: str, path: str) -> None:
        if operation == "remove" and path.endswith("old.moved"):
            raise full(path)

    filesystem.hook = die
    with Log(tmp_log_dir, filesystem=filesystem) as log:
        assert values_of_topic(log, "new") == ALL
    topics = tmp_log_dir / ".pylog/topics"
    assert (topics / "old.moved").exists()
    with Log(tmp_log_dir) as log:
        assert values_of_topic(log, "new") == ALL
    assert {path.name for path in topics.iterdir()} == {"new.json", "__consumer_offsets.json"}


def test_what_a_change_that_died_before_its_decision_has_written_goes_with_the_next_one(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        before = log.describe_topic("old")
        layout = log.manager.layout
        write_draft(OsFileSystem(), layout, TopicChange(before, before._replace(name="new"), False, []))
        assert Path(layout.draft("old")).exists()
        log.rename_topic("old", "newer")
        assert {path.name for path in (tmp_log_dir / ".pylog/topics").iterdir()} == {
            "newer.json",
            "__consumer_offsets.json",
        }


def test_the_draft_of_a_change_that_was_decided_stays_until_it_is_finished(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        decide(log)
        changes_of(log.manager, 1).drop_drafts()
    with Log(tmp_log_dir) as log:
        assert values_of_topic(log, "new") == ALL


@pytest.mark.parametrize("name", ["new", "NEW", "older"])
def test_names_of_a_change_that_cannot_be_finished_are_not_given_away(tmp_log_dir: Path, name: str) -> None:
    """A topic of the new name was restored from a copy. Another topic can be created."""
    decided(tmp_log_dir)
    topics = tmp_log_dir / ".pylog/topics"
    with Log(tmp_log_dir / "other") as log:
        log.create_topic("old")
    (tmp_log_dir / "other/.pylog/topics/old.json").rename(topics / "old.json")
    with Log(tmp_log_dir) as log:
        if name == "older":
            log.create_topic(name)
            return
        with pytest.raises(TopicChanged):
            log.create_topic(name)


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_topic_that_has_a_name_of_a_change_again_is_not_replaced(tmp_log_dir: Path, name: str) -> None:
    """A draft that could not be read, and was restored after the topic had been created."""
    with Log(tmp_log_dir) as log:
        fill(log)
        log.create_topic(name + "er")
        decide(log)
    topics = tmp_log_dir / ".pylog/topics"
    there = (topics / f"{name}er.json").rename(topics / f"{name}.json").read_bytes()
    with Log(tmp_log_dir) as log, pytest.raises(LogLocked, match="a topic of its name"):
        log.rename_topic("x", "y")
    assert (topics / f"{name}.json").read_bytes() == there
    assert (tmp_log_dir / "old-0").is_dir()


def test_copies_stay_while_a_change_is_under_way_and_its_topic_counts_as_changed(tmp_log_dir: Path) -> None:
    decided(tmp_log_dir)
    with Log(tmp_log_dir, read_only=True) as log:
        layout = log.manager.layout
        copy = Path(layout.copy("old", 0, "x" * 22))
        copy.mkdir()
    held = OsFileSystem().lock(layout.catalog_lock)
    assert held.try_acquire()
    moved = Path(layout.moved_topic("old"))
    with Log(tmp_log_dir) as log:  # which may not finish the change now
        held.close()
        id_ = read_topic(OsFileSystem(), "old", str(moved)).id
        assert changed(log.manager, [id_, "any"]) == {id_}
        whole = moved.read_bytes()
        moved.write_bytes(whole[:-9])
        assert changed(log.manager, [id_, "any"]) == {id_, "any"}, "it may be any of them"
        moved.write_bytes(whole)
        assert drop_leftovers(log.manager, 0) == {}
        assert copy.exists()
    with Log(tmp_log_dir) as log:
        assert changed(log.manager, [id_, "any"]) == {id_}, "it has another name"
        assert drop_leftovers(log.manager, 0) == {}
        assert not copy.exists()


def test_a_second_change_during_the_look_is_found(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        fill(log)
        id_ = log.describe_topic("old").id
        log.rename_topic("old", "new")
        look = Catalog.being_changed

        def decided_after(catalog: Catalog) -> list[str]:
            found = look(catalog)
            monkeypatch.undo()
            decide(other, topic="new", after="third")
            return found

        monkeypatch.setattr(Catalog, "being_changed", decided_after)
        assert changed(log.manager, [id_, "any"]) == {id_}


def test_a_change_that_is_completed_during_the_look_is_found(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        id_ = decide(log).id
        finish = changes_of(log.manager, 1).finish
        look = Catalog.being_changed

        def completed_after(catalog: Catalog) -> list[str]:
            found = look(catalog)
            monkeypatch.undo()
            assert log.manager.writable_catalog().locked(finish) == []
            return found

        monkeypatch.setattr(Catalog, "being_changed", completed_after)
        assert changed(log.manager, [id_, "any"]) == {id_}


def test_a_deleted_group_stays_deleted_if_a_change_was_decided(tmp_log_dir: Path) -> None:
    """Its completion wrote the group's commits again."""
    with Log(tmp_log_dir) as log:
        fill(log)
        with Consumer(log, group_id="g") as consumer:
            consumer.commit({TopicPartition("old", 0): 1})
        key = encode_key("g", TopicPartition("new", 0))
        before = log.describe_topic("old")
        value = encode_value(Committed(1, -1, "", 0, before.id))
        decide(log, [(key, value)])
        log.delete_group("g")
        assert log.groups() == []
    with Log(tmp_log_dir) as log:
        assert (log.groups(), values_of_topic(log, "new")) == ([], ALL)
