"""A signal handler forks in the middle of a step, and the child returns into its parent's work.

``PYLOG_TEST_FORK_PLACES=100000`` tries every place.
"""

from __future__ import annotations

import os
import re
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pylog
from pylog.errors import ForkedHandle, PylogError, StorageError
from pylog.partition.commit_slots import CommitSlots
from pylog.partition.verify import verify_partition
from pylog.segment.writer import SegmentWriter
from pylog.storage import OsFileSystem, atomic_file, write_atomically
from tests.consumer.interrupts import interrupt_at
from tests.partition.logs import TP, OwnPartition, everything, one, open_partition

pytestmark = pytest.mark.processes

PLACES = int(os.environ.get("PYLOG_TEST_FORK_PLACES", "25"))
ROOMS = re.compile(re.escape(str(Path(pylog.__file__).parent)))
LONG = "own" * 350
STEPS: dict[str, Callable[[OwnPartition], object]] = {
    "append": lambda partition: partition.append(one("own"), acks="all"),
    "append that rolls": lambda partition: partition.append(one(LONG), acks="all"),
    "roll": lambda partition: partition.log.roll(),
    "sync": lambda partition: partition.log.sync(2),
}


class Fork:
    """Forks at its first call; the child continues when the parent has ended its own work."""

    def __init__(self) -> None:
        self._go_on, self._let_go_on = os.pipe()
        self.child = -1

    def __call__(self) -> None:
        if self.child == -1:
            self.child = os.fork()
            if self.child == 0:
                os.close(self._let_go_on)
                os.read(self._go_on, 1)

    @property
    def is_child(self) -> bool:
        return self.child == 0

    def close(self) -> None:
        os.close(self._let_go_on)
        os.close(self._go_on)

    def end_of_child(self) -> int:
        """The code with which the child ends."""
        self.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def fork_in(step: str, place: int, directory: Path) -> int:
    """Fork at a place of the first change of a handle. The parent ends it and appends, then the
    child continues.

    Returns how many places there are.
    """
    with_two = open_partition(directory, segment_bytes=1024)
    for value in ("a", "b"):
        with_two.append(one(value), acks=1)
    with_two.close()
    partition, fork = open_partition(directory, segment_bytes=1024), Fork()
    code = 1
    try:
        with interrupt_at(place, ROOMS, handler=fork) as passed:
            STEPS[step](partition)
        code = 3
    except PylogError:  # ``ForkedHandle``; ``OutcomeUnknown`` for a sync of the parent's
        if not fork.is_child:
            raise
        code = 3
    finally:
        if fork.is_child:
            try:
                partition.append(one("of the child"), acks="all")
                partition.close()
            except BaseException:
                code = 1
                raise
            finally:
                if code != 3:
                    traceback.print_exc()
                os._exit(code)
    if fork.child == -1:
        fork.close()
        partition.close()
        return passed[0]
    partition.append(one("of the parent"), acks="all")
    assert fork.end_of_child() == 3
    partition.append(one("at last"), acks="all")
    partition.close()
    found = everything(open_partition(directory))
    assert [offset for offset, _ in found] == [*range(len(found))]
    assert list(verify_partition(OsFileSystem(), str(directory), TP)) == []
    counts = Counter(value.decode() for _, value in found)
    # If it was forked before its parent's append had begun, the child makes an append of its own.
    assert counts.pop("own", 0) + counts.pop(LONG, 0) in ((1, 2) if "append" in step else (0,))
    assert counts == dict.fromkeys(("a", "b", "of the parent", "of the child", "at last"), 1)
    return passed[0]


@pytest.mark.parametrize("step", STEPS)
def test_a_child_from_any_place_of_a_step_harms_nothing(step: str, tmp_path: Path, seed: int) -> None:
    places = fork_in(step, -1, tmp_path / "counted")
    for place in Random(seed).sample(range(1, places + 1), min(PLACES, places)):
        print(f"{step}: place {place} of {places}")
        fork_in(step, place, tmp_path / str(place))


def test_a_child_of_a_roll_does_not_cut_what_its_parent_has_appended_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("a"), acks=1)
    fork, cut = Fork(), SegmentWriter.cut

    def forks(self: SegmentWriter, size_bytes: int, next_offset: int) -> None:
        fork()
        cut(self, size_bytes, next_offset)

    monkeypatch.setattr(SegmentWriter, "cut", forks)
    try:
        partition.log.roll()
    except ForkedHandle:
        os._exit(3 if fork.is_child else 1)
    finally:
        if fork.is_child:
            os._exit(1)
    partition.append(one("b"), acks="all")
    assert fork.end_of_child() == 3
    partition.append(one("c"), acks="all")
    assert everything(partition) == everything(open_partition(tmp_path / "t-0")) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_child_of_the_opening_of_a_lock_can_append_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    fork, upgrade = Fork(), CommitSlots.upgrade

    def forks(self: CommitSlots, replace_lock: Callable[[], None]) -> bool:
        is_upgraded = upgrade(self, replace_lock)
        fork()
        return is_upgraded

    monkeypatch.setattr(CommitSlots, "upgrade", forks)
    try:
        partition.append(one("a"), acks=1)
        if fork.is_child:
            os._exit(1)
    except ForkedHandle:
        if fork.is_child:
            os._exit(3 if partition.append(one("b"), acks=1).base_offset == 1 else 1)
    finally:
        if fork.is_child:
            os._exit(2)
    assert fork.end_of_child() == 3
    partition.append(one("c"), acks=1)
    assert everything(partition) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("fails", [False, True])
def test_a_child_of_the_replacement_of_a_file_leaves_it_to_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    path = str(tmp_path / "file")
    write = atomic_file._write
    parent = os.getpid()

    def forks(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        child = os.fork()
        if child == 0 and fails:
            raise StorageError("it has lost its parent's files")
        if child:
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    ends: list[int] = []
    monkeypatch.setattr(atomic_file, "_write", forks)
    try:
        write_atomically(OsFileSystem(), path, b"new")
    except StorageError:
        os._exit(4 if os.getpid() != parent else 1)
    except ForkedHandle:
        os._exit(3 if os.getpid() != parent else 1)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert ends == [4 if fails else 3]
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
