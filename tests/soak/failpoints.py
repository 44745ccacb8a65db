"""A filesystem that does something to its own process at one chosen operation: before it, in its
middle, or after it.

The engine knows nothing of this. A failpoint is named by what is done to which kind of file:
``pwrite .log``, ``replace .seal``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from pylog.storage import AppendableFile, Buffer, OsFileSystem
from tests.storage.filesystems import StandIn

BEFORE, MIDDLE, AFTER = "before", "middle", "after"

# What can be reached by which worker, and how many operations of the kind it may let pass first
WRITING = {
    "pwrite .log": 20,
    "pwrite .index": 3,
    "pwrite .timeindex": 3,
    "pwrite .commit": 20,
    "sync .log": 5,
    "open .log": 3,
    "truncate .log": 0,
    "pwrite .snapshot": 2,
    "replace .snapshot": 2,
    "remove .snapshot": 1,
    "pwrite .seal": 2,
    "sync .seal": 2,
    "replace .seal": 2,
    "replace producer-ids": 0,
}
TIDYING = {
    "pwrite .commit": 5,
    "sync .commit": 0,
    "open .log": 3,
    "truncate .log": 0,
    "pwrite .snapshot": 2,
    "pwrite .seal": 2,
    "replace .seal": 2,
    "replace .log": 1,
    "remove .log": 1,
    "remove .seal": 1,
    "remove .index": 1,
    "remove .snapshot": 1,
    "replace .json": 1,
    "replace .gone": 1,
    "remove .gone": 1,
    "make_directory": 1,
    "remove_directory": 1,
    "sync_directory": 3,
}
OF_MEMBERS = {
    "pwrite state": 3,
    "pwrite heartbeats": 10,
    "remove .lock": 1,
    "pwrite .log": 10,
    "pwrite .commit": 10,
    "sync .log": 5,
}
BY_ROLE = {"producer": WRITING, "appender": WRITING, "tidier": TIDYING, "member": OF_MEMBERS}
OFTEN = {"pwrite .log": 4, "pwrite .commit": 4}  # turns for one of the others
UNDER_LOCK = {"pwrite .log", "pwrite .commit", "pwrite .index", "pwrite .timeindex", "pwrite state"}


class Failpoint(NamedTuple):
    """Where, how many operations of the kind later, at which moment of it, and what is done
    there."""

    place: str
    after: int
    moment: str
    act: str

    def __str__(self) -> str:
        return f"{self.act} {self.moment} {self.place} {self.after}"

    @classmethod
    def drawn(cls, random_: random.Random, place: str, passes: int, act: str) -> Failpoint:
        return cls(place, random_.randint(0, passes), random_.choice(moments_of(place)), act)


def moments_of(place: str) -> tuple[str, ...]:
    return (BEFORE, MIDDLE, AFTER) if place.startswith("pwrite") else (BEFORE, AFTER)


ALL = {f"{moment} {place}" for place in {**WRITING, **TIDYING} for moment in moments_of(place)}


def kind_of(path: str) -> str:
    """``.log`` of a log, ``.seal`` of a seal in the making, ``.commit`` and ``producer-ids`` of
    themselves."""
    name = path.rpartition("/")[2].removesuffix(".tmp").removesuffix(".deleted")
    if ".seal." in name:
        return ".seal"
    stem, dot, kind = name.rpartition(".")
    return f"{dot}{kind}" if dot else stem or name


class FailpointFile:
    """A file whose changes pass the failpoint."""

    def __init__(self, file: AppendableFile, filesystem: FailpointFileSystem) -> None:
        self._file = file
        self._filesystem = filesystem
        self.path = file.path
        self.pread, self.size, self.close = file.pread, file.size, file.close
        self.close_when_idle = file.close_when_idle

    def pwrite(self, data: Buffer, position: int) -> None:
        moment = self._filesystem.due("pwrite", self.path)
        if moment == MIDDLE:
            size = self._filesystem.random.randrange(len(data)) if len(data) else 0
            self._file.pwrite(memoryview(data)[:size], position)
        if moment and moment != AFTER:
            self._filesystem.act(self.path)
        self._file.pwrite(data, position)
        if moment == AFTER:
            self._filesystem.act(self.path)

    def truncate(self, size: int) -> None:
        self._filesystem.around("truncate", self.path, lambda: self._file.truncate(size))

    def sync(self) -> None:
        self._filesystem.around("sync", self.path, self._file.sync)


class FailpointFileSystem(StandIn):
    """The machine's filesystem. ``act(path)`` is called once, at the failpoint; without one this
    only passes through."""

    def __init__(self, failpoint: Failpoint | None, random_: random.Random, act: Callable[[str], None]) -> None:
        self.failpoint = failpoint
        self.random = random_
        self.act = act
        self.left = failpoint.after if failpoint else 0

    def due(self, operation: str, path: str) -> str:
        """The moment of this operation at which to act, or ""."""
        if self.failpoint is None:
            return ""
        place = operation if operation.endswith("directory") else f"{operation} {kind_of(path)}"
        if place != self.failpoint.place:
            return ""
        self.left -= 1
        if self.left >= 0:
            return ""
        moment, self.failpoint = self.failpoint.moment, None
        return moment

    def around(self, operation: str, path: str, do: Callable[[], None]) -> None:
        moment = self.due(operation, path)
        if moment == BEFORE:
            self.act(path)
        do()
        if moment == AFTER:
            self.act(path)

    def open_appendable(self, path: str, *, create: bool = True) -> AppendableFile:
        moment = self.due("open", path)
        if moment == BEFORE:
            self.act(path)
        file = FailpointFile(super().open_appendable(path, create=create), self)
        if moment == AFTER:
            self.act(path)
        return file

    def replace(self, source: str, target: str) -> None:
        self.around("replace", target, lambda: OsFileSystem.replace(self, source, target))

    def remove(self, path: str) -> None:
        self.around("remove", path, lambda: OsFileSystem.remove(self, path))

    def set_modified_ns(self, path: str, time_ns: int) -> None:
        self.around("set_modified", path, lambda: OsFileSystem.set_modified_ns(self, path, time_ns))

    def make_directory(self, path: str, mode: int | None = None) -> None:
        self.around("make_directory", path, lambda: OsFileSystem.make_directory(self, path, mode))

    def remove_directory(self, path: str) -> None:
        self.around("remove_directory", path, lambda: OsFileSystem.remove_directory(self, path))

    def sync_directory(self, path: str) -> None:
        self.around("sync_directory", path, lambda: OsFileSystem.sync_directory(self, path))
