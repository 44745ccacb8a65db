"""What the system answers rarely: other systems' ways, descriptors that fail, and what a forked child must do first."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import StorageError
from pylog.storage import OsFileSystem, after_fork_in_child, fork, os_filesystem, os_lock
from tests.system import of_the_system

FS = OsFileSystem()


def refuse(number: int) -> Any:
    @of_the_system
    def refused(*_: object) -> None:
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
