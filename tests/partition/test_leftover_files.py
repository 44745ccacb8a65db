"""What a crash left is removed, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.segment.files import sweep
from pylog.storage import OsFileSystem
from tests.partition.logs import everything, file_of, one, open_partition, snapshot_of
from tests.storage.filesystems import Faulty, io_error

LEFTOVERS = [
    *(f"{10:020d}{kind}.rewrite" for kind in (".log", ".index", ".timeindex")),
    f"{10:020d}.seal.4711-0123456789abcdef.tmp",
    *(f"{10:020d}{kind}.deleted" for kind in (".log", ".index", ".timeindex", ".txnindex", ".seal")),
]
NOT_OURS = [
    *(
        "notes.deleted",
        "notes.rewrite",
        ".deleted",
        ".rewrite",
        "10.log.deleted",
        f"{10:020d}.deleted",
        "keep.log.rewrite",
        "10.seal.4711-0123456789abcdef.tmp",
        f"{10:020d}.seal.mine.tmp",
        f"{10:020d}.log.4711-0123456789abcdef.tmp",
    ),
    *(f"{10:020d}.seal.rewrite", f"{10:020d}.log.rewrite.old", f"{10:020d}.txt.deleted", f"{10:019d}x.log.deleted"),
]


def filled(directory: Path) -> Path:
    partition = open_partition(directory)
    for value in "abc":
        partition.append(one(value), acks=1)
        partition.log.roll()
    partition.close()
    return directory


def test_leftovers_of_a_crash_are_removed_and_nothing_else(tmp_path: Path) -> None:
    directory = filled(tmp_path / "t-0")
    for name in NOT_OURS:
        (directory / name).write_bytes(b"not ours")
    before = snapshot_of(directory)
    for name in LEFTOVERS:
        (directory / name).write_bytes(b"left")
    assert sweep(OsFileSystem(), str(directory)) == sorted(LEFTOVERS)
    assert snapshot_of(directory) == before
    assert sweep(OsFileSystem(), str(directory)) == []
    assert [value for _, value in everything(open_partition(directory))] == [b"a", b"b", b"c"]


def test_a_leftover_that_cannot_be_removed_stays_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = filled(tmp_path / "t-0")
    stuck, other = file_of(directory, 0, ".log.deleted"), file_of(directory, 1, ".log.deleted")
    for path in (stuck, other):
        path.write_bytes(b"left")

    def refuse(operation: str, path: str) -> None:
        if operation == "remove" and path == str(stuck):
            raise io_error(path)

    assert sweep(Faulty(refuse), str(directory)) == [other.name]
    assert stuck.exists()
    assert stuck.name in caplog.text
