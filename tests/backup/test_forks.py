"""A signal handler forks during a backup, and the child returns into its parent's call: the copy is
the parent's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, ProducerRecord
from pylog.backup import copying, destination
from pylog.backup.backup import _Backup
from pylog.backup.copying import PartitionCopy
from pylog.backup.destination import Destination
from pylog.errors import ForkedHandle, StorageError
from pylog.segment import SegmentReader
from pylog.storage import OsFileSystem
from tests.partition.logs import values_of_topic

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
VALUES = [b"%d" % number * 300 for number in range(10, 16)]  # one or two in a segment


def made_at(place: Path) -> list[tuple[str, int]]:
    """All files of backups, and when each was written."""
    paths = (path for name in place.glob("*copy*") for path in [name, *name.rglob("*")])
    return sorted((str(path), path.stat().st_mtime_ns) for path in paths)


@pytest.mark.parametrize(
    ("there", "owner", "name", "path"),
    [
        ("nothing", Destination, "earlier", ""),
        ("nothing", Destination, "begin", ""),
        ("nothing", Destination, "sync_beginning", ""),
        ("nothing", PartitionCopy, "__init__", ""),
        ("nothing", PartitionCopy, "prepare", ""),
        ("nothing", PartitionCopy, "copy", ""),
        ("nothing", PartitionCopy, "_remove_what_is_gone", ""),
        ("nothing", copying, "base_offsets", ""),
        ("nothing", copying, "_pieces", ""),
        ("nothing", SegmentReader, "read", ""),
        ("nothing", _Backup, "_write_topics", ""),
        ("nothing", Destination, "check_unchanged", ""),
        ("a copy", PartitionCopy, "_is_same", ""),
        ("a copy", PartitionCopy, "_is_same", ".snapshot"),
        ("a copy", OsFileSystem, "remove", "unfinished-backup/t-0/"),
        ("a copy", OsFileSystem, "link", ""),
        ("a copy", OsFileSystem, "exchange", ""),
        ("a leftover", Destination, "earlier", ""),
        ("a leftover", destination, "record_path", ""),
        ("a leftover", destination, "remove_below", "unfinished-backup/t-0"),
        ("a leftover", destination, "remove_below", "unfinished-backup"),
    ],
    ids=str,
)
def test_the_child_writes_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, owner: Any, name: str, path: str
) -> None:
    parent, right, children = os.getpid(), getattr(owner, name), []

    def then_forked(*arguments: Any, **options: Any) -> Any:
        result = right(*arguments, **options)
        if not children and is_place(arguments):
            before = made_at(tmp_path)
            children.append(os.fork())
            if children[0] == 0:
                for change in ("remove", "replace", "link", "exchange", "make_directory"):
                    monkeypatch.setattr(OsFileSystem, change, lambda *_, **__: os._exit(3))
            else:
                children.append(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
                assert made_at(tmp_path) == before
        return result

    def is_place(arguments: tuple[Any, ...]) -> bool:
        return not path or (path in arguments[1] if name == "remove" else arguments[1].endswith(path))

    with Log(tmp_path / "log") as log:
        log.create_topic("t", segment_bytes=1024)
        partition = log.partition("t", 0)
        for value in VALUES:
            partition.append([ProducerRecord(value)])
        (tmp_path / "log" / "t-0" / f"{99:020d}.snapshot").touch()  # the copy has no segment for it
        if there != "nothing":
            log.backup(tmp_path / "copy")
        if there == "a leftover":
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
