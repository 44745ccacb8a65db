"""What a sink's tasks have staged: one directory for each sink, in ``.pylog/spark``.

A query's directory bears the query's id, a save's a random one. It is removed when it is empty.
Nothing in it is synced: after a power failure, what was not committed is written again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pylog.catalog import Layout
from pylog.errors import ConfigError, StorageError
from pylog.interrupts import own, suppress
from pylog.storage import FileSystem

LEFTOVER_NS = 7 * 86_400 * 1_000_000_000
"""What was staged longer ago than this and never committed is garbage."""

_SAVE = "save-"
_SINK_ID = re.compile(r"(save-)?[0-9a-f-]{32,36}")
_STAGED = re.compile(r"([0-9]{1,19})-[0-9]{1,19}-[0-9a-f]{32}\.staged")


class SinkDirectory:
    """The directory of one sink, in the directory of all sinks."""

    def __init__(self, filesystem: FileSystem, sinks: str, sink_id: str) -> None:
        self.filesystem, self.sinks, self.sink_id = filesystem, sinks, sink_id
        self.is_save = sink_id.startswith(_SAVE)  # for one ``save``, which commits once
        self.path = f"{sinks}/{sink_id}"

    @classmethod
    def of(cls, filesystem: FileSystem, root: str, sink_id: str) -> SinkDirectory:
        """The directory below ``root``. ``ConfigError`` if the id could lead elsewhere."""
        if not is_sink_id(sink_id):
            raise ConfigError(f"{sink_id!r:.80} is no id of a sink", option="sink_id", value=sink_id)
        return cls(filesystem.within(root), Layout(root).sinks, sink_id)

    def all(self) -> list[SinkDirectory]:
        """The directories of all sinks of this log."""
        names = _names(self.filesystem, self.sinks)
        return [SinkDirectory(self.filesystem, self.sinks, name) for name in names if is_sink_id(name)]

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def new_staged_name(self, batch_id: int, task_attempt: int) -> str:
        """A unique name that cannot be guessed."""
        return f"{batch_id}-{task_attempt}-{self.filesystem.random_bytes(16).hex()}.staged"

    def make(self) -> None:
        for path in (self.sinks, self.path):
            self.filesystem.make_directory(path)

    def remove(self, names: Iterable[str]) -> None:
        """Remove these staged files, and the directory if nothing else is in it."""
        for name in names:
            self.filesystem.remove(self.file(name))
        with suppress(StorageError):  # it is not empty
            self.filesystem.remove_directory(self.path)

    def remove_up_to(self, batch_id: int) -> None:
        """Remove what was staged up to this batch: it is in the log, or its attempt was lost."""
        self.remove([name for name in self._staged() if int(name.partition("-")[0]) <= batch_id])

    def remove_leftovers(self, now_ns: int) -> None:
        """Remove all, if nothing was staged for long before ``now_ns``, a time of the
        filesystem."""
        if self.filesystem.modified_ns(self.path) < now_ns - LEFTOVER_NS:
            self.remove(self._staged())

    def _staged(self) -> list[str]:
        return [name for name in _names(self.filesystem, self.path) if is_staged_name(name)]


def _names(filesystem: FileSystem, path: str) -> list[str]:
    try:
        return filesystem.names(path)
    except own(FileNotFoundError):
        return []


def new_save_id(filesystem: FileSystem) -> str:
    return f"{_SAVE}{filesystem.random_bytes(16).hex()}"


def is_sink_id(name: object) -> bool:
    return isinstance(name, str) and _SINK_ID.fullmatch(name) is not None


def is_staged_name(name: object) -> bool:
    return isinstance(name, str) and _STAGED.fullmatch(name) is not None
