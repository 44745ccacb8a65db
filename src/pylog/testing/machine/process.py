"""A process of a simulated machine: its files, its locks, its clock, and its death.

Each action on the machine is a step. Before it, the hooks (``Machine.before_step``) let another
process run first, or inject faults. A dead process has no effect, even if its code still runs: each
of its steps raises ``Killed`` again, and its locks are already free.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from random import Random
from threading import Condition  # only as a type
from typing import TYPE_CHECKING, Any, NamedTuple

from pylog.errors import StorageError
from pylog.storage import Buffer, FileSystem
from pylog.storage.os_errors import storage_error
from pylog.testing.machine.disk import Cut, Disk, File, Write

if TYPE_CHECKING:
    from pylog.log import Log

_START_MS = 1_700_000_000_000
_TICK_NS = 4_000_000  # the unit of file times on Linux at 250 ticks a second
CHANGING = frozenset(
    {
        "pwrite",
        "truncate",
        "sync",
        "create",
        "mkdir",
        "replace",
        "exchange",
        "link",
        "remove",
        "rmdir",
        "sync_directory",
        "set_modified",
    }
)


# the name of each step in an error of the machine's filesystem
_ACTIONS = {
    **dict.fromkeys(("open", "create"), "open"),
    **dict.fromkeys(("size", "modified", "exists", "is_directory"), "inspect"),
    "pread": "read", "pwrite": "write", "truncate": "truncate", "sync": "sync", "lock": "lock", "names": "list",
    "is_locked": "open the lock file", "mkdir": "create the directory", "rmdir": "remove the directory",
    "set_modified": "set the time of",
    "replace": "rename", "exchange": "exchange", "link": "link", "remove": "remove", "sync_directory": "sync the directory",
}  # fmt: skip


class Killed(BaseException):
    """The process died here. pylog never catches it as an error of the system."""


class Interrupted(Exception):
    """A hook raises it to let ``pwrite`` write ``written_bytes`` and then raise ``error``."""

    def __init__(self, written_bytes: int, error: BaseException) -> None:
        super().__init__(written_bytes, error)
        self.written_bytes = written_bytes
        self.error = error


class SyncFailure(Exception):
    """A hook raises it to let ``sync`` fail as on some filesystem.

    ``dirty``: a later sync would write the bytes. ``clean``: they count as written, but are not
    (ext4, xfs); reads still show them. ``lost``: reads show the disk's content from now on (btrfs).

    Source: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
    """

    def __init__(self, behaviour: str) -> None:
        super().__init__(behaviour)
        self.behaviour = behaviour


class Step(NamedTuple):
    """The next action of a process. ``size_bytes`` is the size of a write."""

    name: str
    path: str
    size_bytes: int = 0

    @property
    def changes(self) -> bool:
        """Whether it changes the disk."""
        return self.name in CHANGING


def _answer(step: Step, error: OSError) -> None:
    """Raise what the real filesystem raises if ``error`` is the system's answer to ``step``.

    An error without an errno, such as a signal handler's ``TimeoutError``, or one during a sleep,
    is not the system's.
    """
    if error.errno is None or step.name not in _ACTIONS:
        return
    if isinstance(error, FileNotFoundError | StorageError):
        # with the frame of a hook, pylog.interrupts would take it for a signal handler's
        raise error.with_traceback(None)
    raise storage_error(_ACTIONS[step.name], step.path, error) from error


class Hardware:
    """A machine as its processes use it."""

    def __init__(self, seed: int = 0, *, disk: Disk | None = None, boot: int = 1, tear_writes: bool = False) -> None:
        """``tear_writes``: every write is two steps, so that other processes can see half of it."""
        self.seed = seed
        self.random = Random(f"{seed} {boot}")
        self.disk = disk or Disk()
        self.boot = boot
        self.tear_writes = tear_writes
        self.seconds = 0.0
        self.wall_offset_ms = 0
        self.before_step: list[Callable[[Process, Step], None]] = []
        self.sleeper: Callable[[float], None] | None = None  # a schedule's; None: move the clock
        self.processes: list[Process] = []
        self.locks: dict[int, tuple[Process, SimulatedLock]] = {}

    def sleep(self, seconds: float) -> None:
        if self.sleeper is not None:
            self.sleeper(seconds)
        else:
            self.seconds += seconds

    def free_locks(self, process: Process) -> None:
        self.locks = {number: held for number, held in self.locks.items() if held[0] is not process}

    def file_time_ns(self) -> int:
        """The modification time of a file changed now, in units of the kernel's tick."""
        return int(self.seconds * 1e9) // _TICK_NS * _TICK_NS + self.boot * 10**15

    def torn(self, size: int) -> Iterable[tuple[int, int]]:
        """The parts of a write of ``size`` bytes."""
        if not self.tear_writes or size < 2:
            return ((0, size),)
        middle = 1 + (size * 7) // 11
        return ((0, middle), (middle, size))


class Process:
    """One process. It has no thread of its own: its code runs on the calling thread."""

    def __init__(self, machine: Hardware, number: int, filesystem: Callable[[Process], FileSystem]) -> None:
        self.machine = machine
        self.number = number
        self.is_alive = True
        self.steps = 0
        self.filesystem = filesystem(self)
        self.clock = SimulatedClock(self)

    def open_log(self, path: str, **options: Any) -> Log:
        """``Log(path, …)`` on this machine."""
        from pylog.log import Log

        return Log(path, filesystem=self.filesystem, clock=self.clock, **options)

    def step(self, name: str, path: str, size_bytes: int = 0) -> None:
        """Call the hooks. ``Killed`` if the process is dead or a hook kills it."""
        if not self.is_alive:
            raise Killed
        self.steps += 1
        step = Step(name, path, size_bytes)
        for hook in self.machine.before_step:
            try:
                hook(self, step)
            except OSError as error:
                _answer(step, error)
                raise
        if not self.is_alive:
            raise Killed

    def kill(self) -> None:
        """Kill the process: its locks are freed, and its writes stay in the page cache."""
        self.is_alive = False
        self.machine.free_locks(self)


class SimulatedClock:
    """The machine's clock for one process. It moves only when all programs wait."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return _START_MS + int(self._process.machine.seconds * 1000) + self._process.machine.wall_offset_ms

    def monotonic(self) -> float:
        return self._process.machine.seconds

    def sleep(self, seconds: float) -> None:
        self._process.step("sleep", "")
        self._process.machine.sleep(seconds)

    def wait(self, condition: Condition, seconds: float) -> None:
        saved = condition._release_save()  # type: ignore[attr-defined]  # what Condition.wait does
        try:
            self.sleep(seconds)
        finally:
            condition._acquire_restore(saved)  # type: ignore[attr-defined]


class OpenFile:
    """An open file. It stays the same file if its name is changed or removed."""

    __slots__ = ("_file", "_process", "path")

    def __init__(self, process: Process, path: str, file: File) -> None:
        self._process = process
        self._file: File | None = file
        self.path = path

    def _opened(self, action: str) -> File:
        if self._file is None:
            raise storage_error(action, self.path, OSError(errno.EBADF, "Bad file descriptor"))
        return self._file

    def pread(self, size: int, position: int) -> bytes:
        self._process.step("pread", self.path)
        content = self._opened("read").content
        self._no_less_than_0("read", min(size, position))
        return bytes(content[position : position + size])

    def size(self) -> int:
        self._process.step("size", self.path)
        return len(self._opened("inspect").content)

    def _no_less_than_0(self, action: str, number: int) -> None:
        if number < 0:
            raise storage_error(action, self.path, OSError(errno.EINVAL, "Invalid argument"))

    def sync(self) -> None:
        try:
            self._process.step("sync", self.path)
        except SyncFailure as failure:
            self._opened("sync").fail_to_sync(failure.behaviour)
            raise storage_error("sync", self.path, OSError(errno.EIO, "Input/output error")) from None
        self._opened("sync").sync()

    def close_when_idle(self) -> None:
        """Nothing to do: descriptors are unlimited here."""

    def close(self) -> None:
        self._file = None


class OpenAppendableFile(OpenFile):
    """An open file that is also written."""

    __slots__ = ()

    def pwrite(self, data: Buffer, position: int) -> None:
        data = bytes(data)
        for start, stop in self._process.machine.torn(len(data)):
            try:
                self._process.step("pwrite", self.path, stop - start)
            except Interrupted as interrupted:
                if self._process.is_alive or isinstance(interrupted.error, Killed):
                    self._write(data[start : start + interrupted.written_bytes], position + start)
                if isinstance(interrupted.error, OSError):
                    _answer(Step("pwrite", self.path), interrupted.error)
                raise interrupted.error from None
            self._write(data[start:stop], position + start)

    def _write(self, data: bytes, position: int) -> None:
        file = self._opened("write")
        self._no_less_than_0("write", position)
        if data:
            disk = self._process.machine.disk
            file.apply(Write(disk.next_sequence(), position, data))
            file.modified_ns = self._process.machine.file_time_ns()

    def truncate(self, size: int) -> None:
        self._process.step("truncate", self.path)
        file = self._opened("truncate")
        self._no_less_than_0("truncate", size)
        file.apply(Cut(self._process.machine.disk.next_sequence(), size))
        file.modified_ns = self._process.machine.file_time_ns()


class SimulatedLock:
    """A lock between descriptors, which the machine frees when its process dies."""

    __slots__ = ("_file", "_process", "path", "size")

    def __init__(self, process: Process, path: str, file: File) -> None:
        self._process = process
        self._file: File | None = file
        self.size = 0
        self.path = path

    def try_acquire(self) -> bool:
        self._process.step("lock", self.path)
        if self._file is None:
            raise StorageError(f"cannot lock {self.path!r}: it was closed", path=self.path)
        holder = self._process.machine.locks.setdefault(self._file.number, (self._process, self))
        return holder[1] is self

    def is_in_place(self) -> bool:
        """This is not a step: a removal in between is equivalent to one just after it."""
        found = self._process.machine.disk.look(self.path)
        if isinstance(found, File):
            self.size = len(found.content)
        return found is self._file

    def release(self) -> None:
        """This is not a step: it cannot fail, and before it other processes only wait longer."""
        locks = self._process.machine.locks
        if self._file is not None and locks.get(self._file.number, (None, None))[1] is self:
            del locks[self._file.number]

    def close_when_idle(self) -> None:
        """Nothing to do, as for files."""

    def abandon(self) -> None:
        self.close()

    def close(self) -> None:
        self.release()
        self._file = None
