"""What the system answers rarely: other systems' ways, descriptors that fail, and what a forked
child must do first."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.errors import StorageError
from pylog.storage import OsFileSystem, after_fork_in_child, fork, os_filesystem, os_lock
from pylog.storage.os_errors import storage_error
from tests.system import of_the_system

FS = OsFileSystem()


def refuse(number: int) -> Any:
    @of_the_system
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def test_a_lock_that_was_closed_is_an_error_and_closing_it_again_is_not(tmp_path: Path) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    lock.close()
    lock.close()
    lock.abandon()
    with pytest.raises(StorageError, match="it was closed"):
        lock.try_acquire()


def test_a_lock_that_the_system_refuses_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    monkeypatch.setattr(fcntl, "fcntl", refuse(errno.ENOLCK))
    with pytest.raises(StorageError, match="No locks available") as caught:
        lock.try_acquire()
    assert caught.value.path == f"{tmp_path}/l"
    monkeypatch.undo()
    lock.close()


def test_without_open_file_description_locks_a_flock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_lock, "HAS_OFD", False)
    lock, path = FS.lock(f"{tmp_path}/l"), f"{tmp_path}/l"
    assert not FS.is_locked(path)
    lock.try_acquire()
    assert FS.is_locked(path)
    lock.release()
    assert not FS.is_locked(path)
    assert lock.try_acquire()  # whoever looks has taken nothing
    lock.close()


def test_locks_that_somebody_holds_do_exclude(tmp_path: Path) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    assert FS.locks_exclude(f"{tmp_path}/l")
    lock.close()
    assert FS.locks_exclude(f"{tmp_path}/l")


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda file: file.pread(1, 0), "pread"),
        (lambda file: file.size(), "lseek"),
        (lambda file: file.pwrite(b"x", 0), "pwrite"),
        (lambda file: file.truncate(0), "ftruncate"),
        (lambda file: file.sync(), "fdatasync"),
    ],
    ids=["read", "size", "write", "truncate", "sync"],
)
def test_whatever_the_system_refuses_is_a_typed_error_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any, function: str
) -> None:
    file = FS.open_appendable(f"{tmp_path}/f")
    monkeypatch.setattr(os, function, refuse(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error") as caught:
        call(file)
    monkeypatch.undo()
    assert (caught.value.path, caught.value.errno) == (f"{tmp_path}/f", errno.EIO)
    file.close()
    file.close()


@pytest.mark.parametrize("look", [FS.modified_ns, lambda path: FS.lock(path).is_in_place()])
def test_whatever_the_system_refuses_of_a_look_is_a_typed_error_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Any
) -> None:
    path = f"{tmp_path}/f"
    real = os.stat

    @of_the_system
    def stat(asked: Any, **options: Any) -> os.stat_result:
        if asked == path and not options:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(asked, **options)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(StorageError, match="Input/output error") as caught:
        look(path)
    assert (caught.value.path, caught.value.errno) == (path, errno.EIO)


@pytest.mark.parametrize("look", [FS.exists, FS.is_directory, FS.is_link], ids=["exists", "is_directory", "is_link"])
def test_a_name_of_which_the_system_tells_nothing_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[str], bool]
) -> None:
    path = f"{tmp_path}/f"
    with monkeypatch.context() as refusing:
        for function in ("stat", "lstat"):
            refusing.setattr(os, function, refuse(errno.EIO))
        with pytest.raises(StorageError, match=r"cannot inspect .*Input/output error") as caught:
            look(path)
    assert (caught.value.path, caught.value.errno) == (path, errno.EIO)


@pytest.mark.parametrize("look", [FS.exists, FS.is_directory, FS.is_link], ids=["exists", "is_directory", "is_link"])
def test_a_name_that_no_file_can_have_is_not_there(tmp_path: Path, look: Callable[[str], bool]) -> None:
    assert not look(f"{tmp_path}/\0")


def test_a_directory_that_another_process_makes_and_removes_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system has said that the name is taken, and nothing is there."""
    monkeypatch.setattr(os, "mkdir", refuse(errno.EEXIST))
    with pytest.raises(StorageError, match=r"cannot create the directory .*File exists") as caught:
        FS.make_directory(f"{tmp_path}/d")
    assert caught.value.path == f"{tmp_path}/d"


# Who was denied what: the tests run as root, to whom nothing is denied, so the system's answers are
# made up


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """What the user 1234 may not do: a path, and the kind of access."""
    refused: set[tuple[str, int]] = set()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "access", lambda path, what, **_: (path, what) not in refused)
    return refused


@pytest.mark.parametrize(
    ("path", "access", "says"),
    [
        ("d", os.X_OK, ", since user 1234 may not enter '{0}/d' ({1}): change the user, or allow it (chmod +x)"),
        ("d", os.W_OK, ", since user 1234 may not write in '{0}/d' ({1})"),
        ("nowhere", os.W_OK, ""),
    ],
    ids=["a directory on the way", "the directory of a new file", "nothing that is known"],
)
def test_the_directory_that_denies_access_is_named_with_its_owner_and_mode(
    tmp_path: Path, denied: set[tuple[str, int]], path: str, access: int, says: str
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o750)
    denied.add((f"{tmp_path}/d", access))
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    whose = f"owner {os.getuid()}, group {os.getgid()}, mode 750"
    said = str(storage_error("open", f"{tmp_path}/{path}/new", error))
    assert said == f"cannot open '{tmp_path}/{path}/new': Permission denied{says.format(tmp_path, whose)}"


def test_a_file_that_denies_access_itself_is_named_with_its_owner_and_mode(
    tmp_path: Path, denied: set[tuple[str, int]]
) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "f").chmod(0o640)
    said = str(storage_error("open", f"{tmp_path}/f", PermissionError(errno.EACCES, os.strerror(errno.EACCES))))
    whose = f"owner {os.getuid()}, group {os.getgid()}, mode 640"
    assert said == f"cannot open '{tmp_path}/f': Permission denied to user 1234 ({whose})"


# Exchanging two names


def test_where_two_names_are_exchanged_by_another_call_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C library of macOS has no renameat2."""
    calls: list[tuple[int, bytes, int, bytes, int]] = []

    class Library:
        def renameatx_np(self, before: int, first: bytes, after: int, second: bytes, flag: ctypes.c_uint) -> int:
            calls.append((before, first, after, second, flag.value))
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library())
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Darwin"))
    FS.exchange(f"{tmp_path}/a", f"{tmp_path}/b")
    assert calls == [(-2, os.fsencode(f"{tmp_path}/a"), -2, os.fsencode(f"{tmp_path}/b"), 2)]


def test_where_no_call_exchanges_two_names_that_is_a_typed_error_and_both_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    with pytest.raises(StorageError, match=r"cannot exchange .*Function not implemented") as caught:
        FS.exchange(f"{tmp_path}/a", f"{tmp_path}/b")
    assert caught.value.errno == errno.ENOSYS
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["a", "b"]


def test_where_a_sync_stops_at_the_drive_the_full_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os_filesystem, "_FULL_SYNC", 51)
    monkeypatch.setattr(os, "fdatasync", refuse(errno.EIO))
    file = FS.open_appendable(f"{tmp_path}/f")
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append((descriptor, command)))
    file.sync()
    assert [command for _, command in asked] == [51]


class Forkable:
    def __init__(self, name: str, called: list[str]) -> None:
        self.name, self.called = name, called
        after_fork_in_child(self.in_child)

    def in_child(self) -> None:
        self.called.append(self.name)


def test_what_lives_is_told_of_a_fork_in_the_order_of_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    methods: dict[int, Any] = {}
    monkeypatch.setattr(fork, "_methods", methods)
    called: list[str] = []
    first, gone, last = Forkable("first", called), Forkable("gone", called), Forkable("last", called)
    del gone
    fork._run()
    assert called == [first.name, last.name]


def test_what_is_gone_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    methods: dict[int, Any] = {}
    monkeypatch.setattr(fork, "_methods", methods)
    for _ in range(1000):
        Forkable("gone", [])
    assert len(methods) == 0


def test_the_host_has_a_name() -> None:
    assert FS.host_name()
