"""Sealing follows an append and must not spoil it: what fails is left to the next roll."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pylog.partition import Partition
from pylog.partition.write.sealing import Sealer
from pylog.storage import OsFileSystem
from tests.partition.logs import everything, file_of, log_file, one, open_partition
from tests.storage.filesystems import io_error
from tests.system import fail


class Refusing(OsFileSystem):
    """Says ``error`` when the names of a directory, or a file to read, are asked for."""

    def __init__(self) -> None:
        self.names_error: BaseException | None = None
        self.read_error: BaseException | None = None

    def names(self, directory: str) -> list[str]:
        if self.names_error is not None:
            fail(self.names_error)
        return super().names(directory)

    def open_readable(self, path: str) -> Any:
        if self.read_error is not None and path.endswith(".log"):
            fail(self.read_error)
        return super().open_readable(path)


def sealed(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.seal"))


def append_and_roll(partition: Partition, count: int = 1) -> None:
    for _ in range(count):
        partition.append(one("x"), acks=1)
        partition.log.roll()


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), io_error("t-0")], ids=["gone", "refused"])
@pytest.mark.parametrize("where", ["names_error", "read_error"])
def test_what_cannot_be_looked_at_spoils_no_roll_and_is_sealed_by_others(
    directory: Path, where: str, error: Exception
) -> None:
    filesystem = Refusing()
    partition = open_partition(directory, filesystem)
    append_and_roll(partition)
    open_partition(directory).append(one("of another process"), acks=1)  # so that it looks for leftovers
    partition.append(one("x"), acks=1)
    setattr(filesystem, where, error)
    partition.log.roll()
    setattr(filesystem, where, None)
    append_and_roll(open_partition(directory), 2)
    assert sealed(directory) == [0, 1, 3, 4]
    assert [offset for offset, _ in everything(partition)] == list(range(5))


def test_an_interrupt_behind_the_look_for_leftovers_makes_nothing_be_done_twice(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_partition(directory).append(one("x"), acks=1)
    partition = open_partition(directory)
    check, looked = Sealer._check_some, []

    def interrupted(sealer: Sealer) -> Any:
        looked.append(1)
        if len(looked) == 1:
            raise KeyboardInterrupt
        return check(sealer)

    monkeypatch.setattr(Sealer, "_check_some", interrupted)
    with pytest.raises(KeyboardInterrupt):
        partition.log.roll()
    append_and_roll(partition, 2)
    partition.close()
    assert sealed(directory) == [0, 1, 2]


def test_a_log_that_was_cut_under_an_open_handle_is_sealed_from_its_beginning(directory: Path) -> None:
    partition = open_partition(directory)
    append_and_roll(partition, 4)
    (directory / ".commit").write_bytes(bytes(128))
    for base in (2, 3, 4):
        log_file(directory, base).unlink()
    file_of(directory, 0, ".seal").unlink()
    other = open_partition(directory)
    assert other.append(one("x"), acks=1).base_offset == 2
    partition.append(one("x"), acks=1)
    append_and_roll(partition, 2)
    partition.close()
    assert set(sealed(directory)) >= {0, 1, 5}
    assert [offset for offset, _ in everything(other)] == list(range(6))
