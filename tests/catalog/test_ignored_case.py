"""A filesystem that takes capitals for the same letters: groups and ids still do not share
files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pylog import Log, Producer
from pylog.errors import ConfigError
from tests.storage.filesystems import StandIn


class IgnoresCase(StandIn):
    """Of the files that are looked for, it finds those whose names differ in case."""

    def exists(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        return super().exists(path) or (
            super().is_directory(directory) and name.lower() in map(str.lower, super().names(directory))
        )


def transactions_of(log: Log, *ids: str) -> list[str]:
    log.create_topic("t", if_not_exists=True)
    for each in ids:
        with Producer(log, transactional_id=each) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", b"x")
    return sorted(os.listdir(Path(log.path) / ".pylog" / "transactions"))


def test_ids_that_differ_in_case_have_directories_of_their_own(tmp_path: Path) -> None:
    with Log(tmp_path / "log", filesystem=IgnoresCase()) as log:
        assert transactions_of(log, "App", "app") == ["%41pp", "app"]


def test_an_id_of_many_capitals_is_refused_there(tmp_path: Path) -> None:
    with Log(tmp_path / "log", filesystem=IgnoresCase()) as log, pytest.raises(ConfigError, match="a capital letter"):
        Producer(log, transactional_id="A" * 67)


def test_elsewhere_they_are_called_as_they_are(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        assert transactions_of(log, "App", "app") == ["App", "app"]


def test_a_file_in_capitals_does_not_pass_for_such_a_filesystem(tmp_path: Path) -> None:
    Log(tmp_path / "log").close()
    (tmp_path / "log" / ".pylog" / "MANIFEST.JSON").touch()
    with Log(tmp_path / "log") as log:
        assert transactions_of(log, "App") == ["App"]
