"""Directories that are still there after a loss of power."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.log import Log
from pylog.storage.directories import make_directory_durably, parent_of, sync_name
from tests.storage.filesystems import Faulty, io_error


class Recorded(Faulty):
    """Notes what was made and synced instead of doing it; ``there`` are the directories that
    exist."""

    def __init__(self, *there: str) -> None:
        super().__init__()
        self.there = {".", "/", *there}

    def is_directory(self, path: str) -> bool:
        return path in self.there

    def make_directory(self, path: str, mode: int | None = None) -> None:
        self.operations.append(("make", path))
        self.there.add(path)

    def sync_directory(self, path: str) -> None:
        self.operations.append(("sync", path))


@pytest.mark.parametrize(
    ("path", "parent"),
    [("/x", "/"), ("//x", "/"), ("x", "."), ("./x", "."), ("/a/b", "/a"), ("a/b/", "a"), ("..", "."), ("../x", "..")],
)
def test_the_parent_of_a_path(path: str, parent: str) -> None:
    assert parent_of(path) == parent


@pytest.mark.parametrize(
    ("path", "there", "expected"),
    [
        ("/x", (), [("make", "/x"), ("sync", "/")]),
        ("x", (), [("make", "x"), ("sync", ".")]),
        ("a/b", (), [("make", "a"), ("sync", "."), ("make", "a/b"), ("sync", "a")]),
        ("/a/b", ("/a",), [("sync", "/"), ("make", "/a/b"), ("sync", "/a")]),
        ("/a/b/c", ("/a",), [("sync", "/"), ("make", "/a/b"), ("sync", "/a"), ("make", "/a/b/c"), ("sync", "/a/b")]),
        ("/a/b", ("/a", "/a/b"), []),
        (".", (), []),
        ("/", (), []),
    ],
)
def test_every_new_name_and_the_last_that_was_there_is_synced_before_the_next_is_made(
    path: str, there: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    filesystem = Recorded(*there)
    make_directory_durably(filesystem, path)
    assert filesystem.operations == expected


class Guarded(Recorded):
    """``/a`` can't be synced."""

    def __init__(self, refusal: int, *, writable: bool) -> None:
        super().__init__("/a")
        self.refusal = refusal
        self.is_writable = writable

    def writable(self, path: str) -> bool:
        return self.is_writable

    def sync_directory(self, path: str) -> None:
        raise StorageError("refused", path=path, errno=self.refusal)


@pytest.mark.parametrize(
    ("refusal", "writable"),
    [(errno.EACCES, False), (errno.EPERM, False), (errno.EINVAL, True), (errno.ENOTSUP, False)],
)
def test_a_name_in_a_directory_that_pylog_cannot_have_made_it_in_is_taken_to_be_durable(
    refusal: int, writable: bool
) -> None:
    """An administrator's, that the log's user passes through; or one of a filesystem that only
    others are mounted into."""
    sync_name(Guarded(refusal, writable=writable), "/a/b")


@pytest.mark.parametrize("refusal", [errno.EACCES, errno.EIO])
def test_a_name_in_a_directory_that_is_written_to_and_cannot_be_synced_is_an_error(refusal: int) -> None:
    with pytest.raises(StorageError):
        sync_name(Guarded(refusal, writable=True), "/a/b")


def test_a_sync_of_a_directorys_name_that_fails_is_an_error() -> None:
    class Failing(Recorded):
        def sync_directory(self, path: str) -> None:
            raise io_error(path)

    with pytest.raises(StorageError):
        sync_name(Failing("/a"), "/a/b")


def test_a_file_in_the_way_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        make_directory_durably(Faulty(), f"{tmp_path}/file/a/b")


@pytest.mark.parametrize("relative", [True, False])
def test_a_new_log_in_new_directories_is_there_after_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    root = "var/lib/events" if relative else f"{tmp_path}/var/lib/events"
    filesystem = Faulty()
    with Log(root, filesystem=filesystem) as log:
        done = list(filesystem.operations)
        for path in (f"{root}/../..", f"{root}/..", root, f"{root}/.pylog", f"{root}/.pylog/topics"):
            new = Path(path).resolve()
            made = next(
                at
                for at, (operation, name) in enumerate(done)
                if operation == "make_directory" and Path(name).resolve() == new
            )
            assert any(
                operation == "sync_directory" and Path(name).resolve() == new.parent for operation, name in done[made:]
            )
        filesystem.operations.clear()
        log.create_topic("t")
    filesystem.operations.clear()
    Log(root, filesystem=filesystem).close()
    assert filesystem.count("make_directory") == filesystem.count("sync_directory") == 0
