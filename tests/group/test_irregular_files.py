"""What is no regular file stands where a group has a file: it is named, and keeps nobody from what
can be done without it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog import Log
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import StorageError
from pylog.group import liveness
from pylog.group.admin import GroupAdmin
from pylog.group.lock import read_group
from pylog.testing import ManualClock
from tests.group.consumers import fill, member, place, settle


def bind(path: Path) -> None:
    """A socket; the name that it is bound to has at most some hundred characters."""
    with socket.socket(socket.AF_UNIX) as made:
        before = os.getcwd()
        os.chdir(path.parent)
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a directory": os.mkdir,
    "a symbolic link": lambda path: path.symlink_to("/dev/zero"),
    "a socket": bind,
}


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def put(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Puts one of the kinds in place of a file."""

    def put_there(path: Path) -> None:
        path.unlink(missing_ok=True)
        request.param(path)

    return put_there


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    liveness._warn.cache_clear()
    with Log(tmpfs_dir / "log", clock=ManualClock()) as opened:
        opened.create_topic("t", partitions=4)
        fill(opened, 2)
        yield opened


def files(log: Log) -> Path:
    return log.path / ".pylog" / "groups" / "g"


def test_in_place_of_a_members_lock_it_keeps_nobody_from_joining_and_committing(
    log: Log, put: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody could join any more, and the member who polled got the error, too."""
    one = member(log)
    (lock,) = (files(log) / "members").iterdir()
    put(lock)
    other = member(log)
    settle(one, other)
    assert len(one.assignment()) == len(other.assignment()) == 2  # the first was expelled, and joined again
    assert len(one.poll(0)) + len(other.poll(0)) == 8
    one.commit()
    other.commit()
    assert sum(log.lag("g").values()) == 0
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([text for text in warned if "a member's lock is taken for" in text and str(lock) in text]) == 1
    assert len(log.describe_group("g").members) == 2
    one.close()
    other.close()
    with member(log) as last:
        assert len(last.assignment()) == 4


def test_in_place_of_a_lock_that_nobody_has_it_is_swept_away(log: Log, put: Callable[[Path], None]) -> None:
    (files(log) / "members").mkdir(parents=True)
    path = files(log) / "members" / ("0" * 32 + ".lock")
    put(path)
    with member(log) as one, member(log) as other:
        assert [len(some) for some in settle(one, other)] == [2, 2]
        assert path.is_dir() or not os.path.lexists(path)  # a directory stays, and is told of


def test_in_place_of_a_static_members_lock_it_is_away(log: Log, put: Callable[[Path], None]) -> None:
    one = member(log, group_instance_id="a")
    (lock,) = (files(log) / "members").iterdir()
    put(lock)
    assert [at.is_alive for at in log.describe_group("g").members] == [False]
    with member(log, group_instance_id="b") as other:
        for _ in range(3):
            log.clock.advance(0.3)  # type: ignore[attr-defined]
            other.poll(0)
    one.close()


@pytest.mark.parametrize("name", ["lock", "state", "heartbeats", "members"])
def test_in_place_of_another_file_of_the_group_it_is_named(log: Log, put: Callable[[Path], None], name: str) -> None:
    files(log).mkdir(parents=True)
    put(files(log) / name)
    if name == "members" and (files(log) / name).is_dir() and not (files(log) / name).is_symlink():
        return  # as it should be
    with pytest.raises(StorageError) as caught:
        member(log)
    assert str(files(log) / name) in str(caught.value)
    assert "g" in log.groups() or name != "state"  # listed, and the other groups as well
    with member(log, group="h") as other:
        other.poll(0)
        other.commit()
        assert "h" in log.groups()


def test_in_place_of_a_checkpoint_or_its_lock_commits_count_all_the_same(
    log: Log, put: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    with member(log) as one:
        one.poll(0)
        one.commit()
    (number,) = log.describe_topic(OFFSETS_TOPIC).numbers
    path = log.path / ".pylog" / f"offsets-{number}.checkpoint"
    put(path)
    put(path.with_name(path.name + ".lock"))
    with Log(log.path) as other:
        assert sum(other.lag("g").values()) == 0
        with member(other) as one:
            one.commit({place(0): 1})
        assert sum(other.lag("g").values()) == 1
    assert str(path) in caplog.text


@pytest.mark.parametrize("name", ["producer-ids.lock", "catalog.lock"])
def test_in_place_of_a_lock_of_the_log_it_is_named_at_once(log: Log, put: Callable[[Path], None], name: str) -> None:
    put(log.path / ".pylog" / name)
    with Log(log.path) as other, pytest.raises(StorageError) as caught:
        other.manager.next_producer_id() if name.startswith("producer") else other.create_topic("u")
    assert name in str(caught.value)


def test_a_member_whose_lock_may_not_be_looked_at_is_not_taken_for_gone(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = member(log)

    def refuse(_self: object, path: str) -> bool:
        raise StorageError(f"cannot open {path}: Permission denied", path=path, errno=13)

    monkeypatch.setattr("pylog.storage.OsFileSystem.is_locked", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        member(log)
    monkeypatch.undo()
    assert len(read_group(log.manager.part(GroupAdmin).directory("g")).members) == 1
    one.close()
