"""Other users of the machine: who may only read cannot hold up a writer, and reading never tries to
write."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pylog.cli.exits import LOCKED
from pylog.cli.main import main
from pylog.consumer import Consumer
from pylog.errors import ReadOnlyLog, StorageError
from pylog.log import Log
from pylog.model import ProducerRecord
from pylog.spark.source.directory import LogDirectory
from pylog.storage import OsFileSystem
from tests.processes.sharing import forked, result_of

pytestmark = pytest.mark.processes

NOBODY = 65534
AS_ANOTHER_USER = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
_LOCKS = [struct.pack("@hhqqi0q", kind, 0, 0, 0, 0) for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK)]
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    *("os.utime", "os.setxattr", "os.removexattr", "os.mkfifo", "fcntl.flock", "fcntl.lockf", "fcntl.fcntl"),
}


@pytest.fixture
def public() -> Iterator[Path]:
    """A log that every user may read, below directories that all may pass."""
    with tempfile.TemporaryDirectory(prefix="pylog-") as directory:
        os.chmod(directory, 0o755)
        root = Path(directory) / "log"
        root.mkdir()
        root.chmod(0o755)
        with Log(root) as log:
            log.create_topic("t", segment_bytes=2000)
            for number in range(20):
                log.partition("t", 0).append([ProducerRecord(b"%d" % number + bytes(300))], acks=1)
        yield root


def become(user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def take_all_locks(root: Path) -> tuple[list[int], int]:
    """Every lock that this user can get on anything below ``root``: the descriptors, and how many
    were tried."""
    held, tried = [], 0
    for path in [root, *root.rglob("*")]:
        for flags in (os.O_RDONLY, os.O_RDWR):
            with suppress(OSError):
                held.append(os.open(path, flags | os.O_CLOEXEC))
    for descriptor in held:
        for lock in _LOCKS:
            for command in (fcntl.F_OFD_SETLK, fcntl.F_SETLK):
                tried += 1
                with suppress(OSError):
                    fcntl.fcntl(descriptor, command, lock)
        for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            tried += 1
            with suppress(OSError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
            tried += 1
            with suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
    return held, tried


@AS_ANOTHER_USER
@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="no open-file-description locks here")
def test_a_user_who_may_only_read_cannot_hold_up_a_writer(public: Path) -> None:
    """A shared lock takes no more than a descriptor open for reading, and keeps out who wants to
    write."""
    ready, says_ready = os.pipe()
    over, says_over = os.pipe()

    def hold() -> int:
        os.close(says_over)
        become(NOBODY)
        attempts = 0
        while True:
            held, tried = take_all_locks(public)
            attempts += tried
            os.write(says_ready, b"!") if attempts == tried else None
            if attempts >= 1000:
                break
            for descriptor in held:
                os.close(descriptor)
        os.read(over, 1)  # holding all of them
        return attempts

    child = forked(hold)
    os.read(ready, 1)
    with Log(public) as log:
        partition = log.partition("t", 0)
        for number in range(1000):
            partition.append([ProducerRecord(b"%d" % number)], acks=1, timeout_ms=0)
        log.create_topic("u")
        log.manager.next_producer_id()
        log.delete_topic("u")
    os.close(says_over)
    os.close(over)
    assert result_of(child) >= 1000
    os.close(ready)
    os.close(says_ready)


def read_everything(root: Path, **options: Any) -> tuple[int, list[str]]:
    """How many records a reader gets, and every attempt to change something that it made on the
    way."""
    attempts: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITES and not str(path).endswith(".pyc") and path != "/dev/null":
                attempts.append(f"open {path!r} {flags:#o}")
        elif event in _CHANGES:
            attempts.append(f"{event} {arguments!r}")

    with open(os.devnull, "w") as silence:
        sys.stdout = silence
        sys.dont_write_bytecode = True
        sys.addaudithook(note)
        with Log(root, **options) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
            assert log.read_only
            consumer.subscribe(["t"])
            records = list(consumer.poll(1.0))
            assert log.verify().problems == []
            log.partition("t", 0).offset_for_time(0)
            with suppress(ReadOnlyLog):
                log.partition("t", 0).append([ProducerRecord(b"no")])
        for source in LogDirectory(str(root)).partitions("t"):
            source.published()
        for arguments in (["verify"], ["stats"], ["topics", "list"], ["consume", "t", "--from-beginning"]):
            assert main([*arguments, "--log", str(root)]) == 0, arguments
    return len(records), list(attempts)


COMMANDS = (["verify"], ["stats"], ["topics", "list"], ["topics", "create", "u"], ["consume", "t"])


@AS_ANOTHER_USER
def test_a_directory_that_may_not_be_entered_is_not_taken_for_a_missing_log(
    public: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was "no log at ...", to be made with create=True."""
    for command in COMMANDS:  # what they import may be out of reach for the other user
        assert main([*command, "--log", str(public)]) == 0
    capfd.readouterr()
    public.parent.chmod(0o700)
    denied = f"user {NOBODY} may not enter '{public.parent}' (owner 0, group 0, mode 700)"
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: Log(public),
        "read": lambda: Log(public, read_only=True),
        "one that there may be": lambda: Log(public, create=False),
        "make": lambda: Log(public.parent / "new"),
        "spark": lambda: LogDirectory(str(public)),
    }

    def ask() -> tuple[dict[str, str], list[int]]:
        become(NOBODY)
        said = {}
        for name, call in calls.items():
            with pytest.raises(StorageError) as caught:
                call()
            assert caught.value.errno == errno.EACCES
            said[name] = str(caught.value)
        return said, [main([*command, "--log", str(public)]) for command in COMMANDS]

    said, codes = result_of(forked(ask))
    assert [name for name, text in said.items() if denied not in text] == []
    assert codes == [LOCKED] * len(COMMANDS)
    assert [denied in line for line in capfd.readouterr().err.splitlines()] == [True] * len(COMMANDS)


@AS_ANOTHER_USER
def test_what_denies_a_write_is_named(public: Path) -> None:
    """The directory, or the file itself, with its owner and mode, and the user who was denied."""
    (public / ".pylog" / "catalog.lock").chmod(0o600)

    def ask() -> list[str]:
        become(NOBODY)
        filesystem, said = OsFileSystem(), []
        for call in (
            lambda: filesystem.make_directory(f"{public.parent}/new", 0o700),
            lambda: filesystem.open_readable(f"{public}/.pylog/catalog.lock"),
        ):
            with pytest.raises(StorageError) as caught:
                call()
            said.append(str(caught.value))
        return said

    directory, file = result_of(forked(ask))
    assert (
        f"Permission denied, since user {NOBODY} may not write in '{public.parent}' (owner 0, group 0, mode 755)"
        in directory
    )
    assert f"Permission denied to user {NOBODY} (owner 0, group 0, mode 600)" in file


@AS_ANOTHER_USER
@pytest.mark.parametrize("options", [{}, {"read_only": True}])
def test_a_reader_without_permission_to_write_never_tries(public: Path, options: dict[str, bool]) -> None:
    def read() -> tuple[int, list[str]]:
        become(NOBODY)
        return read_everything(public, **options)

    assert result_of(forked(read)) == (20, [])


def mounted_read_only(root: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program for which ``root``, its argument, is on a read-only mount. Others do not see
    the mount."""
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"this system does not allow a private mount namespace: {probe.stderr.strip()}")
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-c", mount, "sh", str(root), sys.executable, program],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("options", [{}, {"read_only": True}])
def test_a_reader_of_a_mount_that_is_read_only_never_tries_to_write(public: Path, options: dict[str, bool]) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.processes.test_other_users import read_everything;"
        f"print(read_everything(Path(sys.argv[1]), **{options}), file=sys.stderr)"
    )
    done = mounted_read_only(public, program)
    assert (done.returncode, done.stderr) == (0, "(20, [])\n")


def test_a_writer_is_told_that_the_mount_is_read_only(public: Path) -> None:
    """And the owner, who may write, is not sent to look for a permission."""
    done = mounted_read_only(public, "import sys; from pylog import Log, Producer; Producer(Log(sys.argv[1]))")
    assert f"ReadOnlyLog: {public} can only be read: its filesystem is mounted read-only" in done.stderr


@AS_ANOTHER_USER
def test_a_writer_without_permission_is_told_so(public: Path) -> None:
    def ask() -> str:
        become(NOBODY)
        with Log(public) as log, pytest.raises(ReadOnlyLog) as caught:
            log.create_topic("u")
        return str(caught.value)

    assert result_of(forked(ask)) == f"{public} can only be read: there is no permission to write to it"


def test_an_attempt_to_write_would_be_noticed(public: Path) -> None:
    def write() -> tuple[int, list[str]]:
        try:
            return read_everything(public)
        except AssertionError:  # it is not read-only
            with Log(public) as log:
                log.create_topic("u")
        return 0, []

    hooked: list[str] = []

    def noticed() -> list[str]:
        sys.addaudithook(lambda event, _: hooked.append(event))
        write()
        return sorted({event for event in hooked if event in _CHANGES})

    assert result_of(forked(noticed)) == ["fcntl.fcntl", "os.mkdir", "os.remove", "os.rename", "os.truncate"]
