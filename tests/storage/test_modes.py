"""Who may read and write what pylog makes: whoever may do so with the directory it is made in,
whatever the umask says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import StorageError, UnsafeDirectory
from pylog.log import Log
from pylog.storage import OsFileSystem, permissions
from pylog.storage.open_safely import open_or_make
from tests.partition.logs import one
from tests.storage.every_file import KINDS, Watched, live, mode_of
from tests.system import of_the_system

UMASKS = (0o000, 0o002, 0o022, 0o027, 0o077)

# The mode of the root: those of the files, of the locks, and of the directories in it.
WANTED = {
    0o700: (0o600, 0o600, 0o700),
    0o750: (0o640, 0o600, 0o750),
    0o755: (0o644, 0o600, 0o755),
    0o770: (0o660, 0o660, 0o770),
    0o2770: (0o660, 0o660, 0o2770),
    0o2750: (0o640, 0o600, 0o2750),
    0o2775: (0o664, 0o660, 0o2775),
    0o1777: (0o664, 0o660, 0o775),
}


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize(("shared_group", "root_mode"), [(False, 0o700), (True, 0o2770)])
def test_a_new_log_is_its_owners_alone_or_its_groups_as_well(
    tmpfs_dir: Path, umask: int, shared_group: bool, root_mode: int
) -> None:
    root = tmpfs_dir / "new" / "log"
    made = live(root, shared_group=shared_group)
    assert mode_of(root) == mode_of(root.parent) == root_mode
    check(made, root, root_mode)


@pytest.mark.parametrize("root_mode", WANTED, ids=oct)
def test_the_mode_of_a_directory_that_is_there_decides(tmpfs_dir: Path, umask: int, root_mode: int) -> None:
    root = tmpfs_dir / "log"
    root.mkdir()
    root.chmod(root_mode)
    made = live(root)
    assert mode_of(root) == root_mode
    check(made, root, root_mode)


def check(made: Watched, root: Path, root_mode: int) -> None:
    """Whether everything that was made, and everything that is left, has the mode it should."""
    file, lock, directory = WANTED[root_mode]
    assert set(made.files) == KINDS
    for kind, found in made.files.items():
        assert found == {lock if "lock" in kind else file}, kind
    for path, found in made.directories.items():
        assert found == {root_mode if Path(path) in (root, root.parent) else directory}, path
    for left in root.rglob("*"):
        wanted = directory if left.is_dir() else lock if "lock" in left.name else file
        assert mode_of(left) == wanted, left
        assert not mode_of(left) & 0o002


def test_a_change_of_the_roots_mode_decides_about_what_is_made_from_then_on(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("before")
        tmp_log_dir.chmod(0o750)
        log.create_topic("after")
    assert [mode_of(tmp_log_dir / name) for name in ("before-0", "after-0")] == [0o700, 0o750]
    assert mode_of(tmp_log_dir / "after-0" / ".commit") == 0o640


def test_no_mode_is_writable_by_all_or_lets_readers_lock() -> None:
    for directory in range(0o10000):
        found = [
            permissions.file_mode(directory),
            permissions.lock_mode(directory),
            permissions.directory_mode(directory),
        ]
        assert not any(mode & 0o002 for mode in found)
        assert not found[1] & 0o004
        assert found[1] & 0o060 in (0o000, 0o020, 0o060)
        assert not (found[0] | found[1]) & 0o111


def test_a_lock_that_chmod_opened_to_readers_is_closed_to_them_again(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
    for path in [tmp_log_dir, *tmp_log_dir.rglob("*")]:  # chmod -R go+rX
        path.chmod(mode_of(path) | (0o055 if path.is_dir() else 0o044))
    with Log(tmp_log_dir) as log:
        log.partition("t", 0).append(one("v"), acks=1)
        log.partition("t", 0).log.roll()
        log.create_topic("u")
    modes_of = {path.name: mode_of(path) for path in (tmp_log_dir / "t-0").iterdir()}
    assert modes_of.pop(".lock") == mode_of(tmp_log_dir / ".pylog" / "catalog.lock") == 0o600
    assert set(modes_of.values()) == {0o644}


def test_a_root_where_all_users_may_replace_files_is_refused_for_writing(tmp_path: Path) -> None:
    root = tmp_path / "log"
    with Log(root) as log:
        log.create_topic("t")
    root.chmod(0o777)
    with pytest.raises(UnsafeDirectory, match=r"chmod o-w.*a new directory inside of it.*read_only=True") as caught:
        Log(root)
    assert caught.value.path == str(root)
    with Log(root, read_only=True) as log:
        assert log.topics() == ["t"]
    root.chmod(0o1777)  # with a sticky bit, others cannot rename or remove what is not theirs
    Log(root).close()
    empty = tmp_path / "volume"
    empty.mkdir()
    empty.chmod(0o777)
    with pytest.raises(UnsafeDirectory):
        Log(empty)
    assert list(empty.iterdir()) == []
    Log(empty / "log").close()  # as the message says
    assert mode_of(empty / "log") == 0o700


def test_a_file_that_another_process_makes_meanwhile_is_opened_as_it_is(tmp_path: Path) -> None:
    def other_is_first(_directory: int) -> int:
        (tmp_path / "f").write_text("kept")
        (tmp_path / "f").chmod(0o640)
        return 0o600

    descriptor = open_or_make(f"{tmp_path}/f", os.O_RDWR | os.O_NOFOLLOW, f"{tmp_path}/f", None, other_is_first)
    assert os.read(descriptor.fileno(), 99) == b"kept"
    descriptor.close()
    assert mode_of(tmp_path / "f") == 0o640


def test_a_file_that_is_removed_when_it_was_just_found_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = os.access

    def remove_found(name: str, mode: int, **where: Any) -> bool:
        found = look(name, mode, **where)
        (tmp_path / "f").unlink()
        return found

    (tmp_path / "f").write_text("old")
    monkeypatch.setattr(os, "access", remove_found)
    descriptor = open_or_make(f"{tmp_path}/f", os.O_RDWR | os.O_NOFOLLOW, f"{tmp_path}/f", None, lambda _: 0o600)
    descriptor.close()
    assert (tmp_path / "f").read_bytes() == b""


@pytest.mark.parametrize("umask", [0o077], indirect=True, ids=oct)
def test_a_mode_that_cannot_be_set_is_an_error_and_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int, open_files: Callable[[], list[str]]
) -> None:
    @of_the_system
    def fail(_descriptor: int, _mode: int) -> None:
        raise OSError(5, "")

    monkeypatch.setattr(os, "fchmod", fail)
    tmp_path.chmod(0o777)
    before = open_files()
    with pytest.raises(StorageError, match="Input/output error"):
        OsFileSystem().open_appendable(f"{tmp_path}/f")
    with pytest.raises(StorageError, match="Input/output error"):
        OsFileSystem().make_directory(f"{tmp_path}/d")
    assert open_files() == before


def test_a_directory_that_is_swapped_for_a_link_when_it_was_just_made_keeps_what_the_link_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    make = os.mkdir

    def make_and_swap(name: str, mode: int, dir_fd: int | None = None) -> None:
        make(name, mode, dir_fd=dir_fd)
        (tmp_path / "d").rmdir()
        (tmp_path / "d").symlink_to("elsewhere")

    monkeypatch.setattr(os, "mkdir", make_and_swap)
    tmp_path.chmod(0o755)
    with pytest.raises(StorageError, match="is a symbolic link"):
        OsFileSystem().make_directory(f"{tmp_path}/d")
    assert mode_of(tmp_path / "elsewhere") == 0o700


@pytest.mark.parametrize("number", [1, 95])
def test_a_filesystem_without_modes_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    @of_the_system
    def refuse(_descriptor: int, _mode: int) -> None:
        raise OSError(number, "no modes here")

    monkeypatch.setattr(os, "fchmod", refuse)
    before = os.umask(0o077)
    try:
        tmp_path.chmod(0o755)
        OsFileSystem().open_appendable(f"{tmp_path}/f").close()
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "f") == 0o600


@pytest.mark.skipif(not Path("/proc/self/ns/mnt").exists(), reason="a file whose time nobody may set is Linux's")
def test_a_file_whose_time_may_not_be_set_keeps_its_own_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Else a process without the right could not erase a key."""
    OsFileSystem().set_modified_ns("/proc/self/ns/mnt", 1)
    assert "may not set the times of files in '/proc/self/ns': Operation not permitted" in caplog.text
    with pytest.raises(FileNotFoundError):
        OsFileSystem().set_modified_ns("/proc/self/ns/none", 1)
