"""Inside a root nothing is opened, listed or changed through a link; the root itself may be reached
through one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.consumer import Consumer
from pylog.errors import NotAppended, StorageError
from pylog.log import Log
from pylog.storage import FileSystem, OsFileSystem, open_safely
from pylog.storage.descriptors import open_descriptor
from tests.partition.logs import one, snapshot_of, values
from tests.system import of_the_system

KAFKA_LOG = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"

# What opens, lists or changes, by a directory at ``place`` with a file ``f`` and an empty directory
# ``d`` in it.
CALLS: dict[str, Callable[[FileSystem, str], object]] = {
    "open_readable": lambda fs, place: fs.open_readable(f"{place}/f"),
    "open_appendable": lambda fs, place: fs.open_appendable(f"{place}/f"),
    "open_existing": lambda fs, place: fs.open_appendable(f"{place}/f", create=False),
    "open_new": lambda fs, place: fs.open_appendable(f"{place}/new"),
    "lock": lambda fs, place: fs.lock(f"{place}/lock"),
    "locks_exclude": lambda fs, place: fs.locks_exclude(f"{place}/lock"),
    "names": lambda fs, place: fs.names(place),
    "make_directory": lambda fs, place: fs.make_directory(f"{place}/made"),
    "replace": lambda fs, place: fs.replace(f"{place}/f", f"{place}/g"),
    "exchange": lambda fs, place: fs.exchange(f"{place}/f", f"{place}/d"),
    "link": lambda fs, place: fs.link(f"{place}/f", f"{place}/g"),
    "remove": lambda fs, place: fs.remove(f"{place}/f"),
    "remove_directory": lambda fs, place: fs.remove_directory(f"{place}/d"),
    "sync_directory": lambda fs, place: fs.sync_directory(place),
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere"
    (path / "d").mkdir(parents=True)
    (path / "f").write_text("precious")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    (path / "a" / "b").mkdir(parents=True)
    (path / "h").write_text("inside")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("depth", ["", "a", "a/b"])
def test_no_directory_on_the_way_is_a_link(
    root: Path, elsewhere: Path, call: str, depth: str, open_files: Callable[[], list[str]]
) -> None:
    link = root / depth / "link"
    link.symlink_to(elsewhere)
    before, files = snapshot_of(elsewhere), open_files()
    with pytest.raises(
        StorageError, match=f"'{link}' is a symbolic link, which pylog does not follow inside a log"
    ) as caught:
        CALLS[call](OsFileSystem().within(str(root)), str(link))
    assert (caught.value.path, caught.value.kind) == (str(link), "a symbolic link")
    assert snapshot_of(elsewhere) == before
    assert open_files() == files


@pytest.mark.parametrize("call", CALLS)
def test_a_directory_that_is_one_is_used_at_any_depth(root: Path, call: str) -> None:
    for depth in ("", "a", "a/b"):
        place = root / depth / "real"
        (place / "d").mkdir(parents=True)
        (place / "f").write_text("inside")
        CALLS[call](OsFileSystem().within(str(root)), str(place))


@pytest.mark.parametrize("leads_to", ["f", "nothing"])
@pytest.mark.parametrize(
    "open_it",
    [
        lambda fs, path: fs.open_readable(path),
        lambda fs, path: fs.open_appendable(path),
        lambda fs, path: fs.open_appendable(path, create=False),
        lambda fs, path: fs.lock(path),
    ],
)
def test_no_file_is_a_link(root: Path, elsewhere: Path, leads_to: str, open_it: Callable[..., object]) -> None:
    for link in (root / "file", root / "a" / "file", root / "a" / "b" / "file"):
        link.symlink_to(elsewhere / leads_to)
        with pytest.raises(StorageError, match=f"'{link}' is a symbolic link"):
            open_it(OsFileSystem().within(str(root)), str(link))
    assert sorted(os.listdir(elsewhere)) == ["d", "f"]


def test_a_link_that_is_removed_or_renamed_is_itself_what_goes(root: Path, elsewhere: Path) -> None:
    filesystem = OsFileSystem().within(str(root))
    (root / "a" / "link").symlink_to(elsewhere / "f")
    filesystem.replace(f"{root}/a/link", f"{root}/a/renamed")
    assert (root / "a" / "renamed").readlink() == elsewhere / "f"
    filesystem.remove(f"{root}/a/renamed")
    assert (elsewhere / "f").read_text() == "precious"


def test_a_root_is_reached_through_links_and_its_names_are_its_own(root: Path, elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    filesystem = OsFileSystem().within(f"{tmp_path}/link")
    filesystem.open_appendable(f"{tmp_path}/link/a/f").close()
    assert filesystem.names(f"{tmp_path}/link") == ["a", "h"]
    filesystem.sync_directory(f"{tmp_path}/link")
    assert filesystem.open_readable(f"{elsewhere}/f").pread(99, 0) == b"precious"  # outside, a path is a path


@pytest.mark.parametrize(("missing", "error"), [("a/x/f", FileNotFoundError), ("h/f", StorageError)])
def test_a_directory_that_is_missing_or_none_is_what_it_was(
    root: Path, missing: str, error: type[OSError], open_files: Callable[[], list[str]]
) -> None:
    before = open_files()
    with pytest.raises(error) as caught:
        OsFileSystem().within(str(root)).open_readable(f"{root}/{missing}")
    assert caught.value.errno in (errno.ENOENT, errno.ENOTDIR)
    assert open_files() == before


# Hard links


def test_a_file_with_another_name_is_read_but_not_written(root: Path, elsewhere: Path) -> None:
    os.link(elsewhere / "f", root / "a" / "f")
    for filesystem in (OsFileSystem(), OsFileSystem().within(str(root))):
        assert filesystem.open_readable(f"{root}/a/f").pread(99, 0) == b"precious"
        for open_it in (filesystem.open_appendable, filesystem.lock):
            with pytest.raises(StorageError, match=r"has 2 names \(hard links\).*replace it by a copy"):
                open_it(f"{root}/a/f")
    os.unlink(elsewhere / "f")
    OsFileSystem().open_appendable(f"{root}/a/f").close()


@pytest.mark.parametrize("follows", ["a file", "nothing"])
def test_a_hard_link_that_goes_when_it_was_opened_is_not_written(
    root: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, follows: str
) -> None:
    """Then the file that was opened has one name, elsewhere."""
    name, put_back = root / "a" / "f", root / "a" / "g"
    os.link(elsewhere / "f", name)
    put_back.write_bytes(b"ours")

    def opens_before_it_goes(what: str, *arguments: Any, **options: Any) -> Any:
        descriptor = open_descriptor(what, *arguments, **options)
        if what == name.name:
            monkeypatch.undo()
            if follows == "nothing":
                name.unlink()
            else:
                os.replace(put_back, name)
        return descriptor

    monkeypatch.setattr(open_safely, "open_descriptor", opens_before_it_goes)
    if follows == "nothing":
        with pytest.raises(FileNotFoundError):
            OsFileSystem().within(str(root)).open_appendable(str(name), create=False)
    else:
        file = OsFileSystem().within(str(root)).open_appendable(str(name))
        file.pwrite(b"new.", 0)
        file.close()
        assert name.read_bytes() == b"new."
    assert (elsewhere / "f").read_bytes() == b"precious"


def test_a_file_that_gets_another_name_while_it_is_opened_is_not_written(
    root: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], list[str]]
) -> None:
    """It has one name when it is opened, and two when its name is looked at again."""
    name = root / "a" / "f"
    name.write_bytes(b"ours")
    before = open_files()
    stat = os.stat

    def stat_after_the_link(what: Any, **options: Any) -> os.stat_result:
        if what == name.name:
            monkeypatch.undo()
            os.link(name, elsewhere / "other")
        return stat(what, **options)

    monkeypatch.setattr(os, "stat", stat_after_the_link)
    with pytest.raises(StorageError, match=r"has 2 names \(hard links\).*replace it by a copy"):
        OsFileSystem().within(str(root)).open_appendable(str(name))
    assert ((elsewhere / "other").read_bytes(), open_files()) == (b"ours", before)


def test_a_file_in_the_way_that_goes_before_it_is_looked_at_is_no_link(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstat, in_the_way = os.lstat, root / "h"

    @of_the_system
    def lstat_after_the_removal(what: str) -> os.stat_result:
        monkeypatch.undo()  # the report of a failure looks at every file of every module with this function
        if what == str(in_the_way):
            in_the_way.unlink()
        return lstat(what)

    monkeypatch.setattr(os, "lstat", lstat_after_the_removal)
    with pytest.raises(StorageError, match="Not a directory") as caught:
        OsFileSystem().within(str(root)).open_readable(f"{root}/h/f")
    assert caught.value.errno == errno.ENOTDIR


def test_a_name_that_is_another_file_each_time_is_given_up(
    root: Path, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], list[str]]
) -> None:
    (root / "a" / "f").write_bytes(b"ours")
    before = open_files()
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with pytest.raises(StorageError, match="another file each time that it is looked at, 1000 times"):
        OsFileSystem().within(str(root)).open_appendable(f"{root}/a/f")
    assert open_files() == before


def test_a_backup_made_of_hard_links_is_not_written(tmp_log_dir: Path, tmp_path: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("a"))
    backup = tmp_path / "backup"
    backup.mkdir()
    for file in (tmp_log_dir / "t-0").iterdir():
        os.link(file, backup / file.name)
    before = snapshot_of(backup)
    with Log(tmp_log_dir) as log:
        with pytest.raises(NotAppended, match="hard links"):
            log.partition("t", 0).append(one("b"))
        assert values(log.partition("t", 0).read(0)) == ["a"]
    assert snapshot_of(backup) == before
    for file in backup.iterdir():
        file.unlink()
    with Log(tmp_log_dir) as log:
        log.partition("t", 0).append(one("b"))
        assert values(log.partition("t", 0).read(0)) == ["a", "b"]


# A log


@pytest.fixture
def linked(tmp_log_dir: Path, tmp_path: Path) -> Path:
    """A log with topics ``t`` and ``u``, where a link stands in the place of the directory of
    ``t``; where it leads."""
    with Log(tmp_log_dir) as log:
        for topic in ("t", "u"):
            log.create_topic(topic)
            log.partition(topic, 0).append(one(topic))
    return (tmp_log_dir / "t-0").rename(tmp_path / "outside")


def test_a_partition_behind_a_link_is_neither_read_nor_written_and_hides_no_other(
    tmp_log_dir: Path, linked: Path
) -> None:
    (tmp_log_dir / "t-0").symlink_to(linked)
    before = snapshot_of(linked)
    with Log(tmp_log_dir) as log:
        with pytest.raises(StorageError, match="is a symbolic link"):
            log.partition("t", 0).read(0)
        with pytest.raises(NotAppended, match="is a symbolic link"):
            log.partition("t", 0).append(one("v"))
        with pytest.raises(StorageError, match="is a symbolic link"):
            log.partition("t", 0).log.delete_before(1)
        log.partition("u", 0).append(one("v"))
        (problem,) = log.verify().problems
        assert (problem.topic, problem.partition, problem.kind) == ("t", 0, "directory")
        assert "is a symbolic link" in str(problem)
        assert values(log.partition("u", 0).read(0)) == ["u", "v"]
    assert snapshot_of(linked) == before


def test_a_log_whose_own_files_are_behind_a_link_is_not_written(tmp_log_dir: Path, tmp_path: Path) -> None:
    Log(tmp_log_dir).close()
    (tmp_log_dir / ".pylog").rename(tmp_path / "outside")
    (tmp_log_dir / ".pylog").symlink_to(tmp_path / "outside")
    before = snapshot_of(tmp_path / "outside")
    with pytest.raises(StorageError, match=r"\.pylog' is a symbolic link"):
        Log(tmp_log_dir)
    assert snapshot_of(tmp_path / "outside") == before


def test_a_log_reached_through_a_link_works(tmp_log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    tmp_log_dir.symlink_to(tmp_path / "real")
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"))
        assert values(log.partition("t", 0).read(0)) == ["v"]
        log.delete_topic("t")


def test_a_link_that_takes_the_place_of_an_open_partition_leads_nobody_out(tmp_log_dir: Path, linked: Path) -> None:
    linked.rename(tmp_log_dir / "t-0")
    with Log(tmp_log_dir) as log:
        partition = log.partition("t", 0)
        partition.append(one("v"))
        (tmp_log_dir / "t-0").rename(linked)
        (tmp_log_dir / "t-0").symlink_to(linked)
        names = sorted(os.listdir(linked))
        with pytest.raises(NotAppended, match="is a symbolic link"):
            partition.log.roll()
        with pytest.raises(NotAppended, match="is a symbolic link"):
            partition.append(one("w"), acks="all")
        assert sorted(os.listdir(linked)) == names


def test_partitions_of_kafka_behind_links_are_read(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("keyed-0", "keyed-1"):
        (tmp_path / "log" / name).symlink_to(KAFKA_LOG / name)
    with Log(tmp_path / "log") as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["keyed"])
        assert consumer.poll(1.0)


def test_an_interruption_on_the_way_leaves_no_descriptor(
    root: Path, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], list[str]]
) -> None:
    before, open_it = open_files(), os.open

    def interrupted(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == "b":
            raise KeyboardInterrupt
        return open_it(name, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OsFileSystem().within(str(root)).open_readable(f"{root}/a/b/f")
    monkeypatch.undo()
    assert open_files() == before


def test_a_rename_into_another_directory_goes_through_no_link_either(root: Path, elsewhere: Path) -> None:
    filesystem = OsFileSystem().within(str(root))
    (root / "link").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="is a symbolic link"):
        filesystem.replace(f"{root}/h", f"{root}/link/f")
    assert (elsewhere / "f").read_text() == "precious"
    filesystem.replace(f"{root}/h", f"{root}/a/b/moved")
    assert (root / "a" / "b" / "moved").read_text() == "inside"
    assert not (root / "h").exists()
