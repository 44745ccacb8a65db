"""The files of a sink, and the lock that guards them.

Each sink has a directory in ``.pylog/spark``. A query's directory bears the query's id and stays. A
save's directory is removed once its records are in the log. It contains ``lock``, ``state`` (of a
query), ``intent`` (during a commit), and the staged files of tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from pylog.catalog import Layout
from pylog.clock import Clock
from pylog.errors import ConfigError, LogLocked
from pylog.storage import FileSystem, acquire, make_directory_durably

T = TypeVar("T")

_SAVE = "save-"
_SINK_ID = re.compile(r"(save-)?[0-9a-f-]{32,36}")
_STAGED = re.compile(r"([0-9]{1,19})-[0-9]{1,19}-[0-9a-f]{32}\.staged")


class SinkDirectory:
    """The directory of one sink, in the directory of all sinks."""

    def __init__(self, filesystem: FileSystem, clock: Clock, sinks: str, sink_id: str) -> None:
        self.filesystem, self.clock, self.sinks, self.sink_id = filesystem, clock, sinks, sink_id
        self.is_save = sink_id.startswith(_SAVE)  # for one ``save``, which commits once
        self.path = f"{sinks}/{sink_id}"
        self.lock, self.state, self.intent = map(self.file, ("lock", "state", "intent"))

    @classmethod
    def of(cls, filesystem: FileSystem, clock: Clock, root: str, sink_id: str) -> SinkDirectory:
        """The directory below ``root``. ``ConfigError`` if the id could lead elsewhere."""
        if not is_sink_id(sink_id):
            raise ConfigError(f"{sink_id!r:.80} is no id of a sink", option="sink_id", value=sink_id)
        return cls(filesystem.within(root), clock, Layout(root).sinks, sink_id)

    def other(self, sink_id: str) -> SinkDirectory:
        """The directory of another sink in this log."""
        return SinkDirectory(self.filesystem, self.clock, self.sinks, sink_id)

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def new_staged_name(self, batch_id: int, task_attempt: int) -> str:
        """A unique name that cannot be guessed."""
        return f"{batch_id}-{task_attempt}-{self.filesystem.random_bytes(16).hex()}.staged"

    def staged_names(self) -> list[str]:
        """The files that tasks have staged here, finished or not."""
        return [name for name in self.filesystem.names(self.path) if is_staged_name(name)]

    def make(self) -> None:
        make_directory_durably(self.filesystem, self.path)

    def is_there(self) -> bool:
        return self.filesystem.is_directory(self.path)


def new_save_id(filesystem: FileSystem) -> str:
    return f"{_SAVE}{filesystem.random_bytes(16).hex()}"


def is_sink_id(name: object) -> bool:
    return isinstance(name, str) and _SINK_ID.fullmatch(name) is not None


def is_staged_name(name: object) -> bool:
    return isinstance(name, str) and _STAGED.fullmatch(name) is not None


def batch_of(staged_name: str) -> int:
    found = _STAGED.fullmatch(staged_name)
    assert found is not None  # the caller has checked the name
    return int(found[1])


def while_holding_sink(directory: SinkDirectory, work: Callable[[], T], timeout_s: float) -> T:
    """Call ``work`` under the sink's lock. ``LogLocked``, without a call, after the timeout.

    ``FileNotFoundError`` if the sink and its lock were removed.
    """
    deadline = directory.clock.monotonic() + timeout_s
    while True:
        lock = directory.filesystem.lock(directory.lock)
        try:
            try:
                if not acquire(lock, directory.clock, deadline - directory.clock.monotonic()):
                    raise LogLocked(
                        f"{directory.lock} stayed locked for {timeout_s:g} s: another driver commits for this sink, or one was "
                        "stopped during a commit; find out which process holds it",
                        path=directory.lock, timeout_s=timeout_s,
                    )  # fmt: skip
                if lock.is_in_place():
                    return work()
            finally:
                lock.release()
        finally:
            lock.close()
