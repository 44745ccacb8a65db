"""The owner of a log can use whatever root, or a member of the owner's group, has left in it."""

from __future__ import annotations

import errno
import io
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.cli.main import main
from pylog.consumer import Consumer
from pylog.errors import StorageError
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from pylog.producer import Producer
from pylog.storage import OsFileSystem, permissions
from tests.processes.sharing import forked, result_of
from tests.spark.writing import Driver
from tests.storage.every_file import live
from tests.system import of_the_system

pytestmark = pytest.mark.processes

SERVICE, ITS_GROUP = 12345, 12346  # of no user of any machine, as a rule
MEMBER = 12347
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def passable() -> Iterator[Path]:
    """A new directory that every user may pass; it is removed with all that is in it."""
    with tempfile.TemporaryDirectory(prefix="pylog-") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture
def of_service(passable: Path) -> Path:
    """An empty directory of the service's."""
    root = passable / "log"
    root.mkdir(mode=0o700)
    os.chown(root, SERVICE, ITS_GROUP)
    return root


def as_user(user: int, group: int, groups: list[int], work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a child that is this user."""

    def become_and_work() -> object:
        os.setgroups(groups)
        os.setgid(group)
        os.setuid(user)
        return work()

    return result_of(forked(become_and_work))


def owners_of(root: Path) -> dict[str, tuple[int, int]]:
    """Owner and group of every file and directory of a log, by path."""
    return {str(path): (path.lstat().st_uid, path.lstat().st_gid) for path in [root, *root.rglob("*")]}


def run(root: Path, *arguments: str, stdin: bytes = b"") -> None:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
    try:
        assert main([*arguments, "--log", str(root)]) == 0, arguments
    finally:
        sys.stdin = before


def use_everything(root: Path) -> int:
    """Whatever makes files in a log: commands, a group, and Spark's sink. The number of records of
    the topic "t"."""
    with Log(root) as log:
        log.create_topic("t", if_not_exists=True)
    run(root, "produce", "t", stdin=b"one\ntwo\n")
    run(root, "consume", "t", "--group", "g", "--from-beginning")
    run(root, "groups", "reset", "g", "--to-earliest", "--execute")
    name = f"u{os.getuid()}-{len(list(root.iterdir()))}"
    run(root, "topics", "create", name, "--partitions", "2")
    run(root, "topics", "alter", name, "--config", "index_interval_bytes=1024")
    run(root, "topics", "delete", name)
    sink = Driver(root, topic="t")
    with Log(root) as log:
        partition = log.partition("t", 0)
        batch_id = log.partition("t", 0).latest_offset  # a new one each time
        sink.commit([sink.stage([b"staged"], batch_id)], batch_id)
        sink.stage([b"left"], batch_id + 1)
        partition.append([ProducerRecord(b"v")], acks="all")
        partition.log.roll()
        with Producer(log, acks="all") as producer:
            producer.send("t", b"v").result()
        with Consumer(log, group_id="h", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            assert consumer.poll(0)
            consumer.commit()
        log.delete_records(TopicPartition("t", 0), 1)
        return partition.latest_offset


@ONLY_ROOT
def test_the_owner_goes_on_with_a_log_that_root_has_made_and_used(of_service: Path) -> None:
    live(of_service)
    first = use_everything(of_service)
    found = owners_of(of_service)
    assert {path for path, owner in found.items() if owner != (SERVICE, ITS_GROUP)} == set()
    assert {Path(path).name for path in found} >= {"groups", "members", "state", "lock", "heartbeats", "spark"}
    second = as_user(SERVICE, ITS_GROUP, [], lambda: use_everything(of_service))
    assert second > first
    assert use_everything(of_service) > second
    as_user(SERVICE, ITS_GROUP, [], lambda: use_everything(of_service))
    assert set(owners_of(of_service).values()) == {(SERVICE, ITS_GROUP)}


@ONLY_ROOT
def test_the_owner_goes_on_with_its_log_after_root_has_used_it(of_service: Path) -> None:
    as_user(SERVICE, ITS_GROUP, [], lambda: Log(of_service).close())
    use_everything(of_service)
    assert set(owners_of(of_service).values()) == {(SERVICE, ITS_GROUP)}
    as_user(SERVICE, ITS_GROUP, [], lambda: use_everything(of_service))


@ONLY_ROOT
def test_a_log_of_roots_stays_roots(passable: Path) -> None:
    use_everything(passable / "log")
    assert set(owners_of(passable / "log").values()) == {(0, os.getegid())}


@ONLY_ROOT
def test_a_new_log_that_root_makes_in_a_directory_of_another_is_roots(of_service: Path) -> None:
    """As with ``mkdir``: nobody said that the other one should have it."""
    Log(of_service / "a" / "log").close()
    assert set(owners_of(of_service / "a").values()) == {(0, os.getegid())}


@ONLY_ROOT
@pytest.mark.parametrize("mode", [0o770, 0o2770])
def test_the_owner_goes_on_after_a_member_of_its_group(of_service: Path, mode: int) -> None:
    """Without a setgid bit on the directory, what a member makes was of the member's own group,
    which the owner is not in."""
    of_service.chmod(mode)
    as_user(MEMBER, MEMBER, [ITS_GROUP], lambda: use_everything(of_service))
    found = owners_of(of_service)
    assert {group for _, group in found.values()} == {ITS_GROUP}
    assert {user for user, _ in found.values()} == {SERVICE, MEMBER}  # the directory itself is still the service's
    as_user(SERVICE, ITS_GROUP, [], lambda: use_everything(of_service))
    use_everything(of_service)
    as_user(MEMBER, MEMBER, [ITS_GROUP], lambda: use_everything(of_service))


@ONLY_ROOT
def test_what_was_put_in_place_of_a_new_directory_is_not_given_away(
    of_service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the log renames a directory of root's, which is not empty, to the name of the
    new one."""
    (of_service / "secret").mkdir()
    (of_service / "secret" / "key").write_text("k")
    make = os.mkdir

    def make_and_swap(name: str, mode: int, dir_fd: int | None = None) -> None:
        make(name, mode, dir_fd=dir_fd)
        (of_service / "d").rmdir()
        (of_service / "secret").rename(of_service / "d")

    monkeypatch.setattr(os, "mkdir", make_and_swap)
    OsFileSystem().make_directory(f"{of_service}/d")
    assert owners_of(of_service / "d") == dict.fromkeys([f"{of_service}/d", f"{of_service}/d/key"], (0, os.getegid()))


@ONLY_ROOT
def test_a_directory_that_a_killed_process_of_roots_left_is_given_when_it_is_next_wanted(of_service: Path) -> None:
    (of_service / "d").mkdir(mode=0o700)
    of_service.chmod(0o770)
    OsFileSystem().make_directory(f"{of_service}/d")
    assert owners_of(of_service / "d") == {f"{of_service}/d": (SERVICE, ITS_GROUP)}
    assert (of_service / "d").stat().st_mode & 0o777 == 0o770


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL])
def test_an_owner_who_can_not_be_given_files_is_told_of_once(
    passable: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Unknown in this user namespace, or a filesystem without owners."""

    @of_the_system
    def refuse(_descriptor: int, _user: int, _group: int) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "geteuid", lambda: permissions.ROOT)
    monkeypatch.setattr(os, "fchown", refuse)
    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: _of_another(fstat(descriptor)))
    for name in ("a", "b"):
        OsFileSystem().open_appendable(f"{passable}/{name}").close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"can't be given to the owner of that directory (user {os.getuid()}, group" in caplog.text


def test_any_other_refusal_to_give_a_file_is_an_error(
    passable: Path, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], list[str]]
) -> None:
    @of_the_system
    def fail(_descriptor: int, _user: int, _group: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fchown", fail)
    fstat, before = os.fstat, open_files()
    monkeypatch.setattr(os, "fstat", lambda descriptor: _of_another(fstat(descriptor)))
    with pytest.raises(StorageError, match="Input/output error"):
        OsFileSystem().open_appendable(f"{passable}/f")
    with pytest.raises(StorageError, match="Input/output error"):
        OsFileSystem().make_directory(f"{passable}/d")
    assert open_files() == before


def _of_another(found: os.stat_result) -> os.stat_result:
    """As if the group of the new file were another one."""
    fields = list(found)
    fields[5] += 1
    return os.stat_result(fields)


@ONLY_ROOT
def test_root_of_a_user_namespace_that_has_no_such_owner_can_use_the_log(of_service: Path) -> None:
    probe = subprocess.run(["unshare", "-Ur", "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"this system does not allow a user namespace: {probe.stderr.strip()}")
    os.chown(of_service, SERVICE, 0)
    of_service.chmod(0o2770)
    program = (
        "import sys; from pathlib import Path; from tests.processes.test_owners import use_everything;"
        "use_everything(Path(sys.argv[1]))"
    )
    done = subprocess.run(
        ["unshare", "-Ur", sys.executable, "-c", program, str(of_service)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"new files in '{of_service}' can't be given to the owner of that directory" in done.stderr
