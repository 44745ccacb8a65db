"""Descriptors on a system without epoll: their owner is an object of Python, which does what the
epoll object does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pylog.storage import OsFileSystem, descriptors
from pylog.storage.descriptors import PythonDescriptor, give_back, open_descriptor
from tests.system import names_of_open_files, of_the_system


@pytest.fixture(autouse=True)
def without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_OWNER", PythonDescriptor)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "f").write_bytes(b"abc")
    return f"{tmp_path}/f"


def test_files_and_locks_work(path: str) -> None:
    filesystem = OsFileSystem()
    file, lock, other = (
        filesystem.open_appendable(path),
        filesystem.lock(f"{path}.lock"),
        filesystem.lock(f"{path}.lock"),
    )
    file.pwrite(b"d", 3)
    assert file.pread(9, 0) == b"abcd"
    assert (lock.try_acquire(), other.try_acquire()) == (True, False)
    for closed in (file, lock, other):
        closed.close()
    assert not any(name.startswith(path) for name in names_of_open_files())


def test_a_descriptor_is_closed_when_nothing_refers_to_its_owner(path: str) -> None:
    descriptor = open_descriptor(path, os.O_RDONLY)
    assert os.read(descriptor.fileno(), 9) == b"abc"
    del descriptor
    assert path not in names_of_open_files()


def test_a_descriptor_that_was_closed_has_no_number_and_is_not_closed_again(path: str) -> None:
    """A file that is opened in between gets the number."""
    descriptor = open_descriptor(path, os.O_RDONLY)
    number = descriptor.fileno()
    descriptor.close()
    other = os.open(path, os.O_RDONLY)
    try:
        assert other == number
        give_back(descriptor)
        del descriptor
        assert os.read(other, 9) == b"abc"
    finally:
        os.close(other)


def test_the_number_of_a_closed_descriptor_is_refused(path: str) -> None:
    descriptor = open_descriptor(path, os.O_RDONLY)
    descriptor.close()
    with pytest.raises(ValueError, match="the descriptor has been closed"):
        descriptor.fileno()


def test_an_owner_whose_making_was_interrupted_closes_nothing() -> None:
    give_back(object.__new__(PythonDescriptor))


def test_an_error_of_the_close_of_what_was_not_written_is_dropped(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    close = os.close

    @of_the_system
    def close_and_fail(number: int) -> None:
        close(number)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    descriptor = open_descriptor(path, os.O_RDONLY)
    monkeypatch.setattr(os, "close", close_and_fail)
    give_back(descriptor)
    monkeypatch.undo()
    assert path not in names_of_open_files()
