"""The same workloads on the real filesystem, where one call of the operating system fails, once or
from then on.

Below what the simulated machine has: the translation of errors, writes that were short, descriptors
that must not leak. Whatever ``pylog.storage`` calls of ``os`` and ``fcntl`` goes through here.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from pylog import Log, ProducerRecord
from pylog.storage import OsFileSystem, descriptor_pool, descriptors, open_safely, os_filesystem, os_lock, permissions
from pylog.testing.machine import Machine
from pylog.testing.manual_clock import ManualClock
from tests.internal_records import append_by_hand
from tests.simulation.actors import World
from tests.simulation.crashes import PROBLEMS_MAX, Found, of_a_topic_gone
from tests.simulation.workloads import Workload
from tests.system import names_of_open_files, of_the_system

MODULES = (descriptor_pool, descriptors, open_safely, os_filesystem, os_lock, permissions)
CALLS: dict[str, tuple[str, ...]] = {
    "open": ("EIO", "EACCES", "EMFILE", "ENOSPC", "EINTR"),
    "close": ("EIO", "ENOSPC"),
    "pread": ("EIO", "EINTR"),
    "pwrite": ("EIO", "ENOSPC", "EDQUOT", "EFBIG", "EINTR", "short"),
    "ftruncate": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO", "ENOSPC"),
    "fsync": ("EIO",),
    "fstat": ("EIO",),
    "stat": ("EIO", "EACCES"),
    "listdir": ("EIO", "EMFILE"),
    "mkdir": ("EACCES", "ENOSPC", "EDQUOT"),
    "rmdir": ("EIO", "EACCES"),
    "unlink": ("EIO", "EACCES"),
    "replace": ("EIO", "EACCES", "ENOSPC"),
    "fchmod": ("EIO", "EPERM"),
    "fcntl": ("EIO", "ENOLCK"),
}


class Refusal(NamedTuple):
    """Call ``number`` fails with an error, and with ``sticky`` every later one that can fail so."""

    number: int
    kind: str
    sticky: bool


class Calls:
    """Stands for ``os`` and ``fcntl`` in the modules of ``pylog.storage``. Notes the calls, and
    refuses."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.refusal = refusal
        self.made: list[str] = []

    def module(self, real: Any) -> Any:
        return _Module(self, real)

    @of_the_system
    def call(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        number, refusal = len(self.made), self.refusal
        self.made.append(name)
        strikes = refusal is not None and (
            (number == refusal.number or (refusal.sticky and number > refusal.number))
            and refusal.kind
            in CALLS[name]  # real time has a say in what is called, so the number may be of another call today
        )
        if refusal is None or not strikes or arguments[-1:] == (os_lock._RELEASE,):  # unlocking can't fail
            return real(*arguments, **options)
        if refusal.kind == "short":
            descriptor, data, position = arguments
            return real(descriptor, data[: max(len(data) // 2, 1)], position)
        if name == "close":
            real(*arguments)  # Linux has closed it, whatever it answers
        code = getattr(errno, refusal.kind)
        raise OSError(code, os.strerror(code))


class _Module:
    def __init__(self, calls: Calls, real: Any) -> None:
        self._calls = calls
        self._real = real

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name not in CALLS or not callable(real):
            return real
        return lambda *arguments, **options: self._calls.call(name, real, arguments, options)


@contextmanager
def in_place(calls: Calls) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            for real in (os, fcntl):
                if hasattr(module, real.__name__):
                    patch.setattr(module, real.__name__, calls.module(real))
        patch.setattr(descriptors, "_OWNER", descriptors.PythonDescriptor)  # whose close can be refused
        yield


class RealProcess:
    """What an actor asks of a process, on the machine that runs the test."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_alive = True
        self.filesystem = OsFileSystem()
        self.clock = ManualClock()

    def open_log(self, path: str, **options: Any) -> Log:
        return Log(path, filesystem=self.filesystem, clock=self.clock, **options)


class RealMachine:
    def __init__(self) -> None:
        self._processes = 0

    def process(self) -> RealProcess:
        self._processes += 1
        return RealProcess(self._processes)


def world_in(directory: Path) -> World:
    return World(cast("Machine", RealMachine()), str(directory / "log"))


def calls_of(workload: Workload, directory: Path) -> list[str]:
    calls = Calls()
    world = world_in(directory)
    with in_place(calls):
        workload(world)
    errors = [error for error in world.errors if not of_a_topic_gone(error, world)]
    assert not errors, errors
    return calls.made


def refused(workload: Workload, directory: Path, refusal: Refusal) -> list[str]:
    """What is wrong after a run with a refusal."""
    files = Counter(names_of_open_files())
    world = world_in(directory)
    with in_place(Calls(refusal)):
        workload(world)
    found = list(world.seen)
    with Log(world.root, clock=ManualClock()) as log:
        found += world.ledger.problems(log, power_lost=False)
        found += [f"verify: {problem}" for problem in log.verify().problems]
        for name in log.topics():
            append_by_hand(log, name, ProducerRecord(b"and on"))
    world.errors.clear()  # they hold frames, and those hold files
    gc.collect()
    left = Counter(names_of_open_files()) - files
    return found + ([f"still open: {dict(left)}"] if left else [])


def sweep(workload: Workload, directory: Path, *, every: int, offset: int, is_over: Callable[[], bool] = bool) -> Found:
    """Each refusal by itself; of all only one in ``every``, until ``is_over``.

    Nothing is logged: who keeps what was logged keeps errors, and those keep files open.
    """
    logging.disable(logging.CRITICAL)
    try:
        return _sweep(workload, directory, every, offset, is_over)
    finally:
        logging.disable(logging.NOTSET)


def _sweep(workload: Workload, directory: Path, every: int, offset: int, is_over: Callable[[], bool]) -> Found:
    found = Found()
    refusals = [
        Refusal(number, kind, sticky)
        for number, name in enumerate(calls_of(workload, directory / "whole"))
        for kind in CALLS[name]
        for sticky in (False, True)
    ]
    for number, refusal in enumerate(refusals):
        if number % every == offset % every and len(found.problems) < PROBLEMS_MAX and not is_over():
            found.crashes += 1
            place = directory / str(number)
            found.problems += [
                f"{workload.__name__}, {refusal}: {problem}" for problem in refused(workload, place, refusal)
            ]
    return found
