"""Waiting for files that others change. What must end a wait does so long before its time is over,
or the test hangs."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pylog.storage import OsFileSystem, os_watch
from pylog.storage.os_watch import OsWatch, watch_files
from tests.system import of_the_system

FS = OsFileSystem()
LONG_S = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "topics").mkdir()
    (tmp_path / ".commit").write_bytes(b"slots")
    return tmp_path


def watched(place: Path) -> OsWatch:
    return OsWatch([f"{place}/topics", f"{place}/.commit"])


@pytest.mark.parametrize(
    "program",
    [
        "open('.commit', 'r+b').write(b'other')",
        "open('topics/new', 'w')",
        "import os; os.rename('topics/old', 'elsewhere')",
        "import os; os.rename('elsewhere', 'topics/moved')",
        "import os; os.remove('topics/old')",
    ],
)
def test_what_another_process_changes_ends_the_wait(place: Path, program: str) -> None:
    (place / "topics" / "old").touch()
    (place / "elsewhere").touch()
    watch = watched(place)
    process = subprocess.Popen([sys.executable, "-c", program], cwd=place)
    start = time.monotonic()
    watch.wait(LONG_S)
    assert time.monotonic() - start < LONG_S
    assert process.wait() == 0
    watch.close()


def test_what_changed_before_the_wait_ends_it_once(place: Path) -> None:
    watch = watched(place)
    (place / ".commit").write_bytes(b"another")
    start = time.monotonic()
    watch.wait(LONG_S)
    assert time.monotonic() - start < LONG_S
    start = time.monotonic()
    watch.wait(0.05)  # nothing more has happened
    assert time.monotonic() - start >= 0.05
    watch.close()


def test_a_wake_ends_the_wait_from_any_thread_before_it_and_within_it(place: Path) -> None:
    watch = watched(place)
    watch.wake()
    watch.wait(LONG_S)
    waking = threading.Timer(0.01, watch.wake)
    waking.start()
    watch.wait(LONG_S)
    waking.join()
    watch.close()
    watch.wake()  # nobody waits any more


def test_a_closed_watch_has_no_descriptors_and_waits_for_nothing(
    place: Path, open_files: Callable[[], list[str]]
) -> None:
    before = open_files()
    watch = watched(place)
    assert watch.is_open
    watch.close()
    watch.close()
    assert not watch.is_open
    assert open_files() == before
    watch.wait(LONG_S)


def test_a_child_has_given_its_parents_watch_up(place: Path) -> None:
    watch = watched(place)
    child = os.fork()
    if child == 0:
        watch.wait(LONG_S)  # it waits for nothing, and takes nothing away
        os._exit(watch.is_open)
    assert os.waitpid(child, 0)[1] == 0
    assert watch.is_open
    (place / ".commit").write_bytes(b"another")
    watch.wait(LONG_S)
    watch.close()


def refuse(number: int) -> Any:
    @of_the_system
    def call(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return call


def test_without_a_watch_one_has_to_look(
    place: Path, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], list[str]]
) -> None:
    paths = [f"{place}/.commit"]
    before = open_files()
    assert watch_files(paths, "nfs4") is None
    assert watch_files(paths, "") is None
    assert watch_files([*paths, f"{place}/nowhere"], "ext4") is None
    monkeypatch.setattr(os, "eventfd", refuse(errno.EMFILE))
    assert watch_files(paths, "ext4") is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert watch_files(paths, "ext4") is None
    assert open_files() == before


def test_the_filesystem_of_the_first_path_decides(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(OsFileSystem, "kind", lambda _, path: asked.append(path) or "nfs")
    assert FS.watch([f"{place}/.commit", f"{place}/topics"]) is None
    assert asked == [f"{place}/.commit"]


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no second filesystem here")
def test_files_of_two_filesystems_are_not_watched(place: Path) -> None:
    if os.stat(place).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("both are one filesystem")
    assert watch_files([f"{place}/.commit", "/dev/shm"], "ext4") is None


def test_a_watch_whose_instance_is_refused_is_none(
    place: Path, monkeypatch: pytest.MonkeyPatch, open_files: Callable[[], list[str]]
) -> None:
    import ctypes

    class Refusing:
        def __init__(self, instance: int) -> None:
            self.instance = instance

        def inotify_init1(self, _: int) -> int:
            ctypes.set_errno(errno.EMFILE)
            return self.instance

        def inotify_add_watch(self, _: int, __: bytes, ___: int) -> int:
            ctypes.set_errno(errno.ENOSPC)
            return -1

    before = open_files()
    for instance in (-1, os.open(place, os.O_RDONLY)):  # no instance left; none left to be watched
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, instance=instance, **__: Refusing(instance))
        assert watch_files([f"{place}/.commit"], "ext4") is None
    assert open_files() == before


def test_a_child_forked_within_a_wait_reads_nothing_of_it(place: Path) -> None:
    watch = watched(place)

    class Forking:
        """What the poll of a process looks like that a signal handler has forked meanwhile."""

        def poll(self, _: int) -> list[tuple[int, int]]:
            descriptors = [(descriptor.fileno(), 1) for descriptor in watch._descriptors]
            watch._forget_parent()
            return descriptors

    watch._poll = Forking()  # type: ignore[assignment]
    watch.wait(LONG_S)
    assert not watch.is_open


def test_a_python_without_ctypes_has_to_look(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert watch_files([f"{place}/.commit"], "ext4") is None


def test_a_process_out_of_descriptors_has_to_look(place: Path) -> None:
    paths = [f"{place}/.commit"]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # not even what asks for the filesystem can be opened
    try:
        watch = FS.watch(paths)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert watch is None


class Interrupted(BaseException):
    """What a signal handler raises."""


MAKING = [function.__code__ for function in (OsWatch.__init__, OsWatch._opened, os_watch._c_library)]


def interrupted_at(number: int, paths: list[str]) -> bool:
    """Make a watch, with an interrupt before the bytecode of this number. False where there are
    fewer."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code not in MAKING:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        watch = OsWatch(paths)
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    watch.close()
    return False


@pytest.mark.slow
def test_an_interrupt_while_a_watch_is_made_loses_no_descriptor(
    place: Path, open_files: Callable[[], list[str]]
) -> None:
    paths = [f"{place}/.commit", f"{place}/topics"]
    assert not interrupted_at(-1, paths)  # ctypes is loaded
    before = open_files()
    number = 1
    while interrupted_at(number, paths):
        assert open_files() == before, f"interrupted at bytecode {number}"
        number += 1
    assert number > 50


def test_a_watch_that_is_dropped_without_a_close_loses_no_descriptor(
    place: Path, open_files: Callable[[], list[str]]
) -> None:
    before = open_files()
    watch = watched(place)
    assert len(open_files()) == len(before) + 2
    del watch
    assert open_files() == before
