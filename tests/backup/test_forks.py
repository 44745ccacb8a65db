"""A signal handler forks during a backup, and the child returns into its parent's call: the copy is
the parent's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, ProducerRecord
from pylog.backup import destination
from pylog.backup.backup import _Backup
from pylog.backup.copying import PartitionCopy
from pylog.backup.destination import Destination
from pylog.errors import ForkedHandle, StorageError
from tests.partition.logs import values_of_topic

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
VALUES = [b"%d" % number for number in range(20)]


def made_at(place: Path) -> list[tuple[str, int]]:
    """All files of backups, and when each was written."""
    paths = (path for name in place.glob("*copy*") for path in [name, *name.rglob("*")])
    return sorted((str(path), path.stat().st_mtime_ns) for path in paths)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (destination, "record_path"),
        (destination, "remove_below"),
        (Destination, "earlier"),
        (Destination, "begin"),
        (Destination, "sync_beginning"),
        (PartitionCopy, "__init__"),
        (PartitionCopy, "prepare"),
        (PartitionCopy, "copy"),
        (Destination, "check_unchanged"),
    ],
    ids=str,
)
def test_the_child_writes_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    parent, right, children = os.getpid(), getattr(owner, name), []

    def then_forked(*arguments: Any, **options: Any) -> Any:
        result = right(*arguments, **options)
        if not children:
            before = made_at(tmp_path)
            children.append(os.fork())
            if children[0]:
                children.append(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
                assert made_at(tmp_path) == before
        return result

    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(value) for value in VALUES])
        log.backup(tmp_path / "copy")
        (tmp_path / "copy").rename(tmp_path / "copy.unfinished-backup")  # as a crash leaves it
        monkeypatch.setattr(owner, name, then_forked)
        try:
            log.backup(tmp_path / "copy")
            code = 1
        except ForkedHandle:
            code = 0
        except BaseException:  # noqa: BLE001 - the child ends here, whatever comes
            code = 2
        if os.getpid() != parent:
            os._exit(code)
    assert (code, children[1]) == (1, 0), "the parent has made the backup, the child was refused"
    with Log(tmp_path / "copy", read_only=True) as copy:
        assert values_of_topic(copy, "t") == VALUES
        assert copy.verify().problems == []
    assert not (tmp_path / "copy.unfinished-backup").exists()


def test_an_error_of_the_child_removes_nothing_of_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks like any other error of a backup, which removes what is unfinished."""
    removed: list[str] = []
    monkeypatch.setattr(Destination, "remove_unfinished", lambda _: removed.append("all"))

    def forked(backup: Any, _: object) -> None:
        removed.clear()  # beginning has removed what others left
        monkeypatch.setattr(backup, "_check_process", refused)
        raise StorageError("its parent has removed this file meanwhile")

    def refused() -> None:
        raise ForkedHandle("the parent's")

    monkeypatch.setattr(_Backup, "_copy", forked)
    with Log(tmp_path / "log") as log, pytest.raises(ForkedHandle):
        log.backup(tmp_path / "copy")
    assert removed == []
