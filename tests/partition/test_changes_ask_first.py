"""A signal handler may fork anywhere, and the child returns into its parent's work. So each step
that removes, replaces or cuts live files asks first whether this process still has the lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import ForkedHandle
from pylog.partition.cleaner_checkpoint import CleanerCheckpoint, write_cleaned
from pylog.partition.compact.erasure import erase
from pylog.partition.grant import Grant
from pylog.partition.write.leftovers import remove_leftovers
from pylog.segment.naming import CLEANED, CLEANER_CHECKPOINT, CLEANER_LOCK, DELETED, EPOCH_CHECKPOINT, SEAL
from pylog.segment.writer import SegmentWriter
from pylog.storage import FileLock, OsFileSystem
from tests.partition.logs import log_file, one, open_partition
from tests.storage.filesystems import OtherBoot, StandIn


class Changes:
    """What was done to live files, and what of it without a question since the step before.

    An index or a snapshot is put in the place of an equal one, and a retired file is free to all.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        self.unasked: list[tuple[str, str]] = []
        self._asked = False
        self._before = ("", "")
        check = Grant.check

        def asks(grant: Grant) -> None:
            check(grant)
            self._asked = True

        def watch(owner: type, operation: str, path_of: Callable[[tuple[Any, ...]], str]) -> None:
            change = getattr(owner, operation)

            def noted(*arguments: Any) -> object:
                self._note(operation, Path(path_of(arguments)).name)
                return change(*arguments)

            monkeypatch.setattr(owner, operation, noted)

        monkeypatch.setattr(Grant, "check", asks)
        watch(OsFileSystem, "remove", lambda arguments: arguments[1])
        watch(OsFileSystem, "replace", lambda arguments: arguments[2])
        watch(SegmentWriter, "cut", lambda arguments: arguments[0].file.path)

    def _note(self, operation: str, name: str) -> None:
        suffix = name[name.find(".") :] if "." in name else name
        is_retired = operation == "remove" and suffix.endswith(DELETED)
        if is_retired or (operation == "replace" and suffix.endswith((".index", ".timeindex", ".snapshot"))):
            return
        self.made.append((operation, suffix))
        if not self._asked and (operation, suffix) != self._before:  # else it is the same step
            self.unasked.append((operation, name))
        self._asked, self._before = False, (operation, suffix)


def test_a_recovery_asks_before_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(directory, segment_bytes=1024)
    for value in "abcdef":
        partition.append(one(value * 900), acks=1)
    write_cleaned(partition.log.directory, CleanerCheckpoint(5, 5))
    partition.close()
    damaged = bytearray(log_file(directory, 2).read_bytes())
    damaged[500] ^= 1
    log_file(directory, 2).write_bytes(damaged)
    (directory / f"{7:020d}.log{CLEANED}").touch()
    changes = Changes(monkeypatch)
    open_partition(directory, OtherBoot(), segment_bytes=1024).append(one("new"), acks="all")
    assert changes.unasked == []
    assert set(changes.made) >= {
        ("remove", f".log{CLEANED}"), ("replace", f".log{DELETED}"), ("replace", EPOCH_CHECKPOINT), ("remove", ".snapshot"),
        ("cut", ".log"), ("remove", SEAL), ("replace", CLEANER_CHECKPOINT),
    }  # fmt: skip


def test_an_erasure_asks_before_it_removes_what_a_crash_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("a"), acks="all")
    for kind in (".log", ".index"):
        (tmp_path / "t-0" / f"{7:020d}{kind}{CLEANED}").touch()
    changes = Changes(monkeypatch)
    erase(partition.log, frozenset({b"k"}), tombstones=False, timeout_ms=1000)
    assert (changes.made, changes.unasked) == ([("remove", f".index{CLEANED}"), ("remove", f".log{CLEANED}")], [])


class ForksWithTheLock(StandIn):
    """From then on it is the child's."""

    child = 0

    def process_id(self) -> int:
        return super().process_id() + self.child

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        self.child = 1
        return super().lock(path, readable=readable)


def test_a_child_removes_nothing_that_a_crash_has_left(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0", ForksWithTheLock())
    left = tmp_path / "t-0" / f"{7:020d}.log{CLEANED}"
    for path in (left, tmp_path / "t-0" / CLEANER_LOCK):
        path.touch()
    with pytest.raises(ForkedHandle):
        remove_leftovers(partition.log.directory)
    assert left.exists()
