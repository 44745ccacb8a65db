"""The machine's filesystem keeps what filesystem.py promises, and every refusal is one typed error
with a path."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import NotAppended, StorageError, StorageFull
from pylog.storage import OsFileSystem, os_lock, read_whole, write_atomically
from pylog.storage.descriptor_pool import POOL
from pylog.storage.descriptors import Descriptor
from pylog.storage.open_safely import open_or_make
from pylog.storage.os_errors import translated
from tests.storage.filesystems import Faulty, Killed, Nth, full, io_error
from tests.system import of_the_system

FS = OsFileSystem()


def test_reading_and_writing_at_positions(tmp_path: Path) -> None:
    file = FS.open_appendable(f"{tmp_path}/f")
    file.pwrite(b"hello", 3)
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert (file.pread(2, 3), file.pread(5, 8), file.size()) == (b"he", b"", 8)
    file.truncate(4)
    file.sync()
    assert FS.open_readable(f"{tmp_path}/f").pread(9, 0) == b"\0\0\0h"
    file.close()
    file.close()


def test_opening_never_truncates(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"kept")
    FS.open_appendable(f"{tmp_path}/f").close()
    assert (tmp_path / "f").read_bytes() == b"kept"


def test_a_name_that_is_not_there_is_file_not_found(tmp_path: Path) -> None:
    path = f"{tmp_path}/missing"
    for call in (
        lambda: FS.open_readable(path),
        lambda: FS.open_appendable(path, create=False),
        lambda: FS.size(path),
        lambda: FS.names(path),
        lambda: FS.modified_ns(path),
        lambda: FS.replace(path, path + "2"),
        lambda: FS.lock(f"{path}/lock"),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    FS.remove(path)
    FS.remove_directory(path)
    assert not FS.exists(path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_space_that_ran_out_is_storage_full(number: int) -> None:
    with pytest.raises(StorageFull) as caught, translated("write", "/a/b"):
        raise OSError(number, "")
    assert (caught.value.path, caught.value.errno) == ("/a/b", number)
    assert isinstance(caught.value, NotAppended)
    assert caught.value.retriable


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENAMETOOLONG, errno.EROFS])
def test_any_other_refusal_is_a_storage_error(number: int) -> None:
    with pytest.raises(StorageError) as caught, translated("open", "/a/b"):
        raise OSError(number, "")
    assert not isinstance(caught.value, NotAppended)
    assert (caught.value.errno, isinstance(caught.value.__cause__, OSError)) == (number, True)
    assert "/a/b" in str(caught.value)


def test_a_short_write_is_continued_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: write(descriptor, data[:3], position))
    data = bytes(range(100))
    for given in (data, bytearray(data), memoryview(data)):
        file = FS.open_appendable(f"{tmp_path}/{type(given).__name__}")
        file.pwrite(given, 7)
        assert file.pread(200, 0) == bytes(7) + data


def test_a_short_write_that_ends_in_a_full_disk_is_storage_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left = os.pwrite, [5]

    @of_the_system
    def into_little_space(descriptor: int, data: bytes, position: int) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[: left[0]], position)
        left[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", into_little_space)
    with pytest.raises(StorageFull):
        FS.open_appendable(f"{tmp_path}/f").pwrite(b"0123456789", 0)
    assert (tmp_path / "f").read_bytes() == b"01234"


def test_a_short_read_is_continued_to_the_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(bytes(range(100)))
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: read(descriptor, min(size, 3), position))
    file = FS.open_readable(f"{tmp_path}/f")
    assert file.pread(200, 10) == bytes(range(10, 100))
    assert file.pread(20, 10) == bytes(range(10, 30))
    assert file.pread(20, 100) == b""


def test_a_symbolic_link_is_never_followed_for_writing(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"safe")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="is a symbolic link"):
        FS.open_appendable(f"{tmp_path}/link")
    with pytest.raises(StorageError, match="is a symbolic link"):
        FS.lock(f"{tmp_path}/link")
    assert (tmp_path / "target").read_bytes() == b"safe"


@pytest.mark.parametrize("open_it", [FS.open_readable, FS.open_appendable, FS.lock])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(
    tmp_path: Path, open_it: Callable[[str], object], open_files: Callable[[], list[str]]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for path in (f"{tmp_path}/pipe", f"{tmp_path}/directory", "/dev/null"):
        before = open_files()
        with pytest.raises(StorageError, match=path) as caught:
            open_it(path)
        assert caught.value.path == path
        assert open_files() == before
    with pytest.raises(StorageError, match="is a FIFO, expected a regular file; move it away"):
        open_it(f"{tmp_path}/pipe")


@pytest.mark.parametrize("has_ofd", [pytest.param(os_lock.HAS_OFD, id="ofd"), pytest.param(False, id="flock")])
def test_a_lock_excludes_another_descriptor_until_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ofd: bool
) -> None:
    monkeypatch.setattr(os_lock, "HAS_OFD", has_ofd)
    first, second = FS.lock(f"{tmp_path}/l"), FS.lock(f"{tmp_path}/l")
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    second.close()
    assert first.try_acquire()
    first.close()
    assert FS.locks_exclude(f"{tmp_path}/l")


def test_closing_another_descriptor_of_the_file_keeps_the_lock(tmp_path: Path) -> None:
    """POSIX locks would be lost here."""
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    for _ in range(3):
        FS.open_readable(f"{tmp_path}/l").close()
        FS.open_appendable(f"{tmp_path}/l").close()
    other = FS.lock(f"{tmp_path}/l")
    assert not other.try_acquire()
    other.close()
    lock.close()


@pytest.mark.processes
def test_a_forked_child_that_abandons_a_lock_leaves_it_to_the_parent(tmp_path: Path) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    child = os.fork()
    if child == 0:
        lock.abandon()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = FS.lock(f"{tmp_path}/l")
    assert not other.try_acquire()
    lock.release()
    assert other.try_acquire()
    other.close()
    lock.close()


@pytest.mark.processes
def test_a_forked_child_keeps_no_lock_of_its_parent_alive(tmp_path: Path) -> None:
    """Whatever object has it: the child of a process that dies while it changes the catalog must
    not lock it for ever."""
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    (has_started, started), (is_over, over) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(over)
        os.write(started, b"x")
        os.read(is_over, 1)
        os._exit(0)
    try:
        assert os.read(has_started, 1) == b"x"
        lock.abandon()  # what the parent's death does
        other = FS.lock(f"{tmp_path}/l")
        assert other.try_acquire()
        other.close()
    finally:
        for descriptor in (over, is_over, has_started, started):
            os.close(descriptor)
        os.waitpid(child, 0)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_a_lock_is_opened_keeps_it_alive_no_more_than_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (is_over, over), children = os.pipe(), list[int]()

    def forked_behind(*args: Any) -> Descriptor:
        descriptor = open_or_make(*args)
        if not children:
            children.append(os.fork())
            if not children[0]:
                os.close(over)
                os.read(is_over, 1)
                os._exit(0)
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(os_lock, "open_or_make", forked_behind)
        lock = FS.lock(f"{tmp_path}/l")
    try:
        assert lock.try_acquire()
        lock.abandon()  # what the parent's death does
        other = FS.lock(f"{tmp_path}/l")
        assert other.try_acquire()
        other.close()
    finally:
        os.close(over)
        os.close(is_over)
        os.waitpid(children[0], 0)


@pytest.mark.processes
def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if FS.lock(f"{tmp_path}/l").try_acquire() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    lock.close()


def test_an_atomic_replacement_that_dies_anywhere_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = f"{tmp_path}/f"
    n, seen = 0, set()
    while True:
        write_atomically(FS, path, b"old")
        nth = Nth(
            n, {"open", "truncate", "pwrite", "sync", "replace", "replaced", "sync_directory"}, lambda p: Killed()
        )
        try:
            write_atomically(Faulty(nth), path, b"new")
        except Killed:
            seen.add(read_whole(FS, path, 99))
            n += 1
            continue
        break
    assert seen == {b"old", b"new"}
    assert n == 7
    assert read_whole(FS, path, 99) == b"new"


@pytest.mark.parametrize("operation", ["open", "truncate", "pwrite", "sync", "replace", "sync_directory"])
@pytest.mark.parametrize("error", [full, io_error])
def test_an_atomic_replacement_that_fails_says_so(tmp_path: Path, operation: str, error: type) -> None:
    nth = Nth(0, {operation}, error)
    with pytest.raises(StorageError):
        write_atomically(Faulty(nth), f"{tmp_path}/f", b"new")


def test_a_durable_replacement_syncs_the_file_before_the_rename_and_the_directory_after(tmp_path: Path) -> None:
    filesystem = Faulty()
    write_atomically(filesystem, f"{tmp_path}/f", b"x")
    operations = [operation for operation, _ in filesystem.operations]
    assert operations == ["open", "truncate", "pwrite", "sync", "replace", "sync_directory"]


def test_the_kind_of_a_filesystem_is_what_the_system_calls_it(tmpfs_dir: Path) -> None:
    assert FS.kind(str(tmpfs_dir)) == "tmpfs"
    assert FS.kind("/proc") == "proc"
    assert FS.kind(f"{tmpfs_dir}/not/made/yet") == "tmpfs"
    assert FS.boot_id()


@pytest.mark.usefixtures("open_files")
@pytest.mark.parametrize("call", [FS.boot_id, lambda: FS.kind("/proc")])
def test_what_cannot_be_read_for_want_of_a_descriptor_is_an_error_and_not_another_answer(
    call: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(POOL, "close_some", lambda _: False)  # files of earlier tests
    answer = call()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(number) for number in os.listdir("/proc/self/fd")) + 1
    taken = [os.open("/dev/null", os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):  # noqa: PT012 - until it does
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(StorageError, match="Too many open files"):
            call()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    assert call() == answer


def test_a_system_without_proc_has_one_boot_and_unknown_mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pylog.storage.os_filesystem._BOOT_ID", f"{tmp_path}/none")
    monkeypatch.setattr("pylog.storage.os_mounts._MOUNTS", f"{tmp_path}/none")
    assert (FS.boot_id(), FS.kind("/")) == (sys.platform, "")
