"""A partition's lock file that somebody replaces: processes that hold two files would write in one
another's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import NotAppended
from pylog.storage import FileLock, OsFileSystem
from tests.partition.logs import everything, one, open_partition
from tests.storage.filesystems import StandIn

REPLACED = r"t-0/\.lock was removed or replaced while the log was open"


@pytest.mark.parametrize("is_there", [True, False], ids=["replaced", "removed"])
def test_who_has_met_another_lock_in_the_place_of_its_own_writes_no_more_though_its_own_is_back(
    tmp_path: Path, is_there: bool
) -> None:
    """Others may have taken the other one, and what they have written is not known here."""
    partition, lock = open_partition(tmp_path / "t-0"), tmp_path / "t-0" / ".lock"
    partition.append(one("a"), acks=1)
    lock.rename(tmp_path / "kept")
    if is_there:
        lock.touch()
    for _ in range(2):
        with pytest.raises(NotAppended, match=REPLACED):
            partition.append(one("x"), acks=1)
        (tmp_path / "kept").replace(lock)
        (tmp_path / "kept").touch()
    partition.close()
    again = open_partition(tmp_path / "t-0")
    again.append(one("b"), acks=1)
    assert everything(again) == [(0, b"a"), (1, b"b")]


class Replacing(StandIn):
    """Somebody puts another file in the place of each lock that is opened, ``times`` times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        lock = super().lock(path, readable=readable)
        if self.times:
            self.times -= 1
            OsFileSystem().lock(f"{path}.new").close()
            OsFileSystem().replace(f"{path}.new", path)
        return lock


def test_a_lock_that_another_replaces_before_it_is_taken_is_opened_again(tmp_path: Path) -> None:
    """As the upgrade of another process does it, and a topic that is created again."""
    partition = open_partition(tmp_path / "t-0", Replacing(3))
    assert partition.append(one("a"), acks=1).base_offset == 0


def test_a_lock_that_is_another_file_each_time_is_given_up(tmp_path: Path) -> None:
    filesystem = Replacing(1000)
    partition = open_partition(tmp_path / "t-0", filesystem)
    with pytest.raises(NotAppended, match=REPLACED):
        partition.append(one("a"), acks=1)
    assert filesystem.times > 900
    filesystem.times = 0
    assert partition.append(one("a"), acks=1).base_offset == 0
