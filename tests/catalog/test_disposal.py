"""Directories in the way of a topic, or of its deletion: what could be missed is moved aside, never
deleted."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import pytest

from pylog.catalog.layout import Layout, parse_partition, parse_stray
from pylog.log import Log
from pylog.model import TopicPartition
from pylog.producer import Producer
from tests.partition.logs import many, one, snapshot_of, values
from tests.storage.filesystems import Faulty

STRAY = re.compile(r"t-0\.[0-9a-f]{32}-stray")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory outside the log, with files of names that pylog uses as well."""
    path = tmp_path / "elsewhere"
    path.mkdir()
    for name in ("thesis.tex", f"{0:020d}.log", ".commit", "leader-epoch-checkpoint"):
        (path / name).write_text("precious")
    return path


def stray_of(root: Path) -> Path:
    (stray,) = (path for path in root.iterdir() if path.name.endswith("-stray"))
    assert STRAY.fullmatch(stray.name)
    return stray


def create(root: Path) -> None:
    with Log(root) as log:
        log.create_topic("t")


def send(root: Path) -> None:
    with Log(root, auto_create_topics=True) as log, Producer(log) as producer:
        producer.send("t", b"new").result()


CREATIONS = pytest.mark.parametrize("creation", [create, send])


@CREATIONS
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_the_way_of_a_topic_is_moved_and_not_followed(
    tmp_log_dir: Path, elsewhere: Path, creation: object, is_there: bool
) -> None:
    Log(tmp_log_dir).close()
    target = elsewhere if is_there else elsewhere / "nothing"
    (tmp_log_dir / "t-0").symlink_to(target)
    before = snapshot_of(elsewhere)
    creation(tmp_log_dir)  # type: ignore[operator]
    assert snapshot_of(elsewhere) == before
    assert stray_of(tmp_log_dir).readlink() == target
    assert not (tmp_log_dir / "t-0").is_symlink()


@CREATIONS
def test_records_whose_topic_file_was_lost_are_moved_aside_whole(
    tmp_log_dir: Path, caplog: pytest.LogCaptureFixture, creation: object
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(many("a", "b"))
    topic_file = tmp_log_dir / ".pylog" / "topics" / "t.json"
    kept = topic_file.read_bytes()
    topic_file.unlink()
    before = snapshot_of(tmp_log_dir / "t-0")
    with caplog.at_level(logging.WARNING, "pylog.catalog"):
        creation(tmp_log_dir)  # type: ignore[operator]
    stray = stray_of(tmp_log_dir)
    assert snapshot_of(stray) == before
    (warning,) = caplog.messages
    assert warning.startswith(f"'{tmp_log_dir}/t-0' belonged to no topic and was moved aside to '{stray}'")
    with Log(tmp_log_dir) as log:
        assert log.topics() == ["t"]
        (problem,) = log.verify().problems
        assert (problem.topic, problem.partition, problem.path) == ("t", 0, str(stray))
        assert stray.name in str(problem)
        log.delete_topic("t")
    stray.rename(tmp_log_dir / "t-0")  # the way back: the directory, then the topic's file
    topic_file.write_bytes(kept)
    with Log(tmp_log_dir) as log:
        assert values(log.partition("t", 0).read(0)) == ["a", "b"]
        assert log.verify().problems == []


@pytest.mark.parametrize("kind", ["foreign", "folder", "file", "link", "records on their way out", "a copy of records"])
def test_anything_but_an_empty_partition_is_moved_aside(tmp_log_dir: Path, elsewhere: Path, kind: str) -> None:
    Log(tmp_log_dir).close()
    place = tmp_log_dir / "t-0"
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / ".lock").touch()
    if kind == "foreign":
        (place / "thesis.tex").write_text("mine")
    elif kind == "folder":
        (place / ".commit").mkdir()
        (place / ".commit" / "mine").touch()
    elif kind == "link":
        (place / f"{0:020d}.log").symlink_to(elsewhere / "thesis.tex")
    elif kind == "records on their way out":
        (place / f"{0:020d}.log.deleted").write_text("x")
    elif kind == "a copy of records":
        (place / f"{0:020d}.log.rewrite").write_text("x")
    before = place.read_bytes() if kind == "file" else snapshot_of(place)
    create(tmp_log_dir)
    stray = stray_of(tmp_log_dir)
    assert (stray.read_bytes() if kind == "file" else snapshot_of(stray)) == before
    with Log(tmp_log_dir) as log:
        assert log.partition("t", 0).append(one("v"), acks=1).base_offset == 0


def test_a_new_partition_of_a_topic_makes_room_the_same_way(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("s")
        (tmp_log_dir / "s-1").mkdir()
        (tmp_log_dir / "s-1" / "thesis.tex").write_text("mine")
        log.add_partitions("s", 2)
    (thesis,) = tmp_log_dir.glob("s-1.*-stray/thesis.tex")
    assert thesis.read_text() == "mine"


def test_what_is_moved_aside_is_durable_before_the_topic_is_there(tmp_log_dir: Path) -> None:
    filesystem = Faulty()
    with Log(tmp_log_dir, filesystem=filesystem) as log:
        (tmp_log_dir / "t-0").mkdir()
        (tmp_log_dir / "t-0" / "mine").touch()
        filesystem.operations.clear()
        log.create_topic("t")
    done = filesystem.operations
    moved = done.index(("replace", str(stray_of(tmp_log_dir))))
    published = done.index(("replace", str(tmp_log_dir / ".pylog" / "topics" / "t.json")))
    assert ("sync_directory", str(tmp_log_dir)) in done[moved:published]


# Deleting a topic


def test_deleting_a_topic_touches_nothing_behind_a_link(tmp_log_dir: Path, elsewhere: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=2)
        os.rename(tmp_log_dir / "t-0", tmp_log_dir.parent / "moved")
        (tmp_log_dir / "t-0").symlink_to(elsewhere)
        before = snapshot_of(elsewhere)
        log.delete_topic("t")
        assert log.topics() == []
    assert snapshot_of(elsewhere) == before
    assert stray_of(tmp_log_dir).readlink() == elsewhere
    assert sorted(path.name.partition(".")[0] for path in tmp_log_dir.iterdir()) == ["", "t-0"]


def test_deleting_a_topic_takes_its_records_and_leaves_what_others_put_there(
    tmp_log_dir: Path, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
        (tmp_log_dir / "t-0" / "notes").mkdir()
        (tmp_log_dir / "t-0" / "notes" / "mine").touch()
        (tmp_log_dir / "t-0" / f"{7:020d}.index").symlink_to(elsewhere / "thesis.tex")
        log.delete_topic("t")
        assert log.verify().problems == []
    assert [str(path.relative_to(stray_of(tmp_log_dir))) for path in stray_of(tmp_log_dir).rglob("*")] == [
        "notes",
        "notes/mine",
    ]
    assert (elsewhere / "thesis.tex").read_text() == "precious"
    assert "holds files that pylog did not make ('notes')" in caplog.text


def test_deleting_a_topic_a_file_stands_in_place_of_leaves_the_file(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        os.rename(tmp_log_dir / "t-0", tmp_log_dir.parent / "moved")
        (tmp_log_dir / "t-0").write_text("mine")
        log.delete_topic("t")
    assert stray_of(tmp_log_dir).read_text() == "mine"


@pytest.mark.parametrize("topic", ["t", "a-0", "t.0", "x" * 249])
def test_the_name_of_a_stray_is_no_topics_and_tells_where_it_stood(topic: str) -> None:
    name = Layout("/log").stray(topic, 12, "0123456789abcdef" * 2).removeprefix("/log/")
    assert len(name) <= 255
    assert parse_partition(name) is None
    assert parse_stray(name) == TopicPartition(topic[: 255 - len(f"-12.{'0' * 32}-stray")], 12)
    assert parse_stray(f"{topic}-12") is None
