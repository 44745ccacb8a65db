"""The simulated filesystem answers as the machine's own: one table of situations, asked of both.

Each begins with the same few files. What it answers (a value, or the class of an error and its
number) is in the table; what it leaves behind must be the same on both.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pylog.errors import StorageError
from pylog.storage import FileSystem, OsFileSystem
from pylog.storage.descriptors import give_back, open_descriptor
from pylog.testing.machine import Machine

GONE = (FileNotFoundError, {errno.ENOENT})
DIGITS = b"0123456789"
LONGEST, TOO_LONG = "n" * 255, "n" * 256


def refused(*numbers: int | None) -> tuple[type[BaseException], set[int | None]]:
    """``StorageError`` with one of these errnos (systems differ); None where pylog refused by
    itself."""
    return StorageError, set(numbers)


class Place:
    """A directory on some filesystem: ``file`` holds ten digits, ``full`` a file ``inner``,
    ``bare`` nothing."""

    def __init__(self, filesystem: FileSystem, root: str, other: FileSystem) -> None:
        self.fs = filesystem
        self.other = other  # another process's
        self.root = root
        for name in ("full", "bare"):
            filesystem.make_directory(self / name)
        self.write("file", DIGITS)
        self.write("full/inner", b"inner")

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def write(self, name: str, data: bytes, position: int = 0) -> None:
        file = self.fs.open_appendable(self / name)
        file.pwrite(data, position)
        file.close()

    def read(self, name: str) -> bytes:
        file = self.fs.open_readable(self / name)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def tree(self, name: str = "") -> Iterator[tuple[str, bytes | None]]:
        """Everything below, in order; None for a directory."""
        for child in self.fs.names(self / name):
            path = f"{name}/{child}".lstrip("/")
            if self.fs.is_directory(self / path):
                yield path, None
                yield from self.tree(path)
            else:
                yield path, self.read(path)

    def moves(self, name: str, change: Callable[[], object]) -> bool:
        """Whether ``change`` moves the time of ``name`` on. File times are coarse: first, changes
        elsewhere until one moves."""
        before = self.fs.modified_ns(self / name)
        self.write("elsewhere", b"")
        while self.fs.modified_ns(self / "elsewhere") <= before:
            self.write("elsewhere", b"x")
        change()
        return self.fs.modified_ns(self / name) > before


Work = Callable[[Place], Any]


class Situation(NamedTuple):
    name: str
    work: Work
    expected: Any


def opened(name: str, use: Callable[[Any], Any]) -> Work:
    """What ``use`` says of the file ``name``, open for writing."""

    def work(at: Place) -> Any:
        file = at.fs.open_appendable(at / name)
        try:
            return use(file)
        finally:
            file.close()

    return work


def also(*results: Any) -> Any:
    """The last of them: several calls in one expression."""
    return results[-1]


def closed(use: Callable[[Any], Any]) -> Work:
    def work(at: Place) -> Any:
        file = at.fs.open_appendable(at / "file")
        file.close()
        file.close()
        return use(file)

    return work


def an_open_file_survives(change: Callable[[Place], object]) -> Work:
    """Its bytes before and after, and that what is written to it is nobody else's."""

    def work(at: Place) -> Any:
        reader, writer = at.fs.open_readable(at / "file"), at.fs.open_appendable(at / "file")
        change(at)
        writer.pwrite(b"x", 10)
        writer.sync()
        found = reader.pread(99, 0), reader.size()
        reader.close()
        writer.close()
        return found

    return work


def locked_by(first: Callable[[Any], object], *, elsewhere: bool = False) -> Work:
    """Whether a second descriptor (of another process, if ``elsewhere``) gets the lock after
    ``first`` was done with one."""

    def work(at: Place) -> bool:
        one, two = at.fs.lock(at / "lock"), (at.other if elsewhere else at.fs).lock(at / "lock")
        try:
            first(one)
            return two.try_acquire()
        finally:
            two.close()
            one.close()

    return work


HELD_ONCE = [False, True, False, True]


def seen(*steps: Callable[[Any], object], elsewhere: bool = False) -> Work:
    """Whether others see a lock held, after each of these was done with it; and whether it can be
    taken by them in the end."""

    def work(at: Place) -> list[bool]:
        other = at.other if elsewhere else at.fs
        lock, second = at.fs.lock(at / "lock"), other.lock(at / "lock")
        answers = [also(step(lock), other.is_locked(at / "lock")) for step in steps]
        answers.append(second.try_acquire())
        second.close()
        lock.close()
        return answers

    return work


def twice(lock: Any) -> bool:
    return bool(lock.try_acquire() and lock.try_acquire())


def lock_of_a_file_made_again(at: Place) -> tuple[bool, bool]:
    """Whether the second gets a lock of its own, and whether the first holds its lock still."""
    old = at.fs.lock(at / "lock")
    assert old.try_acquire()
    at.fs.remove(at / "lock")
    new, third = at.fs.lock(at / "lock"), at.fs.lock(at / "lock")
    found = new.try_acquire(), old.try_acquire() and not third.try_acquire()
    for lock in (old, new, third):
        lock.close()
    return found


def used_when_closed(close: str) -> Work:
    def work(at: Place) -> bool:
        lock = at.fs.lock(at / "lock")
        getattr(lock, close)()
        getattr(lock, close)()
        lock.release()
        return lock.try_acquire()

    return work


OPENING = [
    Situation("open a file", lambda at: at.read("file"), DIGITS),
    Situation("open what is missing", lambda at: at.fs.open_readable(at / "none"), GONE),
    Situation("open in a missing directory", lambda at: at.fs.open_readable(at / "none/x"), GONE),
    Situation("open a directory", lambda at: at.fs.open_readable(at / "bare"), refused(None)),
    Situation("open through a file", lambda at: at.fs.open_readable(at / "file/x"), refused(errno.ENOTDIR)),
    Situation("open far through a file", lambda at: at.fs.open_readable(at / "file/x/y"), refused(errno.ENOTDIR)),
    Situation("open a long name", lambda at: at.fs.open_readable(at / TOO_LONG), refused(errno.ENAMETOOLONG)),
    Situation("append to a file", opened("file", lambda f: f.size()), 10),
    Situation("append to what is missing makes it", opened("new", lambda f: f.size()), 0),
    Situation("append to it only if it is there", lambda at: at.fs.open_appendable(at / "none", create=False), GONE),
    Situation("append in a missing directory", lambda at: at.fs.open_appendable(at / "none/x"), GONE),
    Situation("append to a directory", lambda at: at.fs.open_appendable(at / "bare"), refused(errno.EISDIR)),
    Situation("append through a file", lambda at: at.fs.open_appendable(at / "file/x"), refused(errno.ENOTDIR)),
    Situation("append to a long name", lambda at: at.fs.open_appendable(at / TOO_LONG), refused(errno.ENAMETOOLONG)),
    Situation("append to the longest name", lambda at: at.write(LONGEST, b"x"), None),
]  # fmt: skip
BYTES = [
    Situation("read inside", opened("file", lambda f: f.pread(3, 2)), b"234"),
    Situation("read over the end", opened("file", lambda f: f.pread(9, 8)), b"89"),
    Situation("read beyond the end", opened("file", lambda f: f.pread(9, 11)), b""),
    Situation("read far more than there is", opened("file", lambda f: f.pread(1 << 60, 8)), b"89"),
    Situation("read far more beyond the end", opened("file", lambda f: f.pread(1 << 60, 11)), b""),
    Situation("read far more from before the beginning", opened("file", lambda f: f.pread(1 << 60, -3)), refused(errno.EINVAL)),
    Situation("read nothing", opened("file", lambda f: f.pread(0, 2)), b""),
    Situation("read before the beginning", opened("file", lambda f: f.pread(2, -3)), refused(errno.EINVAL)),
    Situation("write inside", lambda at: at.write("file", b"abc", 2), None),
    Situation("write over the end", lambda at: at.write("file", b"abc", 8), None),
    Situation("write behind the end", lambda at: also(at.write("file", b"x", 13), at.read("file")), DIGITS + b"\0\0\0x"),
    Situation("write nothing behind the end", lambda at: at.write("file", b"", 20), None),
    Situation("write before the beginning", lambda at: at.write("file", b"x", -1), refused(errno.EINVAL)),
    Situation("write a view", opened("file", lambda f: also(f.pwrite(memoryview(b"abcd")[1:3], 0), f.pread(3, 0))), b"bc2"),
    Situation("write a bytearray", opened("file", lambda f: also(f.pwrite(bytearray(b"ab"), 0), f.pread(3, 0))), b"ab2"),
    Situation("cut", opened("file", lambda f: also(f.truncate(4), f.pread(99, 0))), b"0123"),
    Situation("cut to more", opened("file", lambda f: also(f.truncate(12), f.pread(99, 0))), DIGITS + b"\0\0"),
    Situation("cut and grow", opened("file", lambda f: also(f.truncate(2), f.truncate(4), f.pread(99, 0))), b"01\0\0"),
    Situation("cut to less than nothing", opened("file", lambda f: f.truncate(-1)), refused(errno.EINVAL)),
    Situation("sync", opened("file", lambda f: f.sync()), None),
    *(
        Situation(f"{name} when closed", closed(use), refused(errno.EBADF))
        for name, use in {
            "read": lambda f: f.pread(1, 0),
            "size": lambda f: f.size(),
            "write": lambda f: f.pwrite(b"x", 0),
            "write nothing": lambda f: f.pwrite(b"", 0),
            "cut": lambda f: f.truncate(0),
            "sync": lambda f: f.sync(),
        }.items()
    ),
    Situation("a removed file that is open", an_open_file_survives(lambda at: at.fs.remove(at / "file")), (DIGITS + b"x", 11)),
    Situation(
        "a replaced file that is open",
        an_open_file_survives(lambda at: at.fs.replace(at / "full/inner", at / "file")),
        (DIGITS + b"x", 11),
    ),
    Situation(
        "a renamed file that is open",
        an_open_file_survives(lambda at: at.fs.replace(at / "file", at / "bare/file")),
        (DIGITS + b"x", 11),
    ),
]  # fmt: skip
NAMES = [
    Situation("names", lambda at: at.fs.names(at.root), ["bare", "file", "full"]),
    Situation("names of nothing", lambda at: at.fs.names(at / "bare"), []),
    Situation("names of what is missing", lambda at: at.fs.names(at / "none"), GONE),
    Situation("names of a file", lambda at: at.fs.names(at / "file"), refused(errno.ENOTDIR)),
    Situation("size", lambda at: at.fs.size(at / "file"), 10),
    Situation("size of what is missing", lambda at: at.fs.size(at / "none"), GONE),
    Situation("size through a file", lambda at: at.fs.size(at / "file/x"), refused(errno.ENOTDIR)),
    Situation("time of what is missing", lambda at: at.fs.modified_ns(at / "none"), GONE),
    *(
        Situation(f"{name} is there", lambda at, name=name: at.fs.exists(at / name), there)
        for name, there in {"file": True, "bare": True, "": True, "none": False, "none/x": False, "file/x": False}.items()
    ),
    *(
        Situation(f"{name} is a directory", lambda at, name=name: at.fs.is_directory(at / name), there)
        for name, there in {"file": False, "bare": True, "": True, "none": False, "file/x": False}.items()
    ),
    Situation("a file is a link", lambda at: at.fs.is_link(at / "file"), False),
    Situation("nothing is a link", lambda at: at.fs.is_link(at / "none"), False),
    Situation("a directory is writable", lambda at: at.fs.writable(at / "bare"), True),
    Situation("a file is writable", lambda at: at.fs.writable(at / "file"), False),
    Situation("nothing is writable", lambda at: at.fs.writable(at / "none"), False),
    Situation("a directory is mounted for writing", lambda at: at.fs.is_mounted_read_only(at / "bare"), False),
    Situation("make a directory", lambda at: at.fs.make_directory(at / "new"), None),
    Situation("make one where no directory is", lambda at: at.fs.make_directory(at / "new/newer"), refused(errno.ENOENT)),
    Situation("make it again", lambda at: also(at.fs.make_directory(at / "full"), at.fs.names(at / "full")), ["inner"]),
    Situation("make it with a slash behind it", lambda at: at.fs.make_directory(at / "new/"), None),
    Situation("make it over a file", lambda at: at.fs.make_directory(at / "file"), refused(errno.EEXIST)),
    Situation("make it through a file", lambda at: at.fs.make_directory(at / "file/x"), refused(errno.ENOTDIR)),
    Situation("make it far through a file", lambda at: at.fs.make_directory(at / "file/x/y"), refused(errno.ENOTDIR)),
    Situation("rename", lambda at: at.fs.replace(at / "file", at / "new"), None),
    Situation("rename to itself", lambda at: also(at.fs.replace(at / "file", at / "file"), at.read("file")), DIGITS),
    Situation("rename into another directory", lambda at: at.fs.replace(at / "file", at / "bare/file"), None),
    Situation("rename over a file", lambda at: also(at.fs.replace(at / "full/inner", at / "file"), at.read("file")), b"inner"),
    Situation("rename a directory", lambda at: at.fs.replace(at / "full", at / "new"), None),
    Situation("rename a directory to itself", lambda at: at.fs.replace(at / "full", at / "full"), None),
    Situation("rename a directory over an empty one", lambda at: at.fs.replace(at / "full", at / "bare"), None),
    Situation(
        "rename a directory over a full one",
        lambda at: at.fs.replace(at / "bare", at / "full"),
        refused(errno.ENOTEMPTY, errno.EEXIST),
    ),
    Situation("rename a directory over a file", lambda at: at.fs.replace(at / "bare", at / "file"), refused(errno.ENOTDIR)),
    Situation("rename a directory into itself", lambda at: at.fs.replace(at / "bare", at / "bare/x"), refused(errno.EINVAL)),
    Situation("rename a file over an empty directory", lambda at: at.fs.replace(at / "file", at / "bare"), refused(errno.EISDIR)),
    Situation("rename what is missing", lambda at: at.fs.replace(at / "none", at / "new"), GONE),
    Situation("rename from a missing directory", lambda at: at.fs.replace(at / "none/x", at / "new"), GONE),
    Situation("rename into a missing directory", lambda at: at.fs.replace(at / "file", at / "none/x"), GONE),
    Situation("rename through a file", lambda at: at.fs.replace(at / "file/x", at / "new"), refused(errno.ENOTDIR)),
    Situation("rename into a file", lambda at: at.fs.replace(at / "full", at / "file/x"), refused(errno.ENOTDIR)),
    Situation("exchange", lambda at: also(at.fs.exchange(at / "full", at / "bare"), at.read("bare/inner")), b"inner"),
    Situation("exchange a file", lambda at: also(at.fs.exchange(at / "full", at / "file"), at.read("full")), DIGITS),
    Situation("exchange far", lambda at: also(at.fs.exchange(at / "full/inner", at / "file"), at.read("file")), b"inner"),
    Situation("exchange with itself", lambda at: also(at.fs.exchange(at / "file", at / "file"), at.read("file")), DIGITS),
    Situation("exchange with what is missing", lambda at: at.fs.exchange(at / "file", at / "none"), GONE),
    Situation("exchange what is missing", lambda at: at.fs.exchange(at / "none", at / "file"), GONE),
    Situation("exchange with what is in it", lambda at: at.fs.exchange(at / "full", at / "full/inner"), refused(errno.EINVAL)),
    Situation("exchange with what it is in", lambda at: at.fs.exchange(at / "full/inner", at / "full"), refused(errno.EINVAL)),
    Situation("link", lambda at: also(at.fs.link(at / "file", at / "bare/file"), at.read("bare/file")), DIGITS),
    Situation("link over a file", lambda at: at.fs.link(at / "file", at / "full/inner"), refused(errno.EEXIST)),
    Situation("link a directory", lambda at: at.fs.link(at / "full", at / "new"), refused(errno.EPERM)),
    Situation("link what is missing", lambda at: at.fs.link(at / "none", at / "new"), GONE),
    Situation("write to two names", lambda at: also(at.fs.link(at / "file", at / "new"), at.write("new", b"x")), refused(None)),
    Situation(
        "write to a file whose other name was removed",
        lambda at: also(at.fs.link(at / "file", at / "new"), at.fs.remove(at / "file"), at.write("new", b"x"), at.read("new")),
        b"x" + DIGITS[1:],
    ),
    Situation("remove", lambda at: at.fs.remove(at / "file"), None),
    Situation("remove what is missing", lambda at: at.fs.remove(at / "none"), None),
    Situation("remove from a missing directory", lambda at: at.fs.remove(at / "none/x"), None),
    Situation("remove through a file", lambda at: at.fs.remove(at / "file/x"), refused(errno.ENOTDIR)),
    Situation("remove a directory as a file", lambda at: at.fs.remove(at / "bare"), refused(errno.EISDIR, errno.EPERM)),
    Situation("remove a directory", lambda at: at.fs.remove_directory(at / "bare"), None),
    Situation("remove a missing directory", lambda at: at.fs.remove_directory(at / "none"), None),
    Situation("remove a directory of a missing one", lambda at: at.fs.remove_directory(at / "none/x"), None),
    Situation("remove a full directory", lambda at: at.fs.remove_directory(at / "full"), refused(errno.ENOTEMPTY, errno.EEXIST)),
    Situation("remove a file as a directory", lambda at: at.fs.remove_directory(at / "file"), refused(errno.ENOTDIR)),
    Situation("remove a directory through a file", lambda at: at.fs.remove_directory(at / "file/x"), refused(errno.ENOTDIR)),
    Situation("sync a directory", lambda at: at.fs.sync_directory(at / "bare"), None),
    Situation("sync a missing directory", lambda at: at.fs.sync_directory(at / "none"), GONE),
    Situation("sync a file as a directory", lambda at: at.fs.sync_directory(at / "file"), refused(errno.ENOTDIR)),
]  # fmt: skip
TIMES = [
    Situation(
        "a time is given, and the bytes stay",
        lambda at: (at.fs.set_modified_ns(at / "file", 5_000_000_000), at.fs.modified_ns(at / "file"), at.read("file")),
        (None, 5_000_000_000, DIGITS),
    ),
    Situation(
        "a time that was given stays, over a rename",
        lambda at: also(
            at.fs.set_modified_ns(at / "file", 5_000_000_000), at.fs.replace(at / "file", at / "x"), at.fs.modified_ns(at / "x")
        ),
        5_000_000_000,
    ),
    Situation(
        "until the next write",
        lambda at: also(at.fs.set_modified_ns(at / "file", 0), at.write("file", b"x"), at.fs.modified_ns(at / "file") > 0),
        True,
    ),
    Situation("a time for what is missing", lambda at: at.fs.set_modified_ns(at / "none", 0), GONE),
    Situation("a time through a file", lambda at: at.fs.set_modified_ns(at / "file/x", 0), refused(errno.ENOTDIR)),
    Situation("a write moves a file's time", lambda at: at.moves("file", lambda: at.write("file", b"x")), True),
    Situation("a cut does", lambda at: at.moves("file", lambda: opened("file", lambda f: f.truncate(1))(at)), True),
    Situation("a read does not", lambda at: at.moves("file", lambda: at.read("file")), False),
    Situation("a write of nothing does not", lambda at: at.moves("file", lambda: at.write("file", b"")), False),
    Situation("a sync does not", lambda at: at.moves("file", lambda: opened("file", lambda f: f.sync())(at)), False),
    Situation("a new file moves its directory's", lambda at: at.moves("bare", lambda: at.write("bare/x", b"")), True),
    Situation("a removal does", lambda at: at.moves("full", lambda: at.fs.remove(at / "full/inner")), True),
    Situation("a new directory does", lambda at: at.moves("bare", lambda: at.fs.make_directory(at / "bare/x")), True),
    Situation("a rename does", lambda at: at.moves("full", lambda: at.fs.replace(at / "full/inner", at / "full/x")), True),
    Situation("a write to a file in it does not", lambda at: at.moves("full", lambda: at.write("full/inner", b"x")), False),
    Situation(
        "a new file and a new directory are as new as their directory",
        lambda at: at.moves("full", lambda: also(at.write("full/x", b""), at.fs.make_directory(at / "full/y")))
        and {at.fs.modified_ns(at / name) >= at.fs.modified_ns(at / "file") for name in ("full/x", "full/y")},
        {True},
    ),
]  # fmt: skip
LOCKS = [
    Situation("a lock that was never taken is free", locked_by(lambda lock: None), True),
    Situation("a lock excludes another descriptor", locked_by(lambda lock: lock.try_acquire()), False),
    Situation("and another process", locked_by(lambda lock: lock.try_acquire(), elsewhere=True), False),
    Situation("a lock may be taken twice", lambda at: twice(at.fs.lock(at / "lock")), True),
    Situation("and is free after one release", locked_by(lambda lock: also(twice(lock), lock.release())), True),
    Situation("free after release", locked_by(lambda lock: also(lock.try_acquire(), lock.release()), elsewhere=True), True),
    Situation("free after close", locked_by(lambda lock: also(lock.try_acquire(), lock.close()), elsewhere=True), True),
    Situation("free after abandon", locked_by(lambda lock: also(lock.try_acquire(), lock.abandon())), True),
    Situation("the release of one that is not held frees nothing", lock_of_a_file_made_again, (True, True)),
    Situation("a lock is seen", seen(id, lambda lock: lock.try_acquire(), lambda lock: lock.release()), HELD_ONCE),
    Situation("by another process", seen(lambda lock: lock.try_acquire(), elsewhere=True), [True, False]),
    Situation("looking takes nothing", seen(id, id), [False, False, True]),
    Situation("no lock is seen where there is no file", lambda at: at.fs.is_locked(at / "none"), False),
    Situation("nor made", lambda at: also(at.fs.is_locked(at / "none"), at.fs.exists(at / "none")), False),
    Situation("a closed lock is refused", used_when_closed("close"), refused(None)),
    Situation("an abandoned lock is refused", used_when_closed("abandon"), refused(None)),
    Situation("a lock makes its file", lambda at: also(at.fs.lock(at / "lock").close(), at.read("lock")), b""),
    Situation("a lock leaves what is in its file", lambda at: also(at.fs.lock(at / "file").close(), at.read("file")), DIGITS),
    Situation("lock in a missing directory", lambda at: at.fs.lock(at / "none/lock"), GONE),
    Situation("lock a directory", lambda at: at.fs.lock(at / "bare"), refused(errno.EISDIR)),
    Situation("locks exclude", lambda at: at.fs.locks_exclude(at / "lock"), True),
    Situation("and leave a file", lambda at: also(at.fs.locks_exclude(at / "lock"), at.fs.exists(at / "lock")), True),
    Situation("locks that cannot be tried", lambda at: at.fs.locks_exclude(at / "none/lock"), GONE),
]  # fmt: skip
SYSTEM = [
    Situation("random bytes", lambda at: [len(at.fs.random_bytes(size)) for size in (0, 1, 16)], [0, 1, 16]),
    Situation("random bytes differ", lambda at: at.fs.random_bytes(16) != at.fs.random_bytes(16), True),
    Situation("a boot has one name", lambda at: at.fs.boot_id() == at.other.boot_id() != "", True),
    Situation("a process has a number", lambda at: at.fs.process_id() > 0, True),
    Situation("a filesystem has a kind", lambda at: type(at.fs.kind(at.root)), str),
]
SITUATIONS = [*OPENING, *BYTES, *NAMES, *TIMES, *LOCKS, *SYSTEM]


def answer(place: Place, situation: Situation) -> Any:
    try:
        return situation.work(place)
    except (FileNotFoundError, StorageError) as error:
        return type(error), getattr(error, "errno", None)


def fits(got: Any, expected: Any) -> bool:
    """An error fits its class, and any one of its errnos."""
    if isinstance(expected, tuple) and isinstance(expected[0], type):
        return isinstance(got, tuple) and got[0] is expected[0] and got[1] in expected[1]
    return bool(got == expected)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name.replace(" ", "_"))
def test_both_filesystems_answer_the_same_and_leave_the_same(situation: Situation, tmp_path: Path) -> None:
    machine = Machine()
    process, other = machine.process(), machine.process()
    machine.before_step.append(lambda _process, _step: pass_time(machine))
    process.filesystem.make_directory("/place")
    real = Place(OsFileSystem(), str(tmp_path), OsFileSystem())
    simulated = Place(process.filesystem, "/place", other.filesystem)
    answers = {"real": answer(real, situation), "simulated": answer(simulated, situation)}
    assert {name: got for name, got in answers.items() if not fits(got, situation.expected)} == {}, situation.expected
    assert [item for item in simulated.tree() if item[0] != "elsewhere"] == [
        item for item in real.tree() if item[0] != "elsewhere"
    ]


def pass_time(machine: Machine) -> None:
    """Every step takes a millisecond."""
    machine.seconds += 0.001


def test_each_situation_has_a_name_of_its_own() -> None:
    names = [situation.name for situation in SITUATIONS]
    assert len(names) == len(set(names)) > 100


@pytest.mark.parametrize("got", [b"x", (FileNotFoundError, errno.ENOENT), (StorageError, errno.EIO)])
def test_a_wrong_answer_does_not_fit(got: Any) -> None:
    assert not fits(got, refused(errno.ENOTDIR))
    assert not fits(got, DIGITS)


def test_a_descriptor_whose_close_is_refused_is_given_back_all_the_same() -> None:
    descriptor = open_descriptor("/", os.O_RDONLY)
    os.close(descriptor.fileno())
    give_back(descriptor)
    give_back(descriptor)
    with pytest.raises(ValueError, match="closed"):
        descriptor.fileno()
