"""A signal handler forks in the midst of an append, and its child returns from the handler into the append."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import PylogError
from tests.storage.filesystems import Faulty

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
CHANGES = {"open", "pwrite", "truncate", "replace", "remove"}


class Forking:
    """A hook that forks before the n-th change; the child goes on when the parent is done with its own."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.child = -1
        self.pipe = os.pipe()

    def __call__(self, operation: str, path: str) -> None:
        if operation not in CHANGES:
            return
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGUSR1)

    def handler(self, *_: object) -> None:
        self.child = os.fork()
        if self.child == 0:
            os.close(self.pipe[1])
            os.read(self.pipe[0], 1)  # until the parent closes its end

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = signal.signal(signal.SIGUSR1, self.handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGUSR1, before)


def append_some(log: Log, acknowledged: dict[int, bytes], first: int, last: int, forking: Forking) -> None:
    partition = log.partition("t", 0)
    for number in range(first, last):
        value = b"%d " % number * 30
        result = partition.append([ProducerRecord(value)], acks="all" if number % 2 else 1)
        if forking.child == 0:
            os._exit(0)  # what it returned into came to an end without it
        acknowledged[result.base_offset] = value


def run_with_fork_at(n: int, directory: Path) -> bool:
    """Whether it came to the n-th change."""
    forking = Forking(n)
    acknowledged: dict[int, bytes] = {}
    filesystem = Faulty()
    with forking.installed():
        log = Log(directory, filesystem=filesystem)
        log.create_topic("t", segment_bytes=1024)
        filesystem.hook = forking
        try:
            append_some(log, acknowledged, 0, 12, forking)
        except BaseException as error:
            if forking.child == 0:
                if not isinstance(error, PylogError):
                    traceback.print_exc()
                os._exit(0 if isinstance(error, PylogError) else 2)
            raise
    if forking.child < 0:
        return False
    os.close(forking.pipe[1])
    _, status = os.waitpid(forking.child, 0)
    os.close(forking.pipe[0])
    assert os.waitstatus_to_exitcode(status) == 0, f"change {n}"
    append_some(log, acknowledged, 12, 16, forking)
    log.close()
    with Log(directory) as again:
        found = {record.offset: record.value for record in again.partition("t", 0).scan()}
    assert found == acknowledged, f"change {n}"
    return True


def test_a_child_that_returns_from_a_handler_into_its_parents_append_changes_nothing(tmpfs_dir: Path) -> None:
    n = 1
    while run_with_fork_at(n, tmpfs_dir / f"{n}"):
        n += 1
    print(f"forked at {n - 1} changes")
    assert n > 40
